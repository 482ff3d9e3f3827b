import pytest

from runtime.gguf.quality import QUALITIES, UNKNOWN_RANK, quality_of
from runtime.gguf.quantization import FILE_TYPES


def test_every_format_llama_cpp_writes_when_asked_then_has_a_note_and_bits() -> None:
    for name in FILE_TYPES.values():
        found = quality_of(name)
        assert found.name == name
        assert found.note.endswith(".")
        assert 1 < found.bits_per_weight <= 32


def test_formats_from_best_to_worst_when_measured_then_lose_more_and_more() -> None:
    measured = sorted((q for q in QUALITIES.values() if q.kl_divergence is not None), key=lambda quality: quality.rank)
    losses = [quality.kl_divergence or 0 for quality in measured]
    assert losses == sorted(losses)


def test_format_that_need_not_be_offered_when_compared_then_the_better_one_is_smaller_and_better() -> None:
    worse = [quality for quality in QUALITIES.values() if quality.better]
    assert {quality.name for quality in worse} >= {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K"}
    for quality in worse:
        better = quality_of(quality.better)
        assert better.rank < quality.rank
        assert better.bits_per_weight <= quality.bits_per_weight + 0.03
        assert (better.kl_divergence or 0) < (quality.kl_divergence or 0)


@pytest.mark.parametrize(
    ("name", "quality"),
    [
        ("F16", "best"),
        ("Q8_0", "best"),
        ("Q6_K", "very_good"),
        ("q4_k_m", "good"),
        ("IQ4_XS", "good"),
        ("Q3_K_M", "fair"),
        ("IQ2_M", "poor"),
        ("UD-Q4_K_XL", "good"),
        ("UD-IQ2_M", "poor"),
        ("Q6_K_L", "very_good"),
        ("MXFP4", "good"),
        ("Q4_K", "good"),
        ("TQ1_0", "unknown"),
        ("", "unknown"),
        ("Q99_Z", "unknown"),
    ],
)
def test_quantization_when_judged_then_has_its_class(name: str, quality: str) -> None:
    assert quality_of(name).quality == quality


def test_dynamic_mixture_when_judged_then_is_called_by_its_name_and_claims_no_figure() -> None:
    found = quality_of("UD-Q3_K_M")
    assert (found.name, found.kl_divergence) == ("UD-Q3_K_M", None)
    assert "Q3_K_M" in found.note


def test_strange_name_when_judged_then_is_last_and_not_repeated() -> None:
    found = quality_of("<script>" * 20)
    assert (found.name, found.rank) == ("", UNKNOWN_RANK)
