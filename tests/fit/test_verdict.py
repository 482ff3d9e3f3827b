"""The words people read."""

import re
from collections.abc import Callable

import pytest

from runtime.fit.inputs import PlanInputs
from runtime.fit.planner import plan_by_formula
from runtime.gguf.architecture import ModelShape
from runtime.messages.fit import Machine
from runtime.options import LoadOptions, ModelsOptions
from tests.support.machines import GIB, gpu, machine, node

Shape = Callable[[str], ModelShape]
NO_MARGIN = ModelsOptions(gpu_margin_bytes=0, ram_margin_bytes=0)
CARD = gpu(total_gib=8, description="RTX 4060")
TWO = (gpu("A", 24, description="RTX 3090"), gpu("B", 24, description="RTX 3090"))


def shown(text: str) -> str:
    """Sizes as `#`: they follow the defaults of a load, which are not what is tested here."""
    return re.sub(r"\d+\.\d|\d+(?= MB)", "#", text)


CASES = [
    ("llama-8b", machine(gpu(total_gib=24, description="RTX 4090")), LoadOptions(), "All on GPU, # of # GB"),
    ("llama-70b", machine(*TWO, ram_gib=64), LoadOptions(), "All on 2 GPUs, # of # GB"),
    ("llama-8b", machine(CARD), LoadOptions(n_gpu_layers=22), "22 of 33 layers on GPU, # of # GB"),
    ("llama-8b", machine(ram_gib=16), LoadOptions(), "Runs on CPU, # of # GB"),
    (
        "qwen3-30b-a3b",
        machine(CARD),
        LoadOptions(n_cpu_moe=40),
        "All on GPU but the experts of 40 of 48 layers, # of # GB",
    ),
    ("llama-70b", machine(CARD), LoadOptions(), "Too large: needs # GB, # GB free"),
    (
        "llama-70b",
        machine(gpu(total_gib=24), node(total_gib=48, free_gib=44), ram_gib=16),
        LoadOptions(),
        "All on GPU and 1 node, # of # GB",
    ),
    ("llama-8b", machine(node(), ram_gib=8), LoadOptions(), "All on 1 node, # of # GB"),
]


@pytest.mark.parametrize(("name", "where", "options", "sentence"), CASES)
def test_when_a_row_is_judged_then_its_sentence_says_where_it_runs(
    shape: Shape, name: str, where: Machine, options: LoadOptions, sentence: str
) -> None:
    assert shown(plan_by_formula(PlanInputs(name, shape(name), options, where)).sentence) == sentence


def test_when_a_row_tells_sizes_then_they_are_those_of_its_bars(shape: Shape) -> None:
    made = plan_by_formula(PlanInputs("m", shape("llama-70b"), LoadOptions(), machine(*TWO, ram_gib=64)))
    cards = made.budgets[:-1]
    used = sum(bar.memory.total_bytes for bar in cards) / 1e9
    total = sum(bar.device.total_bytes for bar in cards) / 1e9
    assert made.sentence == f"All on 2 GPUs, {used:.1f} of {total:.1f} GB"


REASONS = [
    (
        "llama-8b",
        machine(gpu(total_gib=24, description="RTX 4090")),
        LoadOptions(),
        "All 33 layers and a context of # tokens fit on RTX 4090.",
    ),
    (
        "llama-8b",
        machine(CARD),
        LoadOptions(),
        "A context of # tokens is the longest with which all layers stay on RTX 4060.",
    ),
    (
        "llama-8b",
        machine(gpu(total_gib=4, description="GTX 1650")),
        LoadOptions(),
        "18 layers stay in system memory: of GTX 1650 # GB may be used, which is too little for all.",
    ),
    ("llama-8b", machine(ram_gib=16), LoadOptions(), "There is no GPU that llama.cpp can use."),
    ("llama-8b", machine(CARD), LoadOptions(n_gpu_layers=0), "GPU layers are set to 0."),
    ("llama-70b", machine(CARD), LoadOptions(), ""),
    (
        "llama-70b",
        machine(*TWO, ram_gib=64),
        LoadOptions(),
        "A context of # tokens is the longest with which all layers stay on 2 x RTX 3090.",
    ),
    (
        "llama-8b",
        machine(gpu("A", 0, 0, description="Odd GPU"), ram_gib=16),
        LoadOptions(),
        "Odd GPU does not tell its memory, so the model stays off it.",
    ),
]


@pytest.mark.parametrize(("name", "where", "options", "reason"), REASONS)
def test_when_a_layout_is_chosen_then_its_reason_is_told(
    shape: Shape, name: str, where: Machine, options: LoadOptions, reason: str
) -> None:
    made = plan_by_formula(PlanInputs(name, shape(name), options, where))
    assert re.sub(r"\d+,\d+", "#", shown(made.reason)) == reason
    if made.verdict == "gpu":
        assert f"{made.resolved.n_ctx:,} tokens" in made.reason


def test_when_it_is_too_large_then_the_problem_says_by_how_much_and_what_to_do(shape: Shape) -> None:
    made = plan_by_formula(PlanInputs("m", shape("llama-70b"), LoadOptions(), machine(CARD)))
    assert shown(made.problem) == (
        "It needs # GB at a context of 512 tokens, and # GB are free on this machine after the # GB kept for "
        "other programs. Choose a smaller quantization or a smaller model, or close other programs."
    )


def test_when_other_models_of_ours_are_in_the_way_then_unloading_them_is_the_advice(shape: Shape) -> None:
    inputs = PlanInputs(
        "m", shape("llama-70b"), LoadOptions(), machine(CARD), ours_bytes={"CUDA0": 4 * GIB}, alone=False
    )
    assert "Unload other models" in plan_by_formula(inputs).problem


def test_when_nothing_is_kept_free_then_no_margin_is_mentioned(shape: Shape) -> None:
    made = plan_by_formula(PlanInputs("m", shape("llama-70b"), LoadOptions(), machine(CARD), models_options=NO_MARGIN))
    assert "kept for" not in made.problem


def test_when_a_setting_does_not_fit_then_the_numbers_are_of_the_device_that_fails(shape: Shape) -> None:
    where = machine(gpu(total_gib=4, description="GTX 1650"), ram_gib=64)
    made = plan_by_formula(PlanInputs("m", shape("llama-8b"), LoadOptions(n_gpu_layers=33), where))
    assert made.sentence == "Does not fit as set: needs 5.1 GB, 3.2 GB free"
    assert made.problem.startswith(
        "With these settings it needs 5.1 GB at a context of 512 tokens, and 3.2 GB are free"
    )
    assert "on GTX 1650 after the 537 MB kept for other programs" in made.problem


def test_when_a_gpu_has_crumbs_left_then_they_do_not_count_as_free(shape: Shape) -> None:
    # 0.3 GiB usable on the card: not one layer and its buffers fit there.
    where = machine(gpu(total_gib=8, free_gib=1.3), ram_gib=8, free_gib=5.6)
    made = plan_by_formula(PlanInputs("m", shape("llama-8b"), LoadOptions(), where))
    assert made.verdict == "too_large"
    needed, free = made.sentence.removeprefix("Too large: needs ").removesuffix(" GB free").split(" GB, ")
    assert float(needed) > float(free)
