"""The formula, and how close it is to what llama.cpp itself says."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.fit.defaults import CPU_ONLY, Placement, experts_in_ram, resolve
from runtime.fit.formula import PROJECTOR_COMPUTE_BYTES, estimate
from runtime.gguf.architecture import ModelShape
from runtime.messages.load import DeviceMemory, ResolvedLoad
from runtime.options import LoadOptions
from runtime.probe.report import DryRun
from tests.support.probe_child import NodeChild, ProbeChild
from tests.support.sparse_models import MODELS

Shape = Callable[[str], ModelShape]
PLENTY = 2**62


def load(shape: ModelShape, placement: Placement = CPU_ONLY, **options: object) -> ResolvedLoad:
    asked = LoadOptions(**({"n_ctx": 8192} | options))  # type: ignore[arg-type]
    return resolve(shape, asked, n_cores=4, free_bytes=PLENTY, placement=placement)


def on(memory: tuple[DeviceMemory, ...], device: str) -> DeviceMemory:
    return next(entry for entry in memory if entry.device == device)


def test_when_all_is_on_the_processor_then_the_weights_are_the_file(shape: Shape) -> None:
    model = shape("llama-8b")
    found = estimate(model, load(model))
    assert found.n_layer_on == {"CPU": 33}
    assert found.memory[0].weight_bytes == pytest.approx(model.size_bytes, rel=1e-4)


def test_when_all_is_on_a_gpu_then_only_the_embeddings_stay(shape: Shape) -> None:
    model = shape("llama-8b")
    found = estimate(model, load(model, Placement(33, ("A",))))
    assert found.n_layer_on == {"A": 33}
    assert on(found.memory, "CPU").weight_bytes == model.input_bytes
    assert on(found.memory, "CPU").context_bytes == 0
    assert on(found.memory, "A").weight_bytes == model.layers_bytes + model.output_bytes


def test_when_embeddings_are_tied_then_a_gpu_takes_a_copy_of_them(shape: Shape) -> None:
    model = shape("gemma3-27b")
    found = estimate(model, load(model, Placement(63, ("A",))))
    assert sum(entry.weight_bytes for entry in found.memory) > model.size_bytes + 0.9 * model.input_bytes


def test_when_experts_stay_in_memory_then_only_they_do(shape: Shape) -> None:
    model = shape("qwen3-30b-a3b")
    placement = Placement(49, ("A",), overrides=(experts_in_ram(range(20)),), n_cpu_moe=20)
    found = estimate(model, load(model, placement))
    experts = sum(layer.expert_bytes for layer in model.layers[:20])
    assert on(found.memory, "CPU").weight_bytes == model.input_bytes + experts
    assert on(found.memory, "A").weight_bytes == model.layers_bytes - experts + model.output_bytes


def test_when_the_cache_is_quantized_then_it_takes_its_share(shape: Shape) -> None:
    model = shape("llama-8b")
    wide = estimate(model, load(model)).memory[0].context_bytes
    narrow = estimate(model, load(model, type_k="q8_0", type_v="q8_0")).memory[0].context_bytes
    assert narrow / wide == pytest.approx(34 / 64)


def test_when_layers_look_back_only_a_window_then_a_longer_context_costs_the_others_alone(shape: Shape) -> None:
    model = shape("gemma3-27b")
    short, long = (estimate(model, load(model, n_ctx=n_ctx)).memory[0].context_bytes for n_ctx in (16_384, 32_768))
    full = sum(not layer.n_swa for layer in model.layers)
    layer = model.layers[0]
    assert long - short == 16_384 * full * 2 * (layer.k_width + layer.v_width)


def test_when_a_model_is_recurrent_then_the_context_costs_nothing(shape: Shape) -> None:
    model = shape("mamba-2.8b")
    short, long = (estimate(model, load(model, n_ctx=n_ctx)).memory[0] for n_ctx in (4096, 65_536))
    assert short.context_bytes == long.context_bytes > 0


def test_when_there_is_a_projector_then_the_first_device_holds_it(shape: Shape) -> None:
    model = shape("llama-1b")
    found = estimate(model, load(model, Placement(17, ("A",))), projector_bytes=10**9)
    assert on(found.memory, "A").projector_bytes == 10**9 + PROJECTOR_COMPUTE_BYTES
    assert on(found.memory, "CPU").projector_bytes == 0


def test_when_a_card_helps_the_processor_then_it_has_room_for_the_widest_matrix(shape: Shape) -> None:
    model = shape("llama-70b")
    resolved = load(model, Placement(20, ("A",)))
    plain = on(estimate(model, resolved).memory, "A")
    card = on(estimate(model, resolved, kinds={"A": "gpu"}).memory, "A")
    copied = card.compute_bytes - plain.compute_bytes
    assert model.layers[0].weight_bytes // 5 < copied <= model.largest_tensor_bytes


# --- against llama.cpp ------------------------------------------------------------------------------------

WITHIN = 0.08
"""Of a compute buffer; weights and context must agree to a thousandth."""


@pytest.mark.e2e
@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("flash", ["on", "off"])
def test_when_llama_cpp_measures_a_load_on_the_processor_then_the_formula_agrees(
    shape: Shape, model_path: Callable[[str], Path], probe: ProbeChild, name: str, flash: str
) -> None:
    model = shape(name)
    for n_ctx in (4096, 16_384):
        resolved = load(model, n_ctx=n_ctx, flash_attn=flash)
        _compare(estimate(model, resolved).memory, probe.dry_run(DryRun(str(model_path(name)), resolved)).memory)


@pytest.mark.e2e
@pytest.mark.parametrize("name", list(MODELS))
def test_when_llama_cpp_measures_a_load_on_two_devices_then_the_formula_agrees(
    shape: Shape, model_path: Callable[[str], Path], probe: ProbeChild, node: NodeChild, name: str
) -> None:
    model = shape(name)
    device = next(found.name for found in probe.devices([node.address]).compute if found.node == node.address)
    experts = (experts_in_ram(range(10)),) if model.is_moe else ()
    for n_units in (model.n_layer // 3, model.n_layer + 1):
        placement = Placement(
            n_units, (device,), nodes=(node.address,), overrides=experts, n_cpu_moe=10 if experts else 0
        )
        for type_kv in ("f16", "q8_0"):
            resolved = load(model, placement, type_k=type_kv, type_v=type_kv)
            _compare(estimate(model, resolved).memory, probe.dry_run(DryRun(str(model_path(name)), resolved)).memory)


def _compare(guessed: tuple[DeviceMemory, ...], measured: tuple[DeviceMemory, ...]) -> None:
    assert {entry.device for entry in guessed} == {entry.device for entry in measured}
    for entry in measured:
        mine = on(guessed, entry.device)
        assert mine.weight_bytes == pytest.approx(entry.weight_bytes, rel=1e-3), entry.device
        assert mine.context_bytes == pytest.approx(entry.context_bytes, rel=1e-3), entry.device
        assert mine.output_bytes == pytest.approx(entry.output_bytes, rel=1e-3, abs=2**16), entry.device
        assert mine.compute_bytes == pytest.approx(entry.compute_bytes, rel=WITHIN, abs=2**22), entry.device
