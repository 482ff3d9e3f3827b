"""`python -m runtime.probe.throughput`: how fast this machine's devices are, in about three seconds.

Prints one line of JSON (`runtime.messages.fit.MachineSpeed`). Everything is measured with llama.cpp's own kernels, on
weights where a load would put them: llama.cpp keeps some formats in another order for faster kernels, and those are
what a model gets.

A machine is rarely idle: `runtime.probe.turns` is about that.
"""

import argparse
import os
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import psutil

from runtime.gguf.quantization import TENSOR_TYPES
from runtime.messages.fit import AttentionSpeed, MachineSpeed, Throughput
from runtime.probe import kernels
from runtime.probe.ggml_graph import Backend, Memory, Unusable
from runtime.probe.kernels import Kernels, WeightRun
from runtime.probe.turns import CacheBurst, Threads, Timed, mend, take_turns
from runtime.worker import amx, devices, ggml, native
from runtime.worker.devices import Device

BLOCK_BYTES = 128 * 1024 * 1024
NODE_BLOCK_BYTES = 16 * 1024 * 1024
"""Of a node, which fills it with one value."""
BUDGET_S = 2.5
"""Of each device, beside one run of everything."""
MEMORY_BYTES = 192 * 1024 * 1024

SIZED_FORMAT = "Q8_0"
SIZES_BYTES = tuple(size * 1024 * 1024 for size in (8, 16, 32, 64, 128))
"""Sizes of models of which it is measured how much the caches serve."""

NO_WEIGHTS = frozenset({"I8", "I16", "I32", "I64", "F64", "Q8_1", "Q8_K"})
"""Number formats no weights are stored in."""
COMMON = (
    "Q4_K",
    "Q6_K",
    "Q8_0",
    "Q5_K",
    "Q4_0",
    "F16",
    "F32",
    "BF16",
    "Q4_1",
    "Q5_0",
    "IQ4_XS",
    "IQ4_NL",
    "Q3_K",
    "MXFP4",
)
"""Measured first."""
KV_TYPES = {"f16": kernels.F16, "q8_0": kernels.Q8_0, "q4_0": 2}
PROMPT_QUERIES = 64


@dataclass(slots=True)
class _Format:
    """The measurements of one number format."""

    weights: WeightRun
    read: Timed
    cached: Timed
    cached_run: WeightRun
    prompt: Timed


@dataclass(slots=True)
class _Figures:
    """All measurements of one device."""

    nodes: Timed
    layers: Timed
    elements: Timed
    memory: Timed | None = None
    hop: Timed | None = None
    transfer: Timed | None = None
    formats: dict[str, _Format] = field(default_factory=dict)
    bursts: list[tuple[Timed, CacheBurst]] = field(default_factory=list)
    attention: dict[tuple[str, bool], tuple[Timed, Timed]] = field(default_factory=dict)

    def all(self) -> list[Timed]:
        """In the order in which they get their turns; those that most models need first."""
        found = [self.nodes, self.layers, self.elements]
        found += [timed for timed in (self.memory, self.hop, self.transfer) if timed is not None]
        for name in COMMON:
            if entry := self.formats.get(name):
                found += (entry.read, entry.cached, entry.prompt)
        found += [timed for pair in self.attention.values() for timed in pair]
        found += [timed for timed, _burst in self.bursts]
        for name, entry in self.formats.items():
            if name not in COMMON:
                found += (entry.read, entry.cached, entry.prompt)
        return found


def measure(nodes: Sequence[str] = (), *, n_threads: int = 0, budget_s: float = BUDGET_S) -> MachineSpeed:
    """Measure all devices.

    Args:
        nodes: addresses of nodes to measure too.
        n_threads: processor threads; 0 takes the physical cores, as a load does.
        budget_s: seconds to go on measuring each device; longer is better on a busy machine.
    """
    started = time.perf_counter()
    threads = n_threads or psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    with amx.refused():
        native.backend_init()
        for handle in ggml.device_handles():
            ggml.extra_buffer_types(handle.handle)
    if nodes:
        devices.register_nodes(nodes)
    speed = MachineSpeed(key="", measured_s=0.0, throughput=(), n_threads=threads)
    before = _processor_times()
    for device in devices.list_devices(nodes):
        if device.kind == "accelerator":
            continue
        try:
            speed = _with_device(speed, device, budget_s)
        except Unusable as reason:
            print(f"{device.name} was not measured: {reason}", file=sys.stderr)  # noqa: T201 - this process's log
    busy = _busy(before, _processor_times())
    return msgspec.structs.replace(speed, took_s=time.perf_counter() - started, busy=busy)


