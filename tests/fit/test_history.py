import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.fit.history import LEAST_FACTOR, MOST_FACTOR, Kind, correction, prompt_ratio
from runtime.messages.fit import SpeedSample

KIND = Kind("a", ("CPU",), "Q4_K", 1000)
SAMPLE = SpeedSample(
    model="a", devices=("CPU",), tensor_type="Q4_K", depth=1000, at_s=0.0,
    generation_tps=8.0, formula_generation_tps=10.0,
)  # fmt: skip


def like(**changes: object) -> SpeedSample:
    return msgspec.structs.replace(SAMPLE, **changes)


def test_when_there_is_no_history_then_nothing_is_corrected() -> None:
    found = correction((), KIND, spread=0.2)
    assert (found.factor, found.spread, found.basis) == (1.0, 0.2, "formula")


def test_when_the_model_ran_at_this_depth_then_one_sample_is_enough() -> None:
    found = correction((SAMPLE,), KIND)
    assert found.factor == pytest.approx(0.8)
    assert found.basis == "measured"


def test_when_other_models_of_the_format_ran_then_they_correct_it_but_less_surely() -> None:
    others = (like(model="b"), like(model="c", generation_tps=9.0))
    found = correction(others, KIND)
    assert found.factor == pytest.approx(0.72**0.5)
    assert found.basis == "calibrated"
    assert found.spread > correction((SAMPLE,), KIND).spread


def test_when_only_one_other_model_ran_then_it_corrects_nothing() -> None:
    assert correction((like(model="b"),), KIND).basis == "formula"


def test_when_other_formats_ran_then_they_serve_last_with_the_range_of_the_formula() -> None:
    others = (like(model="b", tensor_type="Q8_0"), like(model="c", tensor_type="F16"))
    found = correction(others, KIND, spread=0.2)
    assert (found.basis, found.n) == ("calibrated", 2)
    assert found.spread == 0.2


def test_when_other_devices_were_used_then_their_samples_do_not_count() -> None:
    assert correction((like(devices=("CPU", "CUDA0")),), KIND).basis == "formula"


def test_when_the_depth_was_another_then_near_ones_are_taken_first() -> None:
    near, far = like(depth=1500), like(depth=30_000, generation_tps=4.0)
    assert correction((far, near), KIND).factor == pytest.approx(0.8)
    assert correction((far,), KIND).factor == pytest.approx(0.4)


def test_when_one_answer_was_disturbed_then_it_does_not_count() -> None:
    samples = (SAMPLE, SAMPLE, like(generation_tps=2.5))
    assert correction(samples, KIND).factor == pytest.approx(0.8)


def test_when_a_ratio_is_impossible_then_it_is_left_out() -> None:
    assert correction((like(generation_tps=0.1), like(generation_tps=900.0)), KIND).basis == "formula"


def test_when_only_prompts_were_measured_then_only_prompts_are_corrected() -> None:
    sample = like(generation_tps=0.0, prompt_tps=50.0, formula_prompt_tps=100.0)
    assert correction((sample,), KIND).basis == "formula"
    assert correction((sample,), KIND, ratio=prompt_ratio).factor == pytest.approx(0.5)


@given(st.lists(st.floats(0.001, 1000.0), max_size=30))
def test_whatever_was_measured_then_the_correction_is_bounded(speeds: list[float]) -> None:
    found = correction([like(generation_tps=speed) for speed in speeds], KIND)
    assert LEAST_FACTOR * 0.999 <= found.factor <= MOST_FACTOR * 1.001
    assert found.spread > 0
