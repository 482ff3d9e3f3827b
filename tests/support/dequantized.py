"""A model file written anew with all weights as F32, or with random ones: the same tokenizer, another size."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np


def write_f32(source: Path, target: Path, *, n_layer: int | None = None, is_random: bool = False) -> None:
    """Write a copy of a GGUF file.

    Args:
        source: a model of the llama kind.
        target: the new file.
        n_layer: keep only the first so many layers.
        is_random: random weights in place of the real ones.
    """
    reader = gguf.GGUFReader(source)
    field = reader.get_field("general.architecture")
    assert field is not None
    architecture = str(field.contents())
    writer = gguf.GGUFWriter(target, architecture)
    counts = {f"{architecture}.block_count": n_layer} if n_layer is not None else {}
    for name, entry in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        kind = entry.types[0]
        element = entry.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, counts.get(name, entry.contents()), kind, element)
    chance = np.random.default_rng(1)
    for tensor in reader.tensors:
        if n_layer is not None and tensor.name.startswith("blk.") and int(tensor.name.split(".")[1]) >= n_layer:
            continue
        values: np.ndarray[Any, np.dtype[np.float32]] = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if is_random and values.ndim > 1:
            values = chance.normal(0, 0.05, values.shape)
        writer.add_tensor(tensor.name, np.ascontiguousarray(values, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
