from collections.abc import Callable

import pytest

from runtime.fit.inputs import PlanInputs
from runtime.fit.planner import plan_by_formula
from runtime.fit.quant_choice import COMFORT_TPS, NOTHING_FITS, USABLE_TPS, Candidate, judged, recommend
from runtime.gguf.architecture import ModelShape, scaled_to
from runtime.messages.fit import MemoryPlan, SpeedRange, VerdictKind
from runtime.messages.load import ResolvedLoad
from runtime.options import LoadOptions
from tests.support.machines import gpu, machine

GB = 10**9


def candidate(
    quantization: str,
    size_gb: float,
    tps: float | None = 50.0,
    verdict: VerdictKind = "gpu",
    *,
    n_ctx: int = 8192,
    asked: int | None = None,
    name: str = "",
) -> Candidate:
    speed = None if tps is None else SpeedRange(tps, tps * 0.8, tps * 1.2, 500, 400, 600, depth=1024)
    plan = MemoryPlan(
        model="m",
        options=LoadOptions(n_ctx=asked),
        resolved=ResolvedLoad(n_ctx, 1, 1, n_ctx, 512, 512, 4, 0),
        verdict=verdict,
        sentence="",
        reason="",
        budgets=(),
        needed_bytes=0,
        free_bytes=0,
        n_layer=1,
        n_layer_gpu=0,
        method="formula",
        speed=speed,
    )
    return Candidate(name or quantization, quantization, int(size_gb * GB), plan)


def test_when_everything_is_fast_then_the_smallest_of_those_like_the_original_wins() -> None:
    found = recommend([candidate("F16", 16), candidate("Q8_0", 8.5), candidate("Q6_K", 6.6), candidate("Q4_K_M", 4.9)])
    assert found.name == "Q6_K"
    assert found.reason == "Q6_K cannot be told from the original, and larger files gain nothing."


def test_when_the_better_does_not_fit_then_the_best_that_does_is_taken() -> None:
    found = recommend([candidate("Q8_0", 8.5, verdict="too_large"), candidate("Q5_K_M", 5.7), candidate("Q4_K_M", 4.9)])
    assert found.name == "Q5_K_M"
    assert found.reason.endswith("Q8_0 does not fit.")


def test_when_the_better_is_slow_then_a_good_one_that_is_fast_is_taken() -> None:
    found = recommend([candidate("Q6_K", 6.6, 12, "partial"), candidate("Q4_K_M", 4.9, 45)])
    assert found.name == "Q4_K_M"
    assert found.reason == (
        f"Q4_K_M is the best quality that fits and writes at least {COMFORT_TPS:.0f} tokens a second. "
        "Q6_K would write about 12."
    )


def test_when_none_is_fast_then_the_best_usable_is_taken() -> None:
    found = recommend([candidate("Q8_0", 8.5, 6.1, "cpu"), candidate("Q5_K_M", 5.7, 9), candidate("Q4_K_M", 4.9, 11)])
    assert found.name == "Q5_K_M"
    assert f"at least {USABLE_TPS:.0f} tokens a second" in found.reason
    assert found.reason.endswith("Q8_0 would write about 6.1.")


def test_when_only_a_poor_one_is_fast_then_quality_goes_first() -> None:
    found = recommend([candidate("Q4_K_M", 42, 3, "partial"), candidate("Q3_K_M", 34, 4), candidate("IQ2_XXS", 20, 30)])
    assert found.name == "Q3_K_M"
    assert found.reason.startswith("Q3_K_M is the fastest that keeps a fair quality.")


def test_when_only_poor_ones_fit_then_the_best_of_them_is_taken() -> None:
    found = recommend(
        [candidate("Q4_K_M", 42, verdict="too_large"), candidate("IQ2_M", 24, 9), candidate("IQ1_S", 16, 20)]
    )
    assert found.name == "IQ2_M"


def test_when_another_is_smaller_and_better_then_it_is_never_taken() -> None:
    found = recommend([candidate("Q4_0", 4.7, 60), candidate("IQ4_XS", 4.4, 55)])
    assert found.name == "IQ4_XS"


