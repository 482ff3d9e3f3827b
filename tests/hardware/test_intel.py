from pathlib import Path

import pytest

from runtime.hardware.intel import IntelReader
from tests.hardware.sysfs_tree import add_card, add_fdinfo, write

ARC = "0000:03:00.0"


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def arc(tmp_path: Path) -> Path:
    card = add_card(tmp_path / "sys", 0, (0x8086, 0xE20B), ARC, "xe")
    write(
        card / "device",
        {
            "tile0/gt0/freq0/act_freq": "2400",
            "tile0/gt0/freq0/max_freq": "2850",
            "hwmon/hwmon2/temp2_label": "pkg",
            "hwmon/hwmon2/temp2_input": "58000",
            "hwmon/hwmon2/temp3_label": "vram",
            "hwmon/hwmon2/temp3_input": "66000",
            "hwmon/hwmon2/energy1_input": "1000000000",
            "hwmon/hwmon2/power1_max": "190000000",
        },
    )
    return card


def test_when_a_card_uses_xe_then_its_readings_are_there(tmp_path: Path, arc: Path) -> None:
    clock = Clock()
    reader = IntelReader(lambda: (), tmp_path / "sys", tmp_path / "proc", (), clock)
    (first,) = reader.read()
    clock.now_s += 2
    write(arc / "device", {"hwmon/hwmon2/energy1_input": "1240000000"})
    (second,) = reader.read()

    assert first.power_w is None  # one counter value is no power yet
    assert second.power_w == pytest.approx(120)
    assert second.power_limit_w == 190
    assert second.temperature_c == 58
    assert (second.clock_mhz, second.clock_max_mhz) == (2400, 2850)
    assert not second.unified_memory
    assert second.memory_total_bytes is None
    assert second.utilisation_percent is None


def test_when_the_energy_counter_begins_anew_then_there_is_no_power_for_once(tmp_path: Path, arc: Path) -> None:
    clock = Clock()
    reader = IntelReader(lambda: (), tmp_path / "sys", tmp_path / "proc", (), clock)
    reader.read()
    clock.now_s += 2
    write(arc / "device", {"hwmon/hwmon2/energy1_input": "5"})
    assert reader.read()[0].power_w is None
    clock.now_s += 1
    write(arc / "device", {"hwmon/hwmon2/energy1_input": "10000005"})
    assert reader.read()[0].power_w == pytest.approx(10)


@pytest.mark.usefixtures("arc")
def test_when_our_process_holds_card_memory_then_it_is_told(tmp_path: Path) -> None:
    add_fdinfo(tmp_path / "proc", 11, 3, {"drm-pdev": ARC, "drm-client-id": "1", "drm-total-vram0": "3 GiB"})
    (gpu,) = IntelReader(lambda: (11,), tmp_path / "sys", tmp_path / "proc", ()).read()
    assert gpu.memory_ours_bytes == 3 * 1024**3


def test_when_graphics_is_inside_the_processor_then_its_memory_is_the_systems(tmp_path: Path) -> None:
    card = add_card(tmp_path / "sys", 0, (0x8086, 0x46A6), "0000:00:02.0", "i915")
    write(card, {"gt_act_freq_mhz": "1100", "gt_max_freq_mhz": "1400"})
    (gpu,) = IntelReader(lambda: (), tmp_path / "sys", tmp_path / "proc", ()).read()
    assert gpu.unified_memory
    assert gpu.memory_total_bytes is not None
    assert gpu.memory_total_bytes > 0
    assert (gpu.clock_mhz, gpu.clock_max_mhz) == (1100, 1400)
    assert gpu.name == "Intel GPU 0x46a6"
