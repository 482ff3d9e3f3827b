"""Threads of a real worker, as the system sees them."""

import os
import sys
from pathlib import Path

import pytest

from runtime.library.starter import find_starter
from runtime.messages.ipc import Generate
from runtime.options import GenerateOptions, LoadOptions
from tests.support.worker_process import WorkerUnderTest

pytestmark = pytest.mark.e2e

N_TOKENS = 64


def sleeps(pid: int) -> int:
    """How often the process's threads have gone to sleep, as the kernel counts (proc(5), `voluntary_ctxt_switches`)."""
    told = [status.read_text() for status in Path(f"/proc/{pid}/task").glob("*/status")]
    return sum(int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0]) for text in told)


@pytest.mark.skipif(sys.platform != "linux", reason="counted by Linux alone")
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one processor has no barriers to wait at")
def test_when_it_generates_then_its_threads_do_not_sleep_at_every_barrier(tmp_path: Path) -> None:
    path = find_starter()
    assert path is not None
    with WorkerUnderTest(tmp_path / "worker.log") as worker:
        worker.load(path, LoadOptions(n_ctx=512, n_parallel=1, n_threads=2))
        options = GenerateOptions(max_tokens=N_TOKENS, ignore_eos=True)
        worker.answer(Generate("warm", prompt="Once upon a time", options=options))
        before = sleeps(worker.process.pid)
        _messages, finished = worker.answer(Generate("told", prompt="Long ago, far away", options=options))
        assert finished.usage.completion_tokens == N_TOKENS
        # A handful for each token, for the threads that read, write and report; with sleeps at barriers, hundreds.
        assert sleeps(worker.process.pid) - before < 60 * N_TOKENS
