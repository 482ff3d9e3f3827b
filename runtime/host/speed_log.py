"""What this machine's loads and answers taught, kept in the catalogue: planned against actual, and speeds.

Only answers that had the model and the machine's models to themselves count, and at most one of a model in
`PERIOD_S`: they correct predictions, so they must measure the devices and nothing else.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from runtime.errors import RuntimeFault
from runtime.fit.speed import predict, sample_of
from runtime.gguf.architecture import ModelShape
from runtime.host.model_slot import ModelSlot
from runtime.messages.api import InstalledModel
from runtime.messages.fit import LoadRecord, MachineSpeed, SpeedSample
from runtime.messages.load import ResolvedLoad
from runtime.messages.shared import Timings, Usage
from runtime.units import now

log = logging.getLogger(__name__)

PERIOD_S = 20.0
"""At most one answer of a model in so long is kept."""
MIN_GENERATED_TOKENS = 32
"""Shorter answers measure the start of the engine more than its speed."""
MIN_PROMPT_TOKENS = 256
"""Of prompts, tokens that were read and not cached."""
MAX_KEPT = 500
"""The newest samples that are handed to predictions, which look at no more."""


class Store(Protocol):
    """The catalogue's records. Blocking: called in a thread (`runtime.library.records.Records`)."""

    def save_load(self, record: LoadRecord) -> None:
        """Remember the last load of a model."""
        ...

    def load(self, model: str) -> LoadRecord | None:
        """The last load of a model."""
        ...

    def add_speed(self, key: str, run: SpeedSample) -> None:
        """Remember a measured run."""
        ...

    def speeds(self, kind: type[SpeedSample], key: str | None = None) -> tuple[SpeedSample, ...]:
        """Measured runs, oldest first."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer that was alone: the model's own figures of it."""

    usage: Usage
    timings: Timings


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The load an answer belongs to, as values that stay as they are while the slot goes on."""

    model: InstalledModel
    resolved: ResolvedLoad
    n_layer_on: dict[str, int]


class SpeedLog:
    """Home: the event loop."""

    def __init__(
        self,
        store: Store,
        shape_of: Callable[[InstalledModel], Awaitable[ModelShape]],
        machine_speed: Callable[[], MachineSpeed | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._shape_of = shape_of
        self._machine_speed = machine_speed
        self._clock = clock
        self._samples: tuple[SpeedSample, ...] | None = None
        self._reading = asyncio.Lock()
        self._last_at: dict[str, float] = {}
        """By model; as many as were answered in `PERIOD_S`."""
        self._tasks: set[asyncio.Task[None]] = set()

    # --- what was learnt ----------------------------------------------------------------------------------

    async def samples(self) -> tuple[SpeedSample, ...]:
        """The newest `MAX_KEPT` answers, oldest first; none where the catalogue cannot be read."""
        async with self._reading:
            if self._samples is None:
                try:
                    self._samples = (await asyncio.to_thread(self._store.speeds, SpeedSample))[-MAX_KEPT:]
                except RuntimeFault as error:
                    log.warning("measured speeds cannot be read: %s", error.message)
                    self._samples = ()
        return self._samples

    async def record(self, model_id: str) -> LoadRecord | None:
        """Planned against actual of the last load of a model."""
        return await asyncio.to_thread(self._store.load, model_id)

    # --- what happens -------------------------------------------------------------------------------------

    def loaded(self, slot: ModelSlot) -> None:
        """A model is loaded: remember what it took."""
        facts = slot.facts
        if facts is not None:
            self._begin(self._save(LoadRecord(slot.model.id, now(), slot.plan, facts.memory)))

    def answered(self, slot: ModelSlot, answer: Answer) -> None:
        """A model gave an answer while nothing else ran."""
        facts, plan, at = slot.facts, slot.plan, self._clock()
        last_at = self._last_at.get(slot.model.id, float("-inf"))
        if facts is None or plan is None or at - last_at < PERIOD_S:
            return
        timings = trusted(answer)
        if not (timings.generation_tps or timings.prompt_tps):
            return
        self._last_at = {model: seen for model, seen in self._last_at.items() if at - seen < PERIOD_S}
        self._last_at[slot.model.id] = at
        n_layer_on = facts.n_layer_on or {
            budget.device.name: budget.n_layers for budget in plan.budgets if budget.n_layers
        }
        self._begin(self._learn(_Loaded(slot.model, plan.resolved, n_layer_on), answer.usage, timings))

    async def close(self) -> None:
        """Wait for what is being written."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5.0)

    def _begin(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            try:
                await work
            except RuntimeFault as error:
                log.warning("what was learnt could not be kept: %s", error.message)
            except Exception:
                log.exception("what was learnt could not be kept")

        task = asyncio.create_task(run(), name="keep what was learnt")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _save(self, record: LoadRecord) -> None:
        await asyncio.to_thread(self._store.save_load, record)

    async def _learn(self, loaded: _Loaded, usage: Usage, timings: Timings) -> None:
        shape = await self._shape_of(loaded.model)
        await self.samples()
        predicted = predict(
            shape,
            loaded.resolved,
            speed=self._machine_speed(),
            n_layer_on=loaded.n_layer_on,
            depth=usage.prompt_tokens + usage.completion_tokens // 2,
            model=loaded.model.id,
        )
        sample = sample_of(
            predicted,
            shape,
            loaded.resolved,
            model=loaded.model.id,
            at_s=now(),
            n_layer_on=loaded.n_layer_on,
            generation_tps=timings.generation_tps,
            prompt_tps=timings.prompt_tps,
        )
        self._samples = (*(self._samples or ()), sample)[-MAX_KEPT:]
        await asyncio.to_thread(self._keep, sample)

    def _keep(self, sample: SpeedSample) -> None:
        self._store.add_speed(sample.model, sample)
        record = self._store.load(sample.model)
        if record is not None:
            self._store.save_load(
                LoadRecord(
                    record.model,
                    record.at_s,
                    record.plan,
                    record.actual,
                    sample.generation_tps or record.generation_tps,
                    sample.prompt_tps or record.prompt_tps,
                )
            )


def trusted(answer: Answer) -> Timings:
    """The answer's speeds, without those that too few tokens stand behind, or that guesses made faster."""
    usage, timings = answer.usage, answer.timings
    read = usage.prompt_tokens - usage.cached_tokens
    is_plain = usage.completion_tokens >= MIN_GENERATED_TOKENS and not timings.draft_tokens
    return Timings(
        generation_tps=timings.generation_tps if is_plain else 0.0,
        prompt_tps=timings.prompt_tps if read >= MIN_PROMPT_TOKENS else 0.0,
    )
