"""One loaded model: its worker process, its state, and what happens when the process ends.

::

    loading ── Ready ──> ready ── worker ends ──> restarting ── Ready ──> ready
       │                   │                          │
       └─ LoadFailed ──> failed <─ over the bound ────┘        any ── unload ──> unloading ──> gone

A worker that ends while the model loads for the first time is not started again: it would end again.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from runtime.errors import BugFault, Busy, Failure, ModelLoadFailed, WorkerDied, from_failure, to_failure
from runtime.host.worker_gate import Connection, WorkerGate
from runtime.host.worker_link import LoadMessage, WorkerLink
from runtime.host.worker_process import Outcome, WorkerProcess, start_process
from runtime.messages.api import EngineSample, InstalledModel, LoadedModel, ModelState, Notice
from runtime.messages.ipc import Health, Load, LoadFailed, LoadProgress, Ready
from runtime.messages.shared import ModelFacts
from runtime.options import LoadOptions

log = logging.getLogger(__name__)

MAX_WAITING_FOR_LOAD = 256
"""Requests that may wait for one model to be loaded."""
_CHECK_EVERY_S = 1.0
_END_GRACE_S = 3.0
"""How long a worker that was asked to end, or whose connection ended, may take to do so by itself."""
_MESSAGE_LINES = 12
"""Log lines of a dead worker that are put in the error; the log file has them all."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """When a dead worker is replaced.

    Attributes:
        most: restarts allowed within `within_s`; one more and the model counts as failed.
        within_s: seconds looked back.
        backoff_s: pause before the first, second, ... restart; the last one stays.
        connect_within_s: a started process that has not called back by then is ended (imports on a cold disk
            take many seconds).
        silent_limit_s: a ready worker that reports no health for so long is replaced; counted in checks, so that
            a computer that slept is not mistaken for it.
    """

    most: int = 3
    within_s: float = 300.0
    backoff_s: tuple[float, ...] = (0.5, 2.0, 8.0)
    connect_within_s: float = 120.0
    silent_limit_s: float = 30.0


@dataclass(frozen=True, slots=True)
class SlotHooks:
    """Whom a slot tells. `on_log_line` gets the model's id and one line."""

    on_change: Callable[["ModelSlot"], None]
    on_notice: Callable[[Notice], None]
    on_restart: Callable[[str], None]
    on_log_line: Callable[[str, str], None]


