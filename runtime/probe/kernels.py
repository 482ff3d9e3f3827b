"""What is measured of one device: each measurement is a function that runs once and returns its seconds."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from runtime.gguf.quantization import TensorType
from runtime.probe import ggml_graph
from runtime.probe.ggml_graph import Backend, Graph, Memory
from runtime.probe.turns import CacheBurst, Run

RESULT_BYTES = 48 * 1024 * 1024
SLICE_BYTES = 4 * 1024 * 1024
"""Weights of one run: about half a millisecond, which is short enough to fall between two others' turns."""
N_EMBD = 2048
FEW_COLUMNS, PROMPT_ROWS = 512, 128
PIECE_COLUMNS = 1024

HEAD, N_HEAD, N_HEAD_KV = 64, 16, 4
CELLS = 2048
SMALL_CELLS = 256
LAYERS = 12
LAYER_NODES = 22
"""Operations of one of them (`_small_layer`)."""
SMALL = 32
"""Width of the layers whose operations cost nothing but their start."""
WIDE, WIDE_FF, WIDE_ROWS = 1024, 2816, 64
MANY_NODES = 128
LINK_BYTES = 2 * 1024 * 1024

F32, F16, I32, I64 = 0, 1, 26, 27  # enum ggml_type
Q8_0 = 8

_HALF = RESULT_BYTES // 2


@dataclass(frozen=True, slots=True)
class WeightRun:
    """Multiplying `n_bytes` of weights in `n_nodes` operations, with one row."""

    run: Run
    n_bytes: int
    n_nodes: int


