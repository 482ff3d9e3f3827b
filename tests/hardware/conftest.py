"""A stand-in NVIDIA driver for the tests: compiled here, loaded in a process of its own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from runtime.messages.hardware import GpuSample

_FOLDER = Path(__file__).parent.parent / "support" / "nvml_stub"


class NvidiaAnswer(msgspec.Struct, frozen=True):
    """One reading of `NvidiaReader` in the other process, and how long it took."""

    gpus: tuple[GpuSample, ...]
    notes: tuple[str, ...]
    took_s: float


class StubbedNvidia:
    """A process with an `NvidiaReader` over the stand-in driver, whose state a test can change at any time."""

    def __init__(self, library_folder: Path, state_path: Path) -> None:
        self._state_path = state_path
        self.set_state()
        environment = os.environ | {"LD_LIBRARY_PATH": str(library_folder), "NVML_STUB_STATE": str(state_path)}
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", str(_FOLDER / "reader_process.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def set_state(self, *facts: str) -> None:
        """Replace the driver's state; each fact is a line such as `lost 1`."""
        fresh = self._state_path.with_suffix(".new")
        fresh.write_text("".join(f"{fact}\n" for fact in facts))
        fresh.replace(self._state_path)

    def read(self) -> NvidiaAnswer:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline(), type=NvidiaAnswer)

    def close(self) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        return self._process.wait(20)


@pytest.fixture(scope="session")
def compile_driver(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compile the stand-in with these flags into a folder for LD_LIBRARY_PATH."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs Linux and a C compiler")
    built: dict[tuple[str, ...], Path] = {}

    def compile_with(*flags: str) -> Path:
        if flags not in built:
            folder = tmp_path_factory.mktemp("nvml")
            target = folder / "libnvidia-ml.so.1"
            source = _FOLDER / "nvml_stub.c"
            subprocess.run([compiler, "-shared", "-fPIC", *flags, "-o", str(target), str(source)], check=True)
            built[flags] = folder
        return built[flags]

    return compile_with


@pytest.fixture
def start_nvidia(compile_driver: Callable[..., Path], tmp_path: Path) -> Iterator[Callable[..., StubbedNvidia]]:
    """Start a process over a driver compiled with these flags."""
    started: list[StubbedNvidia] = []

    def start(*flags: str, state: tuple[str, ...] = ()) -> StubbedNvidia:
        stub = StubbedNvidia(compile_driver(*flags), tmp_path / "state")
        stub.set_state(*state)
        started.append(stub)
        return stub

    yield start
    for stub in started:
        stub.close()


@pytest.fixture
def nvidia(start_nvidia: Callable[..., StubbedNvidia]) -> StubbedNvidia:
    return start_nvidia()
