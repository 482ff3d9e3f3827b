import argparse
import io

import pytest

from runtime.cli.fit import show_plan, show_verdicts, speed_text
from runtime.cli.terminal import Terminal
from runtime.cli.values import parameter_count
from runtime.messages.fit import DeviceBudget, MemoryPlan, SpeedRange
from runtime.messages.library import HubEntry, HubFile, HubModel, QuantVerdict, Verdicts
from runtime.messages.load import ComputeDevice, DeviceMemory, ResolvedLoad
from runtime.options import LoadOptions

GB = 10**9
RESOLVED = ResolvedLoad(
    n_ctx=8192,
    n_parallel=4,
    n_seq_max=8,
    n_cells=12_032,
    n_batch=2048,
    n_ubatch=512,
    n_threads=8,
    n_gpu_layers=22,
    type_k="q8_0",
    type_v="q8_0",
)


def plan(**changed: object) -> MemoryPlan:
    told = {
        "model": "some-model",
        "options": LoadOptions(),
        "resolved": RESOLVED,
        "verdict": "partial",
        "sentence": "22 of 33 layers on GPU, 5.9 of 8.0 GB",
        "reason": "The rest stays in system memory.",
        "budgets": (
            DeviceBudget(
                ComputeDevice("CUDA0", "Some GPU", "gpu", 8 * GB, 7 * GB),
                DeviceMemory("CUDA0", weight_bytes=4 * GB, context_bytes=GB, compute_bytes=GB // 2),
                22,
                others_bytes=GB,
                margin_bytes=GB // 2,
                free_bytes=GB,
            ),
        ),
        "needed_bytes": 6 * GB,
        "free_bytes": 7 * GB,
        "n_layer": 33,
        "n_layer_gpu": 22,
        "method": "dry_run",
        "speed": SpeedRange(41.6, 38, 46.4, 900, 800, 1000, 1024, basis="calibrated"),
    }
    return MemoryPlan(**(told | changed))  # type: ignore[arg-type]


def printed(show: object, *values: object) -> str:
    out = io.StringIO()
    assert callable(show)
    show(*values, Terminal(out, io.StringIO(), {}))
    return out.getvalue()


def test_when_a_plan_is_shown_then_verdict_reason_parts_speed_and_method_are_there() -> None:
    text = printed(show_plan, plan())
    assert "22 of 33 layers on GPU, 5.9 of 8.0 GB" in text
    assert "The rest stays in system memory." in text
    row = next(line for line in text.splitlines() if line.startswith("CUDA0"))
    assert row.split() == [
        "CUDA0",
        "22",
        "4.0",
        "GB",
        "1.0",
        "GB",
        "500",
        "MB",
        "5.5",
        "GB",
        "1.0",
        "GB",
        "500",
        "MB",
        "1.0",
        "GB",
    ]
    assert "cache q8_0" in text
    assert "4 conversations of up to 8,192 tokens" in text
    assert "about 41.6 tok/s (38.0 to 46.4)" in text
    assert "corrected by what was measured here" in text
    assert "without allocation" in text


def test_when_a_part_is_nowhere_used_then_it_has_no_column() -> None:
    text = printed(show_plan, plan())
    assert "PICTURES" not in text
    assert "DRAFT" not in text


def test_when_a_model_is_too_large_then_the_problem_is_told_and_no_speed() -> None:
    text = printed(
        show_plan, plan(verdict="too_large", sentence="Too large", problem="It needs 41 GB.", speed=None, budgets=())
    )
    assert "It needs 41 GB." in text
    assert "tok/s" not in text


def test_when_a_name_from_outside_holds_control_characters_then_they_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in printed(show_plan, plan(model="evil\x1b[2J", sentence="\x1b]0;x", reason="\x1bc"))


def test_when_nothing_can_be_said_of_the_speed_then_that_is_said() -> None:
    assert speed_text(None) == "speed unknown"


def test_when_files_are_judged_then_the_recommended_one_has_a_star_and_its_reason() -> None:
    files = (
        HubFile("m-Q8_0.gguf", ("m-Q8_0.gguf",), (8 * GB,), ("",), "Q8_0", 8 * GB, bits_per_weight=8.5, quality="best"),
        HubFile("m-Q4_K_M.gguf", ("m-Q4_K_M.gguf",), (5 * GB,), ("",), "Q4_K_M", 5 * GB, quality="good"),
    )
    page = HubModel(HubEntry("o/r", "r", "o"), "c" * 40, files)
    verdicts = Verdicts(
        "o/r",
        (
            QuantVerdict("m-Q8_0.gguf", plan(verdict="too_large", sentence="Too large: needs 9 GB")),
            QuantVerdict("m-Q4_K_M.gguf", plan(), recommended=True, reason="Best quality that fits."),
        ),
        rule="The rule.",
    )
    lines = printed(show_verdicts, page, verdicts).splitlines()
    assert [line for line in lines if line.startswith("*  Q4_K_M")]
    assert any(line.startswith("   Q8_0") and line.endswith("-") for line in lines)
    assert "* Best quality that fits." in lines
    assert "The rule." in lines


def test_when_files_share_a_quantization_then_they_are_told_apart_by_name() -> None:
    files = tuple(HubFile(name, (name,), (GB,), ("",), "Q4_0", GB) for name in ("a/m-Q4_0.gguf", "b/m-Q4_0.gguf"))
    page = HubModel(HubEntry("o/r", "r", "o"), "c" * 40, files)
    verdicts = Verdicts("o/r", tuple(QuantVerdict(file.name, plan()) for file in files), rule="The rule.")
    shown = printed(show_verdicts, page, verdicts)
    assert "a/m-Q4_0.gguf" in shown
    assert "b/m-Q4_0.gguf" in shown


def test_when_a_repository_has_no_model_files_then_that_is_said() -> None:
    text = printed(show_verdicts, HubModel(HubEntry("o/r", "r", "o"), "", ()), Verdicts("o/r", (), ""))
    assert "no GGUF" in text


@pytest.mark.parametrize(("raw", "number"), [("8B", 8 * GB), ("0.5b", GB // 2), ("500M", 500_000_000), ("7", 7)])
def test_when_parameters_are_written_short_then_they_are_counted(raw: str, number: int) -> None:
    assert parameter_count(raw) == number


@pytest.mark.parametrize("raw", ["", "B", "-8B", "8 apples", "1e9"])
def test_when_it_is_no_number_of_parameters_then_it_is_refused(raw: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parameter_count(raw)
