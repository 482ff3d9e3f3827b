"""GGUF files of a few hundred kilobytes with random weights, written by the tests that need them.

Random float32 weights make greedy answers meaningless and exactly repeatable: unlike a quantized model, sums in
another order do not change the likeliest token.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

N_VOCAB = 3 + 256 + 61
N_EMBD = 64
_N_FF = 128
_N_LAYER = 2


@dataclass(frozen=True)
class RopeMetadata:
    """Context extension written into the file."""

    scaling_type: gguf.RopeScalingType
    factor: float
    orig_ctx: int


def tiny_writer(
    path: Path,
    architecture: str,
    n_ctx_train: int = 4096,
    extra_tokens: int = 0,
    *,
    n_layer: int = _N_LAYER,
    n_embd: int = N_EMBD,
) -> gguf.GGUFWriter:
    """A writer that has the name, the sizes and the vocabulary of a tiny model."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(f"tiny {architecture}")
    writer.add_context_length(n_ctx_train)
    writer.add_embedding_length(n_embd)
    writer.add_block_count(n_layer)
    tokens = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % byte for byte in range(256))]
    tokens += [bytes([32 + index]) for index in range(N_VOCAB - len(tokens))]
    tokens += [b"word%d" % index for index in range(extra_tokens)]
    kinds = [2, 3, 3, *[6] * 256, *[1] * (len(tokens) - 259)]  # unknown, control, byte, normal (gguf.TokenType)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    return writer


def finish(writer: gguf.GGUFWriter, tensors: dict[str, np.ndarray]) -> None:
    """Write the file of a writer that has its metadata."""
    for name, values in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(values, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def random_values(seed: int, spread: float = 0.15):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """A function of a shape that gives the next random numbers around 0."""
    generator = np.random.default_rng(seed)
    return lambda *shape: generator.normal(0, spread, shape)


def write_transformer(
    path: Path,
    *,
    architecture: str = "llama",
    sliding_window: int = 0,
    seed: int = 1,
    n_ctx_train: int = 4096,
    rope: RopeMetadata | None = None,
    extra_tokens: int = 0,
    template: str = "",
    added: Mapping[str, NDArray[np.float32]] | None = None,
) -> Path:
    """A llama, `gemma3`, a model whose even layers see a sliding window, or `qwen2vl`, with M-RoPE positions.

    `added` is added to its weights, by name.
    """
    n_head, n_head_kv, head = 4, 2, 16
    writer = tiny_writer(path, architecture, n_ctx_train, extra_tokens)
    n_vocab = N_VOCAB + extra_tokens
    if rope is not None:
        writer.add_rope_scaling_type(rope.scaling_type)
        writer.add_rope_scaling_factor(rope.factor)
        writer.add_rope_scaling_orig_ctx_len(rope.orig_ctx)
    writer.add_feed_forward_length(_N_FF)
    writer.add_head_count(n_head)
    writer.add_head_count_kv(n_head_kv)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(head)
    writer.add_key_length(head)
    writer.add_value_length(head)
    if sliding_window:
        writer.add_sliding_window(sliding_window)
    if template:
        writer.add_chat_template(template)
    if architecture == "qwen2vl":
        writer.add_rope_dimension_sections([2, 3, 3, 0])
    # Tied to the output, large embeddings would only ever repeat the last token.
    new = random_values(seed, 0.4 if architecture == "gemma3" else 0.15)
    tensors = {"token_embd.weight": new(n_vocab, N_EMBD), "output_norm.weight": np.ones(N_EMBD)}
    if architecture != "gemma3":
        tensors["output.weight"] = new(n_vocab, N_EMBD) * 4
    for layer in range(_N_LAYER):
        tensors |= {
            f"blk.{layer}.{name}.weight": values
            for name, values in {
                "attn_norm": np.ones(N_EMBD),
                "attn_q": new(n_head * head, N_EMBD),
                "attn_k": new(n_head_kv * head, N_EMBD),
                "attn_v": new(n_head_kv * head, N_EMBD),
                "attn_output": new(N_EMBD, n_head * head),
                "ffn_norm": np.ones(N_EMBD),
                "ffn_gate": new(_N_FF, N_EMBD),
                "ffn_up": new(_N_FF, N_EMBD),
                "ffn_down": new(N_EMBD, _N_FF),
            }.items()
        }
        if architecture == "qwen2vl":
            for name, width in (("attn_q", n_head), ("attn_k", n_head_kv), ("attn_v", n_head_kv)):
                tensors[f"blk.{layer}.{name}.bias"] = new(width * head)
        if architecture == "gemma3":
            for name, width in (
                ("post_attention_norm", N_EMBD),
                ("post_ffw_norm", N_EMBD),
                ("attn_q_norm", head),
                ("attn_k_norm", head),
            ):
                tensors[f"blk.{layer}.{name}.weight"] = np.ones(width)
    for name, values in (added or {}).items():
        tensors[name] = tensors[name] + values
    finish(writer, tensors)
    return path


def write_mamba(path: Path, *, seed: int = 1) -> Path:
    """A recurrent model: its memory is one state a sequence, which cannot be cut."""
    inner, state, conv, dt_rank = 2 * N_EMBD, 16, 4, 8
    writer = tiny_writer(path, "mamba")
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_ssm_conv_kernel(conv)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_state_size(state)
    writer.add_ssm_time_step_rank(dt_rank)
    writer.add_layer_norm_rms_eps(1e-5)
    new = random_values(seed)
    tensors = {
        "token_embd.weight": new(N_VOCAB, N_EMBD) * 4,
        "output_norm.weight": np.ones(N_EMBD),
        "output.weight": new(N_VOCAB, N_EMBD) * 4,
    }
    for layer in range(_N_LAYER):
        tensors |= {
            f"blk.{layer}.{name}": values
            for name, values in {
                "attn_norm.weight": np.ones(N_EMBD),
                "ssm_in.weight": new(2 * inner, N_EMBD),
                "ssm_conv1d.weight": new(inner, conv),
                "ssm_conv1d.bias": new(inner),
                "ssm_x.weight": new(dt_rank + 2 * state, inner),
                "ssm_dt.weight": new(inner, dt_rank),
                "ssm_dt.bias": new(inner),
                "ssm_a": -np.exp(new(inner, state)),
                "ssm_d": np.ones(inner),
                "ssm_out.weight": new(N_EMBD, inner),
            }.items()
        }
    finish(writer, tensors)
    return path


def write_unknown(path: Path) -> Path:
    """A well-formed file of an architecture that does not exist."""
    writer = tiny_writer(path, "flux-capacitor")
    finish(writer, {"token_embd.weight": np.zeros((N_VOCAB, N_EMBD))})
    return path
