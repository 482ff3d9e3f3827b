"""Inputs for fuzzing: headers built from parts of which some are wrong, and bytes of such headers damaged."""

import random
import struct
from dataclasses import dataclass, field

from runtime.gguf.known import KNOWN_ARCHITECTURES

MAX_INPUT_BYTES = 256 * 1024


def _words(text: str) -> list[str]:
    return text.split()


_ARCHITECTURES = sorted(KNOWN_ARCHITECTURES)
_RULED = _words(
    "gemma3 gemma3n gemma4 llama4 smallthinker lfm2 exaone4 gpt-oss qwen3next qwen35 minimax-01 minimax-m3 nemotron_h "
    "falcon-h1 jamba mamba rwkv7 kimi-linear deepseek2 deepseek32 deepseek4 glm-dsa hy_v4 dots3note glm5-next nanbeige "
    "graniteswitch bert t5 hunyuan-dense clip"
)
"""Architectures with rules of their own."""
_ODD = (0, 1, 2, 7, 31, 32, 33, 63, 64, 255, 256, 511, 512, 513, 1023, 1024, 1025, 65_535, 65_536)
_HUGE = (2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_TYPE_IDS = (0, 1, 2, 3, 6, 7, 8, 10, 12, 14, 16, 20, 26, 30, 34, 39, 40, 41, 42, 4, 5, 31, 99, 2**31)
_KEYS = _words(
    "block_count embedding_length context_length feed_forward_length vocab_size nextn_predict_layers num_loops "
    "attention.head_count attention.head_count_kv attention.key_length attention.value_length attention.causal "
    "attention.key_length_mla attention.value_length_mla attention.key_length_swa attention.value_length_swa "
    "attention.sliding_window attention.sliding_window_pattern attention.shared_kv_layers attention.recurrent_layers "
    "attention.indexer.key_length attention.indexer.types attention.indexer.top_k attention.indexer.kpool "
    "attention.compress_ratios full_attention_interval leading_dense_block_count expert_count expert_used_count "
    "expert_feed_forward_length ssm.conv_kernel ssm.inner_size ssm.state_size ssm.group_count kda.head_dim "
    "shortconv.l_cache wkv.head_size token_shift_count pooling_type vision.block_count"
)
_WHOLE_KEYS = _words(
    "general.architecture general.name general.type general.alignment general.file_type general.license general.tags "
    "general.organization general.size_label general.languages general.base_model.count general.base_model.0.repo_url "
    "tokenizer.ggml.model tokenizer.ggml.pre tokenizer.ggml.tokens tokenizer.ggml.token_type tokenizer.chat_template "
    "split.no split.count clip.has_vision_encoder clip.projector_type clip.vision.image_size "
    "clip.vision.projection_dim quantize.imatrix.entries_count quantize.imatrix.dataset"
)
_TENSORS = _words(
    "token_embd.weight output.weight output_norm.weight token_embd_norm.weight rope_freqs.weight blk.0.attn_q.weight "
    "blk.1.ffn_gate_exps.weight blk.1.ffn_down_exps.bias blk.99999.attn_k.weight blk.-1.x enc.blk.0.attn_q.weight "
    "per_layer_token_embd.weight mm.0.weight v.blk.0.x posnet.0.conv1.weight blk.0.cross_attn_rel_b.weight"
)


@dataclass(slots=True)
class Draft:
    """A header in parts that are packed as they are: each may be wrong on its own."""

    entries: list[bytes] = field(default_factory=list)
    tensors: list[bytes] = field(default_factory=list)
    version: int = 3
    n_tensors: int | None = None
    n_entries: int | None = None

    def pack(self) -> bytes:
        n_tensors = len(self.tensors) if self.n_tensors is None else self.n_tensors
        n_entries = len(self.entries) if self.n_entries is None else self.n_entries
        head = b"GGUF" + struct.pack("<IQQ", self.version & 0xFFFFFFFF, n_tensors, n_entries)
        return head + b"".join(self.entries) + b"".join(self.tensors)


class Maker:
    """Makes inputs from a seed of chance."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def number(self) -> int:
        kind = self._chance.random()
        if kind < 0.55:
            return self._chance.choice(_ODD)
        return self._chance.choice(_HUGE) if kind < 0.75 else self._chance.randrange(1 << 20)

    def text(self) -> bytes:
        kind = self._chance.random()
        if kind < 0.4:
            return self._chance.choice(_ARCHITECTURES).encode()
        if kind < 0.6:
            return self._chance.randbytes(self._chance.randrange(12))
        return self._chance.choice(
            (b"", b"model", b"mmproj", b"gpt2", "größe".encode(), b"x" * 70_000, b"\0\0", b"/" * 40)
        )

    def string(self, raw: bytes | None = None) -> bytes:
        raw = self.text() if raw is None else raw
        length = self.number() if self._chance.random() < 0.03 else len(raw)
        return struct.pack("<Q", length) + raw

    def scalar(self, type_id: int) -> bytes:
        code = _SCALARS[type_id]
        if code in "fd":
            return struct.pack(f"<{code}", self._chance.choice((0.0, -1.5, float("nan"), float("inf"), 3.0e38)))
        size = struct.calcsize(code)
        return (self.number() & ((1 << 8 * size) - 1)).to_bytes(size, "little")

    def value(self, depth: int = 0) -> tuple[int, bytes]:
        """A type and its bytes, as they follow a key or a list's head."""
        kind = self._chance.random()
        if kind < 0.5:
            type_id = self._chance.choice((4, 4, 4, 5, 7, 10, *_SCALARS))
            return type_id, self.scalar(type_id)
        if kind < 0.65:
            return _STRING, self.string()
        if kind < 0.97 and depth < 7:
            return _ARRAY, self.array(depth + 1)
        return self._chance.randrange(256), self._chance.randbytes(8)

    def array(self, depth: int) -> bytes:
        count = self._chance.choice((0, 1, 2, 3, 4, 8, 40, 1024, 1025, 3000))
        kind = self._chance.random()
        if kind < 0.6:
            type_id = self._chance.choice((4, 5, 7, *_SCALARS))
            code = struct.calcsize(_SCALARS[type_id])
            body = self.scalar(type_id) * count if kind < 0.3 else self._chance.randbytes(code * count)
        elif kind < 0.8:
            type_id, body = _STRING, b"".join(self.string(b"t%d" % index) for index in range(min(count, 1100)))
            count = min(count, 1100)
        else:
            type_id, count = _ARRAY, min(count, 4)
            body = b"".join(self.array(depth + 1) for _ in range(count if depth < 7 else 0))
        if self._chance.random() < 0.05:
            count = self.number()
        return struct.pack("<IQ", type_id, count & (2**64 - 1)) + body

    def entry(self, architecture: str) -> bytes:
        key = self._chance.choice(_WHOLE_KEYS)
        if self._chance.random() < 0.75:
            key = f"{architecture}.{self._chance.choice(_KEYS)}"
        type_id, value = self.value()
        return self.string(key.encode()) + struct.pack("<I", type_id) + value

    def tensor(self, offset: int) -> tuple[bytes, int]:
        """A tensor and where the next one should lie."""
        n_dims = self._chance.choice((0, 1, 2, 2, 3, 4, 5, 9))
        shape = [self._chance.choice((1, 32, 64, 256, 512)) for _ in range(n_dims)]
        if n_dims and self._chance.random() < 0.15:
            shape[self._chance.randrange(n_dims)] = self.number()
        type_id = self._chance.choice(_TYPE_IDS) if self._chance.random() < 0.3 else 0
        elements = 1
        for length in shape:
            elements *= length
        given = offset if self._chance.random() < 0.9 else self.number()
        name = self._chance.choice(_TENSORS) if self._chance.random() < 0.9 else "n" * self.number().bit_length()
        packed = self.string(name.encode()) + struct.pack("<I", n_dims)
        packed += b"".join(struct.pack("<Q", length & (2**64 - 1)) for length in shape)
        packed += struct.pack("<IQ", type_id & 0xFFFFFFFF, given & (2**64 - 1))
        return packed, (given + -(-elements * 4 // 32) * 32) & (2**64 - 1)

    def model(self) -> Draft:
        """A header that makes sense, but for some of its entries."""
        architecture = self._chance.choice(_RULED if self._chance.random() < 0.6 else _ARCHITECTURES)
        draft = Draft()

        def add(key: str, type_id: int, value: bytes) -> None:
            draft.entries.append(struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", type_id) + value)

        add("general.architecture", _STRING, struct.pack("<Q", len(architecture)) + architecture.encode())
        sound = {"block_count": 4, "embedding_length": 64, "attention.head_count": 4, "attention.sliding_window": 16}
        sound |= {"ssm.conv_kernel": 4, "ssm.inner_size": 64, "ssm.state_size": 16, "attention.head_count_kv": 2}
        for key, number in sound.items():
            if self._chance.random() < 0.9:
                add(f"{architecture}.{key}", 4, struct.pack("<I", number))
        for _ in range(self._chance.randrange(8)):
            draft.entries.append(self.entry(architecture))
        if self._chance.random() < 0.1:
            count = self._chance.choice((3, 1024, 1025, 1100))
            words = b"".join(struct.pack("<Q", index % 7) + b"t" * (index % 7) for index in range(count))
            add("tokenizer.ggml.tokens", _ARRAY, struct.pack("<IQ", _STRING, count) + words)
            add("tokenizer.ggml.token_type", _ARRAY, struct.pack("<IQ", 5, count) + b"\3\0\0\0" * count)
        offset = 0
        for _ in range(self._chance.randrange(6)):
            packed, offset = self.tensor(offset)
            draft.tensors.append(packed)
        return self.damaged(draft)

    def damaged(self, draft: Draft) -> Draft:
        """Counts, versions and order that are wrong now and then."""
        if self._chance.random() < 0.04:
            draft.n_entries = self.number()
        if self._chance.random() < 0.04:
            draft.n_tensors = self.number()
        if self._chance.random() < 0.02:
            draft.version = self._chance.choice((0, 1, 2, 4, 0x03000000, 2**31))
        if draft.entries and self._chance.random() < 0.05:
            draft.entries.append(self._chance.choice(draft.entries))
        if self._chance.random() < 0.05:
            self._chance.shuffle(draft.entries)
        return draft

    def mutated(self, raw: bytes, other: bytes) -> bytes:
        """Bytes changed, lost, doubled, or joined with another input's."""
        data = bytearray(raw)
        for _ in range(self._chance.choice((1, 1, 1, 2, 3, 8))):
            if not data:
                break
            at, kind = self._chance.randrange(len(data)), self._chance.randrange(7)
            if kind == 0:
                data[at] ^= 1 << self._chance.randrange(8)
            elif kind == 1:
                data[at] = self._chance.randrange(256)
            elif kind == 2:
                data[at : at + 8] = (self.number() & (2**64 - 1)).to_bytes(8, "little")
            elif kind == 3:
                data[at : at + 4] = (self.number() & 0xFFFFFFFF).to_bytes(4, "little")
            elif kind == 4:
                del data[at : at + self._chance.randrange(1, 64)]
            elif kind == 5:
                data[at:at] = data[at : at + self._chance.randrange(1, 200)]
            else:
                data[at:] = other[self._chance.randrange(len(other) + 1) :]
        if self._chance.random() < 0.1:
            del data[self._chance.randrange(len(data) + 1) :]
        return bytes(data[:MAX_INPUT_BYTES])