def _processor_times() -> tuple[float, float, float]:
    """Seconds all cores together worked since the start of the system, those they could have, and our own."""
    system, own = psutil.cpu_times(), psutil.Process().cpu_times()
    idle = system.idle + getattr(system, "iowait", 0.0)
    return sum(system) - getattr(system, "guest", 0.0) - idle, sum(system), own.user + own.system


def _busy(before: tuple[float, float, float], after: tuple[float, float, float]) -> float:
    """The share of the processor that other programs used in between."""
    worked, could, own = (new - old for old, new in zip(before, after, strict=True))
    return max(0.0, min(1.0, (worked - own) / could)) if could > 0 else 0.0


def _with_device(speed: MachineSpeed, device: Device, budget_s: float) -> MachineSpeed:
    """The figures with those of one more device.

    Raises:
        Unusable: the device has no room, or failed.
    """
    backend = Backend(device.handle, speed.n_threads, is_cpu=device.kind == "cpu", is_remote=device.kind == "node")
    size = NODE_BLOCK_BYTES if device.kind == "node" else BLOCK_BYTES
    # Any bytes do as weights: no kernel is faster or slower for a value. Only the processor's can be written at will.
    fill = os.urandom(1 << 20) if device.kind == "cpu" else b"\x2b"
    memories: list[Memory] = []
    bench: Kernels | None = None
    try:
        memories.append(Memory(backend.buffer_type, kernels.RESULT_BYTES, b"\x00"))
        memories += [Memory(extra, size, fill, weights=True) for extra in ggml.extra_buffer_types(device.handle)]
        memories.append(Memory(backend.buffer_type, size, fill, weights=True))
        if backend.is_remote:
            backend.measure_round_trip(memories[0])
        bench = Kernels(backend, memories[0], memories[1:])
        figures = _figures(bench, device, speed.n_threads)
        take_turns(figures.all(), budget_s, backend.set_threads, speed.n_threads)
        mend(figures.all(), speed.n_threads)
    finally:
        if bench is not None:
            bench.close()
        for memory in memories:
            memory.close()
        backend.close()
    return _summed(speed, device.name, figures)


def _figures(bench: Kernels, device: Device, n_threads: int) -> _Figures:
    is_cpu = device.kind == "cpu"
    both: Threads = "both" if is_cpu else "all"
    figures = _Figures(Timed(bench.nodes), Timed(bench.layers), Timed(bench.elements, both))
    for type_id, kind in TENSOR_TYPES.items():
        place = None if kind.name in NO_WEIGHTS else bench.place_for(type_id)
        if place is not None:
            weights, cached = bench.weights(type_id, kind, place), bench.cached(type_id, kind, place)
            figures.formats[kind.name] = _Format(
                weights=weights,
                read=Timed(weights.run, both),
                cached=Timed(cached.run, both),
                cached_run=cached,
                prompt=Timed(bench.prompt(type_id, place), both),
            )
            if kind.name == SIZED_FORMAT and is_cpu:
                bursts = bench.cache_bursts(type_id, kind, place, SIZES_BYTES)
                figures.bursts = [(Timed(burst.run), burst) for burst in bursts]
    for name, type_id in KV_TYPES.items():
        for flash in (False, True):
            one = bench.attention(type_id, 1, flash=flash) if flash or name == "f16" else None
            many = bench.attention(type_id, PROMPT_QUERIES, flash=flash)
            if one is not None and many is not None:
                figures.attention[name, flash] = (Timed(one, both), Timed(many, both))
    if is_cpu:
        figures.memory = Timed(MemoryRead(n_threads).run)
    else:
        figures.hop, figures.transfer = Timed(bench.hop), Timed(bench.transfer)
    return figures


