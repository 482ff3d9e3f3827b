"""Stand-ins for models people really run: true shapes and sizes, a header on disk and a hole where weights would be.

llama.cpp plans their memory from that (`no_alloc`), so tests see the figures of an 8B model without having one.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

_ALIGNMENT = 32


@dataclass
class SparseModel:
    """One model: its metadata without the architecture in front, and its tensors as (dimensions, type)."""

    architecture: str
    keys: Mapping[str, int | float]
    tensors: dict[str, tuple[tuple[int, ...], Type]] = field(default_factory=dict)

    def add(self, name: str, *shape: int, kind: Type = Type.Q4_K) -> None:
        self.tensors[f"{name}.weight"] = shape, Type.F32 if len(shape) == 1 else kind

    def write(self, path: Path) -> Path:
        writer = gguf.GGUFWriter(None, self.architecture)
        for key, value in self.keys.items():
            name = f"{self.architecture}.{key}"
            writer.add_float32(name, value) if isinstance(value, float) else writer.add_uint32(name, value)
        writer.add_tokenizer_model("no_vocab")
        size = 0
        for name, (shape, kind) in self.tensors.items():
            n_bytes = _bytes(shape, kind)
            writer.add_tensor_info(name, list(reversed(shape)), np.dtype(np.float16), n_bytes, raw_dtype=kind)
            size += -(-n_bytes // _ALIGNMENT) * _ALIGNMENT
        writer.write_header_to_file(path)
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        writer.close()
        head = -(-path.stat().st_size // _ALIGNMENT) * _ALIGNMENT
        os.truncate(path, head + size)
        return path


def _bytes(shape: tuple[int, ...], kind: Type) -> int:
    block, size = gguf.GGML_QUANT_SIZES[kind]
    n_blocks = int(np.prod(shape, dtype=np.int64)) // int(block)
    return n_blocks * int(size)


def _attention(
    model: SparseModel, at: str, n_embd: int, n_head: int, n_head_kv: int, head: int, *, norms: bool = False
) -> None:
    model.add(f"{at}.attn_norm", n_embd)
    model.add(f"{at}.attn_q", n_embd, n_head * head)
    model.add(f"{at}.attn_k", n_embd, n_head_kv * head)
    model.add(f"{at}.attn_v", n_embd, n_head_kv * head, kind=Type.Q6_K)
    model.add(f"{at}.attn_output", n_head * head, n_embd)
    model.add(f"{at}.ffn_norm", n_embd)
    if norms:
        model.add(f"{at}.attn_q_norm", head)
        model.add(f"{at}.attn_k_norm", head)


def _base(
    architecture: str, *, n_layer: int, n_embd: int, n_ff: int, n_head: int, n_head_kv: int, head: int, n_vocab: int,
    is_tied: bool = False, **more: float,
) -> SparseModel:  # fmt: skip
    model = SparseModel(
        architecture,
        {
            "context_length": 131_072,
            "embedding_length": n_embd,
            "block_count": n_layer,
            "feed_forward_length": n_ff,
            "attention.head_count": n_head,
            "attention.head_count_kv": n_head_kv,
            "attention.key_length": head,
            "attention.value_length": head,
            "rope.dimension_count": head,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "vocab_size": n_vocab,
            **more,
        },
    )
    model.add("token_embd", n_embd, n_vocab)
    model.add("output_norm", n_embd)
    if not is_tied:
        model.add("output", n_embd, n_vocab, kind=Type.Q6_K)
    return model


def llama(
    n_layer: int = 32, n_embd: int = 4096, n_ff: int = 14_336, n_head: int = 32, *, is_tied: bool = False
) -> SparseModel:
    """Llama 3 8B; with other numbers its sisters."""
    head = n_embd // n_head
    model = _base(
        "llama", n_layer=n_layer, n_embd=n_embd, n_ff=n_ff, n_head=n_head, n_head_kv=8, head=head, n_vocab=128_256,
        is_tied=is_tied,
    )  # fmt: skip
    for index in range(n_layer):
        _attention(model, f"blk.{index}", n_embd, n_head, 8, head)
        model.add(f"blk.{index}.ffn_gate", n_embd, n_ff)
        model.add(f"blk.{index}.ffn_up", n_embd, n_ff)
        model.add(f"blk.{index}.ffn_down", n_ff, n_embd, kind=Type.Q6_K)
    return model


def qwen3_moe() -> SparseModel:
    """Qwen3 30B-A3B: 128 experts, 8 of them used."""
    n_embd, n_ff = 2048, 768
    model = _base(
        "qwen3moe", n_layer=48, n_embd=n_embd, n_ff=6144, n_head=32, n_head_kv=4, head=128, n_vocab=151_936,
        expert_count=128, expert_used_count=8, expert_feed_forward_length=n_ff,
    )  # fmt: skip
    for index in range(48):
        at = f"blk.{index}"
        _attention(model, at, n_embd, 32, 4, 128, norms=True)
        model.add(f"{at}.ffn_gate_inp", n_embd, 128, kind=Type.F32)
        model.add(f"{at}.ffn_gate_exps", n_embd, n_ff, 128)
        model.add(f"{at}.ffn_up_exps", n_embd, n_ff, 128)
        model.add(f"{at}.ffn_down_exps", n_ff, n_embd, 128, kind=Type.Q6_K)
    return model


def gemma3() -> SparseModel:
    """Gemma 3 27B: five of six layers look back 1,024 tokens, and the embeddings are the output layer."""
    n_embd, n_ff = 5376, 21_504
    model = _base(
        "gemma3", n_layer=62, n_embd=n_embd, n_ff=n_ff, n_head=32, n_head_kv=16, head=128, n_vocab=262_208,
        is_tied=True, **{"attention.sliding_window": 1024},
    )  # fmt: skip
    for index in range(62):
        at = f"blk.{index}"
        _attention(model, at, n_embd, 32, 16, 128, norms=True)
        model.add(f"{at}.post_attention_norm", n_embd)
        model.add(f"{at}.post_ffw_norm", n_embd)
        model.add(f"{at}.ffn_gate", n_embd, n_ff)
        model.add(f"{at}.ffn_up", n_embd, n_ff)
        model.add(f"{at}.ffn_down", n_ff, n_embd, kind=Type.Q6_K)
    return model


def mamba() -> SparseModel:
    """Mamba 2.8B: a state instead of a cache."""
    n_embd, inner, state = 2560, 5120, 16
    rank = n_embd // 16
    model = SparseModel(
        "mamba",
        {
            "context_length": 1 << 20,
            "embedding_length": n_embd,
            "block_count": 64,
            "feed_forward_length": 0,
            "attention.head_count": 0,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "vocab_size": 50_280,
            "ssm.conv_kernel": 4,
            "ssm.inner_size": inner,
            "ssm.state_size": state,
            "ssm.time_step_rank": rank,
        },
    )
    model.add("token_embd", n_embd, 50_280)
    model.add("output_norm", n_embd)
    for index in range(64):
        at = f"blk.{index}"
        model.add(f"{at}.attn_norm", n_embd)
        model.add(f"{at}.ssm_in", n_embd, 2 * inner)
        model.add(f"{at}.ssm_conv1d", 4, inner, kind=Type.F32)
        model.add(f"{at}.ssm_x", inner, rank + 2 * state)
        model.add(f"{at}.ssm_dt", rank, inner, kind=Type.F32)
        model.add(f"{at}.ssm_out", inner, n_embd)
        model.tensors[f"{at}.ssm_conv1d.bias"] = (inner,), Type.F32
        model.tensors[f"{at}.ssm_dt.bias"] = (inner,), Type.F32
        model.tensors[f"{at}.ssm_a"] = (state, inner), Type.F32
        model.tensors[f"{at}.ssm_d"] = (inner,), Type.F32
    return model


MODELS: Mapping[str, Callable[[], SparseModel]] = {
    "llama-1b": lambda: llama(16, 2048, 8192, is_tied=True),
    "llama-8b": llama,
    "llama-70b": lambda: llama(80, 8192, 28_672, 64),
    "qwen3-30b-a3b": qwen3_moe,
    "gemma3-27b": gemma3,
    "mamba-2.8b": mamba,
}
