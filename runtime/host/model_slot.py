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
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from runtime.errors import WORKER_LOG, BugFault, Busy, Failure, ModelLoadFailed, RuntimeFault, from_failure, to_failure
from runtime.host.admission import Admission
from runtime.host.worker_gate import WorkerGate
from runtime.host.worker_link import LoadMessage, WorkerLink
from runtime.host.worker_session import Patience, SessionHooks, WorkerSession, unloaded
from runtime.messages.api import EngineSample, InstalledModel, LoadedModel, ModelState, Notice
from runtime.messages.fit import MemoryPlan
from runtime.messages.ipc import Health, Load, LoadFailed, LoadProgress, Ready
from runtime.messages.shared import ModelFacts
from runtime.options import AdapterScale, LoadOptions
from runtime.units import now

log = logging.getLogger(__name__)

MAX_WAITING_FOR_LOAD = 256
"""Requests that may wait for one model to be loaded."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """When a dead worker is replaced.

    Attributes:
        most: restarts allowed within `within_s`; one more and the model counts as failed.
        within_s: seconds looked back.
        backoff_s: pause before the first, second, ... restart; the last one stays.
        patience: when one that runs counts as dead.
    """

    most: int = 3
    within_s: float = 300.0
    backoff_s: tuple[float, ...] = (0.5, 2.0, 8.0)
    patience: Patience = field(default_factory=Patience)


@dataclass(frozen=True, slots=True)
class SlotHooks:
    """Whom a slot tells. `on_log_line` gets the model's id and one line.

    `idle_limit_s` says after how long without a request a slot is unloaded; `None` is never.
    """

    on_change: Callable[["ModelSlot"], None]
    on_notice: Callable[[Notice], None]
    on_restart: Callable[[str], None]
    on_log_line: Callable[[str, str], None]
    on_ready: Callable[["ModelSlot"], None]
    idle_limit_s: Callable[["ModelSlot"], float | None]


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
        on_demand: bool = False,
        states_folder: Path | None = None,
    ) -> None:
        """`on_demand`: another program's request asked for it, no person. `states_folder`: for stored prompts."""
        self._states_folder = "" if states_folder is None else str(states_folder)
        self.model = model
        self.options = options
        self.state: ModelState = "loading"
        self.facts: ModelFacts | None = None
        self.failure: Failure | None = None
        self.restarts = 0
        self.users = 0
        self.is_leaving = False
        self.is_doomed = False
        """It makes room for another model as soon as it can; no other load need ask it to."""
        self._is_ending = False
        self.plan: MemoryPlan | None = None
        """What the load follows; set before the worker starts."""
        self.draft_path = ""
        """File of the draft model; set before the worker starts, empty without one."""
        self.on_demand = on_demand
        self.loads_anyway = False
        """Whether the person wants it tried though its plan says that it does not fit."""

        self.admission = Admission(options.max_waiting)
        """Where requests wait for their turn."""
        self.keep_s: float | None = None
        """How long programs asked to keep it when idle, in seconds; below 0 is for ever, None says nothing."""
        self.adapter_scales: tuple[AdapterScale, ...] | None = None
        """Scales of its adapters for requests that name none; None is as they were loaded."""
        self.used_at = time.monotonic()
        """When it was last used or loaded."""
        self._fraction = 0.0
        self._stage = ""
        self._engine = EngineSample()
        self._session: WorkerSession | None = None
        self._idle_limit_s = hooks.idle_limit_s
        self._on_ready = hooks.on_ready
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
        self._failed_at = 0.0
        self._prompt_tokens_seen: tuple[float, int] | None = None
        self._task: asyncio.Task[None] | None = None

    # --- what others ask ----------------------------------------------------------------------------------

    def start(self, prepare: Callable[["ModelSlot"], Awaitable[None]] | None = None) -> None:
        """Begin to load, after `prepare` (other models giving way) is done."""
        self._task = asyncio.create_task(self._live(prepare), name=f"model {self.model.id}")

    @property
    def pid(self) -> int | None:
        """The worker's process id while it runs."""
        return self._session.pid if self._session is not None else None

    @property
    def is_stuck(self) -> bool:
        """True from the time the engine's last step is too old until the worker is replaced."""
        return self._session is not None and self._session.is_stuck

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
            plan=self.plan,
            actual=self.facts.memory if self.facts is not None else (),
            unload_at_s=self._unload_at_s(),
        )

    @property
    def idle_left_s(self) -> float | None:
        """Seconds until it is to be unloaded for being idle; `None` while it is used, or never."""
        limit_s = self._idle_limit_s(self)
        if limit_s is None or self.users or self.state != "ready" or self.is_leaving:
            return None
        return max(0.0, self.used_at + limit_s - time.monotonic())

    def _unload_at_s(self) -> float | None:
        left_s = self.idle_left_s
        return round(now() + left_s) if left_s is not None else None

    def take(self) -> None:
        """One user more."""
        self.users += 1
        if self.users == 1 and self._idle_limit_s(self) is not None and self.state == "ready":
            self._on_change(self)  # its time to unload is off

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
            link = self._session.link if self._session is not None else None
            if self.state == "ready" and link is not None:
                return link
            if self.state == "failed":
                raise from_failure(self.failure or to_failure(BugFault("The load failed without a reason.")))
            if self.state == "unloading":
                raise from_failure(unloaded(self.model.id))
            self._settled.clear()
            await self._settled.wait()

    @property
    def failed_for_s(self) -> float:
        """Seconds since the load failed; 0 when it did not."""
        return time.monotonic() - self._failed_at if self.state == "failed" else 0.0

    def release(self) -> None:
        """One user less."""
        self.users -= 1
        self.used_at = time.monotonic()
        if self.users == 0:
            if self.idle_left_s is not None:
                self._on_change(self)
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
        self.admission.fail_all(unloaded(self.model.id))
        if self._task is None:
            return
        if not self._is_ending:  # a second cancel would break off the waiting for the process's end
            self._is_ending = True
            self._task.cancel()
        await asyncio.wait({self._task})

    # --- its life -----------------------------------------------------------------------------------------

    async def _live(self, prepare: Callable[["ModelSlot"], Awaitable[None]] | None) -> None:
        try:
            if prepare is not None:
                await prepare(self)
            while await self._live_once():
                pass
        except asyncio.CancelledError:
            raise
        except RuntimeFault as error:  # `prepare` said why it cannot be loaded
            self._fail(to_failure(error))
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
        session = WorkerSession(
            self.model.id,
            self._order(),
            gate=self._gate,
            command=self._command,
            patience=self._policy.patience,
            hooks=SessionHooks(
                self._take_load,
                self._take_health,
                lambda: self._on_change(self),
                lambda line: self._on_log_line(self.model.id, line),
            ),
        )
        self._session = session
        self._set_progress(0.0, "starting")
        try:
            return await session.run()
        finally:
            self._session = None
            self.admission.pause()

    def _order(self) -> Load:
        plan = self.plan
        return Load(
            self.model.path,
            self.options,
            plan.resolved if plan is not None else None,
            self._states_folder,
            self.draft_path,
            plan.draft if plan is not None else None,
            self.options.projector_beside(self.model.projector),
            self.model.id,
        )

    async def _recover(self, death: Failure) -> bool:
        died_at = time.monotonic()
        self._restarted_at.append(died_at)
        recent = sum(1 for at in self._restarted_at if died_at - at < self._policy.within_s)
        if recent > self._policy.most:
            minutes = self._policy.within_s / 60
            self._fail(
                msgspec.structs.replace(
                    death,
                    message=f"{death.message} It ended {recent} times in {minutes:.0f} minutes and is left stopped.",
                    hint=f"Load it again with fewer GPU layers or a shorter context. {WORKER_LOG}",
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
                self.used_at = time.monotonic()
                if self._session is not None and self._session.link is not None:
                    self._session.is_loaded = True
                    self._session.link.on_end = self.admission.ended
                    self.admission.open(self._session.link, facts.n_parallel)
                self.failure = None
                self._fraction = 1.0
                self._stage = ""
                self._set_state("ready")
                self._on_ready(self)
            case LoadFailed(failure):
                self._fail(failure)

    def _take_health(self, health: Health) -> None:
        link = self._session.link if self._session is not None else None
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
            draft_tokens=health.draft_tokens,
            draft_accepted=health.draft_accepted,
        )
        # At rest only the age and the resident size move: those alone are not worth an event.
        at_rest = msgspec.structs.replace(
            self._engine, step_age_s=before.step_age_s, resident_bytes=before.resident_bytes
        )
        if at_rest != before or health.active:
            self._on_change(self)

    def _prompt_rate(self, health: Health) -> float:
        at = time.monotonic()
        seen = self._prompt_tokens_seen
        self._prompt_tokens_seen = (at, health.prompt_tokens)
        if seen is None or at <= seen[0] or health.prompt_tokens < seen[1]:
            return 0.0
        return (health.prompt_tokens - seen[1]) / (at - seen[0])

    # --- state --------------------------------------------------------------------------------------------

    def tell_stage(self, stage: str) -> None:
        """Say what the load waits for before its worker starts."""
        if self._stage != stage:
            self._set_progress(0.0, stage)

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
        self.admission.fail_all(failure)
