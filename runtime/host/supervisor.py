"""Which models are loaded: the one owner of that fact.

A request that names an installed model which is not loaded loads it, once for all who ask. Several stay loaded while
memory allows (`runtime.host.room` chooses who goes otherwise); a model gives way to a request's model when the requests
that use it are done, and a load with which a person replaces the others does not wait for them. A model that nobody
used for its time goes by itself.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from runtime.errors import (
    BadRequest,
    Busy,
    HostUnreachable,
    ModelLoadFailed,
    ModelLoading,
    ModelNotFound,
    NotAllowed,
    RuntimeFault,
)
from runtime.host.model_slot import ModelSlot, RestartPolicy, SlotHooks
from runtime.host.room import Holding, LoadPlanner, find_room, holding_of
from runtime.host.worker_gate import WorkerGate
from runtime.host.worker_link import WorkerLink
from runtime.messages.api import HostEvent, InstalledModel, LoadedModel, ModelChanged, ModelGone
from runtime.options import LoadOptions, ModelsOptions, with_named

log = logging.getLogger(__name__)

ON_DEMAND_DRAIN_S = 600.0
"""The longest a model that gives way to another request's model may go on with its own requests."""

RETRY_FAILED_AFTER_S = 60.0
"""A request for a model whose load failed gets that failure for so long; after it, the load is tried again."""

REPLAN_AFTER_S = 5.0
"""Memory changes while a load waits for another model's answers; after so long it is planned anew."""

IDLE_LIMIT_S = 3600.0
"""How long a model that a program's request loaded stays without a request, where the settings do not say."""

IDLE_CHECK_S = 1.0
MAX_SLOTS = 64
_NAMES_IN_HINT = 8


class Catalogue(Protocol):
    """What is on disk. Blocking: called in a thread."""

    def installed(self) -> tuple[InstalledModel, ...]:
        """All models on disk."""
        ...

    def resolve(self, name: str) -> InstalledModel:
        """By id, short name or path; raises `ModelNotFound`."""
        ...

    def check_silent(self, name: str, /) -> None:
        """For a name that is none of them; raises `FolderSilent` where it may be on a drive that does not answer."""
        ...


@dataclass(frozen=True, slots=True)
class SupervisorHooks:
    """Whom the supervisor tells.

    Attributes:
        send: gets every event.
        on_restart: gets the id of a model whose dead worker is replaced.
        on_log_line: gets a model's id and a line of its worker's log.
        on_loaded: is told what a person asked for once it works: the model's id, and options that were given.
        on_ready: gets a slot each time its model is loaded.
    """

    send: Callable[[HostEvent], None]
    on_restart: Callable[[str], None]
    on_log_line: Callable[[str, str], None]
    on_loaded: Callable[[str, LoadOptions | None], None]
    on_ready: Callable[[ModelSlot], None]


@dataclass(frozen=True, slots=True)
class Lease:
    """The use of a loaded model by one request."""

    model_id: str
    slot: ModelSlot
    link: WorkerLink


