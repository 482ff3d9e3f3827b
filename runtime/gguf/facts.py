"""What a header means: architecture, size, kind of model, whether the file is whole."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runtime.errors import FileTruncated
from runtime.gguf.header import GgufHeader, TensorInfo, iterate_strings, read_header, read_numbers
from runtime.gguf.quantization import name_of_file_type, quantization_in_name, tensor_bytes
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

_TOKEN_CONTROL = 3
_TOKEN_USER_DEFINED = 4


@dataclass(frozen=True, slots=True)
class GgufFacts:
    """A file in the words of a person's question about it.

    Attributes:
        kind: what it can be used for.
        quantization: from the file's name (which alone knows about dynamic mixtures), else its `file_type`.
        n_params: elements of all tensors in this file.
        needed_bytes: the size the file must have for all its tensors to be in it.
        split_no, split_count: part of a set (from 0), `split_count` 1 for a whole file.
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

    @property
    def bits_per_weight(self) -> float:
        """Bits of the file for each parameter, 0 without parameters."""
        return self.size_bytes * 8 / self.n_params if self.n_params else 0.0

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
    return GgufFacts(
        file_name=file_name,
        name=header.text("general.name"),
        kind=_kind(header, architecture, file_name),
        architecture=architecture,
        quantization=quantization_in_name(file_name) or name_of_file_type(header.integer("general.file_type")),
        n_params=sum(tensor.n_elements for tensor in header.tensors),
        size_bytes=header.size_bytes,
        needed_bytes=_needed_bytes(header),
        n_ctx_train=header.integer(f"{architecture}.context_length"),
        n_layer=header.integer(f"{architecture}.block_count"),
        n_embd=header.integer(f"{architecture}.embedding_length"),
        n_vocab=header.array_length("tokenizer.ggml.tokens"),
        chat_template=header.text("tokenizer.chat_template"),
        licence=header.text("general.license"),
        publisher=header.text("general.organization") or header.text("general.author"),
        split_no=header.integer("split.no") or 0,
        split_count=max(header.integer("split.count") or 1, 1),
        is_big_endian=header.is_big_endian,
    )


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
        FileTruncated, OSError: as `read_header`.
    """
    types = read_numbers(source, header, "tokenizer.ggml.token_type")
    wanted = {token_id for token_id, kind in enumerate(types) if kind in (_TOKEN_CONTROL, _TOKEN_USER_DEFINED)}
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
