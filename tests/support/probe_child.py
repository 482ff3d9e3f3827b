"""The dry-run process and a node, driven by blocking calls: for tests that are not about those processes."""

import subprocess
import sys
from collections.abc import Sequence
from typing import Self

import msgspec

from runtime.errors import from_failure
from runtime.messages.fit import Measured, NodeReady
from runtime.probe.report import DevicesAnswer, DryRun, DryRunAnswer, EngineReport, ListDevices, ProbeAnswer


class ProbeChild:
    """`python -m runtime.probe.plan`, one question at a time."""

    def __init__(self, *arguments: str) -> None:
        self._child = _start("runtime.probe.plan", *arguments)

    def dry_run(self, request: DryRun) -> Measured:
        """Raises the `RuntimeFault` that the probe answers."""
        answer = self._ask(request)
        assert isinstance(answer, DryRunAnswer)
        if answer.failure is not None:
            raise from_failure(answer.failure)
        assert answer.measured is not None
        return answer.measured

    def devices(self, nodes: Sequence[str]) -> EngineReport:
        answer = self._ask(ListDevices(tuple(nodes)))
        assert isinstance(answer, DevicesAnswer)
        return answer.report

    def _ask(self, request: DryRun | ListDevices) -> ProbeAnswer:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(msgspec.json.encode(request) + b"\n")
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        assert line, "the probe ended"
        return msgspec.json.decode(line, type=ProbeAnswer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        _end(self._child)


class NodeChild:
    """`python -m runtime.worker.node` on the loopback address."""

    def __init__(self) -> None:
        self._child = _start("runtime.worker.node", "--port", "0", "--watch-stdin")
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        assert line, "the node ended"
        self.address = msgspec.json.decode(line, type=NodeReady).address

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        _end(self._child)


def _start(module: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.stdin is not None:
        child.stdin.close()
    try:
        child.wait(10)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    if child.stdout is not None:
        child.stdout.close()
