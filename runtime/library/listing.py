"""What is found on disk, as the rows that people and programs see: one for each model, with an id that stays."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runtime.errors import FileTruncated, RuntimeFault, from_failure
from runtime.gguf.facts import split_name
from runtime.library.disk import DiskFile
from runtime.library.facts import FileFacts, Reading
from runtime.library.files import Known, Verified
from runtime.library.names import model_id, readable_name, unique_id
from runtime.library.starter import STARTER_LICENCE
from runtime.messages.api import InstalledModel
from runtime.messages.library import Origin

OWN: frozenset[Origin] = frozenset({"deskside", "folder"})
"""Origins of files that we may move and delete."""

_PROJECTOR = "It is the picture part of another model (mmproj), not a model of its own."
_SIDE_FILE = "It belongs to another model and is not a model of its own."
_BIG_ENDIAN = "It was made for machines with another byte order."
_FUSED = "It holds text and picture part in one file, which only Ollama's own engine reads."
_UNREADABLE_NAME = "Its name, or that of its folder, is not readable text. Rename it."


@dataclass(frozen=True, slots=True)
class Entry:
    """One model as it lies on disk.

    Attributes:
        files: its parts in order; `projector` and `spares` as in `grouping.Group`.
        origin: whose files they are; `root` where they were found.
        publisher: "" unknown; `expected` hashes announced by the program that put them there.
        told: why it cannot be used, where its program's layout says so.
        known: what is remembered of each file.
        in_place: brought in by its path, without a folder that is searched.
    """

    stem: str
    files: tuple[DiskFile, ...]
    origin: Origin
    root: Path
    known: Mapping[Path, Known]
    projector: DiskFile | None = None
    spares: tuple[DiskFile, ...] = ()
    publisher: str = ""
    expected: Mapping[Path, str] = field(default_factory=dict)
    told: str = ""
    in_place: bool = False

    @property
    def path(self) -> Path:
        """Of the first file: what is loaded."""
        return self.files[0].path

    @property
    def all_files(self) -> tuple[DiskFile, ...]:
        """Parts and projector."""
        return self.files if self.projector is None else (*self.files, self.projector)

    @property
    def size_bytes(self) -> int:
        """Of parts and projector."""
        return sum(file.stamp.size_bytes for file in self.all_files)

    @property
    def modified_s(self) -> float:
        """When it last changed (seconds since 1970)."""
        return max(file.stamp.mtime_ns for file in self.files) / 1e9

    def facts(self, file: DiskFile | None = None) -> FileFacts | None:
        """Of one file, by default the first."""
        reading = self._reading(file or self.files[0])
        return reading.facts if reading is not None else None

    def fault(self) -> RuntimeFault | None:
        """Why it cannot be loaded: the first damaged part, or parts that are missing."""
        for file in self.all_files:
            reading = self._reading(file)
            if reading is not None and reading.failure is not None:
                fault = from_failure(reading.failure)
                fault.details = {**fault.details, "path": plain(str(file.path))}
                return fault
        split = split_name(self.path.name)
        if split is not None and len(self.files) < split.count:
            return _missing_parts(self.files, split.count)
        return None

    def verified(self) -> Verified:
        """Bad if one file is, ok if all are."""
        found = [known.verified if (known := self.known.get(file.path)) is not None else "" for file in self.all_files]
        if "bad" in found:
            return "bad"
        return "ok" if all(one == "ok" for one in found) else ""

    def remembered_id(self) -> str:
        """The id it was listed by before, or ""."""
        known = self.known.get(self.path)
        return known.model if known is not None else ""

    def _reading(self, file: DiskFile) -> Reading | None:
        known = self.known.get(file.path)
        return known.reading if known is not None else None


def list_models(
    entries: Sequence[Entry], starter: Path | None, used_s: Mapping[str, float]
) -> dict[str, tuple[Entry, InstalledModel]]:
    """Rows by id, the starter first, then by name.

    Ids are given in an order that keeps them where they are: the starter, who had this id before, own files before
    those of other programs, older before newer.
    """

    def order(entry: Entry) -> tuple[object, ...]:
        is_starter = entry.path == starter
        had_it = entry.remembered_id() == model_id(entry.stem)
        return (not is_starter, not had_it, entry.origin not in OWN, entry.modified_s, str(entry.path))

    taken: set[str] = set()
    rows: list[tuple[Entry, InstalledModel]] = []
    for entry in sorted(entries, key=order):
        model = describe(entry, taken, is_starter=entry.path == starter, used_s=used_s)
        taken.add(model.id)
        rows.append((entry, model))
    rows.sort(key=lambda row: (not row[1].starter, row[1].name.lower(), row[1].id))
    return {model.id: (entry, model) for entry, model in rows}


def describe(
    entry: Entry, taken: set[str], *, is_starter: bool = False, used_s: Mapping[str, float] | None = None
) -> InstalledModel:
    """One row. `taken` are ids it may not have."""
    path, facts = entry.path, entry.facts()
    fallback = hashlib.sha256(str(path).encode("utf-8", "surrogatepass")).hexdigest()[:6]
    readings = [entry.facts(file) for file in entry.files]
    n_params = sum(one.n_params for one in readings if one is not None)
    projector = entry.facts(entry.projector) if entry.projector is not None else None
    identifier = unique_id(model_id(entry.stem), plain(path.parent.name), fallback, taken)
    weight_bytes = sum(file.stamp.size_bytes for file in entry.files)
    return InstalledModel(
        id=identifier,
        name=plain(readable_name(entry.stem, facts.name if facts else "")),
        path=plain(str(path)),
        size_bytes=entry.size_bytes,
        kind=facts.kind if facts else "other",
        publisher=plain(entry.publisher or (facts.publisher if facts else "")),
        architecture=facts.architecture if facts else "",
        quantization=facts.quantization if facts else "",
        n_params=n_params or None,
        n_ctx_train=facts.n_ctx_train if facts else None,
        n_layer=facts.n_layer if facts else None,
        licence=STARTER_LICENCE if is_starter else (facts.licence if facts else ""),
        starter=is_starter,
        created_s=entry.modified_s,
        problem=_problem(entry, facts),
        origin="starter" if is_starter else entry.origin,
        is_vision=projector is not None and projector.has_vision,
        projector=plain(str(entry.projector.path)) if entry.projector is not None else "",
        bits_per_weight=round(weight_bytes * 8 / n_params, 3) if n_params else 0.0,
        used_s=(used_s or {}).get(identifier, 0.0),
        n_files=len(entry.all_files),
        verified=entry.verified(),
    )


def plain(text: str) -> str:
    """Text that can be sent: names on Linux may hold bytes that are none."""
    return text.encode("utf-8", "replace").decode()


def _problem(entry: Entry, facts: FileFacts | None) -> str:
    fault = entry.fault()
    if fault is not None:
        return fault.message
    if entry.told:
        return entry.told
    if any(plain(str(file.path)) != str(file.path) for file in entry.all_files):
        return _UNREADABLE_NAME
    if facts is None:
        return ""
    if facts.kind == "projector":
        return _PROJECTOR
    if facts.kind == "other":
        return _SIDE_FILE
    if facts.is_big_endian:
        return _BIG_ENDIAN
    return _FUSED if facts.is_fused else ""


def _missing_parts(files: tuple[DiskFile, ...], count: int) -> FileTruncated:
    present = {found.number for file in files if (found := split_name(file.path.name)) is not None}
    missing = [str(number) for number in range(1, count + 1) if number not in present]
    listed = ", ".join(missing[:8]) + (" and more" if len(missing) > 8 else "")  # noqa: PLR2004 - a readable list
    which = f"part {listed} is" if len(missing) == 1 else f"parts {listed} are"
    return FileTruncated(
        f"The model has {count} parts, and {which} missing.",
        hint="Download the missing parts.",
        path=plain(str(files[0].path)),
    )
