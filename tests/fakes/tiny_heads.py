"""GGUF files of a few hundred kilobytes of models with multi-token heads (MTP): layers that predict further tokens.

`Heads.RANDOM` guesses nothing right; `Heads.AGREEING` guesses what the model will say: the next token hangs on the
last one alone (its embedding goes through the model unchanged but for a little noise), and the heads pass the same
embedding to the same output.
"""

from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from tests.fakes.tiny_gguf import N_EMBD, N_VOCAB, finish, random_values, tiny_writer

Values = NDArray[np.float64]
Tensors = dict[str, Values]
New = Callable[..., Values]

_N_HEAD, _N_HEAD_KV, _HEAD = 4, 2, 16
_N_EXPERT = 2
_LORA, _ROPE = 16, 8
_STATE, _N_STATE_HEAD, _N_STATE_GROUP, _CONV = 16, 4, 2, 4
_WINDOW = 32
_NOISE = 0.02
_SHARE = 0.5
"""Of what layers of random weights add: with all of it, the last bits of a step would grow from layer to layer."""


class Heads(Enum):
    """What the heads of a file guess; MISSING: its metadata promise heads, but it has none."""

    RANDOM = auto()
    AGREEING = auto()
    MISSING = auto()


def write_with_heads(
    path: Path,
    architecture: str,
    *,
    heads: Heads = Heads.RANDOM,
    seed: int = 1,
    n_trunk: int = 2,
    n_embd: int = N_EMBD,
    n_ff: int = 64,
    n_predict: int = 1,
) -> Path:
    """A model with heads behind its `n_trunk` layers.

    Args:
        path: of the file.
        architecture: `glm4moe` (attention as in most models), `deepseek2` (compressed keys and values), `qwen35`
            (every other layer has a recurrent state) or `mimo2` (every other layer sees a window).
        heads: what they guess.
        seed: of the weights.
        n_trunk: layers of the model itself.
        n_embd: width of its rows.
        n_ff: width of the feed-forward parts.
        n_predict: layers of heads.
    """
    writer = tiny_writer(path, architecture, n_layer=n_trunk + n_predict, n_embd=n_embd)
    writer.add_feed_forward_length(n_ff)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_nextn_predict_layers(n_predict)
    _ADD_KEYS[architecture](writer, n_ff)
    new = random_values(seed)
    agrees = heads is Heads.AGREEING
    tensors: Tensors = {"output_norm.weight": np.ones(n_embd)}
    tensors["token_embd.weight"], tensors["output.weight"] = _ends(new, n_embd, agrees=agrees)
    for layer in range(n_trunk if heads is Heads.MISSING else n_trunk + n_predict):
        is_head = layer >= n_trunk
        block = _BLOCKS[architecture](new, n_embd, n_ff, layer, is_head)
        if is_head:
            block |= {
                "nextn.eh_proj.weight": _join(new, n_embd, agrees=agrees),
                "nextn.enorm.weight": np.ones(n_embd),
                "nextn.hnorm.weight": np.ones(n_embd),
                "nextn.shared_head_norm.weight": np.ones(n_embd),
            }
        for name, values in block.items():
            if name.startswith(("attn_output.", "ffn_down", "ssm_out.")):  # what goes back into the row
                noise = _NOISE * N_EMBD / n_embd * 64 / n_ff  # wider layers add more
                share = (0.0 if is_head else noise) if agrees else _SHARE
                values = values * share  # noqa: PLW2901
            tensors[f"blk.{layer}.{name}"] = values
    finish(writer, tensors)
    return path


def _ends(new: New, n_embd: int, *, agrees: bool) -> tuple[Values, Values]:
    """Embeddings and output layer. `agrees`: each token's embedding is likeliest to give one certain other token."""
    embeddings = new(N_VOCAB, n_embd)
    if not agrees:
        return embeddings, new(N_VOCAB, n_embd) * 4
    next_of = np.random.default_rng(7).permutation(N_VOCAB)
    output = np.empty_like(embeddings)
    output[next_of] = embeddings * 10
    return embeddings, output


