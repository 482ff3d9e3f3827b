"""What a projector (`mmproj`: the part of a model that reads pictures or sound) takes: llama.cpp's own account."""

import os
from collections.abc import Sequence
from ctypes import c_char_p
from pathlib import Path
from typing import Any

from llama_cpp import mtmd_cpp

from runtime.errors import ModelLoadFailed
from runtime.messages.load import ResolvedLoad
from runtime.worker import cxx_map
from runtime.worker.devices import CPU, Device

_MSVC_NAME = (
    "?mtmd_get_memory_usage@@YA?AV?$map@PEAUggml_backend_device@@_KU?$less@PEAUggml_backend_device@@@std@@"
    "V?$allocator@U?$pair@QEAUggml_backend_device@@_K@std@@@3@@std@@PEBDUmtmd_context_params@@@Z"
)
_NAMES = ("mtmd_get_memory_usage", "_Z21mtmd_get_memory_usagePKc19mtmd_context_params", _MSVC_NAME)
_N_WORDS = 2  # the device, and its bytes


def projector_params(resolved: ResolvedLoad, devices: Sequence[Device]) -> Any:  # noqa: ANN401 - a C struct
    """How the projector of a load is opened: on the first device that takes layers, else on the processor."""
    params = mtmd_cpp.mtmd_context_params_default()
    by_name = {device.name: device for device in devices}
    first = by_name.get(resolved.devices[0]) if resolved.devices and resolved.n_gpu_layers else None
    params.use_gpu = first is not None
    params.device = None if first is None else first.handle
    params.n_threads = resolved.n_threads
    params.print_timings = False
    params.warmup = True  # makes its compute buffer for the largest picture at once
    return params


def planned_bytes(
    path: Path, resolved: ResolvedLoad, devices: Sequence[Device], *, by_log: bool = not cxx_map.IS_TRIED
) -> dict[str, int]:
    """Weights and the largest compute buffer of a projector by device; nothing is allocated, only its header read.

    With `by_log` llama.cpp is not asked, and the size of the file stands for it: without the compute buffer.

    Raises:
        ModelLoadFailed: llama.cpp cannot read it as a projector.
    """
    params = projector_params(resolved, devices)
    name = resolved.devices[0] if params.use_gpu else CPU
    function = None if by_log else _function()
    if function is None:
        return {name: path.stat().st_size}
    listed = cxx_map.entries(function(os.fsencode(path), params), _N_WORDS)
    if listed is None:
        raise ModelLoadFailed(
            f"{path.name} is no projector that the built-in llama.cpp can read.",
            path=str(path),
            reason="mtmd_get_memory_usage failed",
        )
    names = {device.handle: device.name for device in devices}
    found: dict[str, int] = {}
    for handle, size_bytes in listed:
        device = names.get(handle, CPU)
        found[device] = found.get(device, 0) + size_bytes
    return found


def _function() -> Any:  # noqa: ANN401 - a C function
    for name in _NAMES:
        try:
            function = mtmd_cpp._libmtmd[name]  # noqa: SLF001 - the library the bindings loaded
        except AttributeError:
            continue
        function.restype = cxx_map.Map
        function.argtypes = (c_char_p, mtmd_cpp.mtmd_context_params)
        return function
    return None
