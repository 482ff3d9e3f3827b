"""What a saved state belongs to: the model's file and every parameter that decides what its numbers mean."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import llama_cpp
import msgspec

from runtime.gguf.parts import part_paths
from runtime.messages.load import ResolvedLoad

_SAMPLES = 16
_SAMPLE_BYTES = 64 * 1024
_BEGIN_BYTES = 1024 * 1024
KEY_BYTES = 16
_WITHOUT_MEANING = frozenset(
    {
        *("n_ctx", "n_cells", "n_parallel", "n_seq_max", "n_batch", "n_ubatch", "n_outputs_max", "n_threads"),
        *("n_gpu_layers", "n_cpu_moe", "devices", "tensor_split", "overrides", "nodes", "offload_kqv", "use_mmap"),
        *("speculation", "n_draft_max", "n_rs_seq"),
    }
)
"""Fields of `ResolvedLoad` that say where and how much is computed at a time, not what. A new field counts at first."""


def state_key(path: Path, resolved: ResolvedLoad, metadata: Mapping[str, str]) -> str:
    """A short name, 32 hex digits.

    The context's length is not part of it: a state fits in any context that has room for it. Except where the model
    turns its positions another way beyond the length it was trained for (`rope.scaling.original_context_length`).

    Args:
        path: the model's file; of a split model, its first part.
        resolved: how it was loaded.
        metadata: its GGUF metadata.

    Raises:
        OSError: the file cannot be read.
    """
    architecture = metadata.get("general.architecture", "")
    trained = metadata.get(f"{architecture}.rope.scaling.original_context_length") or metadata.get(
        f"{architecture}.context_length", ""
    )
    meaning = {
        "engine": llama_cpp.__version__,
        "model": [_file_identity(part) for part in part_paths(path)],
        "load": {name: getattr(resolved, name) for name in resolved.__struct_fields__ if name not in _WITHOUT_MEANING},
        "is_stretched": trained.isdecimal() and resolved.n_cells > int(trained),
    }
    return hashlib.blake2b(msgspec.json.encode(meaning, order="sorted"), digest_size=KEY_BYTES).hexdigest()


def _file_identity(path: Path) -> str:
    """Size, time and samples of the content: cheap for files of any size, and another file's are never the same."""
    with path.open("rb") as file:
        stat = os.fstat(file.fileno())
        digest = hashlib.blake2b(file.read(_BEGIN_BYTES), digest_size=KEY_BYTES)
        for index in range(_SAMPLES):
            file.seek(max(0, (stat.st_size - _SAMPLE_BYTES) * index // (_SAMPLES - 1)))
            digest.update(file.read(_SAMPLE_BYTES))
    return f"{stat.st_size} {stat.st_mtime_ns} {digest.hexdigest()}"