def _join(new: New, n_embd: int, *, agrees: bool) -> Values:
    """What makes one row of a token's embedding and the hidden row before it."""
    if agrees:
        return np.concatenate([np.eye(n_embd), np.zeros((n_embd, n_embd))], axis=1)
    return new(n_embd, 2 * n_embd)


# --- architectures ----------------------------------------------------------------------------------------


def _add_attention(writer: gguf.GGUFWriter) -> None:
    writer.add_head_count(_N_HEAD)
    writer.add_head_count_kv(_N_HEAD_KV)
    writer.add_rope_dimension_count(_HEAD)
    writer.add_key_length(_HEAD)
    writer.add_value_length(_HEAD)


def _add_experts(writer: gguf.GGUFWriter, n_ff: int) -> None:
    writer.add_expert_count(_N_EXPERT)
    writer.add_expert_used_count(_N_EXPERT)  # all: a choice among them would turn on the last bits
    writer.add_expert_feed_forward_length(n_ff)
    writer.add_expert_shared_count(1)
    writer.add_leading_dense_block_count(1)
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def _glm_keys(writer: gguf.GGUFWriter, n_ff: int) -> None:
    _add_attention(writer)
    _add_experts(writer, n_ff)


def _deepseek_keys(writer: gguf.GGUFWriter, n_ff: int) -> None:
    writer.add_head_count(_N_HEAD)
    writer.add_head_count_kv(1)
    writer.add_rope_dimension_count(_ROPE)
    writer.add_q_lora_rank(_LORA)
    writer.add_kv_lora_rank(_LORA)
    writer.add_key_length(_LORA + _ROPE)
    writer.add_value_length(_LORA)
    writer.add_key_length_mla(_HEAD)
    writer.add_value_length_mla(_HEAD)
    writer.add_expert_weights_scale(1.0)
    _add_experts(writer, n_ff)


def _qwen_keys(writer: gguf.GGUFWriter, _n_ff: int) -> None:
    _add_attention(writer)
    writer.add_rope_dimension_sections([3, 3, 2, 0])
    writer.add_ssm_conv_kernel(_CONV)
    writer.add_ssm_inner_size(_STATE * _N_STATE_HEAD)
    writer.add_ssm_state_size(_STATE)
    writer.add_ssm_time_step_rank(_N_STATE_HEAD)
    writer.add_ssm_group_count(_N_STATE_GROUP)
    writer.add_full_attention_interval(2)


def _mimo_keys(writer: gguf.GGUFWriter, n_ff: int) -> None:
    _add_attention(writer)
    writer.add_expert_feed_forward_length(n_ff)
    writer.add_sliding_window(_WINDOW)
    n_layer = writer.kv_data[0]["mimo2.block_count"].value
    writer.add_sliding_window_pattern([layer % 2 == 0 for layer in range(n_layer)])


def _attention(new: New, n_embd: int, *, n_gate: int = 1) -> Tensors:
    return {
        "attn_norm.weight": np.ones(n_embd),
        "attn_q.weight": new(_N_HEAD * _HEAD * n_gate, n_embd),
        "attn_k.weight": new(_N_HEAD_KV * _HEAD, n_embd),
        "attn_v.weight": new(_N_HEAD_KV * _HEAD, n_embd),
        "attn_output.weight": new(n_embd, _N_HEAD * _HEAD),
    }


def _dense(new: New, n_embd: int, n_ff: int) -> Tensors:
    return {
        "ffn_gate.weight": new(n_ff, n_embd),
        "ffn_up.weight": new(n_ff, n_embd),
        "ffn_down.weight": new(n_embd, n_ff),
    }


