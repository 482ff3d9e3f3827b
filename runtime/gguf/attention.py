"""What each layer of a model remembers of a conversation: widths of its KV cache, its window, its recurrent state.

The rules are llama.cpp's (`src/llama-hparams.cpp`, `src/models/*.cpp` of the version that is built in); the tests hold
them against what llama.cpp itself allocates.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.errors import ModelLoadFailed
from runtime.gguf.header import GgufHeader

MAX_LAYERS = 512
"""`LLAMA_MAX_LAYERS`."""


@dataclass(frozen=True, slots=True)
class LayerMemory:
    """One layer; the fields mean what they mean in `architecture.LayerShape`."""

    n_head: int
    n_head_kv: int
    k_width: int
    v_width: int
    n_swa: int
    state_bytes: int
    n_expert_used: int


@dataclass(frozen=True, slots=True)
class Memory:
    """All layers, and the numbers of the whole model that come from the same keys."""

    layers: tuple[LayerMemory, ...]
    n_embd: int
    n_ff: int
    n_ctx_train: int
    n_expert: int
    n_expert_used: int
    has_memory: bool
    is_known: bool


class Keys:
    """Numbers of one model's metadata, checked. `n_layer` is how long a per-layer list is."""

    def __init__(self, header: GgufHeader) -> None:
        self._header = header
        self.architecture = header.text("general.architecture")
        self.n_layer = self.number("block_count")
        if not 0 <= self.n_layer <= MAX_LAYERS:
            raise self.fail(f"it claims {self.n_layer} layers")

    def number(self, key: str, otherwise: int = 0) -> int:
        """A whole number from 0; a list gives its largest."""
        value = self._header.metadata.get(f"{self.architecture}.{key}")
        if isinstance(value, tuple):
            return max((self._checked(key, element) for element in value), default=otherwise)
        return otherwise if value is None else self._checked(key, value)

    def each(self, key: str, otherwise: int = 0) -> tuple[int, ...]:
        """One number a layer, from a list or from one number for all."""
        value = self._header.metadata.get(f"{self.architecture}.{key}")
        if not isinstance(value, tuple):
            return (self.number(key, otherwise),) * self.n_layer
        if len(value) < self.n_layer:
            raise self.fail(f"{key} has {len(value)} entries for {self.n_layer} layers")
        return tuple(self._checked(key, element) for element in value[: self.n_layer])

    def has(self, key: str) -> bool:
        """Whether the key is there at all."""
        return f"{self.architecture}.{key}" in self._header.metadata

    def _checked(self, key: str, value: object) -> int:
        if not isinstance(value, int) or not 0 <= value < 1 << 32:
            raise self.fail(f"{key} is {value!r:.40}")
        return int(value)

    def fail(self, reason: str) -> ModelLoadFailed:
        """The error for a number that cannot be true."""
        return ModelLoadFailed(
            f"The header of this {self.architecture[:40]} model is damaged: {reason}.",
            hint="Download the file again, or choose another one.",
            reason=reason,
        )


def memory_of(header: GgufHeader) -> Memory:
    """What each layer remembers.

    Raises:
        ModelLoadFailed: a number cannot be true.
    """
    keys = Keys(header)
    n_embd = keys.number("embedding_length")
    n_head = keys.each("attention.head_count")
    n_head_kv = keys.each("attention.head_count_kv") if keys.has("attention.head_count_kv") else n_head
    most_heads = max(n_head, default=0)
    head = n_embd // most_heads if most_heads else 0
    k_head, v_head = keys.number("attention.key_length", head), keys.number("attention.value_length", head)
    n_expert_used = keys.each("expert_used_count")
    layers = [
        LayerMemory(heads, kv, k_head * kv, v_head * kv, 0, 0, used)
        for heads, kv, used in zip(n_head, n_head_kv, n_expert_used, strict=True)
    ]
    return Memory(
        layers=tuple(layers),
        n_embd=n_embd,
        n_ff=keys.number("expert_feed_forward_length") or keys.number("feed_forward_length"),
        n_ctx_train=keys.number("context_length"),
        n_expert=keys.number("expert_count"),
        n_expert_used=_most(n_expert_used),
        has_memory=True,
        is_known=False,
    )


def _most(numbers: Sequence[int]) -> int:
    return max(numbers, default=0)
