from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime.hardware.amd import AmdReader
from runtime.hardware.intel import IntelReader
from runtime.hardware.sysfs import fdinfo_memory_bytes, read_int, read_scaled
from tests.hardware.sysfs_tree import add_card, write


@pytest.mark.parametrize(
    ("text", "value"),
    [("42\n", 42), ("0x10de\n", 0x10DE), ("-5", -5), ("", None), ("n/a", None), ("1" * 5000, None), ("4.5", None)],
)
def test_when_a_file_holds_a_number_then_it_is_read_and_else_there_is_none(
    tmp_path: Path, text: str, value: int | None
) -> None:
    path = tmp_path / "value"
    path.write_text(text)
    assert read_int(path) == value


def test_when_a_file_is_missing_or_a_folder_then_there_is_no_number(tmp_path: Path) -> None:
    assert read_int(tmp_path / "missing") is None
    assert read_scaled(tmp_path, 1000) is None


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_when_a_driver_writes_nonsense_then_the_cards_are_still_listed(tmp_path: Path, raw: bytes) -> None:
    for number, (vendor, driver) in enumerate(((0x1002, "amdgpu"), (0x8086, "xe"))):
        card = tmp_path / "class" / "drm" / f"card{number}"
        if not card.exists():
            add_card(tmp_path, number, (vendor, 1), f"0000:0{number}:00.0", driver)
        names = ("gpu_busy_percent", "mem_info_vram_total", "pp_dpm_sclk", "gpu_metrics", "uevent", "unique_id")
        sensors = ("temp1_input", "temp1_label", "power1_average", "energy1_input", "freq1_input", "pwm1")
        write(card / "device", dict.fromkeys(names, raw) | {f"hwmon/hwmon0/{name}": raw for name in sensors})
    assert len(AmdReader(lambda: (), tmp_path, tmp_path, ()).read()) == 1
    assert len(IntelReader(lambda: (), tmp_path, tmp_path, ()).read()) == 1


def test_when_a_process_ends_under_the_reading_then_it_counts_nothing(tmp_path: Path) -> None:
    assert fdinfo_memory_bytes(tmp_path, (1, 2, 3), "0000:03:00.0", ("drm-memory-vram",)) is None
