"""The planner driven by llama.cpp itself: what it plans fits by llama.cpp's figures, and no more would."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from runtime.fit.inputs import Ask, PlanInputs
from runtime.gguf.architecture import ModelShape
from runtime.messages.fit import Machine, Measured
from runtime.messages.load import ComputeDevice
from runtime.options import LoadOptions
from runtime.probe.report import DryRun
from tests.support.machines import GIB, machine, run_plan
from tests.support.probe_child import NodeChild, ProbeChild
from tests.support.sparse_models import MODELS

pytestmark = pytest.mark.e2e

Shape = Callable[[str], ModelShape]
Find = Callable[[str], Path]
USUAL_ROUNDS = 4


class Llama:
    """Answers the planner's questions about one model; counts them."""

    def __init__(self, probe: ProbeChild, path: Path) -> None:
        self._probe = probe
        self._path = path
        self.asked: list[Ask] = []

    def __call__(self, ask: Ask) -> Measured:
        self.asked.append(ask)
        return self._probe.dry_run(DryRun(str(self._path), ask.resolved))


@pytest.fixture
def card(probe: ProbeChild, node: NodeChild) -> Callable[[float], ComputeDevice]:
    """The node as a device with so much memory."""
    found = next(device for device in probe.devices([node.address]).compute if device.node == node.address)

    def sized(gib: float) -> ComputeDevice:
        return msgspec.structs.replace(
            found, total_bytes=int(gib * GIB), free_bytes=int(gib * GIB) - 1, description="Card"
        )

    return sized


def on_node(device: ComputeDevice, ram_gib: float) -> Machine:
    """A machine whose own memory is too little, so that the device is used."""
    speeds = {device.name: 500e9, "CPU": 5e9}
    return machine(device, ram_gib=ram_gib, free_gib=ram_gib - 2, speeds=speeds)


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("share", [0.4, 1.6])
def test_when_a_plan_is_made_then_it_fits_by_the_figures_of_llama_cpp(
    shape: Shape,
    model_path: Find,
    probe: ProbeChild,
    card: Callable[[float], ComputeDevice],
    name: str,
    share: float,
) -> None:
    model = shape(name)
    device = card(model.size_bytes * share / GIB + 1.5)
    inputs = PlanInputs(name, model, LoadOptions(), on_node(device, ram_gib=128))
    llama = Llama(probe, model_path(name))
    made = run_plan(inputs, llama)
    assert made.method == "dry_run"
    assert made.verdict in ("gpu", "partial")
    assert all(bar.free_bytes >= 0 for bar in made.budgets)
    assert len(llama.asked) <= USUAL_ROUNDS
    told = llama(Ask("model", made.resolved))
    assert [bar.memory for bar in made.budgets] == list(told.memory)
    assert sum(bar.n_layers for bar in made.budgets) == made.n_layer


@pytest.mark.parametrize("name", ["llama-8b", "gemma3-27b", "llama-70b"])
def test_when_one_layer_more_is_tried_then_it_does_not_fit(
    shape: Shape, model_path: Find, probe: ProbeChild, card: Callable[[float], ComputeDevice], name: str
) -> None:
    model = shape(name)
    device = card(model.size_bytes * 0.5 / GIB + 1.5)
    inputs = PlanInputs(name, model, LoadOptions(n_ctx=8192), on_node(device, ram_gib=128))
    llama = Llama(probe, model_path(name))
    made = run_plan(inputs, llama)
    assert made.verdict == "partial"
    more = msgspec.structs.replace(made.resolved, n_gpu_layers=made.resolved.n_gpu_layers + 1)
    taken = next(entry.total_bytes for entry in llama(Ask("model", more)).memory if entry.device == device.name)
    bar = made.budgets[0]
    assert bar.memory.total_bytes <= bar.memory.total_bytes + bar.free_bytes < taken


def test_when_experts_are_planned_in_memory_then_they_stay_there(
    shape: Shape, model_path: Find, probe: ProbeChild, card: Callable[[float], ComputeDevice]
) -> None:
    model = shape("qwen3-30b-a3b")
    inputs = PlanInputs("m", model, LoadOptions(), on_node(card(10), ram_gib=64))
    made = run_plan(inputs, Llama(probe, model_path("qwen3-30b-a3b")))
    experts = sum(layer.expert_bytes for layer in model.layers[: made.resolved.n_cpu_moe])
    assert made.resolved.n_cpu_moe > 0
    assert made.budgets[-1].memory.weight_bytes == pytest.approx(experts + model.input_bytes, rel=1e-3)


def test_when_there_is_only_the_processor_then_the_plan_is_what_llama_cpp_takes(
    shape: Shape, model_path: Find, probe: ProbeChild
) -> None:
    inputs = PlanInputs("m", shape("llama-8b"), LoadOptions(), machine(ram_gib=16))
    llama = Llama(probe, model_path("llama-8b"))
    made = run_plan(inputs, llama)
    assert (made.verdict, made.method, len(llama.asked)) == ("cpu", "dry_run", 1)
