import os
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from runtime.hardware.cpu import CpuReader, MemoryReader, choose_temperature, cpu_name


@dataclass
class Reading:
    label: str
    current: float


def test_when_the_package_has_a_sensor_then_it_wins_over_the_cores() -> None:
    sensors = {"coretemp": [Reading("Core 0", 71.0), Reading("Package id 0", 66.0)], "nvme": [Reading("", 40.0)]}
    assert choose_temperature(sensors) == 66


def test_when_only_cores_have_sensors_then_the_hottest_counts() -> None:
    assert choose_temperature({"coretemp": [Reading("Core 0", 51.0), Reading("Core 1", 58.0)]}) == 58


def test_when_an_amd_chip_tells_tctl_then_that_is_it() -> None:
    assert choose_temperature({"k10temp": [Reading("Tccd1", 60.0), Reading("Tctl", 63.5)]}) == 63.5


@pytest.mark.parametrize("sensors", [{}, {"nvme": [Reading("", 40.0)]}, {"coretemp": [Reading("", -128.0)]}])
def test_when_no_sensor_is_the_processors_then_there_is_no_temperature(sensors: dict[str, list[Reading]]) -> None:
    assert choose_temperature(sensors) is None


def test_when_the_sensors_fail_then_the_rest_is_still_read() -> None:
    def broken() -> dict[str, list[Reading]]:
        raise OSError("sensor bus")

    sample = CpuReader(read_sensors=broken).read()
    assert sample.temperature_c is None
    assert sample.cores_logical == psutil.cpu_count()


def test_when_the_processor_works_then_its_load_is_told() -> None:
    reader = CpuReader()
    while (sample := reader.read()).utilisation_percent is None:
        sum(range(100_000))
    assert 0 < sample.utilisation_percent <= 100


def test_when_cpuinfo_names_the_processor_then_that_name_is_used(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some   Processor 9000\n")
    assert cpu_name(tmp_path) == "Some Processor 9000"


def test_when_memory_is_read_then_ours_is_that_of_our_processes() -> None:
    sample = MemoryReader(lambda: {os.getpid(), 2**22 + 1}).read()
    assert sample.total_bytes == psutil.virtual_memory().total
    assert sample.ours_bytes is not None
    assert 1_000_000 < sample.ours_bytes < psutil.virtual_memory().total


def test_when_none_of_our_processes_lives_then_ours_is_not_available() -> None:
    assert MemoryReader(lambda: {2**22 + 1}).read().ours_bytes is None
