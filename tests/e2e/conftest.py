"""A real host in a process of its own, with the starter model in a real worker."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import httpx
import psutil
import pytest

from runtime.host.ownership import read_host_file
from runtime.library.starter import find_starter
from runtime.messages.api import HostFile
from runtime.paths import DataFolder

READY_TIMEOUT_S = 90.0

T = TypeVar("T")


class HostUnderTest:
    """`python -m runtime.host` on a data folder; closed by the fixture. `model` is the starter model's id."""

    def __init__(self, data: DataFolder, *arguments: str) -> None:
        self.data = data
        self.process = subprocess.Popen(
            [sys.executable, "-m", "runtime.host", "--data-dir", str(data.root), "--with-parent", *arguments],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        told = poll(lambda: read_host_file(data) if self.process.poll() is None else self._died())
        self.file: HostFile = told
        self.private = httpx.Client(
            base_url=told.address, headers={"authorization": f"Bearer {told.token}"}, timeout=READY_TIMEOUT_S
        )
        self.model = ""
        self.address = ""

    def open_api(self) -> None:
        state = self.private.put("/admin/api", json={"enabled": True, "port": 0}).json()
        self.address = state["addresses"][0]

    def load_starter(self, **options: object) -> None:
        path = find_starter()
        assert path is not None
        self.load(path, **options)

    def load(self, path: Path, **options: object) -> None:
        """Load a model, wait until it is ready, and ask it from now on."""
        answer = self.private.post("/admin/models/load", json={"model": str(path), "options": options})
        assert answer.status_code == 202, answer.text
        self.model = answer.json()["id"]
        poll(lambda: self.loaded()["state"] == "ready" or None)

    def loaded(self) -> dict[str, object]:
        (model,) = self.private.get("/admin/status").json()["models"]
        assert model["state"] != "failed", model
        return dict(model)

    def engine(self) -> dict[str, int]:
        engine = self.loaded()["engine"]
        assert isinstance(engine, dict)
        return engine

    def worker(self) -> psutil.Process:
        pid = self.loaded()["pid"]
        assert isinstance(pid, int)
        return psutil.Process(pid)

    def _died(self) -> HostFile:
        assert self.process.stderr is not None
        raise AssertionError(f"the host ended: {self.process.stderr.read().decode()}")

    def close(self) -> None:
        self.private.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        for stream in (self.process.stdin, self.process.stderr):
            assert stream is not None
            stream.close()


def poll(look: Callable[[], T | None], timeout_s: float = READY_TIMEOUT_S) -> T:
    """Ask until there is an answer."""
    deadline = time.monotonic() + timeout_s
    while (found := look()) is None:
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return found


def alive(process: psutil.Process) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture(scope="session")
def real_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostUnderTest]:
    """One host with the starter model for all tests that do not end it; 32 slots of 1,024 tokens."""
    host = HostUnderTest(DataFolder(tmp_path_factory.mktemp("real") / "data"))
    try:
        host.open_api()
        host.load_starter(n_ctx=1024, n_parallel=32)
        yield host
    finally:
        host.close()


@pytest.fixture
def own_host(tmp_path: Path) -> Iterator[HostUnderTest]:
    """A host for one test, nothing loaded; the test may end it in any way."""
    host = HostUnderTest(DataFolder(tmp_path / "data"))
    try:
        yield host
    finally:
        host.close()
