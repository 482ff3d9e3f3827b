import struct
from pathlib import Path

import pytest

from runtime.hardware.amd import AmdReader, current_clock_mhz, throttle_reasons
from tests.hardware.sysfs_tree import add_card, add_fdinfo, write

BUS = "0000:03:00.0"


def metrics(*, layout: int = 1, revision: int = 3, throttle: int = 0, size: int = 120) -> bytes:
    return struct.pack("<HBB", size, layout, revision).ljust(112, b"\0") + struct.pack("<Q", throttle)


@pytest.fixture
def card(tmp_path: Path) -> Path:
    card = add_card(tmp_path / "sys", 1, (0x1002, 0x744C), BUS, "amdgpu")
    write(
        card / "device",
        {
            "gpu_busy_percent": "87",
            "mem_busy_percent": "33",
            "mem_info_vram_total": "25753026560",
            "mem_info_vram_used": "9000000000",
            "mem_info_gtt_total": "33000000000",
            "mem_info_gtt_used": "200000000",
            "pp_dpm_sclk": "0: 500Mhz\n1: 1800Mhz *\n2: 2304Mhz",
            "pp_dpm_mclk": "0: 96Mhz\n1: 1249Mhz *",
            "unique_id": "a1b2c3",
            "gpu_metrics": metrics(),
            "hwmon/hwmon4/temp1_label": "edge",
            "hwmon/hwmon4/temp1_input": "61000",
            "hwmon/hwmon4/temp1_crit": "100000",
            "hwmon/hwmon4/temp3_label": "mem",
            "hwmon/hwmon4/temp3_input": "70000",
            "hwmon/hwmon4/power1_average": "287000000",
            "hwmon/hwmon4/power1_cap": "339000000",
            "hwmon/hwmon4/pwm1": "102",
            "hwmon/hwmon4/freq1_input": "1795000000",
        },
    )
    return card


def reader(tmp_path: Path, *pids: int, databases: tuple[Path, ...] = ()) -> AmdReader:
    return AmdReader(lambda: pids, tmp_path / "sys", tmp_path / "proc", databases)


@pytest.mark.usefixtures("card")
def test_when_a_card_tells_everything_then_every_reading_is_there(tmp_path: Path) -> None:
    (gpu,) = reader(tmp_path).read()
    assert (gpu.vendor, gpu.pci_bus_id, gpu.driver, gpu.uuid) == ("amd", BUS, "amdgpu", "GPU-a1b2c3")
    assert (gpu.utilisation_percent, gpu.memory_utilisation_percent) == (87, 33)
    assert (gpu.memory_total_bytes, gpu.memory_used_bytes) == (25_753_026_560, 9_000_000_000)
    assert (gpu.temperature_c, gpu.temperature_limit_c, gpu.memory_temperature_c) == (61, 100, 70)
    assert (gpu.power_w, gpu.power_limit_w) == (287, 339)
    assert (gpu.clock_mhz, gpu.clock_max_mhz) == (1795, 2304)
    assert (gpu.memory_clock_mhz, gpu.memory_clock_max_mhz) == (1249, 1249)
    assert gpu.fan_percent == pytest.approx(40)
    assert gpu.throttle_reasons == ()
    assert not gpu.throttled
    assert not gpu.unified_memory


@pytest.mark.usefixtures("card")
def test_when_our_process_holds_memory_then_each_client_counts_once(tmp_path: Path) -> None:
    one = {"drm-pdev": BUS, "drm-client-id": "7", "drm-memory-vram": "2000000 KiB"}
    add_fdinfo(tmp_path / "proc", 4242, 5, one)
    add_fdinfo(tmp_path / "proc", 4242, 6, one)
    add_fdinfo(tmp_path / "proc", 4242, 7, one | {"drm-client-id": "8", "drm-memory-vram": "1 MiB"})
    add_fdinfo(tmp_path / "proc", 4242, 8, one | {"drm-pdev": "0000:04:00.0", "drm-client-id": "9"})
    (gpu,) = reader(tmp_path, 4242).read()
    ours = 2_000_000 * 1024 + 1024**2
    assert gpu.memory_ours_bytes == ours
    assert gpu.memory_others_bytes == 9_000_000_000 - ours


def test_when_graphics_is_inside_the_processor_then_mapped_system_memory_counts(tmp_path: Path, card: Path) -> None:
    write(card / "device", {"gpu_metrics": metrics(layout=2, revision=2)})
    (gpu,) = reader(tmp_path).read()
    assert gpu.unified_memory
    assert gpu.memory_total_bytes == 25_753_026_560 + 33_000_000_000
    assert gpu.memory_used_bytes == 9_200_000_000


def test_when_the_card_has_no_files_then_all_is_not_available(tmp_path: Path) -> None:
    add_card(tmp_path / "sys", 0, (0x1002, 0x164E), BUS, "")
    (gpu,) = reader(tmp_path).read()
    assert gpu.name == "AMD GPU 0x164e"
    assert gpu.memory_total_bytes is None
    assert gpu.memory_ours_bytes is None
    assert gpu.temperature_c is None
    assert gpu.throttle_reasons is None


@pytest.mark.usefixtures("card")
def test_when_the_system_has_the_list_of_names_then_the_card_has_its_name(tmp_path: Path) -> None:
    database = tmp_path / "pci.ids"
    database.write_text(
        "# list\n1001  Other\n\t744c  Wrong\n1002  Advanced Micro Devices\n"
        "\t744c  Navi 31 [RX 7900]\n\t\t1da2 e471  Sub\n"
    )
    (gpu,) = reader(tmp_path, databases=(tmp_path / "missing", database)).read()
    assert gpu.name == "Navi 31 [RX 7900]"


def test_when_there_is_no_sysfs_then_there_are_no_cards(tmp_path: Path) -> None:
    assert reader(tmp_path).read() == ()


@pytest.mark.parametrize(("bit", "word"), [(0, "power"), (16, "current"), (36, "hot"), (57, "firmware")])
def test_when_a_throttle_bit_is_set_then_its_sentence_is_told(bit: int, word: str) -> None:
    reasons = throttle_reasons(metrics(throttle=1 << bit))
    assert reasons is not None
    assert len(reasons) == 1
    assert word in reasons[0]


@pytest.mark.parametrize(
    "table",
    [
        b"",
        b"\1",
        metrics(layout=2),
        metrics(revision=2),
        metrics(revision=4),
        metrics()[:100],
        metrics(throttle=2**64 - 1),
    ],
)
def test_when_the_table_does_not_tell_then_throttling_is_not_available(table: bytes) -> None:
    assert throttle_reasons(table) is None


def test_when_a_clock_table_is_strange_then_there_is_no_clock() -> None:
    assert current_clock_mhz("S: nonsense\n\n") == (None, None)
    assert current_clock_mhz(None) == (None, None)
