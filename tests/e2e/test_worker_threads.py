"""Threads of a real worker, as the system sees them."""

import sys
from pathlib import Path

import pytest

from runtime.library.starter import find_starter
from runtime.messages.ipc import Generate
from runtime.options import GenerateOptions, LoadOptions
from tests.support.worker_process import WorkerUnderTest

pytestmark = pytest.mark.e2e


def threads(pid: int) -> set[str]:
    """The process's native threads (proc(5))."""
    return {task.name for task in Path(f"/proc/{pid}/task").iterdir()}


@pytest.mark.skipif(sys.platform != "linux", reason="asked of Linux")
def test_when_it_generates_then_the_threads_that_loaded_compute_and_no_further_ones(tmp_path: Path) -> None:
    path = find_starter()
    assert path is not None
    with WorkerUnderTest(tmp_path / "worker.log") as worker:
        worker.load(path, LoadOptions(n_ctx=512, n_parallel=1, n_threads=2))
        ready = threads(worker.process.pid)
        options = GenerateOptions(max_tokens=8, ignore_eos=True)
        worker.answer(Generate("told", prompt="Once upon a time", options=options))
        # A second team of OpenMP's threads would make libgomp's threads sleep at every barrier.
        assert threads(worker.process.pid) == ready
