"""What must hold for any model on any machine."""

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime.fit.budget import GIB
from runtime.fit.formula import estimate
from runtime.fit.inputs import PlanInputs
from runtime.fit.placement import units_on
from runtime.fit.planner import plan_by_formula
from runtime.gguf.architecture import LayerShape, ModelShape
from runtime.messages.fit import Machine, MemoryPlan
from runtime.options import LoadOptions
from tests.support.machines import FakeLlama, gpu, machine, node, run_plan

MIB = 2**20
EXAMPLES = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
QUALITY = {"too_large": 0, "cpu": 1, "partial": 2, "gpu": 3}


@st.composite
def models(draw: st.DrawFn) -> ModelShape:
    n_layer = draw(st.integers(1, 48))
    is_moe = draw(st.booleans())
    n_swa = draw(st.sampled_from((0, 1024)))
    dense = draw(st.integers(1, 600)) * MIB
    experts = draw(st.integers(1, 800)) * MIB if is_moe else 0
    width = draw(st.sampled_from((256, 1024, 2048)))
    layers = tuple(
        LayerShape(
            index=index,
            weight_bytes=dense + experts,
            expert_bytes=experts,
            n_head=16,
            n_head_kv=width // 128,
            k_width=width,
            v_width=width,
            n_swa=n_swa if index % 6 else 0,
            state_bytes=0,
            tensor_types={"Q4_K": dense + experts},
            n_expert_used=8 if is_moe else 0,
            expert_types={"Q4_K": experts} if is_moe else {},
        )
        for index in range(n_layer)
    )
    embedding = draw(st.integers(1, 1200)) * MIB
    is_tied = draw(st.booleans())
    total = n_layer * (dense + experts) + embedding * (1 if is_tied else 2)
    return ModelShape(
        architecture="llama",
        n_layer=n_layer,
        layers=layers,
        n_embd=2048,
        n_ff=8192,
        n_vocab=128_000,
        n_ctx_train=draw(st.sampled_from((2048, 8192, 131_072))),
        n_head=16,
        n_expert=64 if is_moe else 0,
        n_expert_used=8 if is_moe else 0,
        input_bytes=embedding,
        output_bytes=embedding,
        is_tied=is_tied,
        embd_row_bytes=1152,
        has_memory=True,
        is_recurrent=False,
        is_hybrid=False,
        n_swa=n_swa,
        n_params=total * 8 // 5,
        n_params_active=total * 8 // 5,
        size_bytes=total,
        largest_tensor_bytes=max(embedding, experts // 3, dense // 3),
        tensor_types={"Q4_K": total},
        alignment=32,
        kv_source="exact",
        output_types={"Q4_K": embedding},
    )


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    sizes = draw(st.lists(st.integers(2, 48), max_size=3))
    devices = [
        gpu(f"G{index}", size, draw(st.floats(0, size)), description=draw(st.sampled_from(("X", "Y"))))
        for index, size in enumerate(sizes)
    ]
    if draw(st.booleans()):
        devices.append(node(total_gib=draw(st.integers(4, 64)), free_gib=4))
    ram = draw(st.integers(4, 64))
    return machine(*devices, ram_gib=ram, free_gib=draw(st.floats(0.5, ram)))


OPTIONS = st.builds(
    LoadOptions,
    n_ctx=st.sampled_from((None, None, 512, 4096, 40_000)),
    n_parallel=st.sampled_from((None, 1, 16)),
    n_gpu_layers=st.sampled_from((None, None, 0, 3, 99)),
    n_cpu_moe=st.sampled_from((None, None, 5)),
    type_k=st.sampled_from(("f16", "q8_0")),
)


def check(made: MemoryPlan, inputs: PlanInputs) -> None:
    for bar in made.budgets:
        parts = bar.others_bytes + bar.memory.total_bytes + bar.margin_bytes + bar.free_bytes
        assert parts == bar.device.total_bytes
        if made.verdict != "too_large":
            assert bar.free_bytes >= 0, bar.device.name
    assert made.needed_bytes == sum(bar.memory.total_bytes for bar in made.budgets)
    assert sum(bar.n_layers for bar in made.budgets) == made.n_layer == inputs.shape.n_layer + 1
    assert {bar.device.name: bar.n_layers for bar in made.budgets if bar.n_layers} == units_on(
        inputs.shape.n_layer, made.resolved
    )
    assert made.sentence
    assert bool(made.problem) == (made.verdict == "too_large")
    assert bool(made.reason) == (made.verdict != "too_large")


@EXAMPLES
@given(models(), machines(), OPTIONS)
def test_when_anything_is_planned_then_it_takes_no_more_than_is_free_less_the_margin(
    shape: ModelShape, where: Machine, options: LoadOptions
) -> None:
    inputs = PlanInputs("m", shape, options, where)
    check(plan_by_formula(inputs), inputs)


@EXAMPLES
@given(models(), machines(), OPTIONS)
def test_when_a_person_fixed_something_then_it_is_kept(shape: ModelShape, where: Machine, options: LoadOptions) -> None:
    made = plan_by_formula(PlanInputs("m", shape, options, where))
    resolved = made.resolved
    assert made.options == options
    assert options.n_ctx is None or resolved.n_ctx == options.n_ctx
    assert options.n_parallel is None or resolved.n_parallel == options.n_parallel
    assert resolved.type_k == options.type_k
    has_devices = any(device.kind in ("gpu", "node") for device in where.devices)
    if options.n_gpu_layers is not None and has_devices and made.verdict != "too_large" and resolved.devices:
        assert resolved.n_gpu_layers == min(options.n_gpu_layers, shape.n_layer + 1)
    if options.n_cpu_moe is not None and shape.is_moe and resolved.devices:
        assert resolved.n_cpu_moe == min(options.n_cpu_moe, shape.n_layer)


@EXAMPLES
@given(models(), machines(), OPTIONS, st.floats(0.2, 5), st.floats(0.2, 3), st.integers(-(2**26), 2**30))
def test_when_a_plan_was_measured_then_it_fits_by_what_was_measured(
    shape: ModelShape, where: Machine, options: LoadOptions, compute: float, context: float, weights: int
) -> None:
    inputs = PlanInputs("m", shape, options, where)
    llama = FakeLlama(inputs, compute_factor=compute, context_factor=context, weight_extra=max(weights, 0))
    made = run_plan(inputs, llama)
    assert made.method == "dry_run"
    check(made, inputs)


@EXAMPLES
@given(models(), machines(), st.integers(0, 3), st.floats(0.1, 16))
def test_when_more_memory_is_free_then_a_plan_is_never_worse(
    shape: ModelShape, where: Machine, which: int, more_gib: float
) -> None:
    options = LoadOptions(n_ctx=2048)
    before = plan_by_formula(PlanInputs("m", shape, options, where))
    after = plan_by_formula(PlanInputs("m", shape, options, _with_more(where, which, int(more_gib * GIB))))
    if before.resolved.nodes and not after.resolved.nodes:
        assert after.verdict != "too_large"  # this machine's own memory does now, and nodes come last
        return
    assert QUALITY[after.verdict] >= QUALITY[before.verdict]
    if before.verdict == after.verdict == "partial" and before.resolved.nodes == after.resolved.nodes:
        assert after.n_layer_gpu >= before.n_layer_gpu
        if before.n_layer_gpu == after.n_layer_gpu:
            assert after.resolved.n_cpu_moe <= before.resolved.n_cpu_moe


@EXAMPLES
@given(models(), machines(), st.integers(0, 3), st.floats(0.1, 16))
def test_when_more_memory_is_free_then_an_automatic_context_is_never_shorter_on_the_same_device(
    shape: ModelShape, where: Machine, which: int, more_gib: float
) -> None:
    before = plan_by_formula(PlanInputs("m", shape, LoadOptions(), where))
    after = plan_by_formula(PlanInputs("m", shape, LoadOptions(), _with_more(where, which, int(more_gib * GIB))))
    if before.resolved.nodes and not after.resolved.nodes:
        assert after.verdict != "too_large"  # this machine's own memory does now, and nodes come last
        return
    assert QUALITY[after.verdict] >= QUALITY[before.verdict]
    if (before.verdict, before.resolved.devices) == (after.verdict, after.resolved.devices) and not shape.is_moe:
        assert after.resolved.n_ctx >= before.resolved.n_ctx


def _with_more(where: Machine, which: int, more_bytes: int) -> Machine:
    import msgspec

    devices = list(where.devices)
    at = which % len(devices)
    found = devices[at]
    devices[at] = msgspec.structs.replace(
        found, free_bytes=found.free_bytes + more_bytes, total_bytes=found.total_bytes + more_bytes
    )
    if found.kind != "cpu":
        return msgspec.structs.replace(where, devices=tuple(devices))
    return msgspec.structs.replace(
        where,
        devices=tuple(devices),
        ram_total_bytes=where.ram_total_bytes + more_bytes,
        ram_free_bytes=where.ram_free_bytes + more_bytes,
    )


@EXAMPLES
@given(models(), st.integers(1, 60), st.integers(0, 48))
def test_when_layers_are_moved_then_their_bytes_move_and_none_is_lost(
    shape: ModelShape, n_units: int, n_cpu_moe: int
) -> None:
    inputs = PlanInputs("m", replace(shape, is_tied=False), LoadOptions(n_ctx=4096), machine())
    resolved = plan_by_formula(inputs).resolved
    import msgspec

    whole = estimate(inputs.shape, resolved)
    moved = estimate(
        inputs.shape,
        msgspec.structs.replace(
            resolved, n_gpu_layers=n_units, devices=("G",), n_cpu_moe=min(n_cpu_moe, shape.n_layer)
        ),
    )
    for part in ("weight_bytes", "context_bytes"):
        assert sum(getattr(entry, part) for entry in moved.memory) == getattr(whole.memory[0], part)
