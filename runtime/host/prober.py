"""Asks `runtime.probe.plan` for dry runs and devices: one child process, started when needed and ended when idle.

A child holds a GPU's driver memory and, for a moment, nodes; so it goes after `IDLE_S` without a question. It is
replaced when it crashes or hangs: what a file did to it is an answer about that file.
"""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from runtime.errors import ModelLoadFailed, from_failure
from runtime.host.worker_process import Tail, outcome_of
from runtime.messages.fit import Measured
from runtime.probe.report import DevicesAnswer, DryRun, DryRunAnswer, EngineReport, ListDevices, ProbeAnswer

log = logging.getLogger(__name__)

COMMAND = (sys.executable, "-m", "runtime.probe.plan")
BY_LOG = "--by-log"
IDLE_S = 20.0
TIMEOUT_S = 60.0
"""The largest vocabularies take about a second; a GPU's driver may take several to start."""
END_GRACE_S = 2.0
MAX_ANSWER_BYTES = 4 * 1024 * 1024
_READ_BYTES = 64 * 1024

_decoder = msgspec.json.Decoder(ProbeAnswer)


class _EndedError(Exception):
    """The child ended, or had to be ended, instead of answering; the text says how."""


class Prober:
    """Dry runs and devices. Home: the event loop; questions wait for one another."""

    def __init__(
        self, command: Sequence[str] = COMMAND, *, idle_s: float = IDLE_S, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._command = tuple(command)
        self._idle_s = idle_s
        self._timeout_s = timeout_s
        self._lock = asyncio.Lock()
        self._child: asyncio.subprocess.Process | None = None
        self._tail = Tail()
        self._log_reader: asyncio.Task[None] | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None
        self._extra: tuple[str, ...] = ()

    @property
    def pid(self) -> int | None:
        """Process id of the child, None while there is none."""
        return self._child.pid if self._child is not None and self._child.returncode is None else None

    async def dry_run(self, request: DryRun) -> Measured:
        """What this load would take.

        Raises:
            NotGguf, FileTruncated, UnknownArchitecture, NotEnoughMemory, ModelLoadFailed: as the load itself would.
            BadRequest: options that cannot be combined.
        """
        async with self._lock:
            try:
                answer = await self._ask(request)
            except _EndedError as first:
                answer = await self._ask_by_log(request, first)
        if not isinstance(answer, DryRunAnswer) or (answer.measured is None and answer.failure is None):
            raise ModelLoadFailed("The memory check gave no answer.", path=request.path, reason="no answer")
        if answer.failure is not None:
            raise from_failure(answer.failure)
        assert answer.measured is not None  # noqa: S101 - checked above, for the type
        return answer.measured

    async def devices(self, nodes: Sequence[str] = ()) -> EngineReport:
        """The engine's devices, those of these nodes included.

        Raises:
            ModelLoadFailed: the engine cannot be asked.
        """
        async with self._lock:
            try:
                answer = await self._ask(ListDevices(tuple(nodes)))
            except _EndedError as ended:
                raise ModelLoadFailed(
                    f"llama.cpp could not be asked for its devices: the process {ended}.", reason=str(ended)
                ) from None
        if not isinstance(answer, DevicesAnswer):
            raise ModelLoadFailed("llama.cpp gave no list of devices.", reason="no answer")
        return answer.report

    async def close(self) -> None:
        """End the child."""
        async with self._lock:
            await self._end()
        if self._ending is not None:
            await self._ending

    async def _ask_by_log(self, request: DryRun, first: _EndedError) -> ProbeAnswer:
        """Once more in a way that needs no luck with C++ libraries; it stays that way if it helped."""
        name = Path(request.path).name
        if not self._extra:
            log.warning("the check of %s %s; trying again by the log", name, first)
            self._extra = (BY_LOG,)
            try:
                return await self._ask(request)
            except _EndedError:
                self._extra = ()
        raise ModelLoadFailed(
            f"llama.cpp cannot open {name}: the process that tried {first}.",
            hint="The file may be damaged, or this llama.cpp has an error with it.",
            path=request.path,
            reason=self._tail.text(5) or str(first),
        )

    async def _ask(self, request: DryRun | ListDevices) -> ProbeAnswer:
        self._stop_timer()
        if self._ending is not None:
            await self._ending
        child = await self._start()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._exchange(child, request)
        except TimeoutError:
            await self._end(kill=True)
            raise _EndedError(f"did not answer within {self._timeout_s:.0f} s") from None
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, msgspec.DecodeError) as error:
            code = await self._end(kill=isinstance(error, msgspec.DecodeError | asyncio.LimitOverrunError))
            raise _EndedError("ended" if code is None else outcome_of(code).sentence) from error
        except BaseException:
            # Cancelled in mid-question: the answer would be taken for that of the next.
            await self._end(kill=True)
            raise
        finally:
            self._start_timer()

    async def _exchange(self, child: asyncio.subprocess.Process, request: DryRun | ListDevices) -> ProbeAnswer:
        assert child.stdin is not None  # noqa: S101 - made with pipes
        assert child.stdout is not None  # noqa: S101
        child.stdin.write(msgspec.json.encode(request) + b"\n")
        await child.stdin.drain()
        return _decoder.decode(await child.stdout.readuntil(b"\n"))

    async def _start(self) -> asyncio.subprocess.Process:
        if self._child is not None and self._child.returncode is None:
            return self._child
        await self._end()
        flags = 0
        if sys.platform == "win32":
            flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
        try:
            child = await asyncio.create_subprocess_exec(
                *self._command,
                *self._extra,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=MAX_ANSWER_BYTES,
                start_new_session=os.name != "nt",
                creationflags=flags,
            )
        except OSError as error:
            raise ModelLoadFailed(
                f"The memory check could not be started: {error.strerror or error}.", reason=str(error)
            ) from error
        self._child = child
        self._tail = Tail()
        self._log_reader = asyncio.create_task(_read_log(child, self._tail), name="log of the probe")
        return child

    async def _end(self, *, kill: bool = False) -> int | None:
        """End the child and wait for it; its return code, None without one."""
        child, self._child = self._child, None
        if child is None:
            return None
        if child.stdin is not None:
            child.stdin.close()  # it ends by itself then
        try:
            if not kill:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(child.wait(), END_GRACE_S)
        finally:
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    _kill(child)
        code = await child.wait()
        if self._log_reader is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._log_reader, END_GRACE_S)
        return code

    def _start_timer(self) -> None:
        if self._child is not None:
            self._idle_timer = asyncio.get_running_loop().call_later(self._idle_s, self._on_idle)

    def _stop_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _on_idle(self) -> None:
        if self._lock.locked():
            return  # a question came just now; the timer starts anew after it
        self._ending = asyncio.get_running_loop().create_task(self._end_idle(), name="end the idle probe")

    async def _end_idle(self) -> None:
        await self._end()


async def _read_log(child: asyncio.subprocess.Process, tail: Tail) -> None:
    assert child.stderr is not None  # noqa: S101 - made with pipes
    rest = b""
    while chunk := await child.stderr.read(_READ_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            tail.add(line[:4096].decode("utf-8", "replace").rstrip("\r"))
        rest = rest[-4096:]


def _kill(child: asyncio.subprocess.Process) -> None:
    if sys.platform == "win32":
        child.kill()
    else:
        os.killpg(child.pid, signal.SIGKILL)
