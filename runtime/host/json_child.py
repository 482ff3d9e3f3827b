"""A child process that is told one line and answers in lines of JSON: quantizing, measuring speed.

Ends with the block that started it, whatever ends that; the end of its standard input asks it to clean up first.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence

from runtime.errors import BugFault, WorldFault
from runtime.host.worker_process import MAX_LINE_BYTES, Outcome, Tail, outcome_of

MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""The longest line; a preview names every tensor of a model."""
END_GRACE_S = 5.0
"""For removing what it had begun to write."""
_TAIL_LINES = 5


class JsonChild:
    """A running child. Home: the event loop."""

    def __init__(self, process: asyncio.subprocess.Process, grace_s: float) -> None:
        self._process = process
        self._grace_s = grace_s
        self._tail = Tail()
        self._log = asyncio.create_task(self._read_log(), name=f"log of process {process.pid}")

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    async def lines(self) -> AsyncIterator[bytes]:
        """What it answers, to its end.

        Raises:
            BugFault: a line without an end.
        """
        stream = self._process.stdout
        assert stream is not None  # noqa: S101 - made with pipes
        try:
            async for line in stream:
                yield line
        except ValueError as error:
            raise BugFault(f"A process answered without an end of line ({error}).") from error

    async def ended(self) -> Outcome:
        """How it ended, with the last of its log read."""
        code = await self._process.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._log), 1.0)
        return outcome_of(code)

    def last_words(self) -> str:
        """The end of its log."""
        return self._tail.text(_TAIL_LINES)

    async def close(self) -> None:
        """Ask it to end, and end it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), self._grace_s)
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                _kill(self._process)
            await self._process.wait()
        self._log.cancel()

    async def _read_log(self) -> None:
        stream = self._process.stderr
        assert stream is not None  # noqa: S101 - made with pipes
        rest = b""
        while chunk := await stream.read(64 * 1024):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._tail.add(line[:MAX_LINE_BYTES].decode("utf-8", "replace"))
            rest = rest[-MAX_LINE_BYTES:]


@contextlib.asynccontextmanager
async def json_child(
    command: Sequence[str], first_line: bytes = b"", *, grace_s: float = END_GRACE_S
) -> AsyncIterator[JsonChild]:
    """Start a child and hand it one line; it is gone when the block is left.

    Args:
        command: what to start.
        first_line: what to tell it; its standard input stays open until the block is left.
        grace_s: how long it may take to end by itself then.

    Raises:
        WorldFault: it cannot be started.
    """
    flags = 0
    if sys.platform == "win32":
        flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=MAX_ANSWER_BYTES,
            start_new_session=os.name != "nt",
            creationflags=flags,
        )
    except OSError as error:
        raise WorldFault(f"A process could not be started: {error.strerror or error}.") from error
    child = JsonChild(process, grace_s)
    try:
        if first_line and process.stdin is not None:
            process.stdin.write(first_line + b"\n")
            with contextlib.suppress(ConnectionError):  # it has ended: its answer says why
                await process.stdin.drain()
        yield child
    finally:
        await asyncio.shield(asyncio.create_task(child.close()))


def _kill(process: asyncio.subprocess.Process) -> None:
    if sys.platform == "win32":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)
