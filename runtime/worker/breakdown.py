"""llama.cpp's own account of what a context and its model take on each buffer type.

`llama_get_memory_breakdown` (`src/llama-ext.h`) is C++ and may change with llama.cpp: where it is not exported or not
readable, `runtime.worker.memory` goes by the log.
"""

import ctypes
from ctypes import c_void_p
from dataclasses import dataclass
from typing import Any

from runtime.worker import cxx_map, ggml, native

_MSVC_NAME = (
    "?llama_get_memory_breakdown@@YA?AV?$map@PEAUggml_backend_buffer_type@@Ullama_memory_breakdown_data@@"
    "U?$less@PEAUggml_backend_buffer_type@@@std@@V?$allocator@U?$pair@QEAUggml_backend_buffer_type@@"
    "Ullama_memory_breakdown_data@@@std@@@4@@std@@PEBUllama_context@@@Z"
)
_NAMES = ("llama_get_memory_breakdown", "_Z26llama_get_memory_breakdownPK13llama_context", _MSVC_NAME)
"""In C, as GCC and Clang spell it, and as MSVC does."""
_N_WORDS = 4  # the buffer type, and `llama_memory_breakdown_data`: model, context, compute


@dataclass(frozen=True, slots=True)
class BufferUse:
    """What one buffer type holds, in bytes. `device` is the ggml name of its device; host memory is `CPU`."""

    buffer_type: str
    device: str
    is_host: bool
    model_bytes: int
    context_bytes: int
    compute_bytes: int


_buft_name = ggml.bind(ggml.base, "ggml_backend_buft_name", ctypes.c_char_p, c_void_p)
_buft_is_host = ggml.bind(ggml.base, "ggml_backend_buft_is_host", ctypes.c_bool, c_void_p)
_buft_device = ggml.bind(ggml.base, "ggml_backend_buft_get_device", c_void_p, c_void_p)


def _function() -> Any:  # noqa: ANN401 - a C function
    return next((found for name in _NAMES if (found := native.optional(name, cxx_map.Map, c_void_p))), None)


def has_function() -> bool:
    """Whether this llama.cpp exports the breakdown under a known name."""
    return _function() is not None


def read_breakdown(context: int) -> tuple[BufferUse, ...] | None:
    """What the context and its model take, by buffer type; None where it cannot be read."""
    function = _function()
    listed = cxx_map.entries(function(context), _N_WORDS) if function is not None else None
    if listed is None:
        return None
    devices = {handle.handle: handle for handle in ggml.device_handles()}
    found: list[BufferUse] = []
    for key, model_bytes, context_bytes, compute_bytes in listed:
        device = devices.get(_buft_device(key) or 0)
        is_host = bool(_buft_is_host(key)) or device is None or device.kind == "cpu"
        found.append(
            BufferUse(
                buffer_type=(_buft_name(key) or b"").decode("utf-8", "replace"),
                device="CPU" if is_host or device is None else device.name,
                is_host=is_host,
                model_bytes=model_bytes,
                context_bytes=context_bytes,
                compute_bytes=compute_bytes,
            )
        )
    return tuple(found)
