import io
from pathlib import Path

import pytest

from runtime.cli.hardware import describe, our_pids
from runtime.cli.terminal import Terminal
from runtime.messages.hardware import CpuSample, GpuSample, HardwareSample, MemorySample, MigSample
from runtime.paths import DataFolder


def shown(*gpus: GpuSample, notes: tuple[str, ...] = ()) -> str:
    terminal = Terminal(io.StringIO(), io.StringIO(), {})
    memory = MemorySample(total_bytes=32_000_000_000, available_bytes=20_000_000_000)
    return "\n".join(describe(HardwareSample(1.0, CpuSample(name="Some CPU"), memory, gpus, notes), terminal))


HOT = GpuSample(
    0,
    "Some GPU",
    "nvidia",
    memory_total_bytes=24_000_000_000,
    memory_used_bytes=6_000_000_000,
    memory_ours_bytes=4_000_000_000,
    memory_others_bytes=2_000_000_000,
    temperature_c=84,
    temperature_limit_c=83,
    power_w=212.5,
    power_limit_w=350,
    throttle_reasons=("Slowed down by the driver because it is hot.",),
    throttled=True,
)


def test_when_a_gpu_tells_everything_then_each_figure_has_its_limit_and_unit() -> None:
    text = shown(HOT)
    assert "GPU 0: Some GPU" in text
    assert "6.0 GB of 24.0 GB" in text
    assert "84 of 83 °C" in text
    assert "212 of 350 W" in text
    assert "because it is hot" in text


def test_when_a_reading_is_missing_then_it_says_not_available() -> None:
    lines = shown(HOT).splitlines()
    (fan,) = (line for line in lines if line.strip().startswith("fan"))
    assert fan.split(maxsplit=1)[1] == "not available"


def test_when_a_gpu_is_lost_then_only_its_problem_is_told() -> None:
    text = shown(GpuSample(1, "Other GPU", "nvidia", problem="The GPU has fallen off the bus."))
    assert "fallen off the bus" in text
    assert "temperature" not in text.partition("GPU 1")[2]


def test_when_a_gpu_is_split_then_its_slices_are_listed() -> None:
    text = shown(GpuSample(0, "A100", "nvidia", mig=(MigSample("MIG 1g.10gb", "", 10_000_000_000, 1_000_000_000),)))
    assert "slice MIG 1g.10gb: 1.0 GB of 10.0 GB" in text


def test_when_there_is_no_gpu_then_it_says_so_with_the_notes() -> None:
    text = shown(notes=("No driver.\x1b[2J",))
    assert "No GPU was found" in text
    assert "No driver.␛[2J" in text


@pytest.mark.parametrize("used", [0, 32_000_000_000])
def test_when_memory_is_empty_or_full_then_it_is_still_a_figure(used: int) -> None:
    terminal = Terminal(io.StringIO(), io.StringIO(), {})
    memory = MemorySample(total_bytes=32_000_000_000, available_bytes=32_000_000_000 - used)
    text = "\n".join(describe(HardwareSample(1.0, CpuSample(), memory), terminal))
    assert "of 32.0 GB" in text
    assert text.count("not available of 32.0 GB") == 0


def test_when_no_host_runs_then_no_process_is_ours(tmp_path: Path) -> None:
    assert our_pids(DataFolder(tmp_path)) == ()
