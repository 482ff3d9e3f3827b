"""Models of any size with random weights: what they say is noise, but they are as fast as real ones of their shape.

The weights are one block of random numbers over and over, so that half a gigabyte is written in a second.
"""

from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

_BLOCK = 1 << 22
_N_VOCAB_LEAST = 259


@dataclass(frozen=True)
class Shape:
    """A llama: `n_expert` above 0 makes its feed-forward part a mixture of `n_expert_used` experts."""

    n_embd: int
    n_layer: int
    n_ff: int
    n_head: int
    n_head_kv: int
    n_vocab: int = 32_000
    n_expert: int = 0
    n_expert_used: int = 0

    @property
    def n_params(self) -> int:
        kv = self.n_embd * self.n_head_kv // self.n_head
        layer = 2 * self.n_embd * (self.n_embd + kv) + 3 * self.n_embd * self.n_ff * max(self.n_expert, 1)
        return 2 * self.n_vocab * self.n_embd + self.n_layer * layer


def write_random_model(path: Path, shape: Shape, *, seed: int = 1, name: str = "random") -> Path:
    """An F16 file."""
    block = (np.random.default_rng(seed).standard_normal(_BLOCK, dtype=np.float32) * 0.02).astype(np.float16)

    def weights(*dims: int) -> np.ndarray:
        n = int(np.prod(dims))
        return np.resize(block, n).reshape(dims)

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(name)
    writer.add_context_length(8192)
    writer.add_embedding_length(shape.n_embd)
    writer.add_block_count(shape.n_layer)
    writer.add_feed_forward_length(shape.n_ff)
    writer.add_head_count(shape.n_head)
    writer.add_head_count_kv(shape.n_head_kv)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape.n_embd // shape.n_head)
    writer.add_file_type(1)
    if shape.n_expert:
        writer.add_expert_count(shape.n_expert)
        writer.add_expert_used_count(shape.n_expert_used)
    _add_tokenizer(writer, shape.n_vocab)
    kv = shape.n_embd * shape.n_head_kv // shape.n_head
    writer.add_tensor("token_embd.weight", weights(shape.n_vocab, shape.n_embd))
    writer.add_tensor("output_norm.weight", np.ones(shape.n_embd, dtype=np.float32))
    writer.add_tensor("output.weight", weights(shape.n_vocab, shape.n_embd))
    for layer in range(shape.n_layer):
        matrices: dict[str, np.ndarray] = {
            "attn_q": weights(shape.n_embd, shape.n_embd),
            "attn_k": weights(kv, shape.n_embd),
            "attn_v": weights(kv, shape.n_embd),
            "attn_output": weights(shape.n_embd, shape.n_embd),
        }
        if shape.n_expert:
            matrices["ffn_gate_inp"] = weights(shape.n_expert, shape.n_embd).astype(np.float32)
            matrices["ffn_gate_exps"] = weights(shape.n_expert, shape.n_ff, shape.n_embd)
            matrices["ffn_up_exps"] = weights(shape.n_expert, shape.n_ff, shape.n_embd)
            matrices["ffn_down_exps"] = weights(shape.n_expert, shape.n_embd, shape.n_ff)
        else:
            matrices["ffn_gate"] = weights(shape.n_ff, shape.n_embd)
            matrices["ffn_up"] = weights(shape.n_ff, shape.n_embd)
            matrices["ffn_down"] = weights(shape.n_embd, shape.n_ff)
        for norm in ("attn_norm", "ffn_norm"):
            matrices[norm] = np.ones(shape.n_embd, dtype=np.float32)
        for tensor, values in matrices.items():
            writer.add_tensor(f"blk.{layer}.{tensor}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: gguf.GGUFWriter, n_vocab: int) -> None:
    tokens = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % byte for byte in range(256))]
    tokens += [b"t%d" % index for index in range(n_vocab - _N_VOCAB_LEAST)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * n_vocab)
    writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * (n_vocab - _N_VOCAB_LEAST)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
