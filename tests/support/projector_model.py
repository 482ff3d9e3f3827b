"""A vision projector with random weights that llama.cpp opens: gemma3's kind, which has one picture size."""

from pathlib import Path

import gguf
import numpy as np

from tests.fakes.tiny_vision import add_layers

N_EMBD = 384
N_FF = 1024
N_LAYER = 4
IMAGE_SIZE = 448
PATCH_SIZE = 14


def write_projector(path: Path, *, n_embd_text: int) -> Path:
    """Turns pictures into rows of `n_embd_text` numbers, what the text model's embeddings have."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", "gemma3")
    writer.add_bool("clip.use_gelu", True)
    for key, value in (
        ("image_size", IMAGE_SIZE),
        ("patch_size", PATCH_SIZE),
        ("embedding_length", N_EMBD),
        ("feed_forward_length", N_FF),
        ("projection_dim", n_embd_text),
        ("block_count", N_LAYER),
        ("attention.head_count", 6),
    ):
        writer.add_uint32(f"clip.vision.{key}", value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    random = np.random.default_rng(1)

    def add(name: str, *shape: int) -> None:
        kind = np.float32 if len(shape) == 1 or len(shape) == 4 else np.float16
        writer.add_tensor(name, (random.standard_normal(shape) * 0.02).astype(kind))

    add("v.patch_embd.weight", N_EMBD, 3, PATCH_SIZE, PATCH_SIZE)
    add("v.patch_embd.bias", N_EMBD)
    writer.add_tensor(
        "v.position_embd.weight",
        random.standard_normal(((IMAGE_SIZE // PATCH_SIZE) ** 2, N_EMBD)).astype(np.float32),
    )
    add_layers(add, add, "v", n_layer=N_LAYER, width=N_EMBD, n_ff=N_FF)
    for part in ("weight", "bias"):
        add(f"v.post_ln.{part}", N_EMBD)
    add("mm.input_projection.weight", N_EMBD, n_embd_text)
    add("mm.soft_emb_norm.weight", N_EMBD)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
