"""Small computation graphs built and timed through ggml's C API: what the throughput measurement is made of.

Tensors get their addresses by hand, in buffers of the device. Results are thrown away, so all of them may share one
address; that also keeps them in the caches, where llama.cpp's own allocator keeps them.
"""

import ctypes
import time
from collections.abc import Iterable
from ctypes import c_bool, c_float, c_int, c_int64, c_size_t, c_void_p
from typing import Self

from runtime.worker import ggml

GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_I32, GGML_TYPE_I64 = 0, 1, 26, 27
ROUND_TRIPS = 8
LEAST_S = 1e-7
_WEIGHTS = 1  # GGML_BACKEND_BUFFER_USAGE_WEIGHTS
_NORM_EPS = 1e-5


class _InitParams(ctypes.Structure):
    """`ggml_init_params`."""

    _fields_ = [("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool)]


_b, _cpu, _bind = ggml.base, ggml.cpu, ggml.bind
_init = _bind(_b, "ggml_init", c_void_p, _InitParams)
_free = _bind(_b, "ggml_free", None, c_void_p)
_tensor_overhead = _bind(_b, "ggml_tensor_overhead", c_size_t)
_graph_overhead = _bind(_b, "ggml_graph_overhead_custom", c_size_t, c_size_t, c_bool)
_new_graph = _bind(_b, "ggml_new_graph_custom", c_void_p, c_void_p, c_size_t, c_bool)
_expand = _bind(_b, "ggml_build_forward_expand", None, c_void_p, c_void_p)
_new_tensor = _bind(_b, "ggml_new_tensor", c_void_p, c_void_p, c_int, c_int, ctypes.POINTER(c_int64))
_mul_mat = _bind(_b, "ggml_mul_mat", c_void_p, c_void_p, c_void_p, c_void_p)
_rms_norm = _bind(_b, "ggml_rms_norm", c_void_p, c_void_p, c_void_p, c_float)
_mul = _bind(_b, "ggml_mul", c_void_p, c_void_p, c_void_p, c_void_p)
_add = _bind(_b, "ggml_add", c_void_p, c_void_p, c_void_p, c_void_p)
_swiglu = _bind(_b, "ggml_swiglu_split", c_void_p, c_void_p, c_void_p, c_void_p)
_set_rows = _bind(_b, "ggml_set_rows", c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)
_soft_max = _bind(_b, "ggml_soft_max_ext", c_void_p, c_void_p, c_void_p, c_void_p, c_float, c_float)
_rope = _bind(
    _b, "ggml_rope_ext", c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_int, c_int, *[c_float] * 6
)
_flash = _bind(
    _b, "ggml_flash_attn_ext", c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_float, c_float, c_float
)
_cont = _bind(_b, "ggml_cont_2d", c_void_p, c_void_p, c_void_p, c_int64, c_int64)
_reshape_3d = _bind(_b, "ggml_reshape_3d", c_void_p, c_void_p, c_void_p, c_int64, c_int64, c_int64)
_permute = _bind(_b, "ggml_permute", c_void_p, c_void_p, c_void_p, c_int, c_int, c_int, c_int)

_dev_init = _bind(_b, "ggml_backend_dev_init", c_void_p, c_void_p, c_void_p)
_dev_buft = _bind(_b, "ggml_backend_dev_buffer_type", c_void_p, c_void_p)
_dev_supports = _bind(_b, "ggml_backend_dev_supports_op", c_bool, c_void_p, c_void_p)
_backend_free = _bind(_b, "ggml_backend_free", None, c_void_p)
_compute = _bind(_b, "ggml_backend_graph_compute", c_int, c_void_p, c_void_p)
_synchronize = _bind(_b, "ggml_backend_synchronize", None, c_void_p)
_buft_alloc = _bind(_b, "ggml_backend_buft_alloc_buffer", c_void_p, c_void_p, c_size_t)
_buft_alignment = _bind(_b, "ggml_backend_buft_get_alignment", c_size_t, c_void_p)
_buffer_base = _bind(_b, "ggml_backend_buffer_get_base", c_void_p, c_void_p)
_buffer_clear = _bind(_b, "ggml_backend_buffer_clear", None, c_void_p, ctypes.c_uint8)
_buffer_usage = _bind(_b, "ggml_backend_buffer_set_usage", None, c_void_p, c_int)
_buffer_free = _bind(_b, "ggml_backend_buffer_free", None, c_void_p)
_tensor_alloc = _bind(_b, "ggml_backend_tensor_alloc", c_int, c_void_p, c_void_p, c_void_p)
_tensor_set = _bind(_b, "ggml_backend_tensor_set", None, c_void_p, c_void_p, c_size_t, c_size_t)
_tensor_get = _bind(_b, "ggml_backend_tensor_get", None, c_void_p, c_void_p, c_size_t, c_size_t)
_view_init = _bind(_b, "ggml_backend_view_init", c_int, c_void_p)
_set_n_threads = _bind(_cpu, "ggml_backend_cpu_set_n_threads", None, c_void_p, c_int)


class Unusable(Exception):
    """The device has no room for the measurement, or failed."""


class Memory:
    """A buffer of a device, filled with `fill` again and again; more than one byte only in the processor's memory."""

    def __init__(self, buffer_type: int, size_bytes: int, fill: bytes, *, weights: bool = False) -> None:
        self.handle: int | None = _buft_alloc(buffer_type, size_bytes)
        if not self.handle:
            raise Unusable("no memory")
        if weights:
            _buffer_usage(self.handle, _WEIGHTS)
        self.size_bytes = size_bytes
        self.base: int = _buffer_base(self.handle)
        self.alignment: int = _buft_alignment(buffer_type)
        if len(fill) > 1:
            for start in range(0, size_bytes, len(fill)):
                ctypes.memmove(self.base + start, fill, min(len(fill), size_bytes - start))
        else:
            _buffer_clear(self.handle, fill[0])

    def close(self) -> None:
        """Give it back."""
        if self.handle:
            _buffer_free(self.handle)
            self.handle = None


class Backend:
    """A device at work. Home thread: the one that made it."""

    def __init__(self, device: int, n_threads: int, *, is_cpu: bool, is_remote: bool = False) -> None:
        self.device = device
        self.handle: int | None = _dev_init(device, None)
        if not self.handle:
            raise Unusable("it does not start")
        self._is_cpu = is_cpu
        self.is_remote = is_remote
        self.round_trip_s = 0.0
        """Of a remote device, the time until an answer is here; found by `measure_round_trip`."""
        self.set_threads(n_threads)

    def set_threads(self, n_threads: int) -> None:
        """Threads of the next runs, where the device is the processor."""
        if self._is_cpu:
            _set_n_threads(self.handle, n_threads)

    @property
    def buffer_type(self) -> int:
        """The device's ordinary buffer type."""
        found: int = _dev_buft(self.device)
        return found

    def measure_round_trip(self, memory: "Memory") -> None:
        """Ask the device for four bytes a few times."""
        with Graph(self, memory, 1) as graph:
            tensor = graph.tensor(GGML_TYPE_F32, 1, memory=memory)
            times: list[float] = []
            for _ in range(ROUND_TRIPS):
                started = time.perf_counter()
                read(tensor, 4)
                times.append(time.perf_counter() - started)
        self.round_trip_s = min(times)

    def close(self) -> None:
        """Give it back."""
        if self.handle:
            _backend_free(self.handle)
            self.handle = None


class Graph:
    """One graph: make tensors, operations on them, `expand` the results, then `run`, then `close`."""

    def __init__(self, backend: Backend, results: Memory, n_nodes: int) -> None:
        self._backend = backend
        self._results = results
        size = _tensor_overhead() * (3 * n_nodes + 64) + _graph_overhead(2 * n_nodes + 64, False)
        self._context: int = _init(_InitParams(size, None, True))
        self._graph: int = _new_graph(self._context, 2 * n_nodes + 64, False)
        self._last = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free it; once."""
        _free(self._context)

    # --- tensors ------------------------------------------------------------------------------------------

    def tensor(self, type_id: int, *shape: int, memory: Memory, offset: int = 0) -> int:
        """A tensor at a place of its own."""
        dims = (c_int64 * len(shape))(*shape)
        made: int = _new_tensor(self._context, type_id, len(shape), dims)
        _tensor_alloc(memory.handle, made, memory.base + offset)
        return made

    def result(self, made: int, memory: Memory | None = None, offset: int = 0) -> int:
        """Give an operation's result its address."""
        place = memory or self._results
        _tensor_alloc(place.handle, made, place.base + offset)
        return made

    # --- operations ---------------------------------------------------------------------------------------

    def mul_mat(self, weights: int, x: int, offset: int = 0) -> int:
        """`weights` times `x`."""
        return self.result(_mul_mat(self._context, weights, x), offset=offset)

    def supports_mul_mat(self, weights: int, x: int) -> bool:
        """Whether the device can do it with the weights where they are."""
        return self.is_supported(_mul_mat(self._context, weights, x))

    def is_supported(self, made: int) -> bool:
        """Whether the device can compute it."""
        return bool(_dev_supports(self._backend.device, made))

    def rms_norm(self, x: int, offset: int = 0) -> int:
        """Root mean square norm."""
        return self.result(_rms_norm(self._context, x, _NORM_EPS), offset=offset)

    def mul(self, x: int, y: int, offset: int = 0) -> int:
        """Product by element."""
        return self.result(_mul(self._context, x, y), offset=offset)

    def add(self, x: int, y: int, offset: int = 0) -> int:
        """Sum by element."""
        return self.result(_add(self._context, x, y), offset=offset)

    def swiglu(self, gate: int, up: int, offset: int = 0) -> int:
        """The gated activation of most feed-forward parts."""
        return self.result(_swiglu(self._context, gate, up), offset=offset)

    def rope(self, x: int, positions: int, n_dims: int, offset: int = 0) -> int:
        """Rotary positions."""
        made = _rope(self._context, x, positions, None, n_dims, 0, 0, 10_000.0, 1.0, 0.0, 1.0, 32.0, 1.0)
        return self.result(made, offset=offset)

    def reshape(self, x: int, n0: int, n1: int, n2: int) -> int:
        """A view with three dimensions."""
        made: int = _reshape_3d(self._context, x, n0, n1, n2)
        _view_init(made)
        return made

    def permute(self, x: int) -> int:
        """A view with dimensions 1 and 2 exchanged."""
        made: int = _permute(self._context, x, 0, 2, 1, 3)
        _view_init(made)
        return made

    def cont(self, x: int, n0: int, n1: int, offset: int = 0) -> int:
        """A copy in order."""
        return self.result(_cont(self._context, x, n0, n1), offset=offset)

    def set_rows(self, cache: int, rows: int, indices: int) -> int:
        """Store rows in a cache."""
        made: int = _set_rows(self._context, cache, rows, indices)
        _view_init(made)
        return made

    def soft_max(self, scores: int, mask: int, scale: float, offset: int = 0) -> int:
        """Scores to shares."""
        return self.result(_soft_max(self._context, scores, mask, scale, 0.0), offset=offset)

    def flash_attention(self, q: int, k: int, v: int, mask: int, scale: float, offset: int = 0) -> int:
        """Attention in one operation."""
        return self.result(_flash(self._context, q, k, v, mask, scale, 0.0, 0.0), offset=offset)

    # --- running ------------------------------------------------------------------------------------------

    def expand(self, results: Iterable[int]) -> None:
        """Add what these results need, in order."""
        for made in results:
            _expand(self._graph, made)
            self._last = made

    def start(self) -> None:
        """Compute once; a node may still be at it.

        Raises:
            Unusable: the device failed.
        """
        code = _compute(self._backend.handle, self._graph)
        _synchronize(self._backend.handle)
        if code:
            raise Unusable(f"code {code}")

    def run(self) -> float:
        """Compute once; seconds.

        Raises:
            Unusable: the device failed.
        """
        started = time.perf_counter()
        self.start()
        if self._backend.is_remote:
            # A node is only told to compute; it has when it answers the next question.
            read(self._last, 4)
        return max(time.perf_counter() - started - self._backend.round_trip_s, LEAST_S)


def write(tensor: int, data: bytes) -> None:
    """Write a tensor's beginning."""
    _tensor_set(tensor, data, 0, len(data))


def read(tensor: int, n_bytes: int) -> bytes:
    """Read a tensor's beginning."""
    buffer = ctypes.create_string_buffer(n_bytes)
    _tensor_get(tensor, buffer, 0, n_bytes)
    return buffer.raw
