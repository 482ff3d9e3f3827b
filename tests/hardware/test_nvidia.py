"""NVIDIA readings against a stand-in driver, and the machine as it is when there is none."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.hardware.nvidia import NvidiaReader, ours_of, throttle_reasons
from runtime.hardware.nvml import GpuProcess
from tests.hardware.conftest import NvidiaAnswer, StubbedNvidia

Start = Callable[..., StubbedNvidia]


def read_until(nvidia: StubbedNvidia, done: Callable[[NvidiaAnswer], bool]) -> NvidiaAnswer:
    deadline = time.monotonic() + 20
    answer = nvidia.read()
    while not done(answer) and time.monotonic() < deadline:
        answer = nvidia.read()
    if done(answer):
        return answer
    raise AssertionError(f"never came to be; last: {answer}")


def test_when_two_gpus_answer_then_every_reading_is_there(nvidia: StubbedNvidia) -> None:
    answer = nvidia.read()

    assert answer.notes == ()
    first, second = answer.gpus
    assert (first.index, first.name, first.vendor) == (0, "Stub GeForce 0", "nvidia")
    assert first.uuid == "GPU-0000-0"
    assert first.pci_bus_id == "0000:0a:00.0"
    assert first.driver == "580.95.05"
    assert (first.utilisation_percent, first.memory_utilisation_percent) == (73, 41)
    assert (first.temperature_c, first.temperature_limit_c) == (64, 83)
    assert (first.memory_temperature_c, second.memory_temperature_c) == (78, None)
    assert (first.power_w, first.power_limit_w) == (212.5, 350)
    assert (first.clock_mhz, first.clock_max_mhz) == (1740, 2100)
    assert (first.memory_clock_mhz, first.memory_clock_max_mhz) == (9501, 9751)
    assert first.fan_percent == 55
    assert first.throttle_reasons == ()
    assert not first.throttled
    assert first.problem == ""
    assert (second.index, second.name) == (1, "Stub GeForce 1")


def test_when_a_card_tells_only_a_margin_then_the_limit_is_temperature_plus_margin(nvidia: StubbedNvidia) -> None:
    assert nvidia.read().gpus[1].temperature_limit_c == 64 + 26


def test_when_memory_has_a_reserve_then_it_is_not_counted_as_used(nvidia: StubbedNvidia) -> None:
    gpu = nvidia.read().gpus[0]
    assert gpu.memory_total_bytes == 24_000_000_000
    assert gpu.memory_used_bytes == 6_000_000_000


def test_when_we_hold_memory_then_ours_and_others_are_told_apart(nvidia: StubbedNvidia) -> None:
    nvidia.set_state(f"compute 0 {nvidia.pid} 4000000000", "graphics 0 1 500000000")
    gpu = nvidia.read().gpus[0]
    assert gpu.memory_ours_bytes == 4_000_000_000
    assert gpu.memory_others_bytes == 2_000_000_000


def test_when_a_process_is_in_both_lists_then_it_counts_once(nvidia: StubbedNvidia) -> None:
    nvidia.set_state(f"compute 0 {nvidia.pid} 4000000000", f"graphics 0 {nvidia.pid} 4000000000")
    assert nvidia.read().gpus[0].memory_ours_bytes == 4_000_000_000


def test_when_the_system_hides_process_memory_then_ours_is_not_available(nvidia: StubbedNvidia) -> None:
    nvidia.set_state(f"compute 0 {nvidia.pid} hidden")
    gpu = nvidia.read().gpus[0]
    assert gpu.memory_ours_bytes is None
    assert gpu.memory_others_bytes is None
    assert gpu.memory_used_bytes == 6_000_000_000


def test_when_the_driver_is_old_then_older_calls_are_used(start_nvidia: Start) -> None:
    nvidia = start_nvidia("-DOLD_DRIVER", state=("throttle 0 0x4",))
    nvidia.set_state("throttle 0 0x4", f"compute 0 {nvidia.pid} 1000")
    gpu = nvidia.read().gpus[0]
    assert gpu.memory_used_bytes == 6_400_000_000  # the first version counts the reserve in
    assert gpu.temperature_c == 61
    assert gpu.fan_percent == 38
    assert gpu.memory_ours_bytes == 1000
    assert gpu.throttled
    assert gpu.mig == ()


def test_when_a_card_supports_nothing_then_it_shows_none_and_shared_memory(start_nvidia: Start) -> None:
    gpu = start_nvidia(state=("unsupported 0",)).read().gpus[0]
    assert gpu.name == "Stub GeForce 0"
    assert gpu.problem == ""
    for reading in ("utilisation_percent", "temperature_c", "power_w", "clock_mhz", "fan_percent", "throttle_reasons"):
        assert getattr(gpu, reading) is None
    assert gpu.unified_memory
    assert gpu.memory_total_bytes is not None
    assert gpu.memory_total_bytes > 0
    assert gpu.memory_ours_bytes is None


def test_when_a_gpu_is_hot_then_the_reason_is_a_sentence(start_nvidia: Start) -> None:
    gpu = start_nvidia(state=("throttle 1 0x48",)).read().gpus[1]
    assert gpu.throttled
    assert gpu.throttle_reasons == ("Slowed down hard by the hardware because it is too hot.",)


def test_when_a_gpu_is_lost_then_it_keeps_its_place_with_a_problem_and_the_other_reads_on(
    nvidia: StubbedNvidia,
) -> None:
    before = nvidia.read().gpus[1]
    nvidia.set_state("lost 1")

    answer = read_until(nvidia, lambda answer: bool(answer.gpus[1].problem))

    assert "fallen off the bus" in answer.gpus[1].problem
    assert answer.gpus[1].name == before.name
    assert answer.gpus[1].temperature_c is None
    assert answer.gpus[0].temperature_c == 64
    assert answer.gpus[0].problem == ""


def test_when_a_lost_gpu_returns_then_the_library_is_started_anew_and_it_reads_again(nvidia: StubbedNvidia) -> None:
    nvidia.read()
    nvidia.set_state("lost 1")
    read_until(nvidia, lambda answer: bool(answer.gpus[1].problem))
    nvidia.set_state()  # the stand-in goes on losing it until the library is started anew

    answer = read_until(nvidia, lambda answer: not answer.gpus[1].problem)

    assert answer.gpus[1].temperature_c == 64


def test_when_a_gpu_is_lost_from_the_start_then_it_is_listed_with_its_problem(start_nvidia: Start) -> None:
    answer = start_nvidia(state=("lost 0",)).read()
    assert answer.gpus[0].problem
    assert answer.gpus[1].utilisation_percent == 73


def test_when_one_sensor_answers_unknown_error_then_only_that_reading_is_missing(start_nvidia: Start) -> None:
    gpu = start_nvidia(state=("unknown_fan 0 1",)).read().gpus[0]
    assert gpu.problem == ""
    assert gpu.fan_percent is None
    assert gpu.temperature_c == 64


def test_when_every_call_answers_unknown_error_then_the_gpu_has_a_problem(nvidia: StubbedNvidia) -> None:
    nvidia.read()
    nvidia.set_state("unknown 0 1")
    answer = read_until(nvidia, lambda answer: bool(answer.gpus[0].problem))
    assert "unknown error" in answer.gpus[0].problem
    assert answer.gpus[1].problem == ""


def test_when_a_gpu_vanishes_from_the_list_then_it_says_so(nvidia: StubbedNvidia) -> None:
    nvidia.read()
    nvidia.set_state("count 0 1", "lost 1")
    answer = read_until(nvidia, lambda answer: "no longer lists" in answer.gpus[1].problem)
    assert len(answer.gpus) == 2


def test_when_a_call_stalls_then_the_other_gpu_is_read_in_time(nvidia: StubbedNvidia) -> None:
    nvidia.read()
    nvidia.set_state("stall 0 400", "throttle 1 0x4")

    answer = nvidia.read()

    assert answer.took_s < 1.0  # one stalled reading makes some twenty calls: eight seconds
    assert answer.gpus[0].temperature_c == 64  # its last reading
    assert answer.gpus[1].throttled  # a new one


def test_when_a_gpu_stays_silent_then_it_has_a_problem(nvidia: StubbedNvidia) -> None:
    nvidia.read()
    nvidia.set_state("stall 0 400")
    answer = read_until(nvidia, lambda answer: bool(answer.gpus[0].problem))
    assert "has not answered" in answer.gpus[0].problem
    assert answer.gpus[1].problem == ""


def test_when_a_reading_stalls_at_the_end_then_closing_does_not_wait_for_it(nvidia: StubbedNvidia) -> None:
    nvidia.read()
    nvidia.set_state("stall 0 2000")
    nvidia.read()
    began = time.monotonic()
    assert nvidia.close() == 0
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("fact", "words"),
    [("not_loaded 0 1", "not running"), ("mismatch 0 1", "updated while running")],
)
def test_when_the_driver_cannot_start_then_one_note_says_why(start_nvidia: Start, fact: str, words: str) -> None:
    nvidia = start_nvidia(state=(fact,))
    for _ in range(3):
        answer = nvidia.read()
        assert answer.gpus == ()
        assert len(answer.notes) == 1
        assert words in answer.notes[0]


def test_when_the_driver_starts_later_then_its_gpus_appear(start_nvidia: Start) -> None:
    nvidia = start_nvidia(state=("not_loaded 0 1",))
    assert nvidia.read().gpus == ()
    nvidia.set_state()
    answer = read_until(nvidia, lambda answer: bool(answer.gpus))
    assert len(answer.gpus) == 2
    assert answer.notes == ()


def test_when_a_gpu_is_split_then_its_slices_are_listed(start_nvidia: Start) -> None:
    gpu = start_nvidia(state=("mig 0 1",)).read().gpus[0]
    assert [one.name for one in gpu.mig] == ["Stub GeForce MIG 1g.10gb", "Stub GeForce MIG 1g.20gb"]
    assert gpu.mig[0].memory_total_bytes == 10_000_000_000
    assert gpu.mig[0].uuid == "MIG-0000-100"


def test_when_there_is_no_driver_library_then_a_note_says_so_and_nothing_breaks(tmp_path: Path) -> None:
    reader = NvidiaReader(lambda: (), sys_root=tmp_path)
    try:
        gpus, notes = reader.read(within_s=5.0)
    finally:
        reader.close(time.monotonic() + 5)
    if gpus:
        pytest.skip("this machine has an NVIDIA driver")
    assert notes == ("No NVIDIA driver library was found, so there are no readings of NVIDIA GPUs.",)


def test_when_there_is_a_card_without_a_driver_then_the_note_says_install_it(tmp_path: Path) -> None:
    device = tmp_path / "bus" / "pci" / "devices" / "0000:01:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030000\n")
    reader = NvidiaReader(lambda: (), sys_root=tmp_path)
    try:
        gpus, notes = reader.read(within_s=5.0)
    finally:
        reader.close(time.monotonic() + 5)
    if gpus:
        pytest.skip("this machine has an NVIDIA driver")
    assert "install it" in notes[0]


def test_when_a_gpu_only_idles_then_it_is_not_throttled() -> None:
    reasons, throttled = throttle_reasons(0x1)
    assert reasons == ("Idle: the clocks are low because nothing runs.",)
    assert not throttled


def test_when_the_driver_lists_pids_of_another_system_then_ours_is_not_available() -> None:
    nobody = 2**22 + 1  # above Linux's highest pid
    assert ours_of((GpuProcess(nobody, 1000),), {os.getpid()}) is None


def test_when_none_of_the_listed_processes_is_ours_then_ours_is_zero() -> None:
    assert ours_of((GpuProcess(os.getppid(), 1000),), {os.getpid()}) == 0
