"""One child process: start it, keep the end of what it prints, say how it ended, and leave no orphan.

Knows nothing of models or messages. Standard output and standard error of the child are one log, never protocol.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

MAX_TAIL_LINES = 200
MAX_TAIL_BYTES = 16 * 1024
MAX_LINE_BYTES = 4096
_TERM_GRACE_S = 2.0
_DUMP_GRACE_S = 2.0
_READ_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a process ended. Exactly one of `exit_code` and `signal_name` says it.

    Attributes:
        exit_code: 0..255 (Windows: the 32-bit code); `None` when a signal ended it.
        signal_name: as "SIGKILL"; empty when it exited by itself.
    """

    exit_code: int | None
    signal_name: str = ""

    @property
    def sentence(self) -> str:
        """`was ended by SIGKILL`, `exited with code 3`: the second half of a sentence."""
        if not self.signal_name:
            return f"exited with code {self.exit_code}"
        why = _SIGNAL_MEANING.get(self.signal_name, "")
        return f"was ended by {self.signal_name}" + (f" ({why})" if why else "")


_SIGNAL_MEANING = {
    "SIGKILL": "killed from outside, often because memory ran out",
    "SIGABRT": "the engine stopped itself at an internal check",
    "SIGSEGV": "the engine touched memory that is not its own",
    "SIGBUS": "a mapped file could not be read any more",
    "SIGILL": "the engine was built for another processor",
    "SIGFPE": "arithmetic error",
    "SIGTERM": "asked to end from outside",
}


def outcome_of(returncode: int) -> Outcome:
    """Read a return code as `asyncio` gives it: negative is a signal on POSIX."""
    if returncode < 0 and os.name != "nt":
        try:
            return Outcome(None, signal.Signals(-returncode).name)
        except ValueError:
            return Outcome(None, f"signal {-returncode}")
    return Outcome(returncode)


class Tail:
    """The last lines of a log, bounded by `MAX_TAIL_LINES` and `MAX_TAIL_BYTES`."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._size_bytes = 0

    def add(self, line: str) -> None:
        """Append one line; the oldest give way."""
        self._lines.append(line)
        self._size_bytes += len(line)
        while len(self._lines) > MAX_TAIL_LINES or (self._size_bytes > MAX_TAIL_BYTES and len(self._lines) > 1):
            self._size_bytes -= len(self._lines.popleft())

    def text(self, max_lines: int = MAX_TAIL_LINES) -> str:
        """The newest `max_lines` lines, oldest first."""
        return "\n".join(list(self._lines)[-max_lines:])


class WorkerProcess:
    """A running child. Home: the host's event loop."""

    def __init__(self, process: asyncio.subprocess.Process, on_line: Callable[[str], None] | None) -> None:
        self._process = process
        self._on_line = on_line
        self.tail = Tail()
        self._reading = asyncio.create_task(self._read_log(), name=f"log of process {process.pid}")

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """True until the process has ended and been waited for."""
        return self._process.returncode is None

    async def wait(self) -> Outcome:
        """Wait for the end, and for the last of its log."""
        code = await self._process.wait()
        # A grandchild may hold the pipe open for ever: what it says is not waited for.
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._reading), 1.0)
        self._reading.cancel()
        return outcome_of(code)

    def kill(self) -> None:
        """End it and its children now."""
        self._signal(_KILL)

    async def dump_and_kill(self) -> None:
        """Ask for the stacks of all threads in the log (faulthandler answers SIGABRT), then end it."""
        if os.name != "nt" and self.is_running:
            self._signal(signal.SIGABRT)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._process.wait(), _DUMP_GRACE_S)
        self.kill()

    async def stop(self, grace_s: float) -> Outcome:
        """Wait `grace_s` for it to end by itself, then ask, then end it.

        Also leaves no process behind when the caller is cancelled meanwhile.
        """
        try:
            for patience_s, push in ((grace_s, self._terminate), (_TERM_GRACE_S, self.kill)):
                try:
                    await asyncio.wait_for(self._process.wait(), patience_s)
                    break
                except TimeoutError:
                    push()
            return await self.wait()
        finally:
            self.kill()

    def _terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        if not self.is_running:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                self._process.kill()
            else:
                os.killpg(self._process.pid, number)

    async def _read_log(self) -> None:
        stream = self._process.stdout
        if stream is None:
            return
        rest = b""
        while chunk := await stream.read(_READ_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > MAX_LINE_BYTES:
                lines.append(rest)
                rest = b""
            for line in lines:
                self._take(line)
        if rest:
            self._take(rest)

    def _take(self, raw_line: bytes) -> None:
        line = raw_line[:MAX_LINE_BYTES].decode("utf-8", "replace").rstrip("\r")
        self.tail.add(line)
        if self._on_line is not None:
            self._on_line(line)


if sys.platform == "win32":
    _KILL = signal.SIGTERM
else:
    _KILL = signal.SIGKILL


_HUGE_PAGES = "glibc.malloc.hugetlb"


def environment(ours: Mapping[str, str]) -> dict[str, str]:
    """What a worker gets of our variables, and one that must be there before a process starts.

    On Linux large pieces of memory then lie in huge pages where the system offers them (glibc's manual, "Memory
    Allocation Tunables"): a decode walks through all of the cache and the buffers, many small pages to look up.
    What a person set of it stays.
    """
    variables = dict(ours)
    if sys.platform == "linux" and _HUGE_PAGES not in (known := variables.get("GLIBC_TUNABLES", "")):
        variables["GLIBC_TUNABLES"] = ":".join(filter(None, (known, f"{_HUGE_PAGES}=1")))
    return variables


async def start_process(
    command: Sequence[str], first_line: str, on_line: Callable[[str], None] | None = None
) -> WorkerProcess:
    """Start `command` in a process group of its own and write `first_line` to its standard input.

    A group of its own keeps a Ctrl-C in the terminal away from it: the host decides when a worker ends.

    Raises:
        OSError: if the program cannot be started.
    """
    flags = 0
    if sys.platform == "win32":
        flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=os.name != "nt",
        creationflags=flags,
        env=environment(os.environ),
    )
    worker = WorkerProcess(process, on_line)
    if process.stdin is not None:
        # Not drained: a line fits any pipe, and nothing may come between the start and the caller's `finally`.
        process.stdin.write(first_line.encode() + b"\n")
    return worker
