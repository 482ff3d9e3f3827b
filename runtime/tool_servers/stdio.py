"""The stdio transport: messages of the protocol as lines of a process.

Our own, since the client library's keeps a line without an end for ever and hands the child's errors to our terminal.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCMessage
from pydantic import ValidationError

from runtime.messages.tools import ToolServerConfig
from runtime.tool_servers.child import MAX_MESSAGE_BYTES, ServerProcess, start_server
from runtime.tool_servers.faults import Lost
from runtime.tool_servers.log import Lines, ServerLog

MAX_JUNK_BYTES = 4 * 1024 * 1024
"""Text on the standard output that is no message, between two messages; some servers print a greeting."""

_LARGE_LINE_BYTES = 256 * 1024
"""Larger ones are read in a thread, so that the host goes on meanwhile."""

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


class Junk:
    """Counts what a server prints beside the protocol."""

    def __init__(self, log: ServerLog) -> None:
        self._log = log
        self._size_bytes = 0

    def take(self, line: bytes) -> None:
        """A line that is no message.

        Raises:
            Lost: there is too much of it.
        """
        if line.strip():
            self._log.add(f"(no message) {line[:4096].decode('utf-8', 'replace')}")
        self._size_bytes += len(line) + 1
        if self._size_bytes > MAX_JUNK_BYTES:
            raise Lost(
                "It writes to its standard output what is no message of the protocol.",
                hint="Is this program a tool server that speaks over stdio?",
                is_final=True,
            )

    def message_came(self) -> None:
        """Begin to count anew."""
        self._size_bytes = 0


@contextlib.asynccontextmanager
async def stdio_streams(config: ToolServerConfig, log: ServerLog) -> AsyncIterator[tuple[Streams, ServerProcess]]:
    """Start a server and talk to it; it is gone when the block is left.

    Raises:
        Lost: it cannot be started, or breaks the protocol's rules; how its process ended.
    """
    process = await start_server(config, log)
    to_session, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    to_server, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_read, process, to_session, log)
            group.start_soon(_write, process, from_session)
            try:
                yield (from_server, to_server), process
            finally:
                group.cancel_scope.cancel()
    finally:
        await asyncio.shield(asyncio.create_task(process.stop()))
        for stream in (to_session, from_server, to_server, from_session):
            stream.close()


async def _read(
    process: ServerProcess, to_session: MemoryObjectSendStream[SessionMessage | Exception], log: ServerLog
) -> None:
    lines = Lines(MAX_MESSAGE_BYTES)
    junk = Junk(log)
    while chunk := await process.read():
        for line in lines.feed(chunk):
            message = await _message_of(line)
            if message is None:
                junk.take(line)
            else:
                junk.message_came()
                await to_session.send(SessionMessage(message))
        if lines.is_too_long:
            raise Lost(f"It sent a message of more than {MAX_MESSAGE_BYTES // 1024**2} MiB.")
    how = await process.how_it_ended()
    last = log.last()
    raise Lost(f"Its process {how}." + (f" Its last words: {last[:300]}" if last else ""))


async def _write(process: ServerProcess, from_session: MemoryObjectReceiveStream[SessionMessage]) -> None:
    async for sent in from_session:
        text = sent.message.model_dump_json(by_alias=True, exclude_none=True)
        # A process that reads no more has ended or is about to: the reader says how.
        with contextlib.suppress(OSError):
            await process.write(text.encode())


async def _message_of(line: bytes) -> JSONRPCMessage | None:
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        if len(line) > _LARGE_LINE_BYTES:
            return await asyncio.to_thread(JSONRPCMessage.model_validate_json, line)
        return JSONRPCMessage.model_validate_json(line)
    except (ValidationError, ValueError, RecursionError) as error:
        if b'"jsonrpc"' in line[:4096] or b'"jsonrpc"' in line[-4096:]:
            # Whoever waits for this message would wait in vain.
            raise Lost(f"It sent a message that cannot be read ({str(error)[:200]}).") from error
        return None
