"""Tiny GGUF files with random weights of models that read: BERT and Nomic encoders, causal embedders, rankers."""

from pathlib import Path

import gguf
import numpy as np

from tests.fakes.tiny_gguf import N_EMBD, N_VOCAB, finish, random_values

_N_LAYER, _N_FF, _N_HEAD = 2, 128, 4
N_CTX_BERT = 256
RERANK_TEMPLATE = "Query: {query}\nDocument: {document}\nAnswer:"
_WORDS = "cat dog sun moon tax law river bread wine star tree song".split()  # noqa: SIM905 - easier to read
BERT_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"\u2581{word}" for word in _WORDS)]


def write_encoder(
    path: Path, *, architecture: str = "bert", pooling: gguf.PoolingType = gguf.PoolingType.MEAN, seed: int = 1
) -> Path:
    """A BERT, or with `architecture="nomic-bert"` one with RoPE; pooling RANK brings a classifier of two layers."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(f"tiny {architecture}")
    writer.add_context_length(N_CTX_BERT)
    writer.add_embedding_length(N_EMBD)
    writer.add_block_count(_N_LAYER)
    writer.add_feed_forward_length(_N_FF)
    writer.add_head_count(_N_HEAD)
    writer.add_layer_norm_eps(1e-6)
    writer.add_causal_attention(value=False)
    writer.add_pooling_type(pooling)
    writer.add_tokenizer_model("bert")
    writer.add_token_list(BERT_TOKENS)
    writer.add_token_types([3, 2, 3, 3, *[1] * len(_WORDS)])
    writer.add_token_type_count(2)
    writer.add_bos_token_id(2)
    writer.add_unk_token_id(1)
    writer.add_sep_token_id(3)
    writer.add_pad_token_id(0)
    if architecture == "nomic-bert":
        writer.add_rope_freq_base(1000.0)
    new = random_values(seed, 0.3)
    tensors = {
        "token_embd.weight": new(len(BERT_TOKENS), N_EMBD),
        "token_types.weight": new(2, N_EMBD),
        "token_embd_norm.weight": np.ones(N_EMBD),
        "token_embd_norm.bias": np.zeros(N_EMBD),
    }
    if architecture == "bert":
        tensors["position_embd.weight"] = new(N_CTX_BERT, N_EMBD)
    if pooling == gguf.PoolingType.RANK:
        tensors |= {
            "cls.weight": new(N_EMBD, N_EMBD),
            "cls.bias": new(N_EMBD),
            "cls.output.weight": new(1, N_EMBD),
            "cls.output.bias": new(1),
        }
    for layer in range(_N_LAYER):
        named = {
            "attn_q": new(N_EMBD, N_EMBD),
            "attn_k": new(N_EMBD, N_EMBD),
            "attn_v": new(N_EMBD, N_EMBD),
            "attn_output": new(N_EMBD, N_EMBD),
            "attn_output_norm": np.ones(N_EMBD),
            "ffn_up": new(_N_FF, N_EMBD),
            "ffn_down": new(N_EMBD, _N_FF),
            "layer_output_norm": np.ones(N_EMBD),
        }
        if architecture == "nomic-bert":
            named["ffn_gate"] = new(_N_FF, N_EMBD)
        tensors |= {f"blk.{layer}.{name}.weight": values for name, values in named.items()}
        biased = {"attn_output_norm": N_EMBD, "layer_output_norm": N_EMBD}
        tensors |= {f"blk.{layer}.{name}.bias": np.zeros(width) for name, width in biased.items()}
    finish(writer, tensors)
    return path


def write_qwen3(path: Path, *, pooling: gguf.PoolingType = gguf.PoolingType.LAST, seed: int = 1) -> Path:
    """A causal reader in the manner of Qwen3-Embedding; with pooling RANK of Qwen3-Reranker, its template included."""
    n_head_kv, head = 2, 16
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_name("tiny qwen3")
    writer.add_context_length(2048)
    writer.add_embedding_length(N_EMBD)
    writer.add_block_count(_N_LAYER)
    writer.add_feed_forward_length(_N_FF)
    writer.add_head_count(_N_HEAD)
    writer.add_head_count_kv(n_head_kv)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_pooling_type(pooling)
    tokens = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % byte for byte in range(256))]
    tokens += [bytes([32 + index]) for index in range(N_VOCAB - len(tokens))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * N_VOCAB)
    writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * (N_VOCAB - 259)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_eos_token(value=True)
    new = random_values(seed, 0.3)
    tensors = {"token_embd.weight": new(N_VOCAB, N_EMBD), "output_norm.weight": np.ones(N_EMBD)}
    if pooling == gguf.PoolingType.RANK:
        writer.add_classifier_output_labels(["yes", "no"])
        writer.add_chat_template([{"name": "rerank", "template": RERANK_TEMPLATE}])
        tensors["cls.output.weight"] = new(2, N_EMBD)
    for layer in range(_N_LAYER):
        named = {
            "attn_norm": np.ones(N_EMBD),
            "attn_q": new(_N_HEAD * head, N_EMBD),
            "attn_k": new(n_head_kv * head, N_EMBD),
            "attn_v": new(n_head_kv * head, N_EMBD),
            "attn_output": new(N_EMBD, _N_HEAD * head),
            "attn_q_norm": np.ones(head),
            "attn_k_norm": np.ones(head),
            "ffn_norm": np.ones(N_EMBD),
            "ffn_gate": new(_N_FF, N_EMBD),
            "ffn_up": new(_N_FF, N_EMBD),
            "ffn_down": new(N_EMBD, _N_FF),
        }
        tensors |= {f"blk.{layer}.{name}.weight": values for name, values in named.items()}
    finish(writer, tensors)
    return path
