from collections.abc import Callable

import msgspec
import pytest

from runtime.fit.speed import PROMPT_TOKENS, main_type, placement, predict, sample_of
from runtime.gguf.architecture import ModelShape
from runtime.messages.fit import AttentionSpeed, MachineSpeed, SpeedRange, Throughput
from runtime.messages.load import ResolvedLoad

CPU, GPU = "CPU", "CUDA0"
CPU_BPS, GPU_BPS = 20e9, 400e9
LOAD = ResolvedLoad(
    n_ctx=8192, n_parallel=1, n_seq_max=1, n_cells=8192, n_batch=512, n_ubatch=512, n_threads=8, n_gpu_layers=0,
    flash_attn="off",
)  # fmt: skip
ON_GPU = msgspec.structs.replace(LOAD, n_gpu_layers=33, devices=(GPU,), flash_attn="on")
Shapes = Callable[[str], ModelShape]


def kernels(device: str, bps: float, flops: float) -> tuple[Throughput, ...]:
    return tuple(Throughput(device, kind, bps, flops, 0.0) for kind in ("Q4_K", "Q6_K", "F32"))


SPEED = MachineSpeed(
    key="",
    measured_s=0.0,
    throughput=(*kernels(CPU, CPU_BPS, 200e9), *kernels(GPU, GPU_BPS, 20e12)),
    memory_bps={CPU: 40e9, GPU: GPU_BPS},
    n_threads=8,
    attention=(AttentionSpeed(CPU, "f16", False, 20e9, 40e9), AttentionSpeed(GPU, "f16", True, 500e9, 5e12)),
    layer_s={CPU: 20e-6, GPU: 10e-6},
    hop_s={GPU: 50e-6},
    link_bps={GPU: 10e9},
)


def at(shape: ModelShape, load: ResolvedLoad = LOAD, depth: int = 0, **more: object) -> SpeedRange:
    return predict(shape, load, speed=SPEED, depth=depth, **more)  # type: ignore[arg-type]


def touched_bytes(shape: ModelShape) -> int:
    return shape.layers_bytes + shape.output_bytes


def test_when_a_dense_model_is_on_the_processor_then_a_token_reads_all_layers_and_the_output(shape: Shapes) -> None:
    model = shape("llama-8b")
    expected_s = touched_bytes(model) / CPU_BPS + 32 * 20e-6
    assert 1 / at(model).generation_tps == pytest.approx(expected_s, rel=0.02)


def test_when_experts_are_routed_then_only_the_used_ones_are_read(shape: Shapes) -> None:
    model = shape("qwen3-30b-a3b")
    experts = sum(layer.expert_bytes for layer in model.layers)
    share = model.n_expert_used / model.n_expert
    active_s = (touched_bytes(model) - experts * (1 - share)) / CPU_BPS
    assert active_s < 1 / at(model).generation_tps < active_s * 1.25
    assert 1 / at(model).generation_tps < touched_bytes(model) / CPU_BPS / 5


def test_when_layers_are_split_then_the_times_of_the_devices_add_up(shape: Shapes) -> None:
    model = shape("llama-8b")
    slow, fast = 1 / at(model).generation_tps, 1 / at(model, ON_GPU, n_layer_on={GPU: 33}).generation_tps
    mixed = 1 / at(model, ON_GPU, n_layer_on={CPU: 16, GPU: 17}).generation_tps
    halfway = 16 / 32 * slow + 16 / 32 * fast
    assert fast < mixed < slow
    assert mixed == pytest.approx(halfway, rel=0.15)


def test_when_the_conversation_is_longer_then_generation_is_slower(shape: Shapes) -> None:
    model = shape("llama-8b")
    speeds = [at(model, depth=depth).generation_tps for depth in (0, 1000, 4000, 8000)]
    assert speeds == sorted(speeds, reverse=True)
    assert speeds[-1] < speeds[0] * 0.95


def test_when_a_window_slides_then_depth_beyond_it_costs_its_layers_nothing(shape: Shapes) -> None:
    model = shape("gemma3-27b")
    load = msgspec.structs.replace(LOAD, n_ctx=65_536, n_cells=65_536)
    windowed = 1 / at(model, load, 60_000).generation_tps - 1 / at(model, load, 8_000).generation_tps
    full_layers = [layer for layer in model.layers if not layer.n_swa]
    assert 0 < len(full_layers) < len(model.layers) / 4
    numbers = sum((layer.k_width + layer.v_width) * layer.n_head / layer.n_head_kv for layer in full_layers)
    assert windowed == pytest.approx(52_000 * numbers / 20e9, rel=0.01)


def test_when_the_model_is_recurrent_then_depth_costs_nothing(shape: Shapes) -> None:
    model = shape("mamba-2.8b")
    assert at(model, depth=8000).generation_tps == pytest.approx(at(model).generation_tps)


def test_when_a_prompt_is_read_then_the_arithmetic_counts(shape: Shapes) -> None:
    model = shape("llama-8b")
    params = sum(layer.weight_bytes for layer in model.layers) * 8 / 4.6
    assert PROMPT_TOKENS / at(model).prompt_tps == pytest.approx(2 * params * PROMPT_TOKENS / 200e9, rel=0.2)
    assert at(model).prompt_tps > 3 * at(model).generation_tps


