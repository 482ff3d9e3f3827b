"""Bringing model files into the main folder: copied or moved, checked, under names every system can hold."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runtime.errors import HashMismatch, NotAllowed, StorageFault
from runtime.library.copying import check_room, copy_file, hash_file, remove_stale, storage_faults
from runtime.library.disk import MODEL_SUFFIX, DiskFile, extended, look_at
from runtime.library.foreign import PROGRAM_NAMES
from runtime.library.grouping import base_name
from runtime.library.listing import OWN, Entry, plain
from runtime.library.progress import IsCancelled, Meter, Report

ImportHow = Literal["copy", "move", "use_in_place"]

UNKNOWN_PUBLISHER = "imported"
MAX_NAME_BYTES = 200
"""File systems end at 255 bytes for one name; what is added while copying must fit too."""

_FORBIDDEN = re.compile(r'[<>:"/\\|?*\x00-\x1f\ud800-\udfff]+')
_RESERVED = re.compile(r"^(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Brought:
    """One file that is now in the main folder. `was_announced`: its hash was known before and is right."""

    file: DiskFile
    sha256: str
    was_announced: bool


@dataclass(frozen=True, slots=True)
class _Step:
    source: DiskFile
    target: Path
    expected: str


def bring(
    entries: Sequence[Entry],
    main: Path,
    how: Literal["copy", "move"],
    report: Report,
    is_cancelled: IsCancelled,
) -> list[Brought]:
    """Copy or move every file of these models below `main`.

    A file that is there already with the same content is left; one of that name with other content keeps its name, and
    the new one gets a number. What was brought before a failure or a cancel stays: those are whole files.

    Raises:
        NotAllowed: a move of files that belong to another program.
        DiskFull, StorageFault: as the disk says.
        HashMismatch: if a file is not what its program announced.
        Cancelled: when told to stop.
    """
    if how == "move":
        for entry in entries:
            check_may_move(entry)
    steps = [step for entry in entries for step in _steps(entry, main)]
    sizes = [step.source.stamp.size_bytes for step in steps]
    renames = [how == "move" and _on_one_disk(step.source, main) for step in steps]
    check_room(main, sum(size for size, is_rename in zip(sizes, renames, strict=True) if not is_rename))
    remove_stale(main)
    meter = Meter(sum(2 * size for size in sizes), report, is_cancelled)
    brought: list[Brought] = []
    for step, is_rename in zip(steps, renames, strict=True):
        meter.stage(f"{'Moving' if how == 'move' else 'Copying'} {plain(step.source.path.name)}")
        sha256, target = _place(step, meter, is_rename=is_rename)
        file = look_at(target)
        if file is not None and how == "move" and file.identity != step.source.identity:
            _unlink(step.source.path)
        if file is None:
            raise StorageFault(f"{plain(target.name)} is gone again.", path=plain(str(target)))
        brought.append(Brought(file, sha256, bool(step.expected)))
    return brought


def check_may_move(entry: Entry) -> None:
    """Only own files are moved or deleted.

    Raises:
        NotAllowed: if they belong to another program, or to this one's own installation.
    """
    if entry.origin in OWN:
        return
    name = plain(entry.path.name if entry.origin in ("lm_studio", "gpt4all") else entry.stem)
    if entry.origin == "starter":
        raise NotAllowed(f"{name} is part of Deskside and stays with it.")
    owner = PROGRAM_NAMES[entry.origin]
    raise NotAllowed(f"{name} belongs to {owner}.", hint=f"Copy it instead, or remove it in {owner}.")


def safe_name(raw: str, *, fallback: str) -> str:
    """A name that Windows, macOS and Linux can all hold, as close to the given one as can be."""
    name = _FORBIDDEN.sub("-", raw).strip().rstrip(". ")
    if _RESERVED.match(name):
        name = f"_{name}"
    if name.startswith("."):
        name = name.lstrip(".")
    return _shortened(name) or fallback


def _steps(entry: Entry, main: Path) -> list[_Step]:
    facts = entry.facts()
    publisher = entry.publisher or (facts.publisher if facts is not None else "")
    folder = (
        main
        / safe_name(publisher, fallback=UNKNOWN_PUBLISHER)
        / safe_name(base_name(entry.stem) or entry.stem, fallback="model")
    )
    steps = []
    for file in entry.all_files:
        expected = entry.expected.get(file.path, "")
        known = entry.known.get(file.path)
        if not expected and known is not None and known.is_ours:
            expected = known.expected
        steps.append(_Step(file, folder / _file_name(file, entry), expected))
    return steps


def _file_name(file: DiskFile, entry: Entry) -> str:
    """The file's own name where it has one; blobs of Ollama and Jan's `model.gguf` are called after the model."""
    name = file.path.name
    tells = name.lower().endswith(MODEL_SUFFIX) and file.path.stem.lower() not in ("model", "mmproj")
    if tells:
        return safe_name(name, fallback=f"model{MODEL_SUFFIX}")
    facts = entry.facts(file)
    quantization = f"-{facts.quantization}" if facts is not None and facts.quantization else ""
    stem = f"mmproj-{entry.stem}" if file is entry.projector else entry.stem
    if quantization.upper() in stem.upper():
        quantization = ""
    return safe_name(f"{stem}{quantization}{MODEL_SUFFIX}", fallback=f"model{MODEL_SUFFIX}")


def _place(step: _Step, meter: Meter, *, is_rename: bool) -> tuple[str, Path]:
    source, target = step.source.path, step.target
    there = look_at(target)
    sha256 = ""
    if there is not None:
        if there.identity == step.source.identity:  # another name of the very same content: nothing may be taken away
            meter.add(2 * step.source.stamp.size_bytes)
            return step.expected, target
        if there.stamp.size_bytes == step.source.stamp.size_bytes:
            sha256 = hash_file(source, meter)
            if hash_file(target, meter) == sha256:
                return sha256, target
        target = _free_name(target)
    if is_rename:
        with storage_faults(source, "moved"):
            Path(extended(str(target.parent))).mkdir(parents=True, exist_ok=True)
            Path(extended(str(source))).replace(extended(str(target)))
        meter.add(2 * step.source.stamp.size_bytes)
        return step.expected, target
    sha256 = copy_file(source, target, meter)
    if step.expected and sha256 != step.expected:
        _unlink(target)
        raise HashMismatch(
            f"{plain(source.name)} is damaged: its bytes are not the ones it was announced with.",
            hint="Download the model again.",
            path=plain(str(source)),
            expected=step.expected,
            found=sha256,
        )
    return sha256, target


def _unlink(path: Path) -> None:
    with storage_faults(path, "removed"):
        Path(extended(str(path))).unlink(missing_ok=True)


def _free_name(path: Path) -> Path:
    number = 2
    while os.path.lexists(extended(str(candidate := path.with_name(f"{path.stem}-{number}{path.suffix}")))):
        number += 1
    return candidate


def _on_one_disk(file: DiskFile, folder: Path) -> bool:
    if file.is_link:
        return False  # what it leads to belongs elsewhere: its content is copied
    for place in (folder, *folder.parents):
        try:
            return place.stat().st_dev == file.stamp.device
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return False


def _shortened(name: str) -> str:
    raw = name.encode()
    if len(raw) <= MAX_NAME_BYTES:
        return name
    stem, dot, suffix = name.rpartition(".")
    if not dot or len(suffix) > len(MODEL_SUFFIX):
        stem, suffix = name, ""
    ending = f"{dot}{suffix}" if suffix else ""
    return stem.encode()[: MAX_NAME_BYTES - len(ending.encode())].decode(errors="ignore") + ending
