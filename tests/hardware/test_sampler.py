import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from runtime.hardware import HardwareSampler
from runtime.hardware.sampler import system_notes
from runtime.messages.hardware import CpuSample, HardwareSample
from tests.hardware.sysfs_tree import add_card

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads sysfs")


@pytest.fixture
def sampler(tmp_path: Path) -> Iterator[HardwareSampler]:
    sampler = HardwareSampler(lambda: (os.getpid(),), sys_root=tmp_path)
    yield sampler
    sampler.close()


def test_when_sampled_then_processor_and_memory_are_there(sampler: HardwareSampler) -> None:
    sample = sampler.sample()
    assert sample.cpu.cores_logical == os.cpu_count()
    assert sample.memory.ours_bytes is not None
    assert sample.at_s > 1_700_000_000


def test_when_sampled_then_it_survives_the_way_to_a_client(sampler: HardwareSampler) -> None:
    sample = sampler.sample()
    assert msgspec.json.decode(msgspec.json.encode(sample), type=HardwareSample) == sample


@linux_only
def test_when_cards_of_two_makers_are_there_then_each_has_its_own_index(tmp_path: Path) -> None:
    add_card(tmp_path, 0, (0x8086, 0x46A6), "0000:00:02.0", "i915")
    add_card(tmp_path, 1, (0x1002, 0x744C), "0000:03:00.0", "amdgpu")
    sampler = HardwareSampler(lambda: (), sys_root=tmp_path)
    sample = sampler.sample()
    sampler.close()
    gpus = [gpu for gpu in sample.gpus if gpu.vendor != "nvidia"]
    assert [gpu.vendor for gpu in gpus] == ["amd", "intel"]
    assert len({gpu.index for gpu in sample.gpus}) == len(sample.gpus)
    assert any("Intel" in note for note in sample.notes)


def test_when_our_pids_change_under_the_reading_then_nothing_is_raised(tmp_path: Path) -> None:
    def changing() -> tuple[int, ...]:
        raise RuntimeError("Set changed size during iteration")

    sampler = HardwareSampler(changing, sys_root=tmp_path)
    assert sampler.sample().memory.ours_bytes is None
    sampler.close()


def test_when_sampled_again_then_it_takes_a_few_milliseconds(sampler: HardwareSampler) -> None:
    sampler.sample()
    fastest_s = min(_timed(sampler) for _ in range(5))
    assert fastest_s < 0.1


def test_when_windows_hides_the_processors_temperature_then_a_note_says_why() -> None:
    assert "administrator" in system_notes(CpuSample(), "win32")[0]
    assert system_notes(CpuSample(temperature_c=50.0), "win32") == ()
    assert system_notes(CpuSample(), "linux") == ()


def _timed(sampler: HardwareSampler) -> float:
    began = time.monotonic()
    sampler.sample()
    return time.monotonic() - began
