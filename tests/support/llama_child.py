"""Child process of `architectures`: one JSON line for each argument.

`+path` is metadata to make a model of and to save, `-path` the same without saving, `=path` a whole file.
"""

import ctypes
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("GGML_NO_BACKTRACE", "1")

import llama_cpp
from llama_cpp.llama_cpp import _lib as llama

from tests.support.architectures import N_CTX, N_SEQ

_MIB = 1024 * 1024
_CACHE = re.compile(
    r"llama_(kv_cache|memory_recurrent): size = +([\d.]+) MiB \( *(\d+) cells, +(\d+) layers.*"
    r"[KR] \(\w+\): +([\d.]+) MiB, [VS] \(\w+\): +([\d.]+) MiB"
)
_LAYER = re.compile(r"llama_(?:kv_cache|memory_recurrent)[:,] layer +(\d+): (.*)")
_WEIGHTS = re.compile(r"load_tensors: +(\S+) model buffer size = +([\d.]+) MiB")


class _GgufParams(ctypes.Structure):
    _fields_ = [("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p)]


_ggml = ctypes.CDLL(str(Path(llama_cpp.__file__).parent / "lib" / Path(llama._name).name.replace("llama", "ggml-base")))
_ggml.gguf_init_from_file.restype = ctypes.c_void_p
_ggml.gguf_init_from_file.argtypes = (ctypes.c_char_p, _GgufParams)
_SetData: Any = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_LogText: Any = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_init_from_user = llama["llama_model_init_from_user"]
_init_from_user.restype = ctypes.c_void_p
_init_from_user.argtypes = (ctypes.c_void_p, _SetData, ctypes.c_void_p, llama_cpp.llama_model_params)
_save = llama["llama_model_save_to_file"]
_save.restype = None
_save.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_ggml.ggml_nbytes.restype = ctypes.c_size_t
_ggml.ggml_nbytes.argtypes = (ctypes.c_void_p,)

_lines: list[str] = []


def _on_text(_level: int, raw: bytes, _data: int) -> None:
    _lines.append(raw.decode("utf-8", "replace"))


def _set_data(_tensor: int, _data: int) -> None:
    """Weights stay what the allocator gave: only sizes are looked at."""


_log_pointer, _set_data_pointer = _LogText(_on_text), _SetData(_set_data)


def _measure(path: Path, *, is_saved: bool) -> Any:
    metadata = _ggml.gguf_init_from_file(str(path).encode(), _GgufParams(True, None))
    params = llama_cpp.llama_model_default_params()
    params.no_alloc = True
    model, words = _from_user(metadata, params)
    if not model:
        return f"refused: {words[-400:]}"
    try:
        answer = _contexts(model)
    finally:
        llama_cpp.llama_model_free(model)
    if is_saved and isinstance(answer, dict):
        saved = path.with_suffix(".model.gguf")
        model, _ = _from_user(metadata, llama_cpp.llama_model_default_params())
        _save(model, str(saved).encode())
        llama_cpp.llama_model_free(model)
        answer["weights"] = _weights(saved)
    return answer


def _measure_file(path: Path) -> Any:
    params = llama_cpp.llama_model_default_params()
    params.no_alloc, params.load_mode = True, 0
    _lines.clear()
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    if not model:
        return "refused: " + "".join(_lines)[-400:]
    answer = _contexts(model)
    llama_cpp.llama_model_free(model)
    if isinstance(answer, dict):
        answer["weights"] = _weights(path)
    return answer


def _from_user(metadata: int, params: Any) -> tuple[int | None, str]:
    _lines.clear()
    return _init_from_user(metadata, _set_data_pointer, None, params), "".join(_lines)


def _contexts(model: int) -> Any:
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = N_CTX
    params.n_batch = params.n_ubatch = 64
    params.n_seq_max = N_SEQ
    params.swa_full, params.kv_unified = True, True
    params.flash_attn_type = 1
    _lines.clear()
    context = llama_cpp.llama_init_from_model(model, params)
    if not context:
        return "refused a context: " + "".join(_lines)[-400:]
    answer = {"n_layer": llama_cpp.llama_model_n_layer(model), "caches": _caches(), "weights": {}}
    llama_cpp.llama_free(context)
    return answer


def _weights(path: Path) -> dict[str, float]:
    """Bytes of each buffer of a real load."""
    params = llama_cpp.llama_model_default_params()
    params.load_mode = 0
    params.use_extra_bufts = False
    _lines.clear()
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    words = "".join(_lines)
    if not model:
        raise SystemExit(f"refused on reading it back: {words[-400:]}")
    llama_cpp.llama_model_free(model)
    return {match[1]: float(match[2]) * _MIB for match in _WEIGHTS.finditer(words)}


def _caches() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    layers: list[int] = []
    for line in "".join(_lines).splitlines():
        if (layer := _LAYER.match(line)) and layer[2].startswith("dev"):
            layers.append(int(layer[1]))
        elif match := _CACHE.match(line):
            kind, _, n_cells, n_layers, k, v = match.groups()
            found.append(
                {
                    "kind": kind,
                    "n_cells": int(n_cells),
                    "n_layers": int(n_layers),
                    "k_bytes": float(k) * _MIB,
                    "v_bytes": float(v) * _MIB,
                    "layers": layers,
                }
            )
            layers = []
    return found


def main() -> None:
    llama["llama_log_set"](ctypes.cast(_log_pointer, ctypes.c_void_p), None)
    llama_cpp.llama_backend_init()
    for name in sys.argv[1:]:
        path = Path(name[1:])
        answer = _measure_file(path) if name[0] == "=" else _measure(path, is_saved=name[0] == "+")
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