class Kernels:
    """The measurements of one device. `places` are the memories a load would put weights in, in its order."""

    def __init__(self, backend: Backend, results: Memory, places: Sequence[Memory]) -> None:
        self._backend = backend
        self._results = results
        self._places = places
        self._plain = places[-1]
        self._next = 0
        self._kept: list[Graph] = []

    def _graph(self, n_nodes: int) -> Graph:
        return Graph(self._backend, self._results, n_nodes)

    def nodes(self) -> float:
        """The start of `MANY_NODES` multiplications."""
        with self._graph(MANY_NODES) as graph:
            x = graph.tensor(F32, SMALL, 1, memory=self._results, offset=_HALF)
            weights = graph.tensor(Q8_0, SMALL, SMALL, memory=self._plain)
            graph.expand([graph.mul_mat(weights, x) for _ in range(MANY_NODES)])
            return graph.run()

    # --- weights ------------------------------------------------------------------------------------------

    def place_for(self, type_id: int) -> Memory | None:
        """The first memory that can hold these weights where the device can multiply them; None where none can."""
        for place in self._places:
            with self._graph(4) as graph:
                x = graph.tensor(F32, N_EMBD, 1, memory=self._results)
                weights = graph.tensor(type_id, N_EMBD, N_EMBD, memory=place)
                if graph.supports_mul_mat(weights, x):
                    return place
        return None

    def weights(self, type_id: int, kind: TensorType, place: Memory) -> WeightRun:
        """One row, other weights each time: no cache of an ordinary processor holds the whole block."""
        size = N_EMBD // kind.block_size * kind.block_bytes * N_EMBD
        n_matrices = max(1, SLICE_BYTES // size)
        n_slices = max(1, place.size_bytes // (n_matrices * size))

        def run() -> float:
            start = self._next % n_slices * n_matrices * size
            self._next += 1
            with self._graph(n_matrices) as graph:
                x = graph.tensor(F32, N_EMBD, 1, memory=self._results, offset=_HALF)
                matrices = [
                    graph.tensor(type_id, N_EMBD, N_EMBD, memory=place, offset=start + index * size)
                    for index in range(n_matrices)
                ]
                graph.expand([graph.mul_mat(matrix, x) for matrix in matrices])
                return graph.run()

        return WeightRun(run, n_matrices * size, n_matrices)

    def cached(self, type_id: int, kind: TensorType, place: Memory) -> WeightRun:
        """The same few weights again and again."""
        size = N_EMBD // kind.block_size * kind.block_bytes * N_EMBD

        def run() -> float:
            with self._graph(1) as graph:
                self._multiply(graph, type_id, place, 0, N_EMBD)
                graph.run()
                return graph.run()

        return WeightRun(run, size, 1)

    def cache_bursts(
        self, type_id: int, kind: TensorType, place: Memory, sizes: Sequence[int]
    ) -> tuple[CacheBurst, ...]:
        """For each size, how much of a model of so many bytes the caches hold from one token to the next.

        The graphs of all pieces are kept (until `close`): threads that had to wait for one would fall asleep.
        """
        size = N_EMBD // kind.block_size * kind.block_bytes * PIECE_COLUMNS
        for offset in range(0, min(max(sizes), place.size_bytes) // size * size, size):
            graph = self._graph(1)
            self._kept.append(graph)
            self._multiply(graph, type_id, place, offset, PIECE_COLUMNS)
        pieces = [graph.run for graph in self._kept]
        return tuple(CacheBurst(pieces[: max(1, n_bytes // size)], size) for n_bytes in sizes)

    def close(self) -> None:
        """Free what is kept."""
        for graph in self._kept:
            graph.close()
        self._kept.clear()

    def _multiply(self, graph: Graph, type_id: int, place: Memory, offset: int, n_columns: int) -> None:
        x = graph.tensor(F32, N_EMBD, 1, memory=self._results, offset=_HALF)
        graph.expand([graph.mul_mat(graph.tensor(type_id, N_EMBD, n_columns, memory=place, offset=offset), x)])

    def prompt(self, type_id: int, place: Memory) -> Run:
        """Many rows."""

        def run() -> float:
            with self._graph(1) as graph:
                x = graph.tensor(F32, N_EMBD, PROMPT_ROWS, memory=self._results, offset=_HALF)
                weights = graph.tensor(type_id, N_EMBD, FEW_COLUMNS, memory=place)
                graph.expand([graph.mul_mat(weights, x)])
                return graph.run()

        return run

    # --- attention ----------------------------------------------------------------------------------------

    def attention(self, type_id: int, n_rows: int, *, flash: bool) -> Run | None:
        """One layer of attention over `CELLS` tokens; None where the device cannot do it."""

        def run() -> float:
            with self._graph(8) as graph:
                graph.expand([self._attend(graph, type_id, n_rows, flash=flash)])
                return graph.run()

        with self._graph(8) as graph:
            made = self._attend(graph, type_id, n_rows, flash=flash)
            return run if graph.is_supported(made) else None

    def _attend(self, graph: Graph, type_id: int, n_rows: int, *, flash: bool) -> int:
        n_bytes = CELLS * HEAD * N_HEAD_KV * 2
        self._next += 1
        at = self._next % (self._plain.size_bytes // n_bytes // 2) * 2 * n_bytes
        q = graph.tensor(F32, HEAD, n_rows, N_HEAD, memory=self._results, offset=_HALF)
        k = graph.tensor(type_id, HEAD, CELLS, N_HEAD_KV, memory=self._plain, offset=at)
        mask_at, scale = _HALF + 8 * 1024 * 1024, HEAD**-0.5
        if flash:
            mask = graph.tensor(F16, CELLS, n_rows, memory=self._results, offset=mask_at)
            v = graph.tensor(type_id, HEAD, CELLS, N_HEAD_KV, memory=self._plain, offset=at + n_bytes)
            return graph.flash_attention(q, k, v, mask, scale)
        mask = graph.tensor(F32, CELLS, n_rows, memory=self._results, offset=mask_at)
        v = graph.tensor(type_id, CELLS, HEAD, N_HEAD_KV, memory=self._plain, offset=at + n_bytes)
        shares = graph.soft_max(graph.mul_mat(k, q), mask, scale)
        return graph.mul_mat(v, shares, offset=_HALF - 4 * 1024 * 1024)

    # --- the rest of a layer ------------------------------------------------------------------------------

    def layers(self) -> float:
        """`LAYERS` layers of a dense model with next to no weights: what the start of their operations costs."""
        with self._graph(32 * LAYERS) as graph:
            graph.expand([step for _ in range(LAYERS) for step in self._small_layer(graph)])
            return graph.run()

    def _small_layer(self, graph: Graph) -> list[int]:
        def inputs(type_id: int, *shape: int, offset: int) -> int:
            return graph.tensor(type_id, *shape, memory=self._results, offset=_HALF + offset)

        n_head, cache_at = SMALL // 16, 1 << 20
        x, ones = inputs(F32, SMALL, 1, offset=0), inputs(F32, SMALL, offset=4096)
        positions, indices = inputs(I32, 1, offset=8192), inputs(I64, 1, offset=12288)
        mask = inputs(F32, SMALL_CELLS, 1, offset=16384)
        w = graph.tensor(Q8_0, SMALL, SMALL, memory=self._plain)
        cache = inputs(F16, SMALL, SMALL_CELLS, offset=cache_at)
        k, v = (
            inputs(F16, 16, SMALL_CELLS, n_head, offset=cache_at),
            inputs(F16, SMALL_CELLS, 16, n_head, offset=cache_at),
        )
        normed = graph.mul(graph.rms_norm(x), ones)
        q = graph.rope(graph.reshape(graph.mul_mat(w, normed, offset=4096), 16, n_head, 1), positions, 16, offset=8192)
        key = graph.rope(graph.reshape(graph.mul_mat(w, normed, offset=12288), 16, n_head, 1), positions, 16)
        stored = [graph.set_rows(cache, graph.reshape(key, SMALL, 1, 1), indices)]
        stored.append(graph.set_rows(cache, graph.mul_mat(w, normed, offset=16384), indices))
        scores = graph.soft_max(graph.mul_mat(k, graph.permute(q), offset=20480), mask, 0.25, offset=32768)
        seen = graph.cont(graph.permute(graph.mul_mat(v, scores, offset=65536)), SMALL, 1, offset=69632)
        after = graph.add(graph.mul_mat(w, seen, offset=73728), x, offset=77824)
        normed = graph.mul(graph.rms_norm(after, offset=81920), ones, offset=86016)
        gated = graph.swiglu(graph.mul_mat(w, normed, offset=90112), graph.mul_mat(w, normed, offset=94208))
        return [*stored, graph.add(graph.mul_mat(w, gated, offset=98304), after, offset=102400)]

    def elements(self) -> float:
        """What is no multiplication in a layer of width `WIDE`, with `WIDE_ROWS` rows."""
        with self._graph(16) as graph:
            step = 2 * 1024 * 1024
            x = graph.tensor(F32, WIDE, WIDE_ROWS, memory=self._results, offset=_HALF)
            ones = graph.tensor(F32, WIDE, memory=self._results, offset=_HALF + step)
            gate = graph.tensor(F32, WIDE_FF, WIDE_ROWS, memory=self._results, offset=_HALF + 2 * step)
            positions = graph.tensor(I32, WIDE_ROWS, memory=self._results, offset=_HALF + 4 * step)
            normed = [graph.mul(graph.rms_norm(x), ones) for _ in range(2)]
            heads = graph.reshape(x, HEAD, WIDE // HEAD, WIDE_ROWS)
            graph.expand([*normed, graph.rope(heads, positions, HEAD), graph.add(x, x), graph.add(x, x)])
            graph.expand([graph.swiglu(gate, gate)])
            return graph.run()

    # --- the way to the device ----------------------------------------------------------------------------

    def hop(self) -> float:
        """Hand over a row, compute, get it back."""
        with self._graph(1) as graph:
            x = graph.tensor(F32, N_EMBD, 1, memory=self._results, offset=_HALF)
            y = graph.add(x, x)
            graph.expand([y])
            row = b"\x00" * (4 * N_EMBD)
            started = time.perf_counter()
            ggml_graph.write(x, row)
            graph.start()
            ggml_graph.read(y, len(row))
            return time.perf_counter() - started

    def transfer(self) -> float:
        """Hand over `LINK_BYTES`."""
        with self._graph(1) as graph:
            large = graph.tensor(F32, LINK_BYTES // 4, memory=self._plain)
            block = b"\x00" * LINK_BYTES
            started = time.perf_counter()
            ggml_graph.write(large, block)
            ggml_graph.read(large, 4)
            return time.perf_counter() - started
