"""Children that answer in lines: heard, asked to end, ended."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import psutil
import pytest

from runtime.errors import Busy, WorldFault
from runtime.host.json_child import json_child
from runtime.host.measuring import SpeedMeasure
from runtime.messages.load import ComputeDevice
from runtime.probe.report import EngineReport


def program(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", text)


ECHO = program("import sys\nline = sys.stdin.readline()\nprint(line.strip())\nprint('two')\nsys.stderr.write('words')")
STUBBORN = program(
    "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(600)"
)
POLITE = program("import sys\nprint('up', flush=True)\nsys.stdin.readline()\nsys.stdin.read()\nsys.exit(0)")


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


def test_when_told_a_line_then_its_answers_and_last_words_come() -> None:
    async def work() -> None:
        async with json_child(ECHO, b"hello") as child:
            lines = [line async for line in child.lines()]
            assert lines == [b"hello\n", b"two\n"]
            assert (await child.ended()).exit_code == 0
            assert child.last_words() == "" or "words" in child.last_words()

    run(work)


def test_when_left_then_it_is_gone_however_it_behaves() -> None:
    async def work() -> None:
        pids = []
        for command, grace_s in ((STUBBORN, 0.1), (POLITE, 5.0), (STUBBORN, 0.0)):
            async with json_child(command, grace_s=grace_s) as child:
                pids.append(child.pid)
                async for line in child.lines():
                    assert line == b"up\n"
                    break
        assert not any(map(psutil.pid_exists, pids))

    run(work)


def test_when_cancelled_then_it_is_gone() -> None:
    async def work() -> None:
        pids: list[int] = []
        up = asyncio.Event()

        async def hold() -> None:
            async with json_child(STUBBORN, grace_s=0.0) as child:
                pids.append(child.pid)
                async for _line in child.lines():
                    up.set()

        task = asyncio.create_task(hold())
        await up.wait()
        task.cancel()
        await asyncio.wait({task})
        assert not psutil.pid_exists(pids[0])

    run(work)


def test_when_it_cannot_be_started_then_that_is_said() -> None:
    async def work() -> None:
        with pytest.raises(WorldFault, match="could not be started"):
            async with json_child(("/nonexistent/program",)):
                pass

    run(work)


def test_when_a_measurement_answers_then_it_is_read_and_nodes_are_told() -> None:
    async def work() -> None:
        text = (
            'import sys\nprint(\'{"key":"","measured_s":0,"throughput":[{"device":"CPU","tensor_type":\''
            ' + \'"\' + \' \'.join(sys.argv[1:]) + \'","read_bps":1,"flops":1,"node_s":0}]}\')'
        )
        node = ComputeDevice("RPC0[a:1]", "", "node", 1, 1, node="a:1")
        report = EngineReport("1", (), (), can_offload=True, compute=(node, node))
        speed = await SpeedMeasure(program(text))(report)
        assert speed.throughput[0].tensor_type == "--node a:1"

    run(work)


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("import sys; sys.exit(4)", WorldFault, "exited with code 4"),
        ("print('nonsense')", WorldFault, "cannot be read"),
        ("import time; time.sleep(600)", WorldFault, "within 1 s"),
        ('print(\'{"key":"","measured_s":0,"throughput":[]}\')', Busy, "too busy"),
    ],
)
def test_when_a_measurement_fails_then_it_says_how(text: str, error: type[Exception], words: str) -> None:
    async def work() -> None:
        with pytest.raises(error, match=words):
            await SpeedMeasure(program(text), timeout_s=1.0)(EngineReport("1", (), (), can_offload=False))

    run(work)