def _summed(speed: MachineSpeed, name: str, figures: _Figures) -> MachineSpeed:
    # No operation's start takes longer than the mean of a layer's; more is a disturbed run.
    node_s = min(
        figures.nodes.best_s / kernels.MANY_NODES, figures.layers.best_s / kernels.LAYERS / kernels.LAYER_NODES
    )
    prompt_flop = 2 * kernels.N_EMBD * kernels.FEW_COLUMNS * kernels.PROMPT_ROWS
    throughput = tuple(
        Throughput(
            device=name,
            tensor_type=tensor_type,
            read_bps=_bps(entry.read, entry.weights, node_s),
            flops=prompt_flop / entry.prompt.best_s,
            node_s=node_s,
            cached_bps=_bps(entry.cached, entry.cached_run, node_s),
        )
        for tensor_type, entry in figures.formats.items()
        if entry.prompt.was_run
    )
    products = kernels.CELLS * 2 * kernels.HEAD * kernels.N_HEAD
    attention = tuple(
        AttentionSpeed(name, kv_type, flash, products / one.best_s, PROMPT_QUERIES * products / many.best_s)
        for (kv_type, flash), (one, many) in figures.attention.items()
        if many.was_run
    )
    memory_bps = max((entry.read_bps for entry in throughput), default=0.0)
    if figures.memory is not None and figures.memory.was_run:
        memory_bps = MEMORY_BYTES / figures.memory.best_s
    wide = kernels.WIDE * kernels.WIDE_ROWS
    return msgspec.structs.replace(
        speed,
        throughput=speed.throughput + throughput,
        attention=speed.attention + attention,
        memory_bps=speed.memory_bps | ({name: memory_bps} if memory_bps else {}),
        layer_s=speed.layer_s | _seconds(name, figures.layers, kernels.LAYERS),
        element_s=speed.element_s | _seconds(name, figures.elements, wide),
        cached_share=_cached_share(figures) or speed.cached_share,
        hop_s=speed.hop_s | _seconds(name, figures.hop, 1),
        link_bps=speed.link_bps
        | {device: 1 / byte_s for device, byte_s in _seconds(name, figures.transfer, kernels.LINK_BYTES).items()},
    )


def _seconds(name: str, timed: Timed | None, n_parts: int) -> dict[str, float]:
    """Seconds of one part; nothing for what had no turn."""
    return {name: timed.best_s / n_parts} if timed is not None and timed.was_run else {}


def _bps(timed: Timed, weights: WeightRun, node_s: float) -> float:
    """Bytes a second without the start of each operation, which is counted with the layers."""
    return weights.n_bytes / max(timed.best_s - weights.n_nodes * node_s, timed.best_s / 2)


def _cached_share(figures: _Figures) -> tuple[tuple[int, float], ...]:
    """By rising size; a larger model is never held better than a smaller one."""
    found: list[tuple[int, float]] = []
    least = 1.0
    for _timed, burst in figures.bursts:
        if burst.share is None:
            break
        least = min(least, burst.share)
        found.append((burst.n_bytes, least))
    return tuple(found)


class MemoryRead:
    """How fast the processor reads memory: every thread adds up products of its own part."""

    def __init__(self, n_threads: int) -> None:
        self._parts = [np.ones(MEMORY_BYTES // 8 // n_threads) for _ in range(n_threads)]

    def run(self) -> float:
        """Read all of it once."""
        started = time.perf_counter()
        threads = [threading.Thread(target=part.dot, args=(part,)) for part in self._parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - started


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="runtime.probe.throughput", description="Measures this machine's devices.")
    parser.add_argument("--node", action="append", default=[], metavar="HOST:PORT", help="measure this node too")
    parser.add_argument("--threads", type=int, default=0, help="processor threads (default: physical cores)")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds a device (default: %(default)s)")
    options = parser.parse_args()
    answer = os.dup(1)
    os.dup2(2, 1)
    speed = measure(tuple(options.node), n_threads=options.threads, budget_s=options.budget)
    os.write(answer, msgspec.json.encode(speed) + b"\n")


if __name__ == "__main__":
    main()
