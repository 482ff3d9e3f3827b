"""Who makes room: no more than needed, the longest unused first, none in vain."""

import asyncio
from collections.abc import Sequence

import pytest

from runtime.errors import BadRequest, ModelLoadFailed, NotEnoughMemory
from runtime.host.model_slot import ModelSlot, RestartPolicy, SlotHooks
from runtime.host.room import Holding, Room, find_room, holding_of, longest_unused_first
from runtime.host.worker_gate import WorkerGate
from runtime.messages.api import InstalledModel, ModelState
from runtime.messages.fit import DeviceBudget, MemoryPlan, VerdictKind
from runtime.messages.load import ComputeDevice, DeviceMemory, ResolvedLoad
from runtime.messages.shared import ModelFacts
from runtime.options import LoadOptions

GPU = ComputeDevice("GPU0", "a card", "gpu", 100, 100)


def make_plan(model: str, size_bytes: int, verdict: VerdictKind, *, n_layer_gpu: int = 0) -> MemoryPlan:
    resolved = ResolvedLoad(
        n_ctx=8192, n_parallel=1, n_seq_max=1, n_cells=8192, n_batch=512, n_ubatch=512, n_threads=1, n_gpu_layers=0
    )
    budget = DeviceBudget(GPU, DeviceMemory("GPU0", weight_bytes=size_bytes), n_layer_gpu, 0, 0, 0)
    return MemoryPlan(
        model=model,
        options=LoadOptions(),
        resolved=resolved,
        verdict=verdict,
        sentence="Too large: needs much",
        reason="",
        budgets=(budget,),
        needed_bytes=size_bytes,
        free_bytes=0,
        n_layer=10,
        n_layer_gpu=n_layer_gpu,
        method="dry_run",
    )


