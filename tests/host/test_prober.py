"""The prober with children that misbehave in every way, and once with the real one."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import psutil
import pytest

from runtime.errors import ModelLoadFailed, NotGguf
from runtime.fit.defaults import resolve
from runtime.gguf.parts import read_shape
from runtime.host.prober import Prober
from runtime.messages.load import ResolvedLoad
from runtime.options import LoadOptions
from runtime.probe.report import DryRun
from tests.fakes.tiny_gguf import write_transformer

RESOLVED = ResolvedLoad(
    n_ctx=512, n_parallel=1, n_seq_max=1, n_cells=512, n_batch=32, n_ubatch=32, n_threads=1, n_gpu_layers=0
)

CHILD = """
import json, os, sys, time
how = sys.argv[1]
by_log = "--by-log" in sys.argv
for number, line in enumerate(sys.stdin):
    asked = json.loads(line)
    path = asked.get("path", "")
    if "crash" in path and not (how == "log helps" and by_log):
        print("GGML_ASSERT failed", file=sys.stderr, flush=True)
        os.abort()
    if "hang" in path:
        time.sleep(600)
    if "nonsense" in path:
        print("not json", flush=True)
        continue
    if asked["type"] == "ListDevices":
        print(json.dumps({"type": "DevicesAnswer", "report": {"version": "1", "devices": [], "features": [],
              "can_offload": False, "problems": {node: "gone" for node in asked.get("nodes", [])}}}), flush=True)
        continue
    if "bad" in path:
        print(json.dumps({"type": "DryRunAnswer", "failure": {"kind": "NotGguf", "message": "No GGUF."}}), flush=True)
        continue
    memory = [{"device": "CPU", "weight_bytes": os.getpid(), "context_bytes": number, "compute_bytes": int(by_log)}]
    print(json.dumps({"type": "DryRunAnswer", "measured": {"memory": memory}}), flush=True)
"""


def with_prober(
    body: Callable[[Prober], Awaitable[None]], how: str = "", *, idle_s: float = 60.0, timeout_s: float = 60.0
) -> None:
    async def run() -> None:
        prober = Prober((sys.executable, "-c", CHILD, how), idle_s=idle_s, timeout_s=timeout_s)
        try:
            await body(prober)
        finally:
            await prober.close()
        assert prober.pid is None

    asyncio.run(run())


async def ask(prober: Prober, path: str = "model.gguf") -> tuple[int, int, int]:
    """Process id of the child, number of its question, whether it went by the log."""
    (part,) = (await prober.dry_run(DryRun(path, RESOLVED))).memory
    return part.weight_bytes, part.context_bytes, part.compute_bytes


def test_when_questions_follow_then_one_child_answers_them_in_turn() -> None:
    async def body(prober: Prober) -> None:
        answers = await asyncio.gather(*(ask(prober) for _ in range(5)))
        assert [answer[1:] for answer in answers] == [(number, 0) for number in range(5)]
        assert {answer[0] for answer in answers} == {prober.pid}
        report = await prober.devices(("10.0.0.5:50052",))
        assert report.problems == {"10.0.0.5:50052": "gone"}

    with_prober(body)


def test_when_a_file_is_refused_then_its_error_is_raised_and_the_child_stays() -> None:
    async def body(prober: Prober) -> None:
        first, _, _ = await ask(prober)
        with pytest.raises(NotGguf, match="No GGUF"):
            await ask(prober, "bad.gguf")
        assert await ask(prober) == (first, 2, 0)

    with_prober(body)


def test_when_the_child_crashes_then_the_error_names_the_file_and_the_next_question_has_a_new_child() -> None:
    async def body(prober: Prober) -> None:
        first, _, _ = await ask(prober)
        with pytest.raises(ModelLoadFailed, match=r"crash\.gguf") as caught:
            await ask(prober, "crash.gguf")
        assert "GGML_ASSERT failed" in str(caught.value.details["reason"])
        again, number, by_log = await ask(prober)
        assert (number, by_log) == (0, 0)
        assert again != first

    with_prober(body)


def test_when_going_by_the_log_helps_then_it_stays_that_way() -> None:
    async def body(prober: Prober) -> None:
        _, _, by_log = await ask(prober, "crash.gguf")
        assert by_log == 1
        _, _, by_log = await ask(prober)
        assert by_log == 1

    with_prober(body, "log helps")


def test_when_the_child_hangs_then_it_is_ended_in_time() -> None:
    async def body(prober: Prober) -> None:
        with pytest.raises(ModelLoadFailed, match=r"hang\.gguf"):
            await ask(prober, "hang.gguf")
        assert prober.pid is None

    with_prober(body, timeout_s=0.3)


def test_when_the_child_talks_nonsense_then_it_is_an_error_and_the_next_question_is_answered() -> None:
    async def body(prober: Prober) -> None:
        with pytest.raises(ModelLoadFailed):
            await ask(prober, "nonsense.gguf")
        assert (await ask(prober))[1] == 0

    with_prober(body)


def test_when_the_asker_gives_up_then_the_next_answer_is_the_right_one() -> None:
    async def body(prober: Prober) -> None:
        await ask(prober)
        waiting = asyncio.create_task(ask(prober, "hang.gguf"))
        await asyncio.sleep(0)
        assert prober._lock.locked()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await ask(prober))[1] == 0

    with_prober(body)


def test_when_nobody_asks_then_the_child_ends_and_comes_back_when_needed() -> None:
    async def body(prober: Prober) -> None:
        first, _, _ = await ask(prober)
        async with asyncio.timeout(20):
            while prober.pid is not None or psutil.pid_exists(first):  # noqa: ASYNC110 - another process ends
                await asyncio.sleep(0.02)
        second, number, _ = await ask(prober)
        assert number == 0
        assert second != first

    with_prober(body, idle_s=0.1)


def test_when_the_program_is_missing_then_the_error_says_so(tmp_path: Path) -> None:
    async def run() -> None:
        prober = Prober((str(tmp_path / "none"),))
        with pytest.raises(ModelLoadFailed, match="could not be started"):
            await ask(prober)
        await prober.close()

    asyncio.run(run())


@pytest.mark.e2e
def test_when_the_real_probe_is_asked_then_it_answers_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = write_transformer(tmp_path / "a.gguf")
    resolved = resolve(read_shape(path), LoadOptions(n_ctx=512), n_cores=1, free_bytes=10**9)

    async def run() -> int:
        prober = Prober()
        report = await prober.devices()
        assert [device.name for device in report.compute][-1] == "CPU"
        measured = await prober.dry_run(DryRun(str(path), resolved))
        assert measured.memory[0].weight_bytes >= read_shape(path).size_bytes
        page = tmp_path / "page.gguf"
        page.write_text("<html>")
        with pytest.raises(NotGguf):
            await prober.dry_run(DryRun(str(page), resolved))
        pid = prober.pid
        assert pid is not None
        await prober.close()
        return pid

    pid = asyncio.run(run())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).ppid() != os.getpid()
    assert msgspec.json.decode(msgspec.json.encode(resolved), type=ResolvedLoad) == resolved
