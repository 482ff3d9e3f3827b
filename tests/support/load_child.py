"""Child process that really loads what a dry run only planned, and tells what that took.

Requests are the dry run's own (`DryRun`), one JSON line each; the answer is `Measured`. The model is loaded as a worker
loads it, with its projector if it has one.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Self

import msgspec

from runtime.messages.fit import Measured
from runtime.probe.report import DryRun


class LoadChild:
    """`python -m tests.support.load_child`, one question at a time."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def load(self, request: DryRun) -> Measured:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(msgspec.json.encode(request) + b"\n")
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        assert line, f"the process that loads {request.path} ended"
        return msgspec.json.decode(line, type=Measured)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._child.stdin is not None:
            self._child.stdin.close()
        self._child.wait(20)
        if self._child.stdout is not None:
            self._child.stdout.close()


def _load(request: DryRun) -> Measured:
    from runtime.options import LoadOptions
    from runtime.worker.load import load_model

    beside = Path(request.projector) if request.projector else None
    model = load_model(
        Path(request.path), LoadOptions(), lambda _stage, _fraction: None, request.resolved, projector=beside
    )
    measured = Measured(model.facts.memory, model.facts.n_layer_on)
    model.close()
    return measured


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    for line in sys.stdin.buffer:
        answers.write(msgspec.json.encode(_load(msgspec.json.decode(line, type=DryRun))) + b"\n")
        answers.flush()
    answers.close()
    os._exit(0)


if __name__ == "__main__":
    main()