class ModelSlot:
    """A model that has, gets or had a worker. Home: the event loop."""

    def __init__(
        self,
        model: InstalledModel,
        options: LoadOptions,
        *,
        gate: WorkerGate,
        command: tuple[str, ...],
        hooks: SlotHooks,
        policy: RestartPolicy,
    ) -> None:
        self.model = model
        self.options = options
        self.state: ModelState = "loading"
        self.facts: ModelFacts | None = None
        self.failure: Failure | None = None
        self.restarts = 0
        self.users = 0
        self.is_leaving = False
        self._is_ending = False
        self.link: WorkerLink | None = None
        self._fraction = 0.0
        self._stage = ""
        self._engine = EngineSample()
        self._process: WorkerProcess | None = None
        self._gate = gate
        self._command = command
        self._on_change = hooks.on_change
        self._on_notice = hooks.on_notice
        self._on_restart = hooks.on_restart
        self._on_log_line = hooks.on_log_line
        self._policy = policy
        self._restarted_at: deque[float] = deque(maxlen=policy.most + 1)
        self._settled = asyncio.Event()
        self._drained = asyncio.Event()
        self._is_loaded = False
        self._stuck = ""
        self._failed_at = 0.0
        self._prompt_tokens_seen: tuple[float, int] | None = None
        self._task: asyncio.Task[None] | None = None

    # --- what others ask ----------------------------------------------------------------------------------

    def start(self, prepare: Callable[[], Awaitable[None]] | None = None) -> None:
        """Begin to load, after `prepare` (other models giving way) is done."""
        self._task = asyncio.create_task(self._live(prepare), name=f"model {self.model.id}")

    @property
    def pid(self) -> int | None:
        """The worker's process id while it runs."""
        return self._process.pid if self._process is not None and self._process.is_running else None

    @property
    def is_stuck(self) -> bool:
        """True from the time the engine's last step is too old until the worker is replaced."""
        health = self.link.health if self.link is not None else None
        return bool(self._stuck) or (health is not None and health.step_age_s > health.step_limit_s)

    @property
    def percent(self) -> int:
        """Load progress, 0..100."""
        return round(self._fraction * 100)

    def public(self) -> LoadedModel:
        """The state as others see it."""
        return LoadedModel(
            id=self.model.id,
            name=self.model.name,
            state=self.state,
            fraction=self._fraction,
            stage=self._stage,
            facts=self.facts,
            options=self.options,
            failure=self.failure,
            engine=self._engine,
            pid=self.pid,
            restarts=self.restarts,
        )

    async def until_ready(self) -> WorkerLink:
        """Wait for the load or reload.

        Raises:
            RuntimeFault: the load's own failure, `Busy` when too many wait, `WorkerDied` when it is unloaded.
        """
        if self.users > MAX_WAITING_FOR_LOAD and self.state != "ready":
            raise Busy(
                f"{MAX_WAITING_FOR_LOAD} requests already wait for {self.model.id} to be loaded.",
                hint="Try again when it is loaded.",
                retry_after_s=10,
                waiting=self.users,
            )
        while True:
            if self.state == "ready" and self.link is not None:
                return self.link
            if self.state == "failed":
                raise from_failure(self.failure or to_failure(BugFault("The load failed without a reason.")))
            if self.state == "unloading":
                raise from_failure(self._unloaded())
            self._settled.clear()
            await self._settled.wait()

    @property
    def failed_for_s(self) -> float:
        """Seconds since the load failed; 0 when it did not."""
        return time.monotonic() - self._failed_at if self.state == "failed" else 0.0

    def release(self) -> None:
        """One user less."""
        self.users -= 1
        if self.users == 0:
            self._drained.set()
            self._settled.set()  # a load that nobody waits for need not be waited for by another model

    async def give_way(self, drain_s: float) -> None:
        """Unload for another model's sake: load first if that is under way, then let its users finish.

        Until it is loaded, requests may still join; from then on it takes no new ones (`is_leaving`).
        """
        try:
            async with asyncio.timeout(drain_s):
                while self.state not in ("ready", "failed", "unloading") and self.users:
                    self._settled.clear()
                    await self._settled.wait()
                self.is_leaving = True
                while self.users:
                    self._drained.clear()
                    await self._drained.wait()
        except TimeoutError:
            log.warning("%s is unloaded with %d requests running", self.model.id, self.users)
        await self.unload()

    async def unload(self) -> None:
        """End the worker and what it runs. Returns when the process has ended; may be called twice."""
        self.is_leaving = True
        self._set_state("unloading")
        if self._task is None:
            return
        if not self._is_ending:  # a second cancel would break off the waiting for the process's end
            self._is_ending = True
            self._task.cancel()
        await asyncio.wait({self._task})

    # --- its life -----------------------------------------------------------------------------------------

    async def _live(self, prepare: Callable[[], Awaitable[None]] | None) -> None:
        try:
            if prepare is not None:
                await prepare()
            while await self._live_once():
                pass
        except asyncio.CancelledError:
            raise
        except Exception as error:  # top of a task: whoever waits must not wait for ever
            log.exception("the supervisor of %s stopped", self.model.id)
            self._fail(to_failure(error))

    async def _live_once(self) -> bool:
        """Run one worker from start to end; true if another shall follow."""
        was_reload = self.state == "restarting"
        try:
            death = await self._run_worker()
        except OSError as error:
            self._fail(to_failure(ModelLoadFailed(f"The model's process could not be started: {error}.")))
            return False
        if self.state == "failed":  # LoadFailed told the reason
            if was_reload and self.failure is not None:
                self._on_notice(Notice("error", self.failure.message))
            return False
        log.warning("%s\n%s", death.message, death.details.get("last_lines", ""))
        if self.state == "loading":
            self._fail(death)
            return False
        return await self._recover(death)

    async def _run_worker(self) -> Failure:
        token, arriving = self._gate.expect()
        process = None
        try:
            process = await start_process(
                (*self._command, "--connect", self._gate.address),
                token,
                lambda line: self._on_log_line(self.model.id, line),
            )
            self._process = process
            self._is_loaded = False
            self._stuck = ""
            self._set_progress(0.0, "starting")
            problem = await self._converse(process, arriving)
            outcome = await process.stop(grace_s=0.0 if problem else _END_GRACE_S)
            death = self._death(outcome, problem)
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
            link.fail_all(self._unloaded())
            link.shut_down(0.0)
        if process is not None and process.is_running:
            await asyncio.shield(asyncio.create_task(process.stop(grace_s=_END_GRACE_S if self._is_loaded else 0.0)))
        if link is not None:
            link.close()

    async def _converse(self, process: WorkerProcess, arriving: asyncio.Future[Connection]) -> str:
        """Talk to the worker until one side ends it; the answer says what was wrong, or is empty."""
        ending = asyncio.create_task(process.wait(), name=f"end of process {process.pid}")
        try:
            both: set[asyncio.Future[Any]] = {ending, arriving}
            await asyncio.wait(both, timeout=self._policy.connect_within_s, return_when=asyncio.FIRST_COMPLETED)
            if not arriving.done():
                return "" if ending.done() else f"It did not call back within {self._policy.connect_within_s:.0f} s."
        finally:
            ending.cancel()
        link = WorkerLink(*arriving.result(), on_load=self._take_load, on_health=self._take_health)
        self.link = link
        link.load(Load(self.model.path, self.options))
        reading = asyncio.create_task(link.run(), name=f"frames of process {process.pid}")
        watching = asyncio.create_task(self._watch(link, process), name=f"watch of process {process.pid}")
        try:
            await asyncio.wait({reading, watching}, return_when=asyncio.FIRST_COMPLETED)
            return self._stuck or (reading.result() if reading.done() else watching.result())
        finally:
            reading.cancel()
            watching.cancel()

    def _unloaded(self) -> Failure:
        return to_failure(WorkerDied(f"{self.model.id} was unloaded.", hint="Load it again to go on."))

    async def _watch(self, link: WorkerLink, process: WorkerProcess) -> str:
        """Return when the engine is stuck, saying so; its stacks are in the log by then."""
        silent_checks = 0
        heard_at = link.last_heard_at
        while True:
            await asyncio.sleep(_CHECK_EVERY_S)
            if self.state != "ready":
                continue
            silent_checks = silent_checks + 1 if link.last_heard_at == heard_at else 0
            heard_at = link.last_heard_at
            health = link.health
            if health is not None and health.step_age_s > health.step_limit_s:
                self._stuck = f"The engine was stuck: its last step was {health.step_age_s:.0f} s ago."
            elif silent_checks * _CHECK_EVERY_S >= self._policy.silent_limit_s:
                self._stuck = f"It has not reported for {silent_checks * _CHECK_EVERY_S:.0f} s."
            if self._stuck:
                self._on_change(self)
                await process.dump_and_kill()
                return self._stuck

    def _death(self, outcome: Outcome, problem: str) -> Failure:
        process = self._process
        during = "while it was running" if self._is_loaded else "while it was being loaded"
        what = problem or self._stuck or f"The process {outcome.sentence}."
        details: dict[str, str | int] = {"last_lines": process.tail.text(_MESSAGE_LINES) if process else ""}
        if outcome.signal_name:
            details["signal"] = outcome.signal_name
        elif outcome.exit_code is not None:
            details["exit_code"] = outcome.exit_code
        hint = (
            "Try fewer GPU layers, a shorter context or a smaller model; the log file has the details."
            if self.state == "loading"
            else "The model is loaded again by itself; send the request again in a moment."
        )
        return to_failure(WorkerDied(f"The process of {self.model.id} ended {during}. {what}", hint=hint, **details))

    async def _recover(self, death: Failure) -> bool:
        now = time.monotonic()
        self._restarted_at.append(now)
        recent = sum(1 for at in self._restarted_at if now - at < self._policy.within_s)
        if recent > self._policy.most:
            minutes = self._policy.within_s / 60
            self._fail(
                msgspec.structs.replace(
                    death,
                    message=f"{death.message} It ended {recent} times in {minutes:.0f} minutes and is left stopped.",
                    hint="Load it again with fewer GPU layers or a shorter context; the log file has the details.",
                )
            )
            self._on_notice(Notice("error", self.failure.message if self.failure else death.message))
            return False
        self.restarts += 1
        self._on_restart(self.model.id)
        self._set_progress(0.0, "restarting")
        self._set_state("restarting")
        self._on_notice(Notice("warning", f"{death.message} It is being loaded again."))
        pauses = self._policy.backoff_s
        await asyncio.sleep(pauses[min(recent, len(pauses)) - 1])
        return True

    # --- what the worker says -----------------------------------------------------------------------------

    def _take_load(self, message: LoadMessage) -> None:
        match message:
            case LoadProgress(stage, fraction):
                self._set_progress(min(max(fraction, 0.0), 1.0), stage)
            case Ready(facts):
                self.facts = facts
                self._is_loaded = True
                self.failure = None
                self._fraction = 1.0
                self._stage = ""
                self._set_state("ready")
            case LoadFailed(failure):
                self._fail(failure)

    def _take_health(self, health: Health) -> None:
        link = self.link
        if link is None:
            return
        before = self._engine
        self._engine = EngineSample(
            generation_tps=round(link.generation_rate.per_second(), 2),
            prompt_tps=round(self._prompt_rate(health), 2),
            active=health.active,
            waiting=health.waiting,
            kv_used=health.kv_used,
            kv_total=health.kv_total,
            resident_bytes=health.resident_bytes,
            step_age_s=round(health.step_age_s, 3),
            decode_share=round(health.decode_share, 4),
        )
        # At rest only the age and the resident size move: those alone are not worth an event.
        at_rest = msgspec.structs.replace(
            self._engine, step_age_s=before.step_age_s, resident_bytes=before.resident_bytes
        )
        if at_rest != before or health.active:
            self._on_change(self)

    def _prompt_rate(self, health: Health) -> float:
        now = time.monotonic()
        seen = self._prompt_tokens_seen
        self._prompt_tokens_seen = (now, health.prompt_tokens)
        if seen is None or now <= seen[0] or health.prompt_tokens < seen[1]:
            return 0.0
        return (health.prompt_tokens - seen[1]) / (now - seen[0])

    # --- state --------------------------------------------------------------------------------------------

    def _set_progress(self, fraction: float, stage: str) -> None:
        self._fraction = fraction
        self._stage = stage
        self._on_change(self)

    def _set_state(self, state: ModelState) -> None:
        if self.state == "unloading":
            return
        self.state = state
        self._settled.set()
        self._on_change(self)

    def _fail(self, failure: Failure) -> None:
        if self.state != "unloading":
            self.failure = failure
            self._failed_at = time.monotonic()
        self._set_state("failed")
