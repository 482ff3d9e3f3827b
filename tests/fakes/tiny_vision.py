"""Projectors of some tens of kilobytes with random weights, one of each kind that is decoded in its own way.

Each belongs to a model of `tests.fakes.tiny_gguf` (`n_embd` numbers a row):

* `llava`: rows one after the other, as tokens;
* `qwen2vl`: positions in two dimensions (M-RoPE), as many rows as the picture is large;
* `gemma3`: all rows of a picture see each other;
* `ultravox`: sound.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np

from tests.fakes.tiny_gguf import N_EMBD, write_transformer

Kind = Literal["llava", "qwen2vl", "gemma3", "ultravox"]
KINDS: tuple[Kind, ...] = ("llava", "qwen2vl", "gemma3", "ultravox")
SEEING: tuple[Kind, ...] = ("llava", "qwen2vl", "gemma3")
_WIDTH = 32
_FF = 48
_N_LAYER = 1
_SIDE = {"llava": 56, "qwen2vl": 56, "gemma3": 112}
_PATCH = 14
_N_MEL = 80
_STACK = 4
_TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def write_seeing_model(folder: Path, kind: Kind, *, n_embd_projector: int = N_EMBD, seed: int = 1) -> tuple[Path, Path]:
    """A model and its projector."""
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / f"tiny-{kind}.gguf"
    if kind == "qwen2vl":
        write_transformer(model, architecture="qwen2vl", template=_TEMPLATE, seed=seed)
    elif kind == "gemma3":
        write_transformer(model, architecture="gemma3", sliding_window=64, template=_TEMPLATE, seed=seed)
    else:
        write_transformer(model, template=_TEMPLATE, seed=seed)
    return model, write_projector(folder / f"mmproj-tiny-{kind}.gguf", kind, n_embd=n_embd_projector)


def write_projector(
    path: Path, kind: Kind, *, n_embd: int = N_EMBD, seed: int = 3, side: int = 0, n_places: int = 0
) -> Path:
    """The projector alone.

    `side` is another size of its pictures in pixels. With `n_places` positions, which do not go with the size, it ends
    llama.cpp's process.
    """
    writer = gguf.GGUFWriter(path, "clip")
    generator = np.random.default_rng(seed)

    def add(name: str, *shape: int, spread: float = 0.3) -> None:
        writer.add_tensor(name, (generator.standard_normal(shape) * spread).astype(np.float32))

    def ones(name: str, *shape: int) -> None:
        writer.add_tensor(name, np.ones(shape, dtype=np.float32))

    part = "audio" if kind == "ultravox" else "vision"
    writer.add_bool(f"clip.has_{part}_encoder", True)
    names = {"llava": "mlp", "qwen2vl": "qwen2vl_merger", "gemma3": "gemma3", "ultravox": "ultravox"}
    writer.add_string("clip.projector_type", names[kind])
    writer.add_bool("clip.use_gelu", True)
    for key, value in (
        ("embedding_length", _WIDTH),
        ("feed_forward_length", _FF),
        ("projection_dim", n_embd),
        ("block_count", _N_LAYER),
        ("attention.head_count", 2),
    ):
        writer.add_uint32(f"clip.{part}.{key}", value)
    writer.add_float32(f"clip.{part}.attention.layer_norm_epsilon", 1e-5)
    add_layers(add, ones, "a" if part == "audio" else "v", has_k_bias=part == "vision")
    if part == "audio":
        _ultravox(writer, add, ones, n_embd)
    else:
        _vision(writer, add, ones, kind, n_embd, side or _SIDE[kind], n_places)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


Add = Callable[..., None]


def add_layers(
    add: Add,
    ones: Add,
    prefix: str,
    *,
    n_layer: int = _N_LAYER,
    width: int = _WIDTH,
    n_ff: int = _FF,
    has_k_bias: bool = True,
) -> None:
    """The layers of a tower; `ones` adds what scales a norm."""
    for layer in range(n_layer):
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            add(f"{prefix}.blk.{layer}.{name}.weight", width, width)
            if has_k_bias or name != "attn_k":
                add(f"{prefix}.blk.{layer}.{name}.bias", width)
        for name in ("ln1", "ln2"):
            ones(f"{prefix}.blk.{layer}.{name}.weight", width)
            add(f"{prefix}.blk.{layer}.{name}.bias", width)
        add(f"{prefix}.blk.{layer}.ffn_up.weight", n_ff, width)
        add(f"{prefix}.blk.{layer}.ffn_up.bias", n_ff)
        add(f"{prefix}.blk.{layer}.ffn_down.weight", width, n_ff)
        add(f"{prefix}.blk.{layer}.ffn_down.bias", width)


def _vision(writer: Any, add: Add, ones: Add, kind: Kind, n_embd: int, side: int, n_places: int) -> None:
    writer.add_uint32("clip.vision.image_size", side)
    writer.add_uint32("clip.vision.patch_size", _PATCH)
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    add("v.patch_embd.weight", _WIDTH, 3, _PATCH, _PATCH, spread=0.05)
    ones("v.post_ln.weight", _WIDTH)
    add("v.post_ln.bias", _WIDTH)
    n_patches = n_places or (side // _PATCH) ** 2
    if kind == "llava":
        add("v.position_embd.weight", n_patches, _WIDTH)
        for number in (0, 2):
            add(f"mm.{number}.weight", n_embd, _WIDTH if number == 0 else n_embd)
            add(f"mm.{number}.bias", n_embd)
    elif kind == "qwen2vl":
        add("v.patch_embd.weight.1", _WIDTH, 3, _PATCH, _PATCH, spread=0.05)
        add("mm.0.weight", 4 * _WIDTH, 4 * _WIDTH, spread=0.1)
        add("mm.0.bias", 4 * _WIDTH)
        add("mm.2.weight", n_embd, 4 * _WIDTH, spread=0.1)
        add("mm.2.bias", n_embd)
    else:
        writer.add_uint32("clip.vision.projector.scale_factor", 2)
        add("v.patch_embd.bias", _WIDTH)
        add("v.position_embd.weight", n_patches, _WIDTH)
        add("mm.input_projection.weight", _WIDTH, n_embd)
        ones("mm.soft_emb_norm.weight", _WIDTH)


def _ultravox(writer: Any, add: Add, ones: Add, n_embd: int) -> None:
    writer.add_uint32("clip.audio.num_mel_bins", _N_MEL)
    writer.add_uint32("clip.audio.projector.stack_factor", _STACK)
    add("a.conv1d.1.weight", _WIDTH, _N_MEL, 3, spread=0.05)
    add("a.conv1d.1.bias", _WIDTH, 1)
    add("a.conv1d.2.weight", _WIDTH, _WIDTH, 3, spread=0.05)
    add("a.conv1d.2.bias", _WIDTH, 1)
    add("a.position_embd.weight", 1500, _WIDTH)
    ones("a.post_ln.weight", _WIDTH)
    add("a.post_ln.bias", _WIDTH)
    ones("mm.a.norm_pre.weight", _WIDTH * _STACK)
    add("mm.a.mlp.1.weight", 64, _WIDTH * _STACK, spread=0.1)
    ones("mm.a.norm_mid.weight", 32)
    add("mm.a.mlp.2.weight", n_embd, 32)
