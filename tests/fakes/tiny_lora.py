"""LoRA adapters as tiny GGUF files, and the model they were merged into."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

Pair = tuple[NDArray[np.float32], NDArray[np.float32]]
"""A [rank, n_in] and B [n_out, rank]: what is added is `alpha / rank * B @ A`."""

TARGETS = ("blk.0.attn_q.weight", "blk.0.attn_v.weight", "blk.1.ffn_up.weight", "blk.1.ffn_down.weight")


def random_pairs(
    shapes: Mapping[str, Sequence[int]], *, rank: int = 4, seed: int = 7, spread: float = 0.2
) -> dict[str, Pair]:
    """Random matrices for weights of these shapes, [n_out, n_in]."""
    generator = np.random.default_rng(seed)
    return {
        name: (
            generator.normal(0, spread, (rank, n_in)).astype(np.float32),
            generator.normal(0, spread, (n_out, rank)).astype(np.float32),
        )
        for name, (n_out, n_in) in shapes.items()
    }


def weights_of(path: Path) -> dict[str, NDArray[np.float32]]:
    """The float32 matrices of a file, [n_out, n_in]."""
    reader = gguf.GGUFReader(path)
    return {tensor.name: np.array(tensor.data).reshape(tensor.shape[::-1]) for tensor in reader.tensors}


def shapes_of(path: Path, names: Sequence[str] = TARGETS) -> dict[str, tuple[int, int]]:
    """Shapes [n_out, n_in] of these matrices, whatever their number format."""
    known = {tensor.name: tensor.shape for tensor in gguf.GGUFReader(path).tensors}
    return {name: (int(known[name][1]), int(known[name][0])) for name in names}


def write_lora(
    path: Path,
    pairs: Mapping[str, Pair],
    *,
    alpha: float = 8.0,
    architecture: str = "llama",
    general_type: str = "adapter",
    adapter_type: str = "lora",
) -> Path:
    """An adapter of these pairs."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_string("general.type", general_type)
    writer.add_string("adapter.type", adapter_type)
    writer.add_name("tiny adapter")
    writer.add_float32("adapter.lora.alpha", alpha)
    for name, (a, b) in pairs.items():
        writer.add_tensor(f"{name}.lora_a", np.ascontiguousarray(a))
        writer.add_tensor(f"{name}.lora_b", np.ascontiguousarray(b))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