class OneCard:
    """Plans on one card of 100 bytes: whole on it, else half of the layers, else not at all."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    async def plan_load(
        self, model: InstalledModel, options: LoadOptions, *, staying: Sequence[Holding], going: Sequence[Holding]
    ) -> MemoryPlan:
        if options.n_ctx == 666:
            raise BadRequest("That cannot be combined.")
        if options.n_ctx == 777:
            raise ZeroDivisionError
        self.asked.append((len(staying), len(going)))
        free = 100 - sum(memory.total_bytes for one in staying for memory in one.memory)
        if model.name == "odd":
            return make_plan(model.id, model.size_bytes, "unsupported")
        if model.size_bytes <= free:
            return make_plan(model.id, model.size_bytes, "gpu", n_layer_gpu=10)
        if model.size_bytes <= 2 * free:
            return make_plan(model.id, model.size_bytes, "partial", n_layer_gpu=5)
        return make_plan(model.id, model.size_bytes, "too_large")


def make_slot(
    name: str,
    size_bytes: int,
    *,
    state: ModelState = "ready",
    users: int = 0,
    used_at: float = 0.0,
    options: LoadOptions | None = None,
) -> ModelSlot:
    hooks = SlotHooks(
        on_change=lambda _slot: None,
        on_notice=lambda _notice: None,
        on_restart=lambda _model: None,
        on_log_line=lambda _model, _line: None,
        on_ready=lambda _slot: None,
        idle_limit_s=lambda _slot: None,
    )
    model = InstalledModel(name, name, f"/{name}.gguf", size_bytes)
    slot = ModelSlot(
        model, options or LoadOptions(), gate=WorkerGate(), command=(), hooks=hooks, policy=RestartPolicy()
    )
    slot.state = state
    slot.users = users
    slot.used_at = used_at
    slot.plan = make_plan(name, size_bytes, "gpu")
    return slot


def room_for(slot: ModelSlot, others: Sequence[ModelSlot], planner: OneCard | None = None, **told: object) -> Room:
    async def run() -> Room:
        return await find_room(planner or OneCard(), slot, others, (), **told)  # type: ignore[arg-type]

    return asyncio.run(run())


def names(room: Room) -> list[str]:
    return [slot.model.id for slot in room.going]


def test_when_there_is_room_then_nobody_goes() -> None:
    room = room_for(make_slot("new", 30), [make_slot("a", 30), make_slot("b", 40)])
    assert names(room) == []
    assert room.plan is not None
    assert room.plan.verdict == "gpu"


def test_when_room_is_needed_then_the_longest_unused_goes_and_no_more() -> None:
    a, b, c = make_slot("a", 30, used_at=2), make_slot("b", 30, used_at=1), make_slot("c", 30, used_at=3)
    assert names(room_for(make_slot("new", 30), [a, b, c])) == ["b"]
    assert names(room_for(make_slot("new", 60), [a, b, c])) == ["b", "a"]
    assert names(room_for(make_slot("new", 100), [a, b, c])) == ["b", "a", "c"]


def test_when_some_answer_then_they_are_the_last_to_go() -> None:
    answering = make_slot("answering", 40, users=2, used_at=1)
    idle = make_slot("idle", 40, used_at=5)
    assert names(room_for(make_slot("new", 50), [answering, idle])) == ["idle"]
    assert [slot.model.id for slot in longest_unused_first([answering, idle])] == ["idle", "answering"]


def test_when_it_fits_with_everyone_gone_only_in_part_then_that_is_as_good_as_it_gets() -> None:
    room = room_for(make_slot("new", 150), [make_slot("a", 20)])
    assert room.plan is not None
    assert (room.plan.verdict, room.plan.n_layer_gpu) == ("partial", 5)
    assert names(room) == []  # 80 bytes are free: no worse than 100


def test_when_it_cannot_fit_then_nobody_goes_and_it_fails() -> None:
    with pytest.raises(NotEnoughMemory, match="Too large") as raised:
        room_for(make_slot("new", 500), [make_slot("a", 20)])
    assert raised.value.details["needed_bytes"] == 500
    with pytest.raises(ModelLoadFailed, match="does not know"):
        room_for(make_slot("odd", 5), [make_slot("a", 20)])


def test_when_the_person_wants_it_anyway_then_all_go_for_it_but_not_for_what_no_engine_knows() -> None:
    others = [make_slot("a", 20), make_slot("b", 10)]
    wanted = make_slot("new", 500)
    wanted.loads_anyway = True
    room = room_for(wanted, others)
    assert room.plan is not None
    assert room.plan.verdict == "too_large"
    assert sorted(names(room)) == ["a", "b"]
    odd = make_slot("odd", 5)
    odd.loads_anyway = True
    with pytest.raises(ModelLoadFailed, match="does not know"):
        room_for(odd, others)


def test_when_others_are_to_be_replaced_then_all_go_but_only_for_what_can_be_loaded() -> None:
    others = [make_slot("a", 10), make_slot("b", 10)]
    assert names(room_for(make_slot("new", 10), others, replace=True)) == ["a", "b"]
    with pytest.raises(NotEnoughMemory):
        room_for(make_slot("new", 500), others, replace=True)


def test_when_only_so_many_are_wanted_then_enough_go() -> None:
    others = [make_slot("a", 10, used_at=2), make_slot("b", 10, used_at=1)]
    assert names(room_for(make_slot("new", 10), others, most_loaded=3)) == []
    assert names(room_for(make_slot("new", 10), others, most_loaded=2)) == ["b"]
    assert names(room_for(make_slot("new", 10), others, most_loaded=1)) == ["b", "a"]


def test_when_one_failed_then_it_goes_first_and_holds_nothing() -> None:
    failed = make_slot("failed", 90, state="failed", used_at=9)
    room = room_for(make_slot("new", 90), [make_slot("a", 5), failed])
    assert names(room) == ["failed"]
    assert holding_of(failed).memory == ()


def test_when_another_is_being_loaded_then_its_plan_counts() -> None:
    loading = make_slot("loading", 60, state="loading")
    assert holding_of(loading) == Holding("loading", (DeviceMemory("GPU0", weight_bytes=60),), False, True)
    room = room_for(make_slot("new", 30), [], staying=[loading])
    assert room.plan is not None
    assert room.plan.verdict == "gpu"
    with pytest.raises(NotEnoughMemory):
        room_for(make_slot("new", 90), [], staying=[loading])


def test_when_loaded_then_what_it_really_took_counts() -> None:
    slot = make_slot("a", 60)
    slot.facts = ModelFacts(
        name="a",
        architecture="llama",
        quantization="Q4_1",
        n_params=1,
        size_bytes=60,
        n_layer=2,
        n_vocab=1,
        n_ctx=1,
        n_ctx_train=1,
        n_parallel=1,
        has_chat_template=True,
        can_embed=False,
        reasoning=False,
        device_names=("GPU0",),
        n_gpu_layers=2,
        kv_bytes=1,
        compute_bytes=1,
        load_s=1.0,
        engine="x",
        memory=(DeviceMemory("GPU0", weight_bytes=50),),
    )
    assert holding_of(slot) == Holding("a", (DeviceMemory("GPU0", weight_bytes=50),), True, True)


def test_when_no_plan_can_be_made_then_all_are_named_and_the_load_may_try() -> None:
    others = [make_slot("a", 10)]

    async def without_planner() -> Room:
        return await find_room(None, make_slot("new", 10), others, ())

    assert asyncio.run(without_planner()) == Room(None, tuple(others))
    room = room_for(make_slot("new", 10, options=LoadOptions(n_ctx=777)), others)
    assert (room.plan, names(room)) == (None, ["a"])
    with pytest.raises(BadRequest):
        room_for(make_slot("new", 10, options=LoadOptions(n_ctx=666)), others)