def _experts(new: New, n_embd: int, n_ff: int) -> Tensors:
    return {
        "exp_probs_b.bias": np.zeros(_N_EXPERT),
        "ffn_gate_inp.weight": new(_N_EXPERT, n_embd),
        "ffn_gate_exps.weight": new(_N_EXPERT, n_ff, n_embd),
        "ffn_up_exps.weight": new(_N_EXPERT, n_ff, n_embd),
        "ffn_down_exps.weight": new(_N_EXPERT, n_embd, n_ff),
        "ffn_gate_shexp.weight": new(n_ff, n_embd),
        "ffn_up_shexp.weight": new(n_ff, n_embd),
        "ffn_down_shexp.weight": new(n_embd, n_ff),
    }


def _glm_block(new: New, n_embd: int, n_ff: int, layer: int, _is_head: bool) -> Tensors:
    after: Tensors = {"post_attention_norm.weight": np.ones(n_embd)}
    return _attention(new, n_embd) | after | (_experts if layer else _dense)(new, n_embd, n_ff)


def _deepseek_block(new: New, n_embd: int, n_ff: int, layer: int, _is_head: bool) -> Tensors:
    attention: Tensors = {
        "attn_norm.weight": np.ones(n_embd),
        "attn_q_a.weight": new(_LORA, n_embd),
        "attn_q_a_norm.weight": np.ones(_LORA),
        "attn_q_b.weight": new(_N_HEAD * _HEAD, _LORA),
        "attn_kv_a_mqa.weight": new(_LORA + _ROPE, n_embd),
        "attn_kv_a_norm.weight": np.ones(_LORA),
        "attn_k_b.weight": new(_N_HEAD, _LORA, _HEAD - _ROPE),
        "attn_v_b.weight": new(_N_HEAD, _HEAD, _LORA),
        "attn_output.weight": new(n_embd, _N_HEAD * _HEAD),
        "ffn_norm.weight": np.ones(n_embd),
    }
    return attention | (_experts if layer else _dense)(new, n_embd, n_ff)


def _qwen_block(new: New, n_embd: int, n_ff: int, layer: int, is_head: bool) -> Tensors:
    block: Tensors = _dense(new, n_embd, n_ff) | {"post_attention_norm.weight": np.ones(n_embd)}
    if is_head or layer % 2:
        norms: Tensors = {"attn_q_norm.weight": np.ones(_HEAD), "attn_k_norm.weight": np.ones(_HEAD)}
        return block | _attention(new, n_embd, n_gate=2) | norms
    values = _STATE * _N_STATE_HEAD
    both = 2 * _STATE * _N_STATE_GROUP + values
    return block | {
        "attn_norm.weight": np.ones(n_embd),
        "attn_qkv.weight": new(both, n_embd),
        "attn_gate.weight": new(values, n_embd),
        "ssm_conv1d.weight": new(both, _CONV),
        "ssm_dt.bias": new(_N_STATE_HEAD),
        "ssm_a": -np.exp(new(_N_STATE_HEAD)),
        "ssm_beta.weight": new(_N_STATE_HEAD, n_embd),
        "ssm_alpha.weight": new(_N_STATE_HEAD, n_embd),
        "ssm_norm.weight": np.ones(_STATE),
        "ssm_out.weight": new(n_embd, values),
    }


def _mimo_block(new: New, n_embd: int, n_ff: int, _layer: int, _is_head: bool) -> Tensors:
    return _dense(new, n_embd, n_ff) | {
        "attn_norm.weight": np.ones(n_embd),
        "attn_qkv.weight": new((_N_HEAD + 2 * _N_HEAD_KV) * _HEAD, n_embd),
        "attn_output.weight": new(n_embd, _N_HEAD * _HEAD),
        "ffn_norm.weight": np.ones(n_embd),
    }


_ADD_KEYS: dict[str, Callable[[gguf.GGUFWriter, int], None]] = {
    "glm4moe": _glm_keys,
    "deepseek2": _deepseek_keys,
    "qwen35": _qwen_keys,
    "mimo2": _mimo_keys,
}
_BLOCKS: dict[str, Callable[[New, int, int, int, bool], Tensors]] = {
    "glm4moe": _glm_block,
    "deepseek2": _deepseek_block,
    "qwen35": _qwen_block,
    "mimo2": _mimo_block,
}
