"""What the library keeps of a file's header: small, and readable again from the catalogue without the file."""

import functools
import zlib
from importlib import metadata

import msgspec

from runtime.errors import Failure, RuntimeFault, StorageFault, to_failure
from runtime.gguf.facts import FileKind, facts_of
from runtime.gguf.header import GgufHeader, read_header
from runtime.gguf.source import FileSource
from runtime.library.disk import DiskFile, extended

READER = 1
"""Raised whenever `FileFacts` or what fills it changes between two versions of the program."""
MAX_WIDTHS = 32

_PROJECTOR_TENSORS = ("mm.", "resampler.", "adapter.", "v.deepstack", "a.mm.")
"""Beginnings of the names of tensors that lead from picture or sound to the text model (`tools/mtmd/clip-impl.h`)."""


class FileFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """One file. `needed_bytes` is the size it must have.

    Attributes:
        widths: lengths that tensors of a projector's last part have; the text model's `n_embd` is among them.
        has_vision, has_audio: of a projector.
        is_fused: pictures and text in one file, as Ollama's own engine has them; llama.cpp wants them apart.
    """

    name: str
    kind: FileKind
    architecture: str
    quantization: str
    n_params: int
    needed_bytes: int
    n_ctx_train: int | None = None
    n_layer: int | None = None
    n_embd: int | None = None
    licence: str = ""
    publisher: str = ""
    is_big_endian: bool = False
    widths: tuple[int, ...] = ()
    has_vision: bool = False
    has_audio: bool = False
    is_fused: bool = False


class Reading(msgspec.Struct, frozen=True, omit_defaults=True):
    """What reading a file's header came to: facts, or why there are none, or both (a file that was cut off)."""

    facts: FileFacts | None = None
    failure: Failure | None = None


def read_file(file: DiskFile) -> Reading:
    """Read a file's header. Never raises for what is wrong with the file: that is in the reading."""
    facts: FileFacts | None = None
    try:
        with FileSource(type(file.path)(extended(str(file.path)))) as source:
            header = read_header(source)
        found = facts_of(header, file.path.name)
        facts = FileFacts(
            name=_text(found.name),
            kind=found.kind,
            architecture=_text(found.architecture),
            quantization=found.quantization,
            n_params=found.n_params,
            needed_bytes=found.needed_bytes,
            n_ctx_train=found.n_ctx_train,
            n_layer=found.n_layer,
            n_embd=found.n_embd,
            licence=_text(found.licence),
            publisher=_text(found.publisher),
            is_big_endian=found.is_big_endian,
            widths=_widths(header) if found.kind == "projector" else (),
            has_vision=found.kind == "projector" and _sees(header),
            has_audio=found.kind == "projector" and header.metadata.get("clip.has_audio_encoder") is True,
            is_fused=found.kind == "chat" and header.integer(f"{found.architecture}.vision.block_count") is not None,
        )
        found.check_whole()
    except RuntimeFault as fault:
        return Reading(facts, to_failure(fault))
    except OSError as error:
        unread = StorageFault(f"The file cannot be read: {error.strerror or error}.")
        return Reading(facts, to_failure(unread))
    return Reading(facts)


@functools.cache
def reader_number() -> int:
    """Tells apart what read a header: another version of the program reads all headers again."""
    try:
        version = metadata.version("deskside")
    except metadata.PackageNotFoundError:
        version = ""
    return zlib.crc32(f"{READER} {version}".encode())


def is_lasting(reading: Reading) -> bool:
    """Whether a reading may be kept: a file that could not be opened is tried again."""
    return reading.failure is None or reading.failure.kind != StorageFault.__name__


def _sees(header: GgufHeader) -> bool:
    if header.metadata.get("clip.has_vision_encoder") is not None:
        return header.metadata.get("clip.has_vision_encoder") is True
    return header.metadata.get("clip.has_audio_encoder") is not True  # older files tell nothing, and are for pictures


def _widths(header: GgufHeader) -> tuple[int, ...]:
    found = {
        length
        for tensor in header.tensors
        if tensor.name.startswith(_PROJECTOR_TENSORS)
        for length in tensor.shape
        if length > 1
    }
    return tuple(sorted(found, reverse=True)[:MAX_WIDTHS])


def _text(raw: str) -> str:
    return raw[:512]
