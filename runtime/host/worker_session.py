"""One run of one worker process: from its start to its end, whatever ends it.

Knows no states and no restarts: `runtime.host.model_slot` decides what follows.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runtime.errors import WORKER_LOG, Failure, WorkerDied, to_failure
from runtime.host.worker_gate import Connection, WorkerGate
from runtime.host.worker_link import LoadMessage, WorkerLink
from runtime.host.worker_process import Outcome, WorkerProcess, start_process
from runtime.messages.ipc import Health, Load

_CHECK_EVERY_S = 1.0
_END_GRACE_S = 8.0
"""How long a worker that was asked to end, or whose connection ended, may take to do so by itself. One that is asked
may write its last prompts to the disk before it does (4 s at most)."""
_MESSAGE_LINES = 12
"""Log lines of a dead worker that are put in the error; the log file has them all."""


@dataclass(frozen=True, slots=True)
class Patience:
    """When a worker counts as lost.

    Attributes:
        connect_within_s: a started process that has not called back by then is ended (imports on a cold disk
            take many seconds).
        silent_limit_s: a ready worker that reports no health for so long is ended; counted in checks, so that
            a computer that slept is not mistaken for it.
    """

    connect_within_s: float = 120.0
    silent_limit_s: float = 30.0


@dataclass(frozen=True, slots=True)
class SessionHooks:
    """Whom a session tells."""

    on_load: Callable[[LoadMessage], None]
    on_health: Callable[[Health], None]
    on_stuck: Callable[[], None]
    on_log_line: Callable[[str], None]


class WorkerSession:
    """Home: the event loop."""

    def __init__(
        self,
        model_id: str,
        load: Load,
        *,
        gate: WorkerGate,
        command: tuple[str, ...],
        patience: Patience,
        hooks: SessionHooks,
    ) -> None:
        self._model_id = model_id
        self._load = load
        self._gate = gate
        self._command = command
        self._patience = patience
        self._hooks = hooks
        self._process: WorkerProcess | None = None
        self._stuck = ""
        self.link: WorkerLink | None = None
        self.is_loaded = False
        """Set by the owner once the worker said it is ready."""

    @property
    def pid(self) -> int | None:
        """The worker's process id while it runs."""
        return self._process.pid if self._process is not None and self._process.is_running else None

    @property
    def is_stuck(self) -> bool:
        """True from the time the engine's last step is too old until the process has ended."""
        health = self.link.health if self.link is not None else None
        return bool(self._stuck) or (health is not None and health.step_age_s > health.step_limit_s)

    async def run(self) -> Failure:
        """Start a worker and stay with it to its end; the answer says how it ended.

        Cancelled, it asks the worker to end, waits for that, and ends what is still open as unloaded.

        Raises:
            OSError: the process could not be started.
        """
        token, arriving = self._gate.expect()
        process = None
        try:
            process = await start_process(
                (*self._command, "--connect", self._gate.address), token, self._hooks.on_log_line
            )
            self._process = process
            problem = await self._converse(process, arriving)
            outcome = await process.stop(grace_s=0.0 if problem else _END_GRACE_S)
            death = self._death(outcome, problem, process)
            if self.link is not None:
                self.link.fail_all(death)
            return death
        finally:
            arriving.cancel()
            link, self.link = self.link, None
            await self._bury(process, link)

    async def _bury(self, process: WorkerProcess | None, link: WorkerLink | None) -> None:
        """What is left when the model is unloaded or the host ends; nothing after an ordinary death."""
        if link is not None:
            link.fail_all(unloaded(self._model_id))
            link.shut_down(0.0)
        if process is not None and process.is_running:
            grace_s = _END_GRACE_S if self.is_loaded and not self.is_stuck else 0.0
            await asyncio.shield(asyncio.create_task(process.stop(grace_s)))
        if link is not None:
            link.close()

    async def _converse(self, process: WorkerProcess, arriving: asyncio.Future[Connection]) -> str:
        """Talk to the worker until one side ends it; the answer says what was wrong, or is empty."""
        ending = asyncio.create_task(process.wait(), name=f"end of process {process.pid}")
        patience_s = self._patience.connect_within_s
        try:
            both: set[asyncio.Future[Any]] = {ending, arriving}
            await asyncio.wait(both, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
            if not arriving.done():
                return "" if ending.done() else f"It did not call back within {patience_s:.0f} s."
        finally:
            ending.cancel()
        link = WorkerLink(*arriving.result(), on_load=self._hooks.on_load, on_health=self._hooks.on_health)
        self.link = link
        link.load(self._load)
        reading = asyncio.create_task(link.run(), name=f"frames of process {process.pid}")
        watching = asyncio.create_task(self._watch(link, process), name=f"watch of process {process.pid}")
        try:
            await asyncio.wait({reading, watching}, return_when=asyncio.FIRST_COMPLETED)
            return self._stuck or (reading.result() if reading.done() else watching.result())
        finally:
            reading.cancel()
            watching.cancel()

    async def _watch(self, link: WorkerLink, process: WorkerProcess) -> str:
        """Return when the engine is stuck, saying so; its stacks are in the log by then."""
        silent_checks = 0
        heard_at = link.last_heard_at
        while True:
            await asyncio.sleep(_CHECK_EVERY_S)
            if not self.is_loaded:
                continue
            silent_checks = silent_checks + 1 if link.last_heard_at == heard_at else 0
            heard_at = link.last_heard_at
            health = link.health
            if health is not None and health.step_age_s > health.step_limit_s:
                self._stuck = f"The engine was stuck: its last step was {health.step_age_s:.0f} s ago."
            elif silent_checks * _CHECK_EVERY_S >= self._patience.silent_limit_s:
                self._stuck = f"It has not reported for {silent_checks * _CHECK_EVERY_S:.0f} s."
            if self._stuck:
                self._hooks.on_stuck()
                await process.dump_and_kill()
                return self._stuck

    def _death(self, outcome: Outcome, problem: str, process: WorkerProcess) -> Failure:
        during = "while it was running" if self.is_loaded else "while it was being loaded"
        what = problem or self._stuck or f"The process {outcome.sentence}."
        details: dict[str, str | int] = {"last_lines": process.tail.text(_MESSAGE_LINES)}
        if outcome.signal_name:
            details["signal"] = outcome.signal_name
        elif outcome.exit_code is not None:
            details["exit_code"] = outcome.exit_code
        hint = (
            f"The model is loaded again by itself; send the request again in a moment. {WORKER_LOG}"
            if self.is_loaded
            else f"Try fewer GPU layers, a shorter context or a smaller model. {WORKER_LOG}"
        )
        return to_failure(WorkerDied(f"The process of {self._model_id} ended {during}. {what}", hint=hint, **details))


def unloaded(model_id: str) -> Failure:
    """What requests of a model get that is unloaded under them."""
    return to_failure(WorkerDied(f"{model_id} was unloaded.", hint="Load it again to go on."))