class Supervisor:
    """Loads, finds and unloads models. Home: the event loop."""

    def __init__(
        self,
        catalogue: Catalogue,
        *,
        command: tuple[str, ...],
        options_for: Callable[[str], LoadOptions],
        models_options: Callable[[], ModelsOptions],
        planner: LoadPlanner | None,
        hooks: SupervisorHooks,
        policy: RestartPolicy | None = None,
        states_folder: Path | None = None,
    ) -> None:
        """`planner` plans each load; without one, one model at a time is kept for requests.

        In `states_folder` workers store prompts across restarts.
        """
        self._states_folder = states_folder
        self._catalogue = catalogue
        self._command = command
        self._options_for = options_for
        self._models_options = models_options
        self._planner = planner
        self._send = hooks.send
        self._slot_hooks = SlotHooks(
            self._changed,
            hooks.send,
            hooks.on_restart,
            hooks.on_log_line,
            on_ready=hooks.on_ready,
            idle_limit_s=self._idle_limit_s,
        )
        self._policy = policy or RestartPolicy()
        self._gate = WorkerGate()
        self._slots: dict[str, ModelSlot] = {}
        self._leaving: set[ModelSlot] = set()
        self._on_loaded = hooks.on_loaded
        self._asked_for: dict[ModelSlot, LoadOptions | None] = {}
        """Loads that a person asked for and that are not done; each goes when its slot is ready or gone."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._choosing = asyncio.Lock()
        """One load at a time chooses who goes: each must know what the one before takes."""
        self._idle: asyncio.Task[None] | None = None
        self._n_uses = 0
        self._is_closed = False

    async def open(self) -> None:
        """Open the door for workers.

        Raises:
            OSError: if no loopback port is free.
        """
        await self._gate.open()
        self._idle = asyncio.create_task(self._unload_idle(), name="unload idle models")

    async def close(self, drain_s: float) -> None:
        """Let what runs finish for at most `drain_s`, then end every worker."""
        self._is_closed = True
        if self._idle is not None:
            self._idle.cancel()
        slots = [*self._slots.values(), *self._leaving]
        await asyncio.gather(*(slot.give_way(drain_s) if drain_s > 0 else slot.unload() for slot in slots))
        self._gate.close()

    # --- what is loaded -----------------------------------------------------------------------------------

    def slots(self) -> tuple[ModelSlot, ...]:
        """The models that have, get or had a worker; oldest first."""
        return tuple(self._slots.values())

    def loaded(self) -> tuple[LoadedModel, ...]:
        """The same as values."""
        return tuple(slot.public() for slot in self._slots.values())

    def holdings(self) -> tuple[Holding, ...]:
        """What our models hold, for plans; failed ones hold nothing."""
        return tuple(holding_of(slot) for slot in self._slots.values() if slot.state not in ("failed", "unloading"))

    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers. May be called from any thread."""
        return tuple(
            pid for slot in (*self._slots.copy().values(), *self._leaving.copy()) if (pid := slot.pid) is not None
        )

    # --- loading ------------------------------------------------------------------------------------------

    async def load(
        self,
        name: str,
        options: LoadOptions | None,
        *,
        replace: bool,
        only: Collection[str] = (),
        anyway: bool = False,
    ) -> ModelSlot:
        """Start to load by id or path; with `replace`, the other models end at once, whatever they do.

        Loading a model that is loaded with the same options changes nothing. With `only`, the options of these names
        alone are meant; the others are as they are remembered. With `anyway` a plan that says it does not fit is
        followed all the same.

        Raises:
            ModelNotFound: nothing of that name is on disk.
            BadRequest: `only` names no option.
            HostUnreachable: the host is ending.
        """
        if self._is_closed:
            raise HostUnreachable("Deskside is ending.", hint="Start it again.", address="")
        model = await asyncio.to_thread(self._catalogue.resolve, name)
        if options is not None and only:
            try:
                options = with_named(self._options_for(model.id), options, only)
            except ValueError as error:
                raise BadRequest(f"`only` is wrong: {error}.", param="only") from None
        wanted = options if options is not None else self._options_for(model.id)
        others = [slot for slot in self._slots.values() if slot.model.id != model.id] if replace else []
        current = self._slots.get(model.id)
        if current is not None and current.state != "failed" and not current.is_leaving and current.options == wanted:
            for slot in others:
                self._retire(slot, 0.0)
            self._asked_for[current] = options
            current.on_demand = False
            self._note_loaded(current)
            return current
        slot = self._begin(model, wanted, replace=replace, on_demand=False, anyway=anyway)
        self._asked_for[slot] = options
        return slot

    async def unload(self, model_id: str) -> None:
        """Unload by id; returns when its process has ended.

        Raises:
            ModelNotFound: it is not loaded.
        """
        slot = self._slots.get(model_id)
        if slot is None:
            raise ModelNotFound(f"No model named {model_id!r} is loaded.", model=model_id)
        await asyncio.shield(self._retire(slot, 0.0))

    async def let_go(self, model_id: str) -> None:
        """Unload a model so that its files can be changed; one that is not loaded is no error.

        Raises:
            Busy: it is answering just now.
        """
        slot = self._slots.get(model_id)
        if slot is None:
            return
        if slot.users:
            raise Busy(
                f"{model_id} is answering just now.", hint="Stop it first.", retry_after_s=10, waiting=slot.users
            )
        await asyncio.shield(self._retire(slot, 0.0))

    @contextlib.asynccontextmanager
    async def use(self, name: str, *, load: bool = True, by_person: bool = False) -> AsyncIterator[Lease]:
        """Use a model for one request; "" is the one loaded last.

        Args:
            name: as the catalogue lists it.
            load: load it where needed and wait for it.
            by_person: the person asks, not another program: load it also where programs may not.

        Raises:
            ModelLoading: it is not ready, and `load` is false.
            NotAllowed: it is not loaded, and programs may not load models.
            RuntimeFault: no such model, it cannot be loaded, or too many wait for it.
        """
        slot = await self._slot_for(name, by_person=by_person) if load else self._ready(name)
        slot.take()
        self._n_uses += 1
        try:
            yield Lease(slot.model.id, slot, await slot.until_ready())
        finally:
            slot.release()

    async def check(self, name: str) -> None:
        """Raise at once what `use` would raise for a name that no model has.

        Raises:
            ModelNotFound: no model has it.
            BadRequest: it is empty, and no model is loaded.
        """
        if self._usable(name) is None:
            await self._named(name)

    async def _named(self, name: str) -> InstalledModel:
        if not name:
            raise BadRequest("No model is loaded.", hint="Name one in `model`, or load one.", param="model")
        return await self._installed(name)

    async def _slot_for(self, name: str, *, by_person: bool) -> ModelSlot:
        if self._is_closed:
            raise HostUnreachable("Deskside is ending.", hint="Start it again.", address="")
        slot = self._usable(name)
        if slot is not None:
            return slot
        model = await self._named(name)
        slot = self._usable(model.id)  # again: others may have asked while the disk was read
        if slot is not None:
            return slot
        if model.problem:
            raise ModelLoadFailed(model.problem, path=model.path)
        if not (by_person or self._models_options().load_on_demand):
            raise NotAllowed(
                f"{model.id} is not loaded, and loading models on request is switched off.",
                hint="Load it in Deskside, or switch loading on request on.",
            )
        if len(self._slots) + len(self._leaving) >= MAX_SLOTS:
            raise Busy(
                "Too many models are being loaded and unloaded.",
                hint="Try again in a minute.",
                retry_after_s=60,
                waiting=0,
            )
        return self._begin(model, self._options_for(model.id), replace=False, on_demand=not by_person)

    @property
    def is_busy(self) -> bool:
        """Whether a model is answering or being loaded."""
        slots = (*self._slots.values(), *self._leaving)
        return any(slot.users or slot.state in ("loading", "restarting") for slot in slots)

    def quiet_mark(self) -> int | None:
        """A number that stays the same while one request alone is served; `None` when there are several, or none."""
        slots = (*self._slots.values(), *self._leaving)
        return self._n_uses if sum(slot.users for slot in slots) == 1 else None

    def _ready(self, name: str) -> ModelSlot:
        slot = self._usable(name)
        if slot is None or slot.state != "ready":
            percent = slot.percent if slot is not None and slot.state == "loading" else 0
            raise ModelLoading(f"{name or 'A model'} is not loaded.", hint="Load it first.", percent=percent)
        return slot

    def _usable(self, name: str) -> ModelSlot | None:
        if not name:
            return next((slot for slot in reversed(self._slots.values()) if not slot.is_leaving), None)
        slot = self._slots.get(name)
        if slot is None or slot.is_leaving:
            return None
        if slot.state == "failed" and slot.failed_for_s > RETRY_FAILED_AFTER_S:
            return None
        return slot

    async def _installed(self, name: str) -> InstalledModel:
        """Only what is listed: a request from outside must not name files."""
        models = await asyncio.to_thread(self._catalogue.installed)
        wanted = name.casefold()
        for model in models:
            path = Path(model.path)
            if wanted in (model.id.casefold(), model.name.casefold(), path.name.casefold(), path.stem.casefold()):
                return model
        begins = [model for model in models if model.id.casefold().startswith(f"{wanted}-")]
        if len(begins) == 1:
            return begins[0]
        self._catalogue.check_silent(name)
        names = ", ".join(model.id for model in models[:_NAMES_IN_HINT]) or "none yet"
        raise ModelNotFound(
            f"No model named {name!r} is installed.", hint=f"Installed: {names}.", model=name, param="model"
        )

    def _begin(
        self, model: InstalledModel, options: LoadOptions, *, replace: bool, on_demand: bool, anyway: bool = False
    ) -> ModelSlot:
        slot = ModelSlot(
            model,
            options,
            gate=self._gate,
            command=self._command,
            hooks=self._slot_hooks,
            policy=self._policy,
            on_demand=on_demand,
            states_folder=self._states_folder,
        )
        slot.loads_anyway = anyway
        before = tuple(self._slots.values())
        replaced = self._slots.pop(model.id, None)
        if replaced is not None:
            self._leaving.add(replaced)
        self._slots[model.id] = slot

        async def make_room(slot: ModelSlot) -> None:
            others = [other for other in before if other is not replaced and self._slots.get(other.model.id) is other]
            await self._make_room(slot, others, replace=replace)

        slot.start(make_room)
        self._changed(slot)
        return slot

    async def _make_room(self, slot: ModelSlot, others: list[ModelSlot], *, replace: bool) -> None:
        """Plan the load, and wait until those that must go are gone.

        Raises:
            RuntimeFault: it cannot be loaded; only an older load of the same model is gone then.
        """
        slot.tell_stage("planning")
        try:
            if slot.options.wants_draft:
                slot.draft_path = (await self._draft_of(slot)).path
            async with self._choosing:
                going = await self._choose(slot, others, replace=replace)
        except RuntimeFault:
            self._retire_replaced(slot)
            raise
        self._retire_replaced(slot)
        leaving = [*self._leaving.copy(), *(other for other in others if other.is_doomed)]
        if any(other.users for other in leaving):
            slot.tell_stage("waiting for another model")
        began_at = time.monotonic()
        tasks = [self._retire(other, 0.0 if replace else ON_DEMAND_DRAIN_S) for other in leaving]
        if tasks:
            await asyncio.shield(asyncio.gather(*tasks))
        if going and time.monotonic() - began_at > REPLAN_AFTER_S:
            async with self._choosing:
                await self._choose(slot, [], replace=False)

    async def _draft_of(self, slot: ModelSlot) -> InstalledModel:
        name = slot.options.draft_model
        try:
            return await asyncio.to_thread(self._catalogue.resolve, name)
        except ModelNotFound as error:
            raise ModelNotFound(
                f"The draft model {name!r} of {slot.model.id} is not installed.",
                hint="Choose another draft model, or none.",
                model=name,
                param="draft_model",
            ) from error

    async def _choose(self, slot: ModelSlot, others: list[ModelSlot], *, replace: bool) -> tuple[ModelSlot, ...]:
        free = [other for other in others if not other.is_doomed]
        gone = [*self._leaving, *(other for other in others if other.is_doomed)]
        room = await find_room(
            self._planner,
            slot,
            free,
            gone,
            staying=[other for other in self._slots.values() if other is not slot and other not in others],
            most_loaded=self._models_options().max_loaded,
            replace=replace,
        )
        slot.plan = room.plan
        # Without a plan nobody knows what fits: a request's model replaces the others, a person's need not.
        going = room.going if room.plan is not None or replace or slot not in self._asked_for else ()
        for other in going:
            other.is_doomed = True
        return going

    def _retire_replaced(self, slot: ModelSlot) -> None:
        """An older load of the same model: a person who loads it anew does not wait for its answers."""
        for other in self._leaving.copy():
            if other.model.id == slot.model.id:
                self._retire(other, 0.0 if slot in self._asked_for else ON_DEMAND_DRAIN_S)

    def _idle_limit_s(self, slot: ModelSlot) -> float | None:
        if slot.on_demand and slot.keep_s is not None:
            return slot.keep_s if slot.keep_s >= 0 else None
        chosen = self._models_options().idle_unload_s
        return float(chosen) if chosen is not None else IDLE_LIMIT_S if slot.on_demand else None

    async def _unload_idle(self) -> None:
        while True:
            await asyncio.sleep(IDLE_CHECK_S)
            for slot in self.slots():
                if slot.idle_left_s == 0.0:
                    log.info("%s is unloaded: nobody used it", slot.model.id)
                    self._retire(slot, ON_DEMAND_DRAIN_S)

    def options_changed(self) -> None:
        """Tell anew when models are to be unloaded."""
        for slot in self.slots():
            self._changed(slot)

    def _retire(self, slot: ModelSlot, drain_s: float) -> "asyncio.Task[None]":
        """Unload in a task of its own: whoever waits for it may be cancelled, the unload goes on."""
        task = asyncio.create_task(self._retire_now(slot, drain_s), name=f"unload {slot.model.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _retire_now(self, slot: ModelSlot, drain_s: float) -> None:
        self._asked_for.pop(slot, None)
        if drain_s > 0:
            await slot.give_way(drain_s)
        else:
            await slot.unload()
        self._leaving.discard(slot)
        if self._slots.get(slot.model.id) is slot:
            del self._slots[slot.model.id]
            self._send(ModelGone(slot.model.id))

    def _changed(self, slot: ModelSlot) -> None:
        if self._slots.get(slot.model.id) is slot:
            self._note_loaded(slot)
            self._send(ModelChanged(slot.public()))

    def _note_loaded(self, slot: ModelSlot) -> None:
        """Options that do not work must not be remembered: every later load would fail with them."""
        if slot.state == "ready" and slot in self._asked_for:
            self._on_loaded(slot.model.id, self._asked_for.pop(slot))
