"""`python -m runtime.probe.plan`: loads without allocating, one after the other, and says what each would take.

Requests and answers are lines of JSON (`runtime.probe.report`). llama.cpp builds the whole model and context with
`no_alloc`, from the header alone; the parameters are made by the worker's own builders, so the answer is what the load
will take. The model is kept between requests that differ only in their context, which then take a few milliseconds.

A process of its own, because llama.cpp ends it at a failed assertion, and because the memory a GPU driver takes for a
process is given back only when that ends.
"""

import argparse
import contextlib
import os
import queue
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import msgspec

from runtime.errors import ModelLoadFailed, RuntimeFault, to_failure
from runtime.gguf.architecture import ModelShape
from runtime.gguf.heads import with_heads
from runtime.messages.fit import Measured
from runtime.messages.load import DeviceMemory, ResolvedLoad
from runtime.probe.devices import engine_report
from runtime.probe.report import (
    DevicesAnswer,
    DryRun,
    DryRunAnswer,
    ListDevices,
    ProbeAnswer,
    ProbeRequest,
)
from runtime.worker import amx, breakdown, memory, native, parameters, projector
from runtime.worker.devices import Device, list_devices, register_nodes
from runtime.worker.load import LOG, check_magic, load_error, model_shape, read_metadata

NODE_HOLD_S = 0.2
"""A model kept on a node keeps the node from serving anyone else, so it is kept no longer than this."""

_RESERVED_FOR_ONE = frozenset({"kimi-linear", "minimax-01"})
"""Architectures whose compute buffer llama.cpp also makes for one sequence alone, which may take more; in a dry run it
counts only the buffer for all of them (`llama_context::sched_reserve`)."""


@dataclass(frozen=True, slots=True)
class _Opened:
    """A model that was opened without allocation, and what it was opened with."""

    key: tuple[object, ...]
    model: int
    shape: ModelShape
    devices: tuple[Device, ...]
    nodes: tuple[str, ...]


class Prober:
    """Runs the requests. Home thread: the one that made it."""

    def __init__(self, *, by_log: bool = False) -> None:
        self._by_log = by_log
        self._opened: _Opened | None = None
        LOG.install()
        with amx.refused():
            native.backend_init()

    @property
    def holds_node(self) -> bool:
        """Whether the model that is kept has parts on a node."""
        return self._opened is not None and bool(self._opened.nodes)

    def answer(self, request: ProbeRequest) -> ProbeAnswer:
        """Answer one request; never raises."""
        if isinstance(request, ListDevices):
            self.release()
            return DevicesAnswer(engine_report(request.nodes))
        started_s = time.perf_counter()
        try:
            measured = self._measure(request)
        except RuntimeFault as error:
            self.release()
            return DryRunAnswer(failure=to_failure(error), took_s=time.perf_counter() - started_s)
        except OSError as error:
            self.release()
            fault = ModelLoadFailed(
                f"{Path(request.path).name} cannot be read: {error.strerror or error}.",
                path=request.path,
                reason=str(error.strerror or error),
            )
            return DryRunAnswer(failure=to_failure(fault), took_s=time.perf_counter() - started_s)
        return DryRunAnswer(measured=measured, took_s=time.perf_counter() - started_s)

    def release(self) -> None:
        """Let go of the model that is kept."""
        if self._opened is not None:
            native.model_free(self._opened.model)
            self._opened = None

    def _measure(self, request: DryRun) -> Measured:
        path, resolved = Path(request.path), request.resolved
        opened = self._open(path, request)
        measured = self._try(path, opened, resolved)
        if opened.shape.architecture in _RESERVED_FOR_ONE and resolved.n_seq_max > 1:
            alone = self._try(path, opened, msgspec.structs.replace(resolved, n_seq_max=1))
            measured = msgspec.structs.replace(measured, memory=_with_larger_compute(measured.memory, alone.memory))
        if not request.projector:
            return measured
        sizes = projector.planned_bytes(Path(request.projector), resolved, opened.devices, by_log=self._by_log)
        return msgspec.structs.replace(measured, memory=projector.with_projector(measured.memory, sizes, resolved))

    def _try(self, path: Path, opened: _Opened, resolved: ResolvedLoad) -> Measured:
        LOG.clear(keep_model=True)
        context: int | None = native.init_from_model(opened.model, parameters.context_params(resolved))
        if not context:
            raise load_error(path, LOG)
        contexts = [context]
        try:
            if resolved.speculation == "mtp":
                heads: int | None = native.init_from_model(opened.model, parameters.heads_params(resolved))
                if not heads:
                    raise load_error(path, LOG)
                contexts.append(heads)
            return memory.measure(
                opened.model,
                contexts,
                LOG,
                shape=opened.shape,
                resolved=resolved,
                devices=opened.devices,
                dry_run=True,
                by_log=self._by_log,
            )
        finally:
            for made in reversed(contexts):
                native.free(made)

    def _open(self, path: Path, request: DryRun) -> _Opened:
        resolved = request.resolved
        check_magic(path)
        stat = path.stat()
        key = (
            *(str(path), request.revision, stat.st_size, stat.st_mtime_ns),
            *(resolved.n_gpu_layers, resolved.devices, resolved.tensor_split, resolved.overrides, resolved.nodes),
            resolved.speculation == "mtp",
        )
        if self._opened is not None and self._opened.key == key:
            return self._opened
        self.release()
        LOG.clear()
        with amx.refused():
            register_nodes(resolved.nodes)
            devices = list_devices(resolved.nodes)
            told = parameters.LoadParameters(resolved, devices, no_alloc=True)
            model: int | None = native.model_load_from_file(os.fsencode(path), told.params)
        if not model:
            raise load_error(path, LOG)
        try:
            shape = model_shape(path, model, MappingProxyType(read_metadata(model)))
            if resolved.speculation == "mtp":
                shape = with_heads(shape)
        except BaseException:
            native.model_free(model)
            raise
        self._opened = _Opened(key, model, shape, devices, resolved.nodes)
        return self._opened


def _with_larger_compute(parts: tuple[DeviceMemory, ...], others: tuple[DeviceMemory, ...]) -> tuple[DeviceMemory, ...]:
    other = {part.device: part.compute_bytes for part in others}
    return tuple(
        msgspec.structs.replace(part, compute_bytes=max(part.compute_bytes, other.get(part.device, 0)))
        for part in parts
    )


def _read(requests: "queue.Queue[bytes | None]") -> None:
    for line in sys.stdin.buffer:
        requests.put(line)
    requests.put(None)


def main() -> int:
    """Answer until standard input ends; what the libraries themselves print goes to standard error."""
    parser = argparse.ArgumentParser(prog="runtime.probe.plan", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument(
        "--by-log", action="store_true", help="take sizes from llama.cpp's log, where reading them otherwise crashed"
    )
    chosen = parser.parse_args()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests: queue.Queue[bytes | None] = queue.Queue(maxsize=16)
    threading.Thread(target=_read, args=(requests,), name="stdin", daemon=True).start()
    prober = Prober(by_log=chosen.by_log or not breakdown.has_function())
    with answers, contextlib.redirect_stdout(sys.stderr):
        while True:
            try:
                line = requests.get(timeout=NODE_HOLD_S if prober.holds_node else None)
            except queue.Empty:
                prober.release()
                continue
            if line is None:
                break
            answers.write(msgspec.json.encode(prober.answer(msgspec.json.decode(line, type=ProbeRequest))) + b"\n")
            answers.flush()
    return 0


if __name__ == "__main__":
    code = main()
    # llama.cpp's own threads may still be ending; nothing is left to save.
    os._exit(code)
