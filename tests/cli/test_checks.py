import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from runtime.cli import checks
from runtime.cli.checks import Check
from runtime.messages.api import HostFile
from runtime.messages.hardware import CpuSample, GpuSample, HardwareSample, MemorySample
from runtime.options import ApiOptions
from runtime.paths import DataFolder
from runtime.probe.report import DeviceReport, EngineReport

CPU = DeviceReport("CPU", "Some Processor", is_gpu=False, free_bytes=1, total_bytes=1)
CUDA = DeviceReport("CUDA0", "Some GPU", is_gpu=True, free_bytes=1, total_bytes=1)


def engine(*devices: DeviceReport, features: tuple[str, ...] = ("AVX", "AVX2", "FMA", "F16C")) -> EngineReport:
    return EngineReport("0.3.36", devices or (CPU,), features, can_offload=True)


def sample(*gpus: GpuSample, notes: tuple[str, ...] = (), free: int = 20_000_000_000) -> HardwareSample:
    memory = MemorySample(total_bytes=32_000_000_000, available_bytes=free)
    return HardwareSample(1.0, CpuSample(name="Some Processor", cores_physical=8), memory, gpus, notes)


def test_when_the_engine_is_asked_then_it_names_its_version_and_devices() -> None:
    report, check = checks.ask_engine()
    assert report is not None
    assert check.state == "ok"
    assert report.version in check.found
    assert any(device.name == "CPU" for device in report.devices)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("raise SystemExit('no module named llama_cpp')", "no module named llama_cpp"),
        ("print('not json')", "something else"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "another processor"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "it said nothing"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="kills by POSIX signals")
def test_when_the_engine_ends_badly_then_its_words_are_told_and_we_live_on(program: str, words: str) -> None:
    report, check = checks.ask_engine((sys.executable, "-c", program))
    assert report is None
    assert check.state == "problem"
    assert words in check.found
    assert check.advice


def test_when_the_engine_program_is_missing_then_that_is_a_problem() -> None:
    _, check = checks.ask_engine(("/surely/not/there",))
    assert check.state == "problem"


def test_when_the_engine_leaves_a_feature_unused_then_a_note_says_so(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("flags\t\t: fpu avx avx2 fma f16c\n")
    check = checks.check_processor(sample(), engine(features=("AVX",)), tmp_path)
    assert check.state == "note"
    assert "but not AVX2, FMA, F16C" in check.found
    assert checks.check_processor(sample(), engine(), tmp_path).state == "ok"


def test_when_memory_is_short_then_a_note_says_so() -> None:
    assert checks.check_memory(sample(free=1_000_000_000)).state == "note"
    assert checks.check_memory(sample()).state == "ok"


def test_when_a_gpu_cannot_be_used_by_the_engine_then_a_note_says_so() -> None:
    gpu = GpuSample(0, "Some GPU", "nvidia", memory_total_bytes=24_000_000_000, driver="580.1")
    (check,) = checks.check_gpus(sample(gpu), engine(CPU))
    assert check.state == "note"
    assert "without support" in check.found
    assert "GGML_CUDA=ON" in check.advice
    (check,) = checks.check_gpus(sample(gpu), engine(CPU, CUDA))
    assert check.state == "ok"
    assert "driver 580.1" in check.found


def test_when_a_gpu_is_lost_then_it_is_a_problem() -> None:
    gpu = GpuSample(0, "Some GPU", "nvidia", problem="The GPU has fallen off the bus.")
    (check,) = checks.check_gpus(sample(gpu), engine(CPU, CUDA))
    assert check.state == "problem"
    assert "fallen off" in check.found


def test_when_readings_are_missing_then_their_notes_are_passed_on() -> None:
    found = list(checks.check_gpus(sample(notes=("No driver.",)), engine()))
    assert found[-1] == Check("Readings", "note", "No driver.")


def test_when_the_data_folder_can_be_made_then_it_is_well(tmp_path: Path) -> None:
    check = checks.check_data_folder(DataFolder(tmp_path / "a" / "b"))
    assert check.state == "ok"
    assert not (tmp_path / "a").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="a folder below a file")
def test_when_the_data_folder_cannot_be_made_then_it_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    check = checks.check_data_folder(DataFolder(tmp_path / "file"))
    assert check.state == "problem"
    assert check.advice


def test_when_the_usual_port_is_taken_then_another_is_proposed(tmp_path: Path) -> None:
    api = ApiOptions()
    with socket.socket() as listener:
        try:
            listener.bind((api.host, api.port))
        except OSError:
            pass  # someone else has it, which serves as well
        else:
            listener.listen()
        check = checks.check_port(DataFolder(tmp_path))
    assert check.state == "note"
    assert f"--port {api.port + 1}" in check.advice


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def host_file(tmp_path: Path, pid: int, port: int) -> DataFolder:
    data = DataFolder(tmp_path)
    data.ensure()
    host = HostFile(f"http://127.0.0.1:{port}", "very secret", pid, "0.1.0")
    data.host_file.write_bytes(msgspec.json.encode(host))
    return data


def test_when_a_host_runs_then_its_process_is_told_but_not_its_token(tmp_path: Path, listening: int) -> None:
    check = checks.check_host(host_file(tmp_path, os.getpid(), listening))
    assert f"process {os.getpid()}" in check.found
    assert "secret" not in check.found


def test_when_a_killed_host_left_its_file_then_none_runs(tmp_path: Path, listening: int) -> None:
    assert checks.check_host(host_file(tmp_path, 2**22 + 1, listening)).found == "not running"


def test_when_another_program_has_the_number_of_a_killed_host_then_none_runs(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening, so that nobody else can answer there
        data = host_file(tmp_path, os.getpid(), taken.getsockname()[1])
        assert checks.check_host(data).found == "not running"


def test_when_the_starter_model_is_installed_then_its_bytes_are_those_released() -> None:
    check = checks.check_starter_model()
    assert check.state == "ok"
    assert "SHA-256" in check.found


def test_when_a_model_is_damaged_then_it_is_named(tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    data.ensure()
    (data.models / "broken.gguf").write_bytes(b"GGUF\3\0\0\0")
    assert checks.check_models(data).state in {"ok", "note"}


def test_when_a_check_fails_itself_then_that_is_its_finding() -> None:
    def broken() -> Check:
        raise ZeroDivisionError("oh")

    assert list(checks.findings("Thing", broken)) == [
        Check("Thing", "problem", "The check itself failed: ZeroDivisionError: oh")
    ]


def test_when_a_check_fails_half_way_then_what_it_found_before_stays() -> None:
    def half() -> Iterator[Check]:
        yield Check("First", "ok", "well")
        raise OSError("gone")

    assert [check.state for check in checks.findings("Thing", half)] == ["ok", "problem"]


def test_when_everything_is_examined_then_each_area_has_a_finding(tmp_path: Path) -> None:
    report = checks.examine(DataFolder(tmp_path))
    names = {check.name for check in report.checks}
    assert {"Python", "llama.cpp", "Processor", "Memory", "Window", "Data folder", "Starter model", "Host"} <= names
    assert report.works == (not any(check.state == "problem" for check in report.checks))
