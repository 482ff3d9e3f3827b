"""Who makes room for a model that is to be loaded.

Several models stay loaded while memory allows. A load first asks for the plan it would get with everything else gone;
then the one used longest ago is given up, and the next, until the plan is as good as that one. So no more go than are
needed, none goes for a model that cannot be loaded at all, and one that is answering goes last and after its answers.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from runtime.errors import ModelLoadFailed, NotEnoughMemory, RuntimeFault
from runtime.host.model_slot import ModelSlot
from runtime.messages.api import InstalledModel
from runtime.messages.fit import MemoryPlan
from runtime.messages.load import DeviceMemory
from runtime.options import LoadOptions

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Holding:
    """What one of our models holds.

    Attributes:
        memory: by device; what it really took, or while it loads what was planned.
        is_taken: false while it loads: then it is not yet missing in what is free.
        is_mapped: weights in system memory are read from the file, so the system counts them as free.
    """

    model_id: str
    memory: tuple[DeviceMemory, ...]
    is_taken: bool
    is_mapped: bool


class LoadPlanner(Protocol):
    """Plans a load among our other models."""

    async def plan_load(
        self,
        model: InstalledModel,
        options: LoadOptions,
        *,
        staying: Sequence[Holding],
        going: Sequence[Holding],
    ) -> MemoryPlan:
        """The exact plan with `going` unloaded and `staying` left where they are.

        Raises:
            RuntimeFault: the options cannot be combined, or the file cannot be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class Room:
    """What a load needs: `plan` to follow (`None` where none could be made), and who goes first."""

    plan: MemoryPlan | None
    going: tuple[ModelSlot, ...]


def holding_of(slot: ModelSlot) -> Holding:
    """What this model holds or is about to."""
    resolved = slot.plan.resolved if slot.plan is not None else None
    is_taken = slot.state == "ready" and slot.facts is not None
    if is_taken and slot.facts is not None and slot.facts.memory:
        memory = slot.facts.memory
    elif slot.plan is not None and slot.state != "failed":
        memory = tuple(budget.memory for budget in slot.plan.budgets)
    else:
        memory = ()
    return Holding(
        slot.model.id,
        memory,
        is_taken,
        resolved.use_mmap if resolved is not None else slot.options.use_mmap,
    )


def longest_unused_first(slots: Sequence[ModelSlot]) -> list[ModelSlot]:
    """The order in which models are given up: failed ones, idle ones, then those that answer."""
    return sorted(slots, key=lambda slot: (slot.state != "failed", slot.users > 0, slot.used_at))


async def find_room(
    planner: LoadPlanner | None,
    slot: ModelSlot,
    others: Sequence[ModelSlot],
    gone: Sequence[ModelSlot],
    *,
    staying: Sequence[ModelSlot] = (),
    most_loaded: int | None = None,
    replace: bool = False,
) -> Room:
    """Choose who goes so that `slot` can be loaded.

    Args:
        planner: none, and all others go, as they do when a plan cannot be made.
        slot: what is to be loaded.
        others: that may go; those that are loading among them.
        gone: that go anyway.
        staying: that may not go: loads that began later.
        most_loaded: how many models the person wants at once.
        replace: all others go, whether they must or not.

    Raises:
        NotEnoughMemory: it does not fit, whoever goes.
        ModelLoadFailed: this llama.cpp cannot load it.
        RuntimeFault: as the planner raised.
    """
    order = longest_unused_first(others)
    if planner is None:
        return Room(None, tuple(order))
    try:
        return await _room(planner, slot, order, gone, staying=staying, most_loaded=most_loaded, replace=replace)
    except RuntimeFault:
        raise
    except Exception:
        log.exception("no plan could be made for %s", slot.model.id)
        return Room(None, tuple(order))


async def _room(
    planner: LoadPlanner,
    slot: ModelSlot,
    order: list[ModelSlot],
    gone: Sequence[ModelSlot],
    *,
    staying: Sequence[ModelSlot],
    most_loaded: int | None,
    replace: bool,
) -> Room:
    async def plan_with(n_going: int) -> MemoryPlan:
        going = [holding_of(one) for one in (*gone, *order[:n_going])]
        kept = [holding_of(one) for one in (*staying, *order[n_going:])]
        return await planner.plan_load(slot.model, slot.options, staying=kept, going=going)

    best = await plan_with(len(order))
    check_loadable(best, slot.model, anyway=slot.loads_anyway)
    if replace or best.verdict == "too_large":
        return Room(best, tuple(order))
    n_failed = sum(1 for one in order if one.state == "failed")
    least = max(n_failed, len(order) + 1 - most_loaded if most_loaded is not None else 0)
    for n_going in range(least, len(order)):
        plan = await plan_with(n_going)
        if is_as_good(plan, best):
            return Room(plan, tuple(order[:n_going]))
    return Room(best, tuple(order))


def is_as_good(plan: MemoryPlan, best: MemoryPlan) -> bool:
    """Whether nobody would miss what another model's going could bring."""
    return (
        plan.verdict == best.verdict
        and plan.n_layer_gpu >= best.n_layer_gpu
        and plan.resolved.n_cpu_moe <= best.resolved.n_cpu_moe
        and plan.resolved.n_ctx >= best.resolved.n_ctx
    )


def check_loadable(plan: MemoryPlan, model: InstalledModel, *, anyway: bool = False) -> None:
    """Refuse a plan that says it cannot be loaded; `anyway`: the person wants it tried where memory is too small.

    Raises:
        NotEnoughMemory: it does not fit.
        ModelLoadFailed: this llama.cpp cannot load it.
    """
    if plan.verdict == "too_large" and not anyway:
        raise NotEnoughMemory(
            plan.problem or f"{model.id} cannot be loaded now. {plan.sentence}.",
            hint="Choose a smaller quantization, a shorter context or a smaller cache type, or close other programs.",
            path=model.path,
            needed_bytes=plan.needed_bytes,
            free_bytes=plan.free_bytes,
        )
    if plan.verdict == "unsupported":
        raise ModelLoadFailed(
            plan.problem or f"{model.id} is of a kind the built-in engine does not know.",
            hint="A newer Deskside may know it.",
            path=model.path,
        )
