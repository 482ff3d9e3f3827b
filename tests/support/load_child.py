"""Child process that really loads what a dry run only planned, and tells what that took.

Requests are the dry run's own (`DryRun`), one JSON line each; the answer is `Measured`. The model is loaded as a worker
loads it. A projector is opened beside it with a warm-up picture, and its sizes are those llama.cpp prints then.
"""

import ctypes
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

    model = load_model(Path(request.path), LoadOptions(), lambda _stage, _fraction: None, request.resolved)
    measured = Measured(model.facts.memory, model.facts.n_layer_on)
    if request.projector:
        sizes = _projector(request, model.model)
        parts = [msgspec.structs.replace(part, projector_bytes=sizes.get(part.device, 0)) for part in measured.memory]
        measured = msgspec.structs.replace(measured, memory=tuple(parts))
    model.close()
    return measured


def _projector(request: DryRun, text_model: int) -> dict[str, int]:
    import re

    from llama_cpp import mtmd_cpp

    from runtime.worker.devices import CPU, list_devices
    from runtime.worker.projector import projector_params

    lines: list[str] = []
    log_type = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
    callback = log_type(lambda _level, raw, _data: lines.append(raw.decode("utf-8", "replace")))
    set_log = mtmd_cpp._libmtmd["mtmd_log_set"]
    set_log.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    set_log(ctypes.cast(callback, ctypes.c_void_p), None)
    params = projector_params(request.resolved, list_devices(request.resolved.nodes))
    context = mtmd_cpp.mtmd_init_from_file(os.fsencode(request.projector), ctypes.c_void_p(text_model), params)
    set_log(None, None)
    text = "".join(lines)
    if not context:
        raise SystemExit(f"llama.cpp refused the projector: {text[-500:]}")
    mtmd_cpp.mtmd_free(context)
    device = request.resolved.devices[0] if params.use_gpu else CPU
    weights = re.findall(r"model size: +([\d.]+) MiB", text)
    buffers = re.findall(r": +(\S+) compute buffer size = +([\d.]+) MiB", text)
    assert len(weights) == 1, text
    assert buffers, text
    found = {device: float(weights[0])}
    for name, size in buffers:
        found[name] = found.get(name, 0.0) + float(size)
    return {name: int(size * 1024 * 1024) for name, size in found.items()}


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
