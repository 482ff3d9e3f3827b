"""The devices llama.cpp's own backends report in this process."""

import ctypes
from ctypes import c_char_p, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from pathlib import Path

import llama_cpp
from llama_cpp import _ctypes_extensions

_GPU_TYPES = frozenset({1, 2})  # GGML_BACKEND_DEVICE_TYPE_GPU, _IGPU (ggml-backend.h)


@dataclass(frozen=True, slots=True)
class Device:
    """One device. Memory in bytes; an integrated GPU may report 0 of both."""

    name: str
    description: str
    is_gpu: bool
    free_bytes: int
    total_bytes: int


def list_devices() -> tuple[Device, ...]:
    """Ask ggml. Asking a GPU backend for its memory starts its driver in this process."""
    folder = Path(llama_cpp.__file__).parent / "lib"
    ggml = _ctypes_extensions.load_shared_library("ggml", folder)
    base = _ctypes_extensions.load_shared_library("ggml-base", folder)
    count, get = ggml["ggml_backend_dev_count"], ggml["ggml_backend_dev_get"]
    count.restype, count.argtypes = c_size_t, ()
    get.restype, get.argtypes = c_void_p, (c_size_t,)
    name, description = base["ggml_backend_dev_name"], base["ggml_backend_dev_description"]
    kind, memory = base["ggml_backend_dev_type"], base["ggml_backend_dev_memory"]
    for text in (name, description):
        text.restype, text.argtypes = c_char_p, (c_void_p,)
    kind.restype, kind.argtypes = c_int, (c_void_p,)
    memory.restype, memory.argtypes = None, (c_void_p, ctypes.POINTER(c_size_t), ctypes.POINTER(c_size_t))
    found: list[Device] = []
    for index in range(count()):
        device = get(index)
        free, total = c_size_t(0), c_size_t(0)
        memory(device, ctypes.byref(free), ctypes.byref(total))
        found.append(
            Device(
                name=(name(device) or b"").decode("utf-8", "replace"),
                description=(description(device) or b"").decode("utf-8", "replace"),
                is_gpu=kind(device) in _GPU_TYPES,
                free_bytes=free.value,
                total_bytes=total.value,
            )
        )
    return tuple(found)