def test_when_experts_stay_in_ram_then_it_is_slower_than_on_the_gpu_and_faster_than_without(shape: Shapes) -> None:
    model = shape("qwen3-30b-a3b")
    n_layers = len(model.layers)
    on_gpu = msgspec.structs.replace(ON_GPU, n_gpu_layers=n_layers + 1)
    speeds = [
        at(model, load, n_layer_on={GPU: n_layers + 1}).generation_tps
        for load in (on_gpu, msgspec.structs.replace(on_gpu, n_cpu_moe=n_layers))
    ]
    assert speeds[0] > speeds[1] > at(model).generation_tps


def test_when_fewer_threads_are_used_than_were_measured_then_it_is_slower(shape: Shapes) -> None:
    half = msgspec.structs.replace(LOAD, n_threads=4)
    more = msgspec.structs.replace(LOAD, n_threads=32)
    model = shape("llama-8b")
    assert at(model, half).generation_tps == pytest.approx(at(model).generation_tps / 2, rel=0.05)
    assert at(model, more).generation_tps == at(model).generation_tps


def test_when_a_small_model_fits_the_caches_then_it_is_read_faster(shape: Shapes) -> None:
    model = shape("llama-1b")
    cached = tuple(msgspec.structs.replace(entry, cached_bps=3 * entry.read_bps) for entry in SPEED.throughput)
    large = msgspec.structs.replace(SPEED, throughput=cached, cached_share=((10**8, 1.0), (10**10, 0.5)))
    small = msgspec.structs.replace(large, cached_share=((10**8, 1.0),))
    assert predict(model, LOAD, speed=small, depth=0) == at(model)
    ratio = predict(model, LOAD, speed=large, depth=0).generation_tps / at(model).generation_tps
    assert ratio == pytest.approx(1 / (0.5 + 0.5 / 3), rel=0.05)


def test_when_a_format_was_not_measured_then_the_closest_in_size_serves(shape: Shapes) -> None:
    model = shape("llama-8b")
    only = msgspec.structs.replace(SPEED, throughput=(Throughput(CPU, "IQ4_XS", CPU_BPS, 200e9, 0.0),))
    found = predict(model, LOAD, speed=only, depth=0)
    assert found.generation_tps == pytest.approx(at(model).generation_tps, rel=0.01)


def test_when_nothing_was_measured_then_it_is_called_a_guess_with_a_wide_range(shape: Shapes) -> None:
    guess = predict(shape("llama-8b"), LOAD, speed=None, depth=0)
    assert guess.basis == "guess"
    assert guess.generation_high_tps > 2 * guess.generation_low_tps
    assert at(shape("llama-8b")).basis == "formula"


def test_when_this_model_ran_before_then_its_own_speed_is_told_with_a_narrow_range(shape: Shapes) -> None:
    model = shape("llama-8b")
    first = at(model)
    measured = first.generation_tps * 0.7
    sample = sample_of(first, model, LOAD, model="a", at_s=0.0, generation_tps=measured, prompt_tps=50.0)
    corrected = at(model, model="a", history=(sample,))
    assert corrected.basis == "measured"
    assert corrected.generation_tps == pytest.approx(measured)
    assert corrected.prompt_tps == pytest.approx(50.0)
    assert corrected.formula_generation_tps == pytest.approx(first.generation_tps)
    width = corrected.generation_high_tps / corrected.generation_low_tps
    assert 1 < width < first.generation_high_tps / first.generation_low_tps


def test_when_no_depth_is_given_then_it_is_told_for_one_that_the_context_holds(shape: Shapes) -> None:
    small = msgspec.structs.replace(LOAD, n_ctx=512, n_cells=512)
    assert predict(shape("llama-8b"), small, speed=SPEED).depth == 256
    assert predict(shape("llama-8b"), LOAD, speed=SPEED).depth == 1024


def test_when_layers_are_counted_then_the_processor_has_the_first_and_the_last_device_the_output(shape: Shapes) -> None:
    placed = placement(shape("llama-8b"), ON_GPU, {GPU: 10, CPU: 23})
    assert [(part.device, part.first, part.last) for part in placed] == [(CPU, 0, 23), (GPU, 23, 33)]


def test_when_no_layers_were_counted_then_the_options_say_where_they_go(shape: Shapes) -> None:
    load = msgspec.structs.replace(ON_GPU, devices=("A", "B"), tensor_split=(3.0, 1.0), n_gpu_layers=20)
    placed = placement(shape("llama-8b"), load)
    assert [(part.device, part.first, part.last) for part in placed] == [(CPU, 0, 13), ("A", 13, 28), ("B", 28, 33)]


def test_when_most_weights_are_of_one_format_then_it_names_the_model(shape: Shapes) -> None:
    assert main_type(shape("llama-8b")) == "Q4_K"


def test_when_a_node_was_not_measured_then_it_is_taken_to_be_like_this_processor(shape: Shapes) -> None:
    node = "RPC0[10.0.0.5:50052]"
    load = msgspec.structs.replace(LOAD, n_gpu_layers=33, devices=(node,))
    model = shape("llama-8b")
    there, here = at(model, load, n_layer_on={node: 33}).generation_tps, at(model).generation_tps
    assert here * 0.8 < there < here
