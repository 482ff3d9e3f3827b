"""ggml's C functions that llama.cpp's own API does not cover: devices as handles, and llama.cpp's RPC server.

Handles are plain addresses (`int`). The functions must come from the very libraries that llama.cpp uses. A wheel
holds each one three times (`libggml.so`, `.so.0`, `.so.0.25.3`, as copies, since wheels have no links): to open
`libggml.so` by name brings a second ggml with a registry of its own, and a device that is registered there does not
exist for llama.cpp. So where the loader can (everywhere but Windows, which knows a library by its name alone), they
are looked up through llama.cpp's own library, which searches what that one was linked with.
"""

import ctypes
import sys
from ctypes import c_char_p, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp
from llama_cpp import _ctypes_extensions
from llama_cpp.llama_cpp import _lib as _llama

from runtime.messages.load import DeviceKind

_FOLDER = Path(llama_cpp.__file__).parent / "lib"


def _library(name: str) -> Any:  # noqa: ANN401 - a ctypes library
    if sys.platform == "win32":
        return _ctypes_extensions.load_shared_library(name, _FOLDER)
    return _llama


registry = _library("ggml")
base = _library("ggml-base")
cpu = _library("ggml-cpu")

_KINDS: dict[int, DeviceKind] = {0: "cpu", 1: "gpu", 2: "igpu", 3: "accelerator"}
"""enum ggml_backend_dev_type (ggml-backend.h); a GPU that belongs to the RPC backend is a `node`."""


def bind(library: Any, name: str, restype: Any, *argtypes: Any) -> Any:  # noqa: ANN401
    """A function object of our own: attribute access would share the one other modules set types on."""
    function = library[name]
    function.restype = restype
    function.argtypes = argtypes
    return function


_dev_count = bind(registry, "ggml_backend_dev_count", c_size_t)
_dev_get = bind(registry, "ggml_backend_dev_get", c_void_p, c_size_t)
_reg_by_name = bind(registry, "ggml_backend_reg_by_name", c_void_p, c_char_p)
_dev_name = bind(base, "ggml_backend_dev_name", c_char_p, c_void_p)
_dev_description = bind(base, "ggml_backend_dev_description", c_char_p, c_void_p)
_dev_type = bind(base, "ggml_backend_dev_type", c_int, c_void_p)
_dev_memory = bind(base, "ggml_backend_dev_memory", None, c_void_p, ctypes.POINTER(c_size_t), ctypes.POINTER(c_size_t))
_dev_reg = bind(base, "ggml_backend_dev_backend_reg", c_void_p, c_void_p)
_reg_name = bind(base, "ggml_backend_reg_name", c_char_p, c_void_p)
_reg_function = bind(base, "ggml_backend_reg_get_proc_address", c_void_p, c_void_p, c_char_p)

_ExtraBufferTypes = ctypes.CFUNCTYPE(ctypes.POINTER(c_void_p), c_void_p)
_StartServer = ctypes.CFUNCTYPE(None, c_char_p, c_char_p, c_size_t, c_size_t, ctypes.POINTER(c_void_p))


@dataclass(frozen=True, slots=True)
class DeviceHandle:
    """A device of ggml. `handle` is a `ggml_backend_dev_t`; `backend` the name of the backend it belongs to."""

    handle: int
    name: str
    description: str
    kind: DeviceKind
    backend: str

    def memory(self) -> tuple[int, int]:
        """Free and total bytes. For the processor ggml counts all of the system's memory as free."""
        free, total = c_size_t(0), c_size_t(0)
        _dev_memory(self.handle, ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value


def device_handles() -> tuple[DeviceHandle, ...]:
    """Every device, in ggml's order."""
    found: list[DeviceHandle] = []
    for index in range(_dev_count()):
        handle = _dev_get(index)
        backend = (_reg_name(_dev_reg(handle)) or b"").decode("utf-8", "replace")
        kind = _KINDS.get(_dev_type(handle), "accelerator")
        found.append(
            DeviceHandle(
                handle=handle,
                name=(_dev_name(handle) or b"").decode("utf-8", "replace"),
                description=(_dev_description(handle) or b"").decode("utf-8", "replace"),
                kind="node" if backend.startswith("RPC") else kind,
                backend=backend,
            )
        )
    return tuple(found)


def extra_buffer_types(device: int) -> tuple[int, ...]:
    """Buffer types in which the device keeps weights in another order for its faster kernels.

    The first call makes llama.cpp ask for AMX: call it inside `amx.refused()` where that matters.
    """
    address = _reg_function(_dev_reg(device), b"ggml_backend_dev_get_extra_bufts")
    if not address:
        return ()
    listed = _ExtraBufferTypes(address)(device)
    found: list[int] = []
    while listed and (entry := listed[len(found)]):
        found.append(entry)
    return tuple(found)


def backend_function(backend: bytes, name: bytes) -> int | None:
    """Address of a function that only this backend has; None without the backend or the function."""
    found = _reg_by_name(backend)
    address: int | None = _reg_function(found, name) if found else None
    return address


def has_rpc() -> bool:
    """Whether llama.cpp was built with its RPC backend."""
    return bool(_reg_by_name(b"RPC"))


def serve_devices(endpoint: str, cache_path: str | None, n_threads: int, devices: tuple[DeviceHandle, ...]) -> None:
    """llama.cpp's RPC server; returns only when it cannot listen or accept. One client at a time."""
    start = _StartServer(_reg_function(_reg_by_name(b"RPC"), b"ggml_backend_rpc_start_server"))
    handles = (c_void_p * len(devices))(*(device.handle for device in devices))
    start(endpoint.encode(), cache_path.encode() if cache_path else None, n_threads, len(devices), handles)