def test_when_a_file_has_less_context_than_wanted_then_one_with_enough_is_taken() -> None:
    found = recommend([candidate("Q6_K", 6.6, n_ctx=2048), candidate("Q4_K_M", 4.9)])
    assert found.name == "Q4_K_M"
    assert found.reason.endswith("Q6_K leaves room for 2,048 tokens of context only.")


def test_when_the_model_knows_no_longer_context_then_that_is_enough() -> None:
    assert recommend([candidate("Q6_K", 6.6, n_ctx=2048), candidate("Q4_K_M", 4.9)], n_ctx_train=2048).name == "Q6_K"


def test_when_the_person_set_a_short_context_then_that_is_enough() -> None:
    assert recommend([candidate("Q6_K", 6.6, n_ctx=1024, asked=1024), candidate("Q4_K_M", 4.9)]).name == "Q6_K"


def test_when_none_has_enough_context_then_one_is_taken_all_the_same() -> None:
    assert recommend([candidate("Q6_K", 6.6, n_ctx=512), candidate("Q4_K_M", 4.9, n_ctx=2048)]).name


def test_when_nothing_fits_then_none_is_recommended_and_that_is_said() -> None:
    found = recommend([candidate("Q6_K", 6.6, None, "too_large"), candidate("Q4_K_M", 4.9, None, "unsupported")])
    assert (found.name, found.reason) == ("", NOTHING_FITS)


def test_when_a_layout_is_no_longer_read_then_it_is_not_recommended() -> None:
    assert recommend([candidate("Q4_0_4_4", 4.7), candidate("IQ2_M", 3)]).name == "IQ2_M"


def test_when_nothing_is_known_about_formats_then_one_is_taken_all_the_same() -> None:
    assert recommend([candidate("WEIRD", 5)]).name == "WEIRD"


def test_when_there_is_no_better_file_then_that_is_the_reason() -> None:
    assert recommend([candidate("Q4_K_M", 4.9), candidate("Q3_K_M", 4)]).reason == (
        "Q4_K_M is the best quality there is of this model."
    )


@pytest.mark.parametrize("dynamic", ["UD-Q4_K_XL", "Q4_K_L"])
def test_when_a_mixture_keeps_more_but_ranks_the_same_then_the_smaller_is_taken(dynamic: str) -> None:
    assert recommend([candidate(dynamic, 5.1), candidate("Q4_K_M", 4.9)]).name == "Q4_K_M"


def test_when_rows_are_judged_then_they_keep_their_order_and_one_is_marked() -> None:
    rows = judged([candidate("Q8_0", 8.5), candidate("Q6_K", 6.6), candidate("Q4_K_M", 4.9)])
    assert [row.name for row in rows] == ["Q8_0", "Q6_K", "Q4_K_M"]
    assert [row.recommended for row in rows] == [False, True, False]
    assert [bool(row.reason) for row in rows] == [False, True, False]


SIZES = {"F16": 16.07, "Q8_0": 8.54, "Q6_K": 6.6, "Q5_K_M": 5.73, "Q4_K_M": 4.92, "Q3_K_M": 4.02, "Q2_K": 3.18}


@pytest.mark.parametrize(("memory_gib", "expected"), [(24, "Q6_K"), (10, "Q6_K"), (8, "Q5_K_M"), (6, "Q4_K_M")])
def test_when_cards_differ_in_size_then_an_8b_model_gets_what_suits_each(
    shape: Callable[[str], ModelShape], memory_gib: float, expected: str
) -> None:
    speeds = {"CUDA0": 250e9, "CPU": 15e9}
    where = machine(gpu(total_gib=memory_gib), ram_gib=32, speeds=speeds)
    candidates = []
    for name, size_gb in SIZES.items():
        model = scaled_to(shape("llama-8b"), int(size_gb * GB))
        candidates.append(
            Candidate(name, name, int(size_gb * GB), plan_by_formula(PlanInputs(name, model, LoadOptions(), where)))
        )
    assert recommend(candidates).name == expected
