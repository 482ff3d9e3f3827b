"""The shape of a model: what its layers weigh and what each of them remembers of a conversation.

Everything that plans memory or predicts speed starts here. Weights are summed from the tensors of the header, so they
are exact for every kind of model; widths of the KV cache and recurrent states follow the rules of `attention`.

Not in here: how many cells a cache has, where a layer is placed, compute buffers (`runtime.fit`).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from runtime.errors import ModelLoadFailed
from runtime.gguf.attention import Memory, memory_of
from runtime.gguf.header import GgufHeader, TensorInfo
from runtime.gguf.quantization import TENSOR_TYPES, tensor_bytes

KvSource = Literal["exact", "estimated"]
"""`exact`: the rules for this architecture were written down and checked against llama.cpp; `estimated`: the
architecture is not in our tables, so every layer is taken to have ordinary attention."""

BUFFER_ALIGNMENT = 32
"""Tensors start at multiples of it in llama.cpp's host buffers; some GPUs use 128, which changes nothing that shows."""


@dataclass(frozen=True, slots=True)
class LayerShape:
    """One repeating layer.

    Attributes:
        index: from 0.
        weight_bytes: all its tensors, routed experts included.
        expert_bytes: its routed experts alone, all of them; 0 in a dense layer.
        n_head: query heads; 0 without attention.
        n_head_kv: heads of keys and values.
        k_width: numbers the K cache keeps for one token; 0 without a cache of its own.
        v_width: the same for the V cache; 0 also where only K is kept (MLA).
        n_swa: tokens the layer looks back; 0 looks at all.
        state_bytes: recurrent state of one sequence, always f32; 0 in attention layers.
        n_expert_used: routed experts that one token goes through.
        tensor_types: bytes by number format.
        expert_types: the part of `tensor_types` that are routed experts.
    """

    index: int
    weight_bytes: int
    expert_bytes: int
    n_head: int
    n_head_kv: int
    k_width: int
    v_width: int
    n_swa: int
    state_bytes: int
    tensor_types: Mapping[str, int]
    n_expert_used: int = 0
    expert_types: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model as a plan sees it.

    Attributes:
        architecture: `general.architecture`.
        n_layer: repeating layers; equal to `len(layers)`.
        n_ff: width of the widest feed-forward part of a layer (one expert's for a mixture of experts).
        n_head: most query heads of a layer.
        n_expert: routed experts of a layer; 0 in a dense model.
        n_expert_used: of them, what one token goes through.
        input_bytes: token embeddings and what else is looked up at the input; always in system memory.
        output_bytes: the output layer; with tied embeddings the copy that it takes (`is_tied`).
        is_tied: the output layer uses the token embeddings, so they count twice where the output layer lives on a
            GPU, and once where it stays in system memory.
        embd_row_bytes: one token's row of every table looked up at the input.
        has_memory: False for encoders, which keep nothing between batches.
        is_recurrent: no layer has attention.
        is_hybrid: some layers have attention, some a recurrent state.
        n_swa: widest sliding window of a layer; 0 without one.
        n_params: elements of all tensors.
        n_params_active: those one token goes through; lookup tables count one row.
        size_bytes: data of all tensors as in the file, without padding and header.
        largest_tensor_bytes: the largest single tensor.
        tensor_types: bytes by number format.
        alignment: of tensor data in the file.
        kv_source: whether widths and states come from rules for this architecture.
        is_file: False where the sizes were scaled from another quantization (`scaled_to`).
    """

    architecture: str
    n_layer: int
    layers: tuple[LayerShape, ...]
    n_embd: int
    n_ff: int
    n_vocab: int
    n_ctx_train: int
    n_head: int
    n_expert: int
    n_expert_used: int
    input_bytes: int
    output_bytes: int
    is_tied: bool
    embd_row_bytes: int
    has_memory: bool
    is_recurrent: bool
    is_hybrid: bool
    n_swa: int
    n_params: int
    n_params_active: int
    size_bytes: int
    largest_tensor_bytes: int
    tensor_types: Mapping[str, int]
    alignment: int
    kv_source: KvSource
    output_types: Mapping[str, int] = field(default_factory=dict)
    is_file: bool = True

    @property
    def is_moe(self) -> bool:
        """Whether tokens are routed to experts."""
        return self.n_expert > 0

    @property
    def layers_bytes(self) -> int:
        """All repeating layers together."""
        return sum(layer.weight_bytes for layer in self.layers)

    @property
    def has_state(self) -> bool:
        """Whether some layer has a recurrent state: then a conversation can only be continued, never cut."""
        return any(layer.state_bytes for layer in self.layers)


def shape_of(headers: Sequence[GgufHeader]) -> ModelShape:
    """The shape of a model from its header, or from the headers of all parts in order.

    Raises:
        ModelLoadFailed: it has no architecture, no layers, or numbers that cannot be true.
    """
    if not headers:
        raise ModelLoadFailed("A model needs at least one file.", reason="no header")
    first = headers[0]
    architecture = first.text("general.architecture")
    if not architecture:
        raise ModelLoadFailed(
            "The file does not say what kind of model it is (general.architecture).",
            hint="It may be a part of another model, or damaged.",
            reason="no general.architecture",
        )
    memory = memory_of(first)
    tensors = [tensor for header in headers for tensor in header.tensors]
    parts = _Parts(tensors, len(memory.layers))
    layers = tuple(parts.layer(index, memory) for index in range(len(memory.layers)))
    output_bytes = parts.bytes_of(parts.output)
    embedding = next((tensor for tensor in parts.input if tensor.name == "token_embd.weight"), None)
    is_tied = embedding is not None and not any(tensor.name == "output.weight" for tensor in parts.output)
    output_types = parts.types_of(parts.output)
    if is_tied and embedding is not None:
        output_bytes += _size(embedding)
        output_types[_type_name(embedding)] += _size(embedding)
    states = [layer for layer in layers if layer.state_bytes]
    caches = [layer for layer in layers if layer.k_width]
    n_expert = memory.n_expert
    return ModelShape(
        architecture=architecture,
        n_layer=len(layers),
        layers=layers,
        n_embd=memory.n_embd,
        n_ff=memory.n_ff,
        n_vocab=_n_vocab(first, embedding),
        n_ctx_train=memory.n_ctx_train,
        n_head=max((layer.n_head for layer in layers), default=0),
        n_expert=n_expert,
        n_expert_used=memory.n_expert_used,
        input_bytes=parts.bytes_of(parts.input),
        output_bytes=output_bytes,
        is_tied=is_tied,
        embd_row_bytes=sum(_row_bytes(tensor) for tensor in parts.input),
        has_memory=memory.has_memory,
        is_recurrent=bool(states) and not caches,
        is_hybrid=bool(states) and bool(caches),
        n_swa=max((layer.n_swa for layer in layers), default=0),
        n_params=sum(tensor.n_elements for tensor in tensors),
        n_params_active=parts.n_active(memory, embedding if is_tied else None),
        size_bytes=sum(tensor_bytes(tensor.type_id, tensor.shape) or 0 for tensor in tensors),
        largest_tensor_bytes=max((_size(tensor) for tensor in tensors), default=0),
        tensor_types=MappingProxyType(dict(parts.types_of(tensors))),
        alignment=first.alignment,
        kv_source="exact" if memory.is_known else "estimated",
        output_types=MappingProxyType(dict(output_types)),
    )


def scaled_to(shape: ModelShape, size_bytes: int) -> ModelShape:
    """The same model in another quantization of which only the file's size is known.

    All weights grow by one factor: an estimate, since mixtures spread their bits unevenly. What is remembered of a
    conversation stays as it is.

    Args:
        shape: of a file of the same model.
        size_bytes: tensor data of the other file; the size of the file itself is close enough.

    Raises:
        ValueError: if `size_bytes` is not positive or the shape has no weights.
    """
    if size_bytes <= 0 or shape.size_bytes <= 0:
        raise ValueError("a size must be positive")

    def scaled(n_bytes: int) -> int:
        return n_bytes * size_bytes // shape.size_bytes

    def types(found: Mapping[str, int]) -> Mapping[str, int]:
        return MappingProxyType({name: scaled(n_bytes) for name, n_bytes in found.items()})

    layers = tuple(
        replace(
            layer,
            weight_bytes=scaled(layer.weight_bytes),
            expert_bytes=scaled(layer.expert_bytes),
            tensor_types=types(layer.tensor_types),
            expert_types=types(layer.expert_types),
        )
        for layer in shape.layers
    )
    return replace(
        shape,
        layers=layers,
        input_bytes=scaled(shape.input_bytes),
        output_bytes=scaled(shape.output_bytes),
        embd_row_bytes=scaled(shape.embd_row_bytes),
        size_bytes=size_bytes,
        largest_tensor_bytes=scaled(shape.largest_tensor_bytes),
        tensor_types=types(shape.tensor_types),
        output_types=types(shape.output_types),
        is_file=False,
    )


# --- tensors ----------------------------------------------------------------------------------------------

_INPUT = ("token_embd.", "token_types.", "position_embd.", "per_layer_token_embd.", "mtp_centroids", "masked_embd")
"""Beginnings of the names of tensors that are looked up at the input (`LLM_TENSOR_LAYER_INPUT`, `llama-arch.cpp`)."""
_LAYER_PREFIXES = ("blk.", "enc.blk.", "dec.blk.")
_EXPERT_MARKS = ("_exps.", "_chexps.")


class _Parts:
    """The tensors of a model by the layer they belong to."""

    def __init__(self, tensors: Iterable[TensorInfo], n_layer: int) -> None:
        self.input: list[TensorInfo] = []
        self.output: list[TensorInfo] = []
        self.repeating: list[list[TensorInfo]] = [[] for _ in range(n_layer)]
        self.beyond: list[TensorInfo] = []
        for tensor in tensors:
            index = _layer_index(tensor.name)
            if index is None:
                (self.input if tensor.name.startswith(_INPUT) else self.output).append(tensor)
            elif index < n_layer:
                self.repeating[index].append(tensor)
            else:
                self.beyond.append(tensor)  # prediction heads that are not loaded

    def layer(self, index: int, memory: Memory) -> LayerShape:
        found = self.repeating[index]
        experts = [tensor for tensor in found if _is_expert(tensor)]
        kept = memory.layers[index]
        return LayerShape(
            index=index,
            weight_bytes=self.bytes_of(found),
            expert_bytes=self.bytes_of(experts),
            n_head=kept.n_head,
            n_head_kv=kept.n_head_kv,
            k_width=kept.k_width,
            v_width=kept.v_width,
            n_swa=kept.n_swa,
            state_bytes=kept.state_bytes,
            n_expert_used=kept.n_expert_used if experts else 0,
            tensor_types=MappingProxyType(dict(self.types_of(found))),
            expert_types=MappingProxyType(dict(self.types_of(experts))),
        )

    def n_active(self, memory: Memory, tied: TensorInfo | None) -> int:
        """Elements that one token goes through."""
        total = sum(tensor.shape[0] for tensor in self.input if tensor.shape)
        total += sum(tensor.n_elements for tensor in self.output) + (tied.n_elements if tied else 0)
        for index, found in enumerate(self.repeating):
            used = memory.layers[index].n_expert_used
            for tensor in found:
                n_expert = tensor.shape[-1] if _is_expert(tensor) else 0
                share = min(used / n_expert, 1.0) if n_expert and used else 1.0
                total += int(tensor.n_elements * share)
        return total

    @staticmethod
    def bytes_of(tensors: Iterable[TensorInfo]) -> int:
        return sum(_size(tensor) for tensor in tensors)

    @staticmethod
    def types_of(tensors: Iterable[TensorInfo]) -> Counter[str]:
        found: Counter[str] = Counter()
        for tensor in tensors:
            found[_type_name(tensor)] += _size(tensor)
        return found


def _layer_index(name: str) -> int | None:
    for prefix in _LAYER_PREFIXES:
        if name.startswith(prefix):
            number = name[len(prefix) :].split(".", 1)[0]
            return int(number) if number.isascii() and number.isdecimal() and len(number) < 6 else None  # noqa: PLR2004
    return None


def _is_expert(tensor: TensorInfo) -> bool:
    return len(tensor.shape) > 2 and any(mark in tensor.name for mark in _EXPERT_MARKS)  # noqa: PLR2004 - one matrix an expert


def _size(tensor: TensorInfo) -> int:
    n_bytes = tensor_bytes(tensor.type_id, tensor.shape) or 0
    return -(-n_bytes // BUFFER_ALIGNMENT) * BUFFER_ALIGNMENT


def _row_bytes(tensor: TensorInfo) -> int:
    return (tensor_bytes(tensor.type_id, tensor.shape[:1]) or 0) if tensor.shape else 0


def _type_name(tensor: TensorInfo) -> str:
    kind = TENSOR_TYPES.get(tensor.type_id)
    return kind.name if kind else f"type {tensor.type_id}"


def _n_vocab(header: GgufHeader, embedding: TensorInfo | None) -> int:
    found = header.array_length("tokenizer.ggml.tokens")
    if found is None:
        found = header.integer(f"{header.text('general.architecture')}.vocab_size")
    if found is None and embedding is not None and len(embedding.shape) > 1:
        found = embedding.shape[1]
    return found or 0
