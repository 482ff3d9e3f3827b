"""The door through which workers come back: one loopback port, a token for each worker.

A stranger on this machine can open the port; it gets nothing without a token and holds little while it tries.
"""

import asyncio
import contextlib
import hmac
import secrets
import struct

import msgspec

from runtime.messages.frames import decode_from_worker
from runtime.messages.ipc import PROTOCOL_VERSION, Hello

HELLO_TIMEOUT_S = 10.0
MAX_HELLO_BYTES = 4096
MAX_UNKNOWN_PEERS = 16
_LENGTH = struct.Struct("<I")

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class WorkerGate:
    """Accepts workers and hands each to whoever waits for its token."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._expected: dict[str, asyncio.Future[Connection]] = {}
        self._unknown = 0
        self.address = ""

    async def open(self) -> None:
        """Listen on a free loopback port.

        Raises:
            OSError: if there is none.
        """
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=1024 * 1024)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address = f"{host}:{port}"

    def close(self) -> None:
        """Stop listening and give up on those that have not come."""
        if self._server is not None:
            self._server.close()
        for future in self._expected.values():
            future.cancel()
        self._expected.clear()

    def expect(self) -> tuple[str, asyncio.Future[Connection]]:
        """Make a token and the future of its connection."""
        token = secrets.token_hex(32)
        future: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        self._expected[token] = future
        future.add_done_callback(lambda _done: self._expected.pop(token, None))
        return token, future

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._unknown >= MAX_UNKNOWN_PEERS:
            writer.close()
            return
        self._unknown += 1
        future = None
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                future = self._future_of(await _read_hello(reader))
        except (TimeoutError, OSError, EOFError, msgspec.DecodeError):
            future = None
        finally:
            self._unknown -= 1
        if future is None or future.done():
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            return
        future.set_result((reader, writer))

    def _future_of(self, hello: Hello | None) -> "asyncio.Future[Connection] | None":
        if hello is None or hello.protocol_version != PROTOCOL_VERSION:
            return None
        found = None
        given = hello.token.encode("utf-8", "replace")
        for token, future in self._expected.items():  # all of them: the time tells nothing
            if hmac.compare_digest(token.encode(), given):
                found = future
        return found


async def _read_hello(reader: asyncio.StreamReader) -> Hello | None:
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > MAX_HELLO_BYTES:
        return None
    message = decode_from_worker(await reader.readexactly(length))
    return message if isinstance(message, Hello) else None
