"""The shape of a model: what its layers weigh and what each of them remembers of a conversation.

Everything that plans memory or predicts speed starts here. Weights are summed from the tensors of the header, so they
are exact for every kind of model; widths of the KV cache and recurrent states follow the rules of `attention`.

Not in here: how many cells a cache has, where a layer is placed, compute buffers (`runtime.fit`).
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from runtime.errors import ModelLoadFailed
from runtime.gguf.attention import LayerMemory, Memory, memory_of
from runtime.gguf.header import GgufHeader, TensorInfo
from runtime.gguf.quantization import tensor_bytes, type_name
from runtime.messages.load import AdapterLoad

KvSource = Literal["exact", "estimated"]
"""`exact`: the rules for this architecture were written down and checked against llama.cpp; `estimated`: the
architecture is not in our tables, so every layer is taken to have ordinary attention."""

BUFFER_ALIGNMENT = 32
"""Tensors start at multiples of it in llama.cpp's host buffers; some GPUs use 128, which changes nothing that shows."""


EMBEDDING = "token_embd.weight"


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
        n_layer: repeating layers, those that are not loaded included, as llama.cpp counts them when it places
            layers; equal to `len(layers)`.
        n_ff: width of the widest feed-forward part of a layer (one expert's for a mixture of experts).
        n_head: most query heads of a layer.
        n_expert: routed experts of a layer; 0 in a dense model.
        n_expert_used: of them, what one token goes through.
        input_bytes: token embeddings and what else is looked up at the input; always in system memory.
        output_bytes: the output layer; with tied embeddings the copy that it takes (`is_tied`).
        is_tied: the output layer uses the token embeddings, so they count twice where the output layer lives on a
            GPU, and once where it stays in system memory.
        embd_row_bytes: one token's row of every table looked up at the input.
        has_memory: False for encoders, which see their whole text at once and keep nothing of it for the next batch
            (some are given a cache all the same: see the layers).
        is_recurrent: no layer has attention.
        is_hybrid: some layers have attention, some a recurrent state.
        n_swa: widest sliding window of a layer; 0 without one.
        n_params: elements of all tensors.
        n_params_active: those one token goes through; lookup tables count one row.
        size_bytes: data of all tensors as in the file, without padding and header.
        largest_tensor_bytes: the largest single tensor.
        tensor_types: bytes of what is loaded, by number format.
        alignment: of tensor data in the file.
        kv_source: whether widths and states come from rules for this architecture.
        output_types: bytes of the output layer by number format, as `output_bytes`.
        skipped_bytes: tensors in the file that are not loaded (layers that predict further tokens).
        adapters: LoRA adapters counted in the layers (`runtime.gguf.adapter.with_adapters`).
        rope_factor: how many times the file itself stretches its positions (`rope.scaling.factor`).
        pooling_type: llama.cpp's (`enum llama_pooling_type`); 0 where the file does not say.
        has_classifier: a head that makes a score of a text (`cls.*`), as rerank models have.
        heads: the last of `layers` as they are when they are loaded to predict further tokens
            (`runtime.gguf.heads`); empty where the file has none.
        promises_heads: whether its metadata count such layers, in the file or not.
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
    skipped_bytes: int = 0
    is_file: bool = True
    rope_factor: float = 1.0
    adapters: tuple[AdapterLoad, ...] = ()
    pooling_type: int = 0
    has_classifier: bool = False
    heads: tuple[LayerShape, ...] = ()
    promises_heads: bool = False

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
    parts = _Parts(architecture, tensors, len(memory.layers), memory.n_trunk)
    layers = tuple(parts.layer(index, memory.layers[index]) for index in range(len(memory.layers)))
    embedding = next((tensor for tensor in parts.input if tensor.name == EMBEDDING), None)
    has_output = architecture in _NO_OUTPUT or any(tensor.name == "output.weight" for tensor in parts.output)
    is_tied = embedding is not None and not has_output
    output_bytes, output_types = bytes_of(parts.output), _types_of(parts.output)
    if is_tied and embedding is not None:
        output_bytes += _size(embedding)
        output_types[type_name(embedding.type_id)] += _size(embedding)
    has_state, has_cache = (any(layer.state_bytes for layer in layers), any(layer.k_width for layer in layers))
    loaded = [*parts.input, *parts.output, *(tensor for found in parts.repeating for tensor in found)]
    return ModelShape(
        architecture=architecture,
        n_layer=len(layers),
        layers=layers,
        n_embd=memory.n_embd,
        n_ff=memory.n_ff,
        n_vocab=_n_vocab(first, embedding),
        n_ctx_train=memory.n_ctx_train,
        n_head=max(layer.n_head for layer in layers),
        n_expert=memory.n_expert,
        n_expert_used=memory.n_expert_used,
        input_bytes=bytes_of(parts.input),
        output_bytes=output_bytes,
        is_tied=is_tied,
        embd_row_bytes=sum(_row_bytes(tensor) for tensor in parts.input),
        has_memory=memory.is_causal,
        is_recurrent=has_state and not has_cache,
        is_hybrid=has_state and has_cache,
        n_swa=max(layer.n_swa for layer in layers),
        n_params=sum(tensor.n_elements for tensor in tensors),
        n_params_active=parts.n_active(memory, is_tied=is_tied),
        size_bytes=sum(tensor_bytes(tensor.type_id, tensor.shape) or 0 for tensor in tensors),
        largest_tensor_bytes=max((_size(tensor) for tensor in loaded), default=0),
        tensor_types=MappingProxyType(dict(_types_of(loaded))),
        alignment=first.alignment,
        kv_source="exact" if memory.is_known else "estimated",
        output_types=MappingProxyType(dict(output_types)),
        skipped_bytes=bytes_of(parts.skipped),
        rope_factor=_rope_factor(first, architecture),
        pooling_type=first.integer(f"{architecture}.pooling_type") or 0,
        has_classifier=any(_makes_scores(tensor) for tensor in parts.output),
        heads=tuple(parts.heads(memory)),
        promises_heads=memory.n_trunk < len(memory.layers),
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

    def layers(found: Sequence[LayerShape]) -> tuple[LayerShape, ...]:
        return tuple(
            replace(
                layer,
                weight_bytes=scaled(layer.weight_bytes),
                expert_bytes=scaled(layer.expert_bytes),
                tensor_types=types(layer.tensor_types),
                expert_types=types(layer.expert_types),
            )
            for layer in found
        )

    return replace(
        shape,
        layers=layers(shape.layers),
        heads=layers(shape.heads),
        input_bytes=scaled(shape.input_bytes),
        output_bytes=scaled(shape.output_bytes),
        embd_row_bytes=scaled(shape.embd_row_bytes),
        size_bytes=size_bytes,
        skipped_bytes=scaled(shape.skipped_bytes),
        largest_tensor_bytes=scaled(shape.largest_tensor_bytes),
        tensor_types=types(shape.tensor_types),
        output_types=types(shape.output_types),
        is_file=False,
    )


# --- tensors ----------------------------------------------------------------------------------------------

_INPUT = ("token_embd.", "token_types.", "position_embd.", "per_layer_token_embd.")
"""Beginnings of the names of tensors that are looked up at the input (`LLM_TENSOR_INFOS` in `llama-arch.cpp`)."""
_FIRST_LAYER = (
    "token_embd_norm.",
    "rope_freqs.",
    "rope_factors_",
    "per_layer_model_proj.",
    "per_layer_proj_norm.",
    "hrm.z_l_init",
    "conv1d.",
    "nextn.pre_projection",
)
"""Tensors without a number in their name that llama.cpp places with the first layer."""
_UNUSED = ("masked_embd_", ".cross_attn_rel_b.")
_IN_LAYER = re.compile(r"(?:(?:enc\.|dec\.)?blk|convnext|posnet)\.(\d{1,5})\.")
_EXPERT_MARKS = ("_exps.", "_chexps.")
_NO_OUTPUT = frozenset(
    {
        "bert",
        "modern-bert",
        "nomic-bert",
        "nomic-bert-moe",
        "neo-bert",
        "jina-bert-v2",
        "jina-bert-v3",
        "eurobert",
        "wavtokenizer-dec",
        "t5encoder",
    }
)
"""Architectures that turn their last layer into vectors, not into the probabilities of tokens."""


class _Parts:
    """The tensors of a model by the layer they belong to. Those that llama.cpp does not load are left out."""

    def __init__(self, architecture: str, tensors: Iterable[TensorInfo], n_layer: int, n_trunk: int) -> None:
        self.input: list[TensorInfo] = []
        self.output: list[TensorInfo] = []
        self.repeating: list[list[TensorInfo]] = [[] for _ in range(n_layer)]
        self.skipped: list[TensorInfo] = []
        self._predicting: defaultdict[int, list[TensorInfo]] = defaultdict(list)
        # LFM2 calls its output norm so (a name that its converter got wrong, kept for old files).
        first = () if architecture.startswith("lfm2") else _FIRST_LAYER
        for tensor in tensors:
            match = _IN_LAYER.match(tensor.name)
            if any(mark in tensor.name for mark in _UNUSED):
                self.skipped.append(tensor)
            elif match is not None:
                index = int(match[1])
                (self.repeating[index] if index < n_trunk else self.skipped).append(tensor)
                if index >= n_trunk:
                    self._predicting[index].append(tensor)
            elif tensor.name.startswith(_INPUT):
                self.input.append(tensor)
            elif tensor.name.startswith(first) and n_layer:
                self.repeating[0].append(tensor)
            else:
                self.output.append(tensor)

    def layer(self, index: int, kept: LayerMemory) -> LayerShape:
        """The shape of one layer."""
        return self._shape(index, self.repeating[index], kept)

    def heads(self, memory: Memory) -> Iterable[LayerShape]:
        """The layers that predict further tokens, as they are when they are loaded; none where they are left out."""
        first = self._predicting[memory.n_trunk]
        if any(tensor.name.endswith(".nextn.eh_proj.weight") for tensor in first):
            for index, kept in enumerate(memory.heads, memory.n_trunk):
                yield self._shape(index, self._predicting[index], kept)

    def _shape(self, index: int, found: Sequence[TensorInfo], kept: LayerMemory) -> LayerShape:
        experts = [tensor for tensor in found if _is_expert(tensor)]
        return LayerShape(
            index=index,
            weight_bytes=bytes_of(found),
            expert_bytes=bytes_of(experts),
            n_head=kept.n_head,
            n_head_kv=kept.n_head_kv,
            k_width=kept.k_width,
            v_width=kept.v_width,
            n_swa=kept.n_swa,
            state_bytes=kept.state_bytes,
            n_expert_used=kept.n_expert_used if experts else 0,
            tensor_types=MappingProxyType(dict(_types_of(found))),
            expert_types=MappingProxyType(dict(_types_of(experts))),
        )

    def n_active(self, memory: Memory, *, is_tied: bool) -> int:
        """Elements that one token goes through."""
        total = sum(tensor.n_elements for tensor in self.output)
        for tensor in self.input:
            is_output = is_tied and tensor.name == EMBEDDING
            total += tensor.n_elements if is_output else tensor.shape[0] if tensor.shape else 1
        for index, found in enumerate(self.repeating):
            used = memory.layers[index].n_expert_used
            for tensor in found:
                n_expert = tensor.shape[-1] if _is_expert(tensor) else 0
                total += tensor.n_elements * min(used, n_expert) // n_expert if n_expert and used else tensor.n_elements
        return total


def bytes_of(tensors: Iterable[TensorInfo]) -> int:
    """What tensors take in a buffer, each padded."""
    return sum(_size(tensor) for tensor in tensors)


def _types_of(tensors: Iterable[TensorInfo]) -> Counter[str]:
    found: Counter[str] = Counter()
    for tensor in tensors:
        found[type_name(tensor.type_id)] += _size(tensor)
    return found


def _rope_factor(header: GgufHeader, architecture: str) -> float:
    for key in ("rope.scaling.factor", "rope.scale_linear"):
        factor = header.number(f"{architecture}.{key}")
        if factor and math.isfinite(factor) and factor > 0:
            return factor
    return 1.0


def _makes_scores(tensor: TensorInfo) -> bool:
    # Of two layers the first is square; a single one has a row for the one score.
    return tensor.name == "cls.output.weight" or (tensor.name == "cls.weight" and tensor.shape[1:] in ((), (1,)))


def _is_expert(tensor: TensorInfo) -> bool:
    # Three dimensions: one matrix for each expert. Their biases stay with the layer.
    return len(tensor.shape) > 2 and any(mark in tensor.name for mark in _EXPERT_MARKS)  # noqa: PLR2004


def _size(tensor: TensorInfo) -> int:
    n_bytes = tensor_bytes(tensor.type_id, tensor.shape) or 0
    return -(-n_bytes // BUFFER_ALIGNMENT) * BUFFER_ALIGNMENT


def _row_bytes(tensor: TensorInfo) -> int:
    return (tensor_bytes(tensor.type_id, tensor.shape[:1]) or 0) if tensor.shape else 0


def _n_vocab(header: GgufHeader, embedding: TensorInfo | None) -> int:
    found = header.array_length("tokenizer.ggml.tokens")
    if found is None:
        found = header.integer(f"{header.text('general.architecture')}.vocab_size")
    if found is None and embedding is not None and len(embedding.shape) > 1:
        found = embedding.shape[1]
    return max(found or 0, 0)
