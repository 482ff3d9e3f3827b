"""Child processes: their log, their end, and that none stays."""

import asyncio
import os
import signal
import sys
import time

import psutil
import pytest

from runtime.host.worker_process import (
    MAX_LINE_BYTES,
    MAX_TAIL_BYTES,
    MAX_TAIL_LINES,
    Outcome,
    Tail,
    environment,
    outcome_of,
    start_process,
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


def test_when_many_lines_come_then_the_tail_is_bounded_both_ways() -> None:
    tail = Tail()
    for number in range(1000):
        tail.add(f"line {number}")
    assert tail.text().count("\n") == MAX_TAIL_LINES - 1
    assert tail.text(2) == "line 998\nline 999"
    for _ in range(50):
        tail.add("x" * 4096)
    assert len(tail.text()) <= MAX_TAIL_BYTES + MAX_TAIL_LINES


def test_when_return_codes_are_read_then_signals_have_names() -> None:
    assert outcome_of(-9) == Outcome(None, "SIGKILL")
    assert "memory ran out" in outcome_of(-9).sentence
    assert outcome_of(3).sentence == "exited with code 3"
    assert outcome_of(-200).signal_name == "signal 200"


def test_when_it_prints_then_lines_arrive_and_the_first_line_was_given() -> None:
    lines: list[str] = []

    async def run() -> Outcome:
        code = (
            "import sys; print(sys.stdin.readline(), end='', flush=True);"
            "print('err', file=sys.stderr, flush=True); print('end', end='')"
        )
        return await (await start_process(python(code), "token", lines.append)).wait()

    assert asyncio.run(run()) == Outcome(0)
    assert sorted(lines) == ["end", "err", "token"]


def test_when_it_prints_without_end_then_memory_stays_bounded() -> None:
    lines: list[str] = []

    async def run() -> None:
        process = await start_process(python("import sys; sys.stdout.write('x' * 1_000_000)"), "", lines.append)
        await process.wait()
        assert len(process.tail.text()) <= MAX_TAIL_BYTES + MAX_LINE_BYTES

    asyncio.run(run())
    assert max(map(len, lines)) <= MAX_LINE_BYTES


def test_when_it_ignores_sigterm_then_it_is_killed_with_its_children() -> None:
    code = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(100)']);"
        "print(child.pid, flush=True);"
        "time.sleep(100)"
    )

    async def run() -> tuple[Outcome, int]:
        came: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        process = await start_process(python(code), "", came.set_result)
        child = int(await came)
        return await process.stop(grace_s=0.0), child

    outcome, child = asyncio.run(run())
    assert outcome == Outcome(None, "SIGKILL")
    deadline = time.monotonic() + 5
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline


def test_when_it_is_stuck_then_its_stacks_are_in_the_log() -> None:
    async def run() -> str:
        came: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def take(line: str) -> None:
            if not came.done():
                came.set_result(line)

        code = "import faulthandler, time; faulthandler.enable(); print('up', flush=True); time.sleep(100)"
        process = await start_process(python(code), "", take)
        await came
        await process.dump_and_kill()
        assert (await process.wait()).signal_name == "SIGABRT"
        return process.tail.text()

    assert "most recent call first" in asyncio.run(run())


def test_when_ctrl_c_is_pressed_in_the_terminal_then_the_child_does_not_get_it() -> None:
    async def run() -> None:
        process = await start_process(python("import time; time.sleep(100)"), "")
        assert os.getpgid(process.pid) != os.getpgid(0)
        process.kill()
        assert (await process.wait()).signal_name == signal.SIGKILL.name

    asyncio.run(run())


def test_when_the_program_is_not_there_then_os_error() -> None:
    with pytest.raises(OSError, match="nonexistent"):
        asyncio.run(start_process(("/nonexistent/program",), ""))


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's own setting")
def test_when_a_worker_starts_then_it_may_use_huge_pages_unless_the_person_said_otherwise() -> None:
    assert environment({"A": "b"}) == {"A": "b", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    other = "glibc.malloc.check=1"
    assert environment({"GLIBC_TUNABLES": other})["GLIBC_TUNABLES"] == f"{other}:glibc.malloc.hugetlb=1"
    assert environment({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}) == {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}
    lines: list[str] = []

    async def told() -> None:
        await (await start_process(python("import os; print(os.environ['GLIBC_TUNABLES'])"), "", lines.append)).wait()

    asyncio.run(told())
    assert "glibc.malloc.hugetlb" in lines[-1]
