"""A repository's file list as quantizations: split files are one, projectors stand apart, side files are left out.

Rules of names: `common/download.cpp` of llama.cpp (what is no model; which projector goes with which model) and the
hub's own list of quantization names (huggingface.js, `packages/tasks/src/gguf.ts`).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import msgspec

from runtime.gguf.facts import split_name
from runtime.gguf.quality import quality_of
from runtime.gguf.quantization import quantization_in_name
from runtime.library.hub.answers import TreeRecord
from runtime.library.hub.names import is_safe_path
from runtime.messages.library import HubFile

MIN_BITS, MAX_BITS = 0.9, 34.0
"""Outside of these a count of parameters belongs to another file: F32 with its header is a little over 32."""

_SIDE_FILES = ("imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
_PROJECTORS = ("F16", "BF16", "Q8_0", "F32")
"""Best first: F16 is what llama.cpp's converter writes and every back end reads."""
_SHA256 = re.compile(r"^[0-9a-f]{64}$")


@dataclass(frozen=True, slots=True)
class FileList:
    """Models, largest first, and projectors."""

    models: tuple[HubFile, ...]
    projectors: tuple[HubFile, ...]


def files_of(records: Iterable[TreeRecord], n_params: int | None) -> FileList:
    """Group a file list.

    A set with a missing part is left out (it could not be loaded), and so is a name that cannot be a file here.
    """
    found: list[HubFile] = []
    for name, parts in _grouped(records):
        sizes = tuple(_size_bytes(part) for part in parts)
        lowered = PurePosixPath(name).name.lower()
        is_projector = "mmproj" in lowered
        if not is_projector and any(mark in lowered for mark in _SIDE_FILES):
            continue
        quantization = quantization_in_name(PurePosixPath(name).name) or quantization_in_name(name)
        quality = quality_of(quantization)
        found.append(
            HubFile(
                name=name,
                paths=tuple(part.path for part in parts),
                sizes_bytes=sizes,
                sha256=tuple(_sha256(part) for part in parts),
                quantization=quantization,
                size_bytes=sum(sizes),
                bits_per_weight=0.0 if is_projector else _bits_per_weight(sum(sizes), n_params),
                quality=quality.quality,
                note="" if is_projector else quality.note,
                is_projector=is_projector,
            )
        )
    found.sort(key=lambda file: (-file.size_bytes, file.name))
    projectors = tuple(file for file in found if file.is_projector)
    models = tuple(_with_projector(file, projectors) for file in found if not file.is_projector)
    return FileList(models, projectors)


def _bits_per_weight(size_bytes: int, n_params: int | None) -> float:
    """0 where it is not known; the hub counts the parameters of one file, which may be a part of a set."""
    bits = size_bytes * 8 / n_params if n_params else 0.0
    return bits if MIN_BITS <= bits <= MAX_BITS else 0.0


def _grouped(records: Iterable[TreeRecord]) -> list[tuple[str, list[TreeRecord]]]:
    sets: dict[tuple[str, int], dict[int, TreeRecord]] = {}
    for record in records:
        path = record.path
        if record.type != "file" or not path.lower().endswith(".gguf") or not is_safe_path(path):
            continue
        if _size_bytes(record) <= 0:
            continue
        split = split_name(PurePosixPath(path).name)
        if split is None:
            sets[path, 1] = {1: record}
        else:
            name = str(PurePosixPath(path).with_name(f"{split.stem}.gguf"))
            sets.setdefault((name, split.count), {})[split.number] = record
    return [
        (name, [parts[number] for number in sorted(parts)])
        for (name, count), parts in sets.items()
        if len(parts) == count
    ]


def _with_projector(file: HubFile, projectors: Sequence[HubFile]) -> HubFile:
    if not projectors:
        return file
    best = min(projectors, key=lambda projector: _distance(file, projector))
    return msgspec.structs.replace(file, projector=best.name)


def _distance(file: HubFile, projector: HubFile) -> tuple[int, int, str]:
    """Nearest folder first, then the format that most machines read well."""
    own, other = PurePosixPath(file.name).parent.parts, PurePosixPath(projector.name).parent.parts
    shared = 0
    for left, right in zip(own, other, strict=False):
        if left != right:
            break
        shared += 1
    formats = (*_PROJECTORS, projector.quantization)
    return len(other) - 2 * shared, formats.index(projector.quantization), projector.name


def _size_bytes(record: TreeRecord) -> int:
    """The file itself, not the pointer that stands for it."""
    size = record.lfs.size if record.lfs is not None and record.lfs.size is not None else record.size
    return size or 0


def _sha256(record: TreeRecord) -> str:
    oid = (record.lfs.oid or "" if record.lfs is not None else "").removeprefix("sha256:").lower()
    return oid if _SHA256.fullmatch(oid) else ""
