"""The numbers of one model's metadata, checked: whole, not negative, and one for each layer where a list is given."""

from collections.abc import Mapping

from runtime.errors import ModelLoadFailed
from runtime.gguf.header import GgufHeader, MetaValue

MAX_LAYERS = 512
"""`LLAMA_MAX_LAYERS` of llama.cpp."""
_MAX_NUMBER = 1 << 32


class Keys:
    """The entries `<architecture>.<key>` of a header.

    Attributes:
        architecture: `general.architecture`.
        n_layer: `block_count`, the length of a list with one number a layer.
        names: of the tensors of this file, for rules that look whether a tensor is there.
    """

    def __init__(self, header: GgufHeader) -> None:
        """Look at the layer count first.

        Raises:
            ModelLoadFailed: it has no layers, or more than llama.cpp can have.
        """
        self._metadata: Mapping[str, MetaValue] = header.metadata
        self.architecture = header.text("general.architecture")
        self.n_layer = self.number("block_count")
        if not 0 < self.n_layer <= MAX_LAYERS:
            raise self.fail(f"it claims {self.n_layer} layers")
        self.names = {tensor.name for tensor in header.tensors}

    def has(self, key: str) -> bool:
        """Whether the key is there at all."""
        return self._value(key) is not None

    def is_list(self, key: str) -> bool:
        """Whether the key holds a list."""
        return isinstance(self._value(key), tuple)

    def number(self, key: str, otherwise: int = 0) -> int:
        """A whole number from 0; a list gives its largest; `otherwise` where the key is missing.

        Raises:
            ModelLoadFailed: it is something else.
        """
        value = self._value(key)
        if isinstance(value, tuple):
            return max((self._checked(key, element) for element in value), default=otherwise)
        return otherwise if value is None else self._checked(key, value)

    def each(self, key: str, otherwise: int = 0, *, is_padded: bool = False) -> tuple[int, ...]:
        """One number a layer, from a list or from one number for all; `is_padded` fills a short list with zeros.

        Raises:
            ModelLoadFailed: a list is too short, or holds something else.
        """
        value = self._value(key)
        if not isinstance(value, tuple):
            return (self.number(key, otherwise),) * self.n_layer
        if len(value) < self.n_layer and not is_padded:
            raise self.fail(f"{key} has {len(value)} entries for {self.n_layer} layers")
        found = tuple(self._checked(key, element) for element in value[: self.n_layer])
        return found + (0,) * (self.n_layer - len(found))

    def flag(self, key: str, *, otherwise: bool) -> bool:
        """A yes or no; `otherwise` where the key is missing or no flag."""
        value = self._value(key)
        return value if isinstance(value, bool) else otherwise

    def fail(self, reason: str) -> ModelLoadFailed:
        """The error for a number that cannot be true."""
        return ModelLoadFailed(
            f"The header of this model ({self.architecture[:40]!r}) is damaged: {reason}.",
            hint="Download the file again, or choose another one.",
            reason=reason,
        )

    def _value(self, key: str) -> MetaValue | None:
        return self._metadata.get(f"{self.architecture}.{key}")

    def _checked(self, key: str, value: object) -> int:
        if not isinstance(value, int) or not 0 <= value < _MAX_NUMBER:
            raise self.fail(f"{key} is {repr(value)[:40]}")
        return int(value)
