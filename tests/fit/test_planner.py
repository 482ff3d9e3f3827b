"""What is chosen, and how the plan gets to exact figures."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from runtime.errors import BadRequest, Failure
from runtime.fit.choice import COMFORT_N_CTX, COMFORT_N_CTX_SHARED, FLOOR_N_CTX
from runtime.fit.inputs import Ask, PlanInputs
from runtime.fit.planner import MAX_ROUNDS, plan_by_formula
from runtime.gguf.architecture import ModelShape
from runtime.messages.fit import Machine, MemoryPlan
from runtime.options import LoadOptions, ModelsOptions
from tests.support.machines import GIB, FakeLlama, gpu, machine, node, run_plan

Shape = Callable[[str], ModelShape]
CARD_8 = machine(gpu(total_gib=8, description="RTX 4060"))
CARD_24 = machine(gpu(total_gib=24, description="RTX 4090"), ram_gib=64)
TWO_24 = machine(gpu("A", 24, description="RTX 3090"), gpu("B", 24, description="RTX 3090"), ram_gib=64)


@pytest.fixture
def planned(shape: Shape) -> Callable[..., MemoryPlan]:
    def make(name: str, where: Machine, options: LoadOptions | None = None, **more: object) -> MemoryPlan:
        return plan_by_formula(PlanInputs(name, shape(name), options or LoadOptions(), where, **more))  # type: ignore[arg-type]

    return make


Planned = Callable[..., MemoryPlan]


# --- one device -------------------------------------------------------------------------------------------


def test_when_everything_fits_on_the_gpu_then_it_goes_there_with_a_long_context(planned: Planned) -> None:
    made = planned("llama-8b", CARD_24)
    assert (made.verdict, made.n_layer_gpu, made.resolved.n_ctx) == ("gpu", 33, COMFORT_N_CTX)


def test_when_memory_is_short_then_the_context_shrinks_before_a_layer_leaves_the_gpu(planned: Planned) -> None:
    made = planned("llama-8b", CARD_8)
    assert made.verdict == "gpu"
    assert FLOOR_N_CTX <= made.resolved.n_ctx < COMFORT_N_CTX


def test_when_even_the_shortest_sane_context_does_not_fit_then_layers_leave_the_gpu(planned: Planned) -> None:
    made = planned("llama-8b", machine(gpu(total_gib=6)))
    assert made.verdict == "partial"
    assert 0 < made.n_layer_gpu < 33
    assert made.resolved.n_ctx == FLOOR_N_CTX
    # One more would not have fitted.
    layer = made.budgets[0].memory.weight_bytes // made.n_layer_gpu
    assert 0 <= made.budgets[0].free_bytes < layer * 1.5


def test_when_there_is_no_gpu_then_it_runs_on_the_processor(planned: Planned) -> None:
    made = planned("llama-8b", machine(ram_gib=16))
    assert (made.verdict, made.n_layer_gpu, made.resolved.devices) == ("cpu", 0, ())
    assert made.resolved.n_ctx == FLOOR_N_CTX


def test_when_no_layer_fits_on_the_gpu_then_it_runs_on_the_processor(planned: Planned) -> None:
    made = planned("llama-8b", machine(gpu(total_gib=8, free_gib=1.1)))
    assert made.verdict == "cpu"
    assert "No layer fits on RTX" in made.reason


def test_when_memory_is_too_small_for_anything_then_it_is_too_large(planned: Planned) -> None:
    made = planned("llama-70b", CARD_8)
    assert made.verdict == "too_large"
    assert made.needed_bytes > made.free_bytes
    assert made.speed is None


def test_when_only_a_short_context_fits_then_it_is_shortened_below_the_floor(planned: Planned) -> None:
    made = planned("llama-8b", machine(ram_gib=8, free_gib=7))
    assert made.verdict == "cpu"
    assert made.resolved.n_ctx < FLOOR_N_CTX
    assert "do not fit" in made.reason


def test_when_the_model_was_trained_on_less_then_the_context_is_no_longer(shape: Shape) -> None:
    model = replace(shape("llama-8b"), n_ctx_train=4096)
    made = plan_by_formula(PlanInputs("m", model, LoadOptions(), CARD_24))
    assert made.resolved.n_ctx == 4096


def test_when_other_programs_hold_the_gpu_then_the_plan_gives_way(planned: Planned) -> None:
    alone = planned("llama-8b", machine(gpu(total_gib=8, free_gib=7.5)))
    beside_a_game = planned("llama-8b", machine(gpu(total_gib=8, free_gib=4)))
    assert beside_a_game.n_layer_gpu < alone.n_layer_gpu
    assert beside_a_game.budgets[0].others_bytes == 4 * GIB


def test_when_our_own_model_is_in_the_way_then_alone_counts_it_as_free(planned: Planned) -> None:
    where = machine(gpu(total_gib=8, free_gib=2))
    held = {"CUDA0": int(5.5 * GIB)}
    assert planned("llama-8b", where, ours_bytes=held).verdict == "gpu"
    assert planned("llama-8b", where, ours_bytes=held, alone=False).verdict != "gpu"


def test_when_a_margin_is_set_then_it_is_kept(planned: Planned) -> None:
    made = planned("llama-8b", CARD_24, models_options=ModelsOptions(gpu_margin_bytes=18 * GIB))
    assert made.verdict == "partial"
    assert made.budgets[0].margin_bytes == 18 * GIB
    assert made.budgets[0].free_bytes >= 0


# --- unified memory ---------------------------------------------------------------------------------------

APPLE = machine(gpu("MTL0", 11.8, 11.8, description="Apple M3", kind="igpu"), ram_gib=16, free_gib=11, unified=True)


def test_when_the_gpu_works_in_system_memory_then_the_context_is_modest(planned: Planned) -> None:
    made = planned("llama-8b", APPLE)
    assert (made.verdict, made.resolved.n_ctx) == ("gpu", COMFORT_N_CTX_SHARED)


def test_when_the_gpu_works_in_system_memory_then_both_parts_must_fit_it(planned: Planned) -> None:
    made = planned("llama-8b", APPLE)
    assert sum(bar.memory.total_bytes for bar in made.budgets) <= 11 * GIB - made.budgets[-1].margin_bytes


def test_when_the_model_is_larger_than_system_memory_then_a_gpu_inside_it_is_no_help(planned: Planned) -> None:
    assert planned("qwen3-30b-a3b", APPLE).verdict == "too_large"


def test_when_the_processor_is_faster_than_a_gpu_in_its_memory_then_it_runs_there(planned: Planned) -> None:
    where = machine(gpu("I", 16, 16, description="UHD", kind="igpu"), speeds={"I": 8e9, "CPU": 30e9})
    made = planned("llama-8b", where)
    assert (made.verdict, made.reason) == ("cpu", "The processor is faster here than with layers on UHD.")


# --- mixtures ---------------------------------------------------------------------------------------------


def test_when_a_mixture_does_not_fit_then_experts_of_some_layers_stay_in_memory(planned: Planned) -> None:
    made = planned("qwen3-30b-a3b", CARD_8)
    assert made.verdict == "partial"
    assert made.n_layer_gpu == 49
    assert 0 < made.resolved.n_cpu_moe < 48
    assert made.resolved.overrides
    assert "a token reads 8 of 128" in made.reason


def test_when_more_memory_is_free_then_fewer_experts_stay(planned: Planned) -> None:
    less = planned("qwen3-30b-a3b", machine(gpu(total_gib=8)))
    more = planned("qwen3-30b-a3b", machine(gpu(total_gib=16)))
    assert more.resolved.n_cpu_moe < less.resolved.n_cpu_moe


def test_when_a_mixture_fits_then_no_expert_stays(planned: Planned) -> None:
    made = planned("qwen3-30b-a3b", CARD_24)
    assert (made.verdict, made.resolved.n_cpu_moe, made.resolved.overrides) == ("gpu", 0, ())


def test_when_experts_are_set_then_that_many_stay(planned: Planned) -> None:
    made = planned("qwen3-30b-a3b", CARD_24, LoadOptions(n_cpu_moe=30))
    assert made.resolved.n_cpu_moe == 30
    assert "as set" in made.reason


# --- several devices --------------------------------------------------------------------------------------


def test_when_one_gpu_is_enough_then_only_one_is_used(planned: Planned) -> None:
    made = planned("llama-8b", TWO_24)
    assert made.resolved.devices == ("A",)
    assert made.resolved.tensor_split == ()


def test_when_one_is_not_enough_then_equal_gpus_share_evenly(planned: Planned) -> None:
    made = planned("llama-70b", TWO_24)
    assert made.verdict == "gpu"
    assert made.resolved.devices == ("A", "B")
    assert abs(made.resolved.tensor_split[0] - made.resolved.tensor_split[1]) <= 1
    assert sum(made.resolved.tensor_split) == 81


def test_when_gpus_differ_then_the_larger_takes_more_layers(planned: Planned) -> None:
    where = machine(gpu("A", 12, description="RTX 3060"), gpu("B", 48, description="A6000"), ram_gib=64)
    made = planned("llama-70b", where)
    assert made.verdict == "gpu"
    if len(made.resolved.devices) == 2:
        assert made.resolved.tensor_split[0] < made.resolved.tensor_split[1]


def test_when_speeds_are_known_then_the_fastest_is_filled_first(planned: Planned) -> None:
    speeds = {"A": 300e9, "B": 900e9, "CPU": 20e9}
    where = machine(gpu("A", 24, description="P40"), gpu("B", 24, description="RTX 3090"), ram_gib=64, speeds=speeds)
    assert planned("llama-8b", where).resolved.devices == ("B",)
    both = planned("llama-70b", where)
    assert both.resolved.devices[0] == "B"
    assert both.resolved.tensor_split[0] >= both.resolved.tensor_split[1]


def test_when_one_slow_gpu_could_hold_it_then_two_fast_ones_are_taken(planned: Planned) -> None:
    speeds = {"A": 900e9, "B": 900e9, "C": 150e9, "CPU": 20e9}
    cards = (gpu("A", 16, description="5080"), gpu("B", 16, description="5080"), gpu("C", 24, description="P40"))
    made = planned("qwen3-30b-a3b", machine(*cards, ram_gib=64, speeds=speeds))
    assert made.resolved.devices == ("A", "B")


def test_when_the_split_is_set_then_it_is_kept(planned: Planned) -> None:
    made = planned("llama-8b", TWO_24, LoadOptions(tensor_split=(1.0, 3.0)))
    assert made.resolved.devices == ("A", "B")
    assert sum(made.resolved.tensor_split) == 33
    assert made.resolved.tensor_split[0] == pytest.approx(33 / 4, abs=1)


def test_when_the_split_leaves_a_device_out_then_it_gets_nothing(planned: Planned) -> None:
    assert planned("llama-8b", TWO_24, LoadOptions(tensor_split=(0.0, 1.0))).resolved.devices == ("B",)


def test_when_the_split_names_a_device_that_is_gone_then_that_is_said(planned: Planned) -> None:
    with pytest.raises(BadRequest, match="names 2 devices, but there are 1"):
        planned("llama-8b", CARD_8, LoadOptions(tensor_split=(1.0, 1.0)))


# --- nodes ------------------------------------------------------------------------------------------------


def test_when_this_machine_is_enough_then_no_node_is_used(planned: Planned) -> None:
    made = planned("llama-8b", machine(node(), ram_gib=32))
    assert (made.verdict, made.resolved.nodes) == ("cpu", ())


def test_when_this_machine_is_not_enough_then_a_node_helps(planned: Planned) -> None:
    made = planned("llama-70b", machine(gpu(total_gib=24), node(total_gib=48, free_gib=44), ram_gib=16))
    assert made.resolved.nodes == ("10.0.0.5:50052",)
    assert made.n_layer_gpu == 81
    assert "This machine's memory alone is not enough" in made.reason
    assert "1 GPU" not in made.sentence
    assert made.sentence.startswith("All on GPU and 1 node")


def test_when_a_node_is_clearly_faster_then_it_is_used_though_memory_would_do(planned: Planned) -> None:
    remote = node(total_gib=24)
    speeds = {"CPU": 10e9, remote.name: 500e9}
    made = planned("llama-8b", machine(remote, ram_gib=32, speeds=speeds))
    assert made.resolved.devices == (remote.name,)
    assert "clearly slower" in made.reason


def test_when_a_node_is_no_faster_then_it_is_left_alone(planned: Planned) -> None:
    remote = node(total_gib=24)
    made = planned("llama-8b", machine(remote, ram_gib=32, speeds={"CPU": 20e9, remote.name: 20e9}))
    assert made.resolved.devices == ()


def test_when_layers_are_asked_for_and_only_a_node_can_take_them_then_it_does(planned: Planned) -> None:
    made = planned("llama-8b", machine(node(), ram_gib=32), LoadOptions(n_gpu_layers=20))
    assert (made.n_layer_gpu, made.resolved.nodes) == (20, ("10.0.0.5:50052",))


# --- fixed options ----------------------------------------------------------------------------------------


def test_when_layers_are_set_then_exactly_those_go(planned: Planned) -> None:
    made = planned("llama-8b", CARD_24, LoadOptions(n_gpu_layers=10))
    assert (made.verdict, made.n_layer_gpu) == ("partial", 10)
    assert "GPU layers are set to 10; the other 23" in made.reason


def test_when_set_layers_leave_little_room_then_the_context_gives_way(planned: Planned) -> None:
    made = planned("llama-8b", machine(gpu(total_gib=6)), LoadOptions(n_gpu_layers=33))
    assert (made.verdict, made.n_layer_gpu) == ("gpu", 33)
    assert made.resolved.n_ctx < FLOOR_N_CTX


def test_when_layers_are_set_to_zero_then_the_gpu_is_not_touched(planned: Planned) -> None:
    made = planned("llama-8b", CARD_24, LoadOptions(n_gpu_layers=0))
    assert (made.verdict, made.resolved.devices) == ("cpu", ())


def test_when_more_layers_are_set_than_fit_then_the_verdict_says_so_and_what_would(planned: Planned) -> None:
    made = planned("llama-8b", machine(gpu(total_gib=4)), LoadOptions(n_gpu_layers=33))
    assert made.verdict == "too_large"
    assert made.resolved.n_gpu_layers == 33
    assert made.sentence.startswith("Does not fit as set: needs ")
    assert "Set GPU layers to automatic" in made.problem
    assert made.budgets[0].free_bytes < 0


def test_when_more_context_is_set_than_fits_then_the_longest_that_does_is_named(planned: Planned) -> None:
    made = planned("llama-8b", machine(ram_gib=16, free_gib=12), LoadOptions(n_ctx=131_072))
    assert made.verdict == "too_large"
    assert made.resolved.n_ctx == 131_072
    assert "A context of up to " in made.problem
    named = int(made.problem.rsplit("A context of up to ", 1)[1].split(" ")[0].replace(",", ""))
    assert planned("llama-8b", machine(ram_gib=16, free_gib=12), LoadOptions(n_ctx=named)).verdict == "cpu"
    longer = planned("llama-8b", machine(ram_gib=16, free_gib=12), LoadOptions(n_ctx=named + 512))
    assert longer.verdict == "too_large"


def test_when_a_smaller_cache_would_do_then_that_is_the_advice(planned: Planned) -> None:
    where = machine(ram_gib=24, free_gib=19)
    made = planned("llama-8b", where, LoadOptions(n_ctx=131_072))
    assert made.problem.endswith("With a cache of type q8_0 it fits.")
    assert planned("llama-8b", where, LoadOptions(n_ctx=131_072, type_k="q8_0", type_v="q8_0")).verdict == "cpu"


def test_when_context_and_cache_are_set_then_they_are_kept(planned: Planned) -> None:
    made = planned("llama-8b", CARD_8, LoadOptions(n_ctx=20_000, type_k="q8_0", type_v="q8_0", n_parallel=1))
    assert (made.verdict, made.resolved.n_ctx, made.resolved.type_k) == ("gpu", 20_000, "q8_0")


def test_when_a_quantized_v_cache_meets_no_flash_attention_then_that_is_refused(planned: Planned) -> None:
    with pytest.raises(BadRequest, match="needs flash attention"):
        planned("llama-8b", CARD_8, LoadOptions(type_v="q8_0", flash_attn="off"))


# --- other kinds of model ---


def test_when_a_model_is_an_encoder_then_it_sees_its_whole_text_and_no_more(shape: Shape) -> None:
    model = replace(shape("llama-1b"), has_memory=False, n_ctx_train=512)
    made = plan_by_formula(PlanInputs("m", model, LoadOptions(), CARD_8))
    assert (made.verdict, made.resolved.n_ctx, made.resolved.embeddings) == ("gpu", 512, True)
    assert made.budgets[0].memory.context_bytes == 0


def test_when_the_devices_cannot_be_listed_then_that_is_the_reason(planned: Planned) -> None:
    import msgspec

    where = msgspec.structs.replace(machine(), problem="llama.cpp could not be asked.")
    assert planned("llama-8b", where).reason == "llama.cpp could not be asked."


# --- draft and projector ----------------------------------------------------------------------------------

DRAFTED = LoadOptions(draft_model="llama-1b")


def test_when_there_is_a_draft_model_then_its_memory_is_counted_and_its_load_told(
    planned: Planned, shape: Shape
) -> None:
    without = planned("llama-8b", CARD_8)
    made = planned("llama-8b", CARD_8, DRAFTED, draft=shape("llama-1b"))
    assert made.draft is not None
    assert made.draft.n_ctx == made.resolved.n_ctx
    assert made.budgets[0].memory.draft_bytes > 0.7 * shape("llama-1b").size_bytes
    assert (made.n_layer_gpu, made.resolved.n_ctx) < (without.n_layer_gpu, without.resolved.n_ctx + 1)


def test_when_a_recurrent_model_has_a_draft_then_the_draft_is_not_loaded(planned: Planned, shape: Shape) -> None:
    made = planned("mamba-2.8b", CARD_8, DRAFTED, draft=shape("llama-1b"))
    assert made.draft is None
    assert made.resolved.speculation == "off"
    assert all(not budget.memory.draft_bytes for budget in made.budgets)


def test_when_tokens_are_guessed_then_their_logits_are_counted(planned: Planned) -> None:
    without = planned("llama-8b", CARD_24)
    made = planned("llama-8b", CARD_24, LoadOptions(speculation="lookup", n_draft_max=8))
    assert made.resolved.n_outputs_max == made.resolved.n_parallel + 32 > without.resolved.n_outputs_max
    grown = [sum(budget.memory.output_bytes for budget in plan.budgets) for plan in (without, made)]
    assert grown[1] / grown[0] == made.resolved.n_outputs_max / without.resolved.n_outputs_max


def test_when_the_draft_takes_too_much_of_the_gpu_then_it_stays_in_memory(planned: Planned, shape: Shape) -> None:
    made = planned("llama-8b", machine(gpu(total_gib=3)), DRAFTED, draft=shape("llama-1b"))
    assert made.draft is not None
    assert made.draft.devices == ()
    assert made.budgets[-1].memory.draft_bytes > 0


def test_when_there_is_a_projector_then_its_memory_is_counted(planned: Planned) -> None:
    made = planned("llama-8b", CARD_8, projector_bytes=GIB)
    assert made.budgets[0].memory.projector_bytes > GIB
    assert made.budgets[0].free_bytes >= 0


# --- exact ------------------------------------------------------------------------------------------------


def test_when_llama_cpp_measures_what_was_expected_then_one_dry_run_is_enough(shape: Shape) -> None:
    inputs = PlanInputs("m", shape("llama-8b"), LoadOptions(), CARD_24)
    llama = FakeLlama(inputs)
    made = run_plan(inputs, llama)
    assert (made.method, len(llama.asked)) == ("dry_run", 1)


@pytest.mark.parametrize("name", ["llama-8b", "qwen3-30b-a3b", "gemma3-27b", "llama-70b"])
@pytest.mark.parametrize(
    ("compute", "context", "weights"), [(4.0, 1.0, 0), (0.3, 1.0, 0), (1.0, 1.5, 0), (2.0, 0.6, 2**28)]
)
def test_when_llama_cpp_measures_something_else_then_the_plan_fits_by_its_figures(
    shape: Shape, name: str, compute: float, context: float, weights: int
) -> None:
    where = machine(gpu(total_gib=12, description="RTX 4070"), ram_gib=64)
    inputs = PlanInputs(name, shape(name), LoadOptions(), where)
    llama = FakeLlama(inputs, compute_factor=compute, context_factor=context, weight_extra=weights)
    made = run_plan(inputs, llama)
    assert made.method == "dry_run"
    assert len(llama.asked) <= MAX_ROUNDS
    assert all(bar.free_bytes >= 0 for bar in made.budgets)
    told = llama(Ask("model", made.resolved))
    assert [bar.memory for bar in made.budgets] == list(told.memory)  # type: ignore[union-attr]


def test_when_the_formula_was_too_careful_then_measuring_gives_more_layers(shape: Shape) -> None:
    inputs = PlanInputs("m", shape("llama-8b"), LoadOptions(), machine(gpu(total_gib=6)))
    guessed = plan_by_formula(inputs)
    made = run_plan(inputs, FakeLlama(inputs, context_factor=0.3))
    assert made.n_layer_gpu > guessed.n_layer_gpu


def test_when_nobody_can_measure_then_the_formula_serves_and_the_plan_says_so(shape: Shape) -> None:
    inputs = PlanInputs("m", shape("llama-8b"), LoadOptions(), CARD_24)
    made = run_plan(inputs, lambda _ask: None)
    assert made == plan_by_formula(inputs)
    assert made.method == "formula"


def test_when_measuring_fails_halfway_then_what_was_measured_and_fits_is_kept(shape: Shape) -> None:
    inputs = PlanInputs("m", shape("llama-8b"), LoadOptions(), machine(gpu(total_gib=6)))
    llama = FakeLlama(inputs, context_factor=0.3)
    made = run_plan(inputs, lambda ask: llama(ask) if not llama.asked else None)
    assert made.method == "dry_run"
    assert made.resolved == llama.asked[0].resolved


def test_when_the_probe_dies_then_the_formula_serves(shape: Shape) -> None:
    inputs = PlanInputs("m", shape("llama-8b"), LoadOptions(), CARD_24)
    made = run_plan(inputs, lambda _ask: Failure("WorkerDied", "It ended."))
    assert (made.verdict, made.method) == ("gpu", "formula")


def test_when_llama_cpp_does_not_know_the_model_then_it_is_unsupported(shape: Shape) -> None:
    inputs = PlanInputs("m", shape("llama-8b"), LoadOptions(), CARD_24)
    failure = Failure("UnknownArchitecture", "This kind is not known.", "A newer Deskside may know it.")
    made = run_plan(inputs, lambda _ask: failure)
    assert made.verdict == "unsupported"
    assert made.sentence == "Not supported: This kind is not known."
    assert made.problem == "This kind is not known. A newer Deskside may know it."


def test_when_a_context_is_absurdly_long_then_llama_is_not_asked_to_list_its_cells(shape: Shape) -> None:
    inputs = PlanInputs("m", shape("llama-8b"), LoadOptions(n_ctx=2**31 - 1), machine(ram_gib=32))
    llama = FakeLlama(inputs)
    made = run_plan(inputs, llama)
    assert (made.verdict, made.method) == ("too_large", "formula")
    assert not llama.asked
    assert "fits" in made.problem


def test_when_a_draft_is_measured_then_both_files_are_asked_for(shape: Shape) -> None:
    inputs = PlanInputs("m", shape("llama-8b"), DRAFTED, CARD_24, draft=shape("llama-1b"))
    llama = FakeLlama(inputs)
    made = run_plan(inputs, llama)
    assert {ask.part for ask in llama.asked} == {"model", "draft"}
    assert made.method == "dry_run"


def test_when_it_is_too_large_then_that_is_measured_too(shape: Shape) -> None:
    inputs = PlanInputs("m", shape("llama-70b"), LoadOptions(), CARD_8)
    llama = FakeLlama(inputs)
    made = run_plan(inputs, llama)
    assert (made.verdict, made.method) == ("too_large", "dry_run")
    assert llama.asked
