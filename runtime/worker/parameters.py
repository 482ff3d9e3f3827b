"""A resolved load (`ResolvedLoad`) as llama.cpp's parameters.

The one place for it, so that a dry run is told exactly what the load after it is told.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

from runtime.errors import BadRequest, BugFault, ModelLoadFailed
from runtime.fit.context_memory import is_quantized
from runtime.messages.load import ResolvedLoad
from runtime.worker import ggml, native
from runtime.worker.devices import CPU, Device

GGML_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20, "bf16": 30}
"""enum ggml_type (ggml.h)."""
_ROPE_SCALING = {"auto": -1, "none": 0, "linear": 1, "yarn": 2}  # enum llama_rope_scaling_type
_FLASH = {"auto": -1, "off": 0, "on": 1}  # enum llama_flash_attn_type
_LOAD_MODE_AUTO, _LOAD_MODE_NONE = -1, 0  # enum llama_load_mode
_CONTEXT_TYPE_MTP = 1  # enum llama_context_type
_SPLIT_MODE_LAYER = 1  # enum llama_split_mode
POOLING_NONE, POOLING_RANK = 0, 4  # enum llama_pooling_type
MAX_OVERRIDES = 4095
"""`llama_max_tensor_buft_overrides`, less the one that ends the list."""

_cpu_buffer_type = ggml.bind(ggml.base, "ggml_backend_cpu_buffer_type", ctypes.c_void_p)
_device_buffer_type = ggml.bind(ggml.base, "ggml_backend_dev_buffer_type", ctypes.c_void_p, ctypes.c_void_p)
_max_devices: int = native.max_devices()


class LoadParameters:
    """`llama_model_params` with the lists it points to, which must live until the model is loaded."""

    def __init__(self, resolved: ResolvedLoad, devices: Sequence[Device], *, no_alloc: bool = False) -> None:
        """Make them.

        Raises:
            ModelLoadFailed: a device of the plan is not here now. Details: `device`.
        """
        by_name = {device.name: device for device in devices}
        handles = [_find(by_name, name).handle for name in resolved.devices] if resolved.n_gpu_layers else []
        if len(handles) > _max_devices:
            raise ModelLoadFailed(f"llama.cpp uses at most {_max_devices} devices.", reason="too many devices")
        self._devices = (ctypes.c_void_p * (len(handles) + 1))(*handles, None)
        self._split = (ctypes.c_float * _max_devices)(*resolved.tensor_split[:_max_devices])
        overrides = resolved.overrides[:MAX_OVERRIDES]
        self._overrides = (native.BufferOverride * (len(overrides) + 1))(
            *(
                native.BufferOverride(override.pattern.encode(), _buffer_type(by_name, override.device))
                for override in overrides
            ),
            native.BufferOverride(None, None),
        )
        params = native.model_default_params()
        params.devices = ctypes.cast(self._devices, ctypes.c_void_p)
        params.n_gpu_layers = resolved.n_gpu_layers if handles else 0
        params.split_mode = _SPLIT_MODE_LAYER
        params.tensor_split = ctypes.cast(self._split, type(params.tensor_split))
        if overrides:
            params.tensor_buft_overrides = ctypes.cast(self._overrides, ctypes.c_void_p)
        params.load_mode = _LOAD_MODE_AUTO if resolved.use_mmap and not no_alloc else _LOAD_MODE_NONE
        params.no_alloc = no_alloc
        params.load_mtp = resolved.speculation == "mtp"
        self.params = params


def _find(by_name: dict[str, Device], name: str) -> Device:
    device = by_name.get(name)
    if device is None:
        raise ModelLoadFailed(
            f"The plan uses the device {name}, which is not there now.",
            hint="Plan again: a GPU or a node may have gone.",
            device=name,
            reason="no such device",
        )
    return device


def _buffer_type(by_name: dict[str, Device], name: str) -> int:
    found: int = _cpu_buffer_type() if name == CPU else _device_buffer_type(_find(by_name, name).handle)
    return found


def context_params(resolved: ResolvedLoad) -> Any:  # noqa: ANN401 - a C struct
    """llama.cpp's context parameters.

    Raises:
        BadRequest: a V cache below f16 with flash attention off, which llama.cpp cannot do.
        BugFault: fewer rows of logits than sequences, at which llama.cpp would end the process.
    """
    if 0 < resolved.n_outputs_max < resolved.n_seq_max:
        raise BugFault(f"{resolved.n_outputs_max} rows of logits were planned for {resolved.n_seq_max} sequences")
    if resolved.flash_attn == "off" and is_quantized(resolved.type_v):
        raise BadRequest(f"A V cache of type {resolved.type_v} needs flash attention.", param="type_v")
    params = native.context_default_params()
    params.n_ctx = resolved.n_cells
    params.n_batch = resolved.n_batch
    params.n_ubatch = resolved.n_ubatch
    params.n_seq_max = resolved.n_seq_max
    params.n_rs_seq = resolved.n_rs_seq
    params.n_outputs_max = resolved.n_outputs_max
    params.n_threads = params.n_threads_batch = resolved.n_threads
    params.flash_attn_type = _FLASH[resolved.flash_attn]
    params.type_k = GGML_TYPES[resolved.type_k]
    params.type_v = GGML_TYPES[resolved.type_v]
    if resolved.embeddings:
        params.embeddings = True
        # Vectors are pooled by runtime.worker.pooled_lane.
        params.pooling_type = POOLING_RANK if resolved.pooling == "rank" else POOLING_NONE
    rope = resolved.rope
    params.rope_scaling_type = _ROPE_SCALING[rope.scaling_type]
    params.rope_freq_base = rope.freq_base
    params.rope_freq_scale = rope.freq_scale
    params.yarn_ext_factor = rope.yarn_ext_factor
    params.yarn_attn_factor = rope.yarn_attn_factor
    params.yarn_beta_fast = rope.yarn_beta_fast
    params.yarn_beta_slow = rope.yarn_beta_slow
    params.yarn_orig_ctx = rope.yarn_orig_ctx
    params.offload_kqv = resolved.offload_kqv
    params.op_offload = True
    params.swa_full = resolved.swa_full
    params.kv_unified = resolved.kv_unified
    params.no_perf = True
    return params


def heads_params(resolved: ResolvedLoad) -> Any:  # noqa: ANN401 - a C struct
    """The parameters of the context that runs a model's multi-token heads: the same sequences and cells."""
    params = context_params(resolved)
    params.ctx_type = _CONTEXT_TYPE_MTP
    params.n_rs_seq = 0
    params.n_outputs_max = resolved.n_seq_max
    return params
