from collections.abc import Callable

import msgspec

from runtime.fit.budget import GIB, WORKER_BYTES, Budgets
from runtime.fit.inputs import PlanInputs
from runtime.gguf.architecture import ModelShape
from runtime.messages.fit import Machine
from runtime.messages.load import DeviceMemory
from runtime.options import LoadOptions, ModelsOptions
from tests.support.machines import gpu, machine, node

Shape = Callable[[str], ModelShape]


def budgets(shape: Shape, where: Machine, **more: object) -> Budgets:
    return Budgets(PlanInputs("m", shape("llama-1b"), LoadOptions(), where, **more))  # type: ignore[arg-type]


def test_when_nothing_is_set_then_each_device_keeps_a_margin(shape: Shape) -> None:
    found = budgets(shape, machine(gpu("A", 4), gpu("B", 8), gpu("C", 24), gpu("D", 80), ram_gib=32))
    margins = [budget.margin_bytes for budget in found.gpus]
    assert margins == [GIB // 2, GIB, GIB, 2 * GIB]
    assert found.cpu.margin_bytes == 2 * GIB + WORKER_BYTES


def test_when_the_person_set_a_margin_then_it_holds(shape: Shape) -> None:
    wanted = ModelsOptions(gpu_margin_bytes=3 * GIB, ram_margin_bytes=0)
    found = budgets(shape, machine(gpu("A", 8, 7)), models_options=wanted)
    assert found.gpus[0].usable_bytes == 4 * GIB
    assert found.cpu.margin_bytes == 0


def test_when_our_own_models_would_go_then_what_they_hold_counts_as_free(shape: Shape) -> None:
    where = machine(gpu("A", 8, 2))
    alone = budgets(shape, where, ours_bytes={"A": 5 * GIB})
    beside = budgets(shape, where, ours_bytes={"A": 5 * GIB}, alone=False)
    assert alone.gpus[0].free_bytes == 7 * GIB
    assert beside.gpus[0].free_bytes == 2 * GIB


def test_when_more_would_come_free_than_there_is_then_the_total_is_the_bound(shape: Shape) -> None:
    found = budgets(shape, machine(gpu("A", 8, 7)), ours_bytes={"A": 5 * GIB})
    assert found.gpus[0].free_bytes == 8 * GIB


def test_when_a_device_tells_no_memory_then_it_is_not_planned_with(shape: Shape) -> None:
    found = budgets(shape, machine(gpu("A", 0, 0)))
    assert found.locals() == ()
    assert [device.name for device in found.silent] == ["A"]


def test_when_there_is_a_card_then_the_integrated_gpu_is_left_out(shape: Shape) -> None:
    found = budgets(shape, machine(gpu("I", 16, 16, kind="igpu"), gpu("A", 8)))
    assert [budget.name for budget in found.locals()] == ["A"]


def test_when_a_gpu_works_in_system_memory_then_both_share_one_budget(shape: Shape) -> None:
    found = budgets(shape, machine(gpu("M", 12, 12, kind="igpu"), ram_gib=16, free_gib=10, unified=True))
    taken = [DeviceMemory("M", weight_bytes=6 * GIB), DeviceMemory("CPU", weight_bytes=3 * GIB)]
    over = found.overshoot(taken)
    assert over == {"CPU": 9 * GIB - found.cpu.usable_bytes}
    assert found.usable_bytes(["M", "CPU"]) == found.cpu.usable_bytes


def test_when_a_node_lends_this_machines_own_memory_then_it_is_counted_once(shape: Shape) -> None:
    here = node("127.0.0.1:50052", total_gib=32, free_gib=32)
    found = budgets(shape, machine(here, ram_gib=32))
    assert found.nodes[0].in_ram
    assert found.nodes[0].free_bytes <= 26 * GIB


def test_when_a_node_here_lends_a_card_then_it_has_its_own_budget(shape: Shape) -> None:
    found = budgets(shape, machine(node("127.0.0.1:50052", total_gib=24), ram_gib=32))
    assert not found.nodes[0].in_ram


def test_when_free_memory_is_below_the_margin_then_nothing_is_usable(shape: Shape) -> None:
    found = budgets(shape, machine(gpu("A", 8, 0.3)))
    assert found.gpus[0].usable_bytes == 0


def test_when_a_device_is_an_accelerator_then_it_holds_no_layers(shape: Shape) -> None:
    blas = msgspec.structs.replace(gpu("BLAS", 8), kind="accelerator")
    assert budgets(shape, machine(blas)).locals() == ()


def test_when_a_node_tells_all_its_memory_as_free_then_more_is_kept_there(shape: Shape) -> None:
    found = budgets(shape, machine(node(total_gib=32, free_gib=32)))
    assert found.nodes[0].margin_bytes == 4 * GIB
