"""What a header means: architecture, size, kind of model, whether the file is whole."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from runtime.errors import FileTruncated, ModelLoadFailed
from runtime.gguf.attention import memory_of
from runtime.gguf.header import GgufHeader, TensorInfo, iterate_strings, read_header, read_numbers
from runtime.gguf.known import KNOWN_ARCHITECTURES
from runtime.gguf.quantization import name_of_file_type, quantization_in_name, tensor_bytes, type_name
from runtime.gguf.source import ByteSource, FileSource
from runtime.units import format_bytes

FileKind = Literal["chat", "embedding", "projector", "other"]

_ENCODERS = frozenset(
    {
        "bert",
        "nomic-bert",
        "nomic-bert-moe",
        "jina-bert-v2",
        "jina-bert-v3",
        "modern-bert",
        "neo-bert",
        "eurobert",
        "gemma-embedding",
        "t5encoder",
    }
)
"""Architectures of llama.cpp that have no text to generate, only vectors."""

_SIDE_FILES = ("imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
"""Marks in the names of files that go beside a model (`common/download.cpp` of llama.cpp)."""

_MAX_COUNT = 1 << 32
_MAX_BASE_MODELS = 16
_SITE = re.compile(r"^https?://[^/]*/")

_GEMMA3_MERGE = 4
_GEMMA4_ROWS = 280
"""What the model was mostly trained with; it takes 70 to 1,120 rows for a picture, and gets what there is room for."""

MAX_SPECIAL_TOKENS = 100_000
"""Vocabularies with room for more keep a few thousand of them."""
_TOKEN_CONTROL = 3
_TOKEN_USER_DEFINED = 4


@dataclass(frozen=True, slots=True)
class ProjectorFacts:
    """The part of a model that turns pictures or sound into what the text part reads (`clip.*`).

    Attributes:
        has_vision, has_audio: what it takes.
        projector_type: llama.cpp's name of it.
        width: length of the vectors it makes, equal to the text model's `n_embd`; 0 where the file does not say.
        image_px: side of the square picture it works with; 0 where any size will do or none.
        whole_rows: rows of a picture that the model must read in one micro-batch, as they see each other; 0 where it
            reads them like tokens (clip.cpp and `mtmd_decode_use_non_causal`).
        sound_stack: frames of sound joined into a row; 0 where it says none.
    """

    has_vision: bool
    has_audio: bool
    projector_type: str
    width: int
    image_px: int
    whole_rows: int = 0
    sound_stack: int = 0


@dataclass(frozen=True, slots=True)
class AttentionFacts:
    """How a model attends and remembers, for people who want to know.

    Attributes:
        n_head, n_head_kv: of each layer.
        k_width, v_width: numbers one token leaves in the cache of each layer.
        n_expert, n_expert_used: 0 in a dense model.
        n_swa: widest sliding window, 0 without; `n_layer_swa` layers have one.
        is_mla: keys are cached compressed, and no values.
        is_recurrent: no layer has a cache; `is_hybrid`: some have a recurrent state instead of one, or beside it.
        is_known: the rules for this architecture are written down; else all of it is taken for ordinary attention.
    """

    n_head: tuple[int, ...]
    n_head_kv: tuple[int, ...]
    k_width: tuple[int, ...]
    v_width: tuple[int, ...]
    n_expert: int
    n_expert_used: int
    n_swa: int
    n_layer_swa: int
    is_mla: bool
    is_recurrent: bool
    is_hybrid: bool
    is_known: bool


@dataclass(frozen=True, slots=True)
class GgufFacts:
    """A file in the words of a person's question about it.

    Attributes:
        kind: what it can be used for.
        quantization: from the file's name (which alone knows about dynamic mixtures), else its `file_type`, else the
            format of most tensors.
        n_params: elements of all tensors in this file.
        needed_bytes: the size the file must have for all its tensors to be in it.
        split_no, split_count: part of a set (from 0), `split_count` 1 for a whole file.
        weight_bytes: data of all tensors in this file, without padding and header.
        tensor_types: bytes of tensor data by number format.
        tokenizer: its family (`gpt2`, `llama`, `bert`), and `pretokenizer` how text is cut before.
        imatrix: what text the importance matrix was made of, as the file tells; "" without one.
        base_models: names of the models it was made from.
        attention: None for projectors, for further parts of a set, and where its numbers make no sense.
        projector: only of a projector.
        is_supported: the built-in llama.cpp knows the architecture.
    """

    file_name: str
    name: str
    kind: FileKind
    architecture: str
    quantization: str
    n_params: int
    size_bytes: int
    needed_bytes: int
    n_ctx_train: int | None
    n_layer: int | None
    n_embd: int | None
    n_vocab: int | None
    chat_template: str
    licence: str
    publisher: str
    split_no: int
    split_count: int
    is_big_endian: bool
    weight_bytes: int
    tensor_types: Mapping[str, int]
    tokenizer: str
    pretokenizer: str
    size_label: str
    imatrix: str
    tags: tuple[str, ...]
    languages: tuple[str, ...]
    base_models: tuple[str, ...]
    attention: AttentionFacts | None
    projector: ProjectorFacts | None
    is_supported: bool

    @property
    def bits_per_weight(self) -> float:
        """Exact bits of tensor data for each parameter, 0 without parameters."""
        return self.weight_bytes * 8 / self.n_params if self.n_params else 0.0

    def check_whole(self) -> None:
        """Check that every tensor is inside the file.

        Raises:
            FileTruncated: with `size_bytes` and `needed_bytes`.
        """
        if self.size_bytes < self.needed_bytes:
            raise FileTruncated(
                f"{self.file_name} is incomplete: {format_bytes(self.size_bytes)} are there, "
                f"{format_bytes(self.needed_bytes)} are needed.",
                hint="The download or copy was cut off. Download the file again.",
                size_bytes=self.size_bytes,
                needed_bytes=self.needed_bytes,
            )


@dataclass(frozen=True, slots=True)
class SpecialToken:
    """A token that the tokenizer finds whole in text. `is_control`: it never is a part of ordinary text."""

    token_id: int
    text: str
    is_control: bool


def read_facts(path: Path) -> GgufFacts:
    """Read the facts of a local file.

    Raises:
        NotGguf, FileTruncated, ModelLoadFailed: as `read_header`.
        OSError: if the file cannot be read.
    """
    with FileSource(path) as source:
        return facts_of(read_header(source), path.name)


def facts_of(header: GgufHeader, file_name: str) -> GgufFacts:
    """Draw the facts from a header."""
    architecture = header.text("general.architecture")
    kind = _kind(header, architecture, file_name)
    tensor_types: Counter[str] = Counter()
    for tensor in header.tensors:
        tensor_types[type_name(tensor.type_id)] += tensor_bytes(tensor.type_id, tensor.shape) or 0
    return GgufFacts(
        file_name=file_name,
        name=header.text("general.name"),
        kind=kind,
        architecture=architecture,
        quantization=(
            quantization_in_name(file_name)
            or name_of_file_type(header.integer("general.file_type"))
            or _largest_type(tensor_types)
        ),
        n_params=sum(tensor.n_elements for tensor in header.tensors),
        size_bytes=header.size_bytes,
        needed_bytes=_needed_bytes(header),
        n_ctx_train=_count(header, f"{architecture}.context_length"),
        n_layer=_count(header, f"{architecture}.block_count"),
        n_embd=_count(header, f"{architecture}.embedding_length"),
        n_vocab=header.array_length("tokenizer.ggml.tokens"),
        chat_template=header.text("tokenizer.chat_template"),
        licence=header.text("general.license"),
        publisher=header.text("general.organization") or header.text("general.author"),
        split_no=_count(header, "split.no") or 0,
        split_count=max(_count(header, "split.count") or 1, 1),
        is_big_endian=header.is_big_endian,
        weight_bytes=sum(tensor_types.values()),
        tensor_types=MappingProxyType(dict(tensor_types.most_common())),
        tokenizer=header.text("tokenizer.ggml.model"),
        pretokenizer=header.text("tokenizer.ggml.pre"),
        size_label=header.text("general.size_label"),
        imatrix=_imatrix(header),
        tags=_texts(header, "general.tags"),
        languages=_texts(header, "general.languages"),
        base_models=_base_models(header),
        attention=_attention(header, kind),
        projector=_projector(header) if kind == "projector" else None,
        is_supported=architecture in KNOWN_ARCHITECTURES,
    )


def _largest_type(tensor_types: Mapping[str, int]) -> str:
    """The number format most of the data has; a mixture cannot be told from it, but about how good it is can."""
    known = {name: n_bytes for name, n_bytes in tensor_types.items() if n_bytes}
    return max(known, key=known.__getitem__, default="")


def _count(header: GgufHeader, key: str) -> int | None:
    """A number that counts something; None where there is none, or one that cannot be true."""
    value = header.integer(key)
    return value if value is not None and 0 <= value < _MAX_COUNT else None


def _texts(header: GgufHeader, key: str) -> tuple[str, ...]:
    value = header.metadata.get(key)
    return tuple(element for element in value if isinstance(element, str)) if isinstance(value, tuple) else ()


def _imatrix(header: GgufHeader) -> str:
    if "quantize.imatrix.entries_count" not in header.metadata and "quantize.imatrix.file" not in header.metadata:
        return ""
    # A path of the machine it was made on: only the last part says something.
    dataset = re.split(r"[/\\]", header.text("quantize.imatrix.dataset"))[-1]
    return dataset or "unknown text"


def _base_models(header: GgufHeader) -> tuple[str, ...]:
    found: list[str] = []
    for index in range(min(_count(header, "general.base_model.count") or 0, _MAX_BASE_MODELS)):
        prefix = f"general.base_model.{index}"
        name = _SITE.sub("", header.text(f"{prefix}.repo_url")) or header.text(f"{prefix}.name")
        if name:
            found.append(name)
    return tuple(found)


def _attention(header: GgufHeader, kind: FileKind) -> AttentionFacts | None:
    if kind == "projector" or header.integer(f"{header.text('general.architecture')}.block_count") is None:
        return None
    try:
        memory = memory_of(header)
    except ModelLoadFailed:
        return None
    layers = memory.layers
    has_state, has_cache = (any(layer.state_bytes for layer in layers), any(layer.k_width for layer in layers))
    return AttentionFacts(
        n_head=tuple(layer.n_head for layer in layers),
        n_head_kv=tuple(layer.n_head_kv for layer in layers),
        k_width=tuple(layer.k_width for layer in layers),
        v_width=tuple(layer.v_width for layer in layers),
        n_expert=memory.n_expert,
        n_expert_used=memory.n_expert_used,
        n_swa=max(layer.n_swa for layer in layers),
        n_layer_swa=sum(1 for layer in layers if layer.n_swa),
        is_mla=has_cache and not any(layer.v_width for layer in layers),
        is_recurrent=has_state and not has_cache,
        is_hybrid=has_state and has_cache,
        is_known=memory.is_known,
    )


def _projector(header: GgufHeader) -> ProjectorFacts:
    has_audio = header.metadata.get("clip.has_audio_encoder") is True
    # Files from before sound tell neither, and are for pictures.
    has_vision = header.metadata.get("clip.has_vision_encoder", not has_audio) is True
    part = "vision" if has_vision else "audio"
    kind = header.text("clip.projector_type") or header.text(f"clip.{part}.projector_type")
    return ProjectorFacts(
        has_vision=has_vision,
        has_audio=has_audio,
        projector_type=kind,
        width=_count(header, f"clip.{part}.projection_dim") or 0,
        image_px=_count(header, "clip.vision.image_size") or 0,
        whole_rows=_whole_rows(header, kind) if has_vision else 0,
        sound_stack=_count(header, "clip.audio.projector.stack_factor") or 0,
    )


def _whole_rows(header: GgufHeader, kind: str) -> int:
    if kind in ("gemma4v", "gemma4uv"):
        return _GEMMA4_ROWS
    if kind != "gemma3":
        return 0
    side = _count(header, "clip.vision.image_size") or 0
    patch = _count(header, "clip.vision.patch_size") or 1
    merged = _count(header, "clip.vision.projector.scale_factor") or _GEMMA3_MERGE
    return (side // patch) ** 2 // merged**2


def _kind(header: GgufHeader, architecture: str, file_name: str) -> FileKind:
    file_type = header.text("general.type")
    lowered = file_name.lower()
    if architecture == "clip" or file_type == "mmproj" or "mmproj" in lowered:
        return "projector"
    if file_type not in ("", "model") or any(mark in lowered for mark in _SIDE_FILES):
        return "other"
    if architecture in _ENCODERS or header.integer(f"{architecture}.pooling_type"):
        return "embedding"
    return "chat"


def _needed_bytes(header: GgufHeader) -> int:
    return max((header.data_offset + _end(tensor) for tensor in header.tensors), default=header.data_offset)


def _end(tensor: TensorInfo) -> int:
    return tensor.offset + (tensor_bytes(tensor.type_id, tensor.shape) or 0)


def read_special_tokens(source: ByteSource, header: GgufHeader) -> tuple[SpecialToken, ...]:
    """Tokens marked as control or user-defined in the header's vocabulary.

    Raises:
        ModelLoadFailed: more are marked than any vocabulary has.
        FileTruncated, OSError: as `read_header`.
    """
    types = read_numbers(source, header, "tokenizer.ggml.token_type")
    wanted = {token_id for token_id, kind in enumerate(types) if kind in (_TOKEN_CONTROL, _TOKEN_USER_DEFINED)}
    if len(wanted) > MAX_SPECIAL_TOKENS:
        raise ModelLoadFailed(
            f"{source.name} is damaged: it claims {len(wanted)} special tokens.",
            hint="Download the file again, or choose another one.",
            reason="too many special tokens",
        )
    if not wanted:
        return ()
    return tuple(
        SpecialToken(token_id, text.decode("utf-8", "replace"), types[token_id] == _TOKEN_CONTROL)
        for token_id, text in enumerate(iterate_strings(source, header, "tokenizer.ggml.tokens"))
        if token_id in wanted
    )


_SPLIT = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SplitName:
    """`stem-00002-of-00005.gguf`: part `number` (from 1) of `count`."""

    stem: str
    number: int
    count: int


def split_name(file_name: str) -> SplitName | None:
    """Understand the name of one part of a split model; `None` for any other name."""
    match = _SPLIT.match(file_name.removesuffix(".gguf"))
    if match is None:
        return None
    number, count = int(match["number"]), int(match["count"])
    return SplitName(match["stem"], number, count) if 1 <= number <= count else None
