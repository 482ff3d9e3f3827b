"""The models folder and the starter model: what is there, whether it is whole, and what it is called.

Looking costs one header read for each file that is new or changed; everything else comes from a cache. Files still
being downloaded (`*.partial`) are not looked at; damaged ones are listed with what is wrong, and never loaded.
"""

import difflib
import hashlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from runtime.errors import (
    FileTruncated,
    ModelLoadFailed,
    ModelNotFound,
    RuntimeFault,
    StorageFault,
)
from runtime.gguf.facts import GgufFacts, SplitName, read_facts, split_name
from runtime.library.names import model_id, readable_name, unique_id
from runtime.library.starter import STARTER_LICENCE, find_starter
from runtime.messages.api import InstalledModel
from runtime.paths import DataFolder

MAX_FILES = 10_000
"""Most model files looked at in one folder tree; the rest is left out."""
MAX_DEPTH = 12
N_HINTS = 3

_PROJECTOR = "It is the picture part of another model (mmproj), not a model of its own."
_SIDE_FILE = "It belongs to another model and is not a model of its own."
_BIG_ENDIAN = "It was made for machines with another byte order."


@dataclass(frozen=True, slots=True)
class _Seen:
    """One file as it was when it was last read."""

    stamp: tuple[int, int]
    facts: GgufFacts | None
    fault: RuntimeFault | None


@dataclass(frozen=True, slots=True)
class _Entry:
    """One model: its files in order, and what was found out."""

    stem: str
    paths: tuple[Path, ...]
    modified_s: float
    size_bytes: int
    seen: _Seen
    fault: RuntimeFault | None
    n_params: int
    starter: bool = False


class Library:
    """Finds models. Home thread: any (locked); every call reads the disk, so never on an event loop."""

    def __init__(self, folder: DataFolder, *, starter_path: Path | None = None) -> None:
        """Remember where to look; nothing is read yet.

        Args:
            folder: its `models` folder is searched, at any depth.
            starter_path: file of the starter model; by default the one installed with the program.
        """
        self._models_path = folder.models
        self._starter_path = starter_path if starter_path is not None else find_starter()
        self._lock = threading.Lock()
        self._cache: dict[Path, _Seen] = {}
        self._faults: dict[str, RuntimeFault] = {}

    def installed(self) -> tuple[InstalledModel, ...]:
        """All models on disk, the starter first, then by name.

        Raises:
            StorageFault: if the models folder is there but cannot be read.
        """
        with self._lock:
            return self._scan()

    def find(self, name_or_path: str) -> InstalledModel:
        """The model of that id (in any case), file name, file stem or path; also a unique beginning of an id.

        Raises:
            ModelNotFound: if there is none; the hint tells the nearest names.
            StorageFault: if the models folder cannot be read.
        """
        with self._lock:
            models = self._scan()
            return self._by_name(name_or_path, models) or self._by_path(name_or_path, models)

    def resolve(self, name_or_path: str) -> InstalledModel:
        """As `find`, for loading.

        Raises:
            NotGguf, FileTruncated, ModelLoadFailed: if the file cannot be loaded.
            ModelNotFound, StorageFault: as `find`.
        """
        model = self.find(name_or_path)
        if model.problem:
            with self._lock:
                fault = self._faults.get(model.path)
            raise fault or ModelLoadFailed(f"{model.name} cannot be loaded: {model.problem}", path=model.path)
        return model

    # --- names --------------------------------------------------------------------------------------------

    def _by_name(self, name: str, models: tuple[InstalledModel, ...]) -> InstalledModel | None:
        wanted = name.strip().lower()
        for model in models:
            if model.id == name:
                return model
        for model in models:
            path = Path(model.path)
            if wanted in (model.id, path.name.lower(), path.stem.lower(), model.name.lower()):
                return model
        as_id = model_id(name)
        candidates = [model for model in models if as_id and (model.id == as_id or model.id.startswith(f"{as_id}-"))]
        return candidates[0] if len(candidates) == 1 else None

    def _by_path(self, name: str, models: tuple[InstalledModel, ...]) -> InstalledModel:
        try:
            path = Path(name).expanduser()
            is_file, is_there = path.is_file(), path.exists()
        except (OSError, RuntimeError, ValueError) as error:  # too long, a person who does not exist, a null
            raise ModelNotFound(
                f"{name[:200]!r} cannot be looked up: {error}."[:500], hint="Name a .gguf file.", model=name[:200]
            ) from None
        if is_file:
            absolute = path.absolute()
            for model in models:
                if Path(model.path) == absolute:
                    return model
            split = split_name(path.name)
            group = _whole_set(absolute, split) if split else (absolute,)
            entry = self._entry(split.stem if split else absolute.stem, group)
            if entry.fault is not None:
                self._faults[str(entry.paths[0])] = entry.fault
            return self._described(entry, {model.id for model in models})
        known = {model.id: model for model in models if not model.problem}
        near = difflib.get_close_matches(model_id(name), known, n=N_HINTS, cutoff=0.4) or list(known)[:N_HINTS]
        looks_like_path = any(mark in name for mark in ("/", "\\")) or name.lower().endswith(".gguf")
        if looks_like_path and is_there:
            what = "a folder" if path.is_dir() else "no ordinary file"
            raise ModelNotFound(f"{name} is {what}.", hint="Name a .gguf file.", model=name)
        message = f"There is no model file {name}." if looks_like_path else f"No model called {name!r} is installed."
        hint = f"Did you mean {', '.join(near)}?" if near else "Download a model or put one into the models folder."
        raise ModelNotFound(message, hint=hint, model=name)

    # --- the disk -----------------------------------------------------------------------------------------

    def _scan(self) -> tuple[InstalledModel, ...]:
        entries = [self._entry(stem, paths) for stem, paths in _groups(self._files())]
        if self._starter_path is not None and self._starter_path.is_file():
            starter_path = self._starter_path
            entries.append(self._entry(starter_path.stem, (starter_path,), starter=True))
        present = {path for entry in entries for path in entry.paths}
        self._cache = {path: seen for path, seen in self._cache.items() if path in present}
        self._faults = {str(entry.paths[0]): entry.fault for entry in entries if entry.fault is not None}
        # The older file keeps its id when a second one of that name comes.
        entries.sort(key=lambda entry: (not entry.starter, entry.modified_s, str(entry.paths[0])))
        taken: set[str] = set()
        models: list[InstalledModel] = []
        for entry in entries:
            model = self._described(entry, taken)
            taken.add(model.id)
            models.append(model)
        return tuple(sorted(models, key=lambda model: (not model.starter, model.name.lower(), model.id)))

    def _files(self) -> Iterator[Path]:
        root = self._models_path
        if not root.exists():
            return
        n_files = 0
        visited: set[tuple[int, int]] = set()

        def refuse(error: OSError) -> None:
            if error.filename == str(root):
                raise StorageFault(f"The models folder cannot be read: {error.strerror}.", path=str(root)) from error

        for folder, folders, names in os.walk(root, onerror=refuse, followlinks=True):
            here = Path(folder)
            status = here.stat()
            identity = (status.st_dev, status.st_ino)
            if identity in visited or len(here.relative_to(root).parts) >= MAX_DEPTH:
                folders.clear()
                if identity in visited:
                    continue
            visited.add(identity)
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                if name.startswith(".") or not name.lower().endswith(".gguf"):
                    continue
                n_files += 1
                if n_files > MAX_FILES:
                    return
                yield here / name

    def _entry(self, stem: str, paths: tuple[Path, ...], *, starter: bool = False) -> _Entry:
        seen = [self._look(path) for path in paths]
        fault = next((one.fault for one in seen if one.fault is not None), None)
        split = split_name(paths[0].name)
        if fault is None and split is not None and len(paths) < split.count:
            fault = _missing_parts(paths, split)
        return _Entry(
            stem=stem,
            paths=paths,
            modified_s=max(one.stamp[0] for one in seen) / 1e9,
            size_bytes=sum(one.stamp[1] for one in seen),
            seen=seen[0],
            fault=fault,
            n_params=sum(one.facts.n_params for one in seen if one.facts is not None),
            starter=starter,
        )

    def _look(self, path: Path) -> _Seen:
        try:
            status = path.stat()
        except OSError as error:
            fault = StorageFault(f"{path.name} cannot be read: {error.strerror}.", path=str(path))
            return _Seen((0, 0), None, fault)
        stamp = (status.st_mtime_ns, status.st_size)
        known = self._cache.get(path)
        if known is not None and known.stamp == stamp:
            return known
        facts: GgufFacts | None = None
        fault_found: RuntimeFault | None = None
        try:
            facts = read_facts(path)
            facts.check_whole()
        except RuntimeFault as error:
            fault_found = error
        except OSError as error:
            fault_found = StorageFault(f"{path.name} cannot be read: {error.strerror or error}.", path=str(path))
        seen = _Seen(stamp, facts, fault_found)
        self._cache[path] = seen
        return seen

    def _described(self, entry: _Entry, taken: set[str]) -> InstalledModel:
        path, facts = entry.paths[0], entry.seen.facts
        fallback = hashlib.sha256(str(path).encode("utf-8", "surrogatepass")).hexdigest()[:6]
        problem = entry.fault.message if entry.fault is not None else ""
        if facts is not None and not problem:
            if facts.kind == "projector":
                problem = _PROJECTOR
            elif facts.kind == "other":
                problem = _SIDE_FILE
            elif facts.is_big_endian:
                problem = _BIG_ENDIAN
        return InstalledModel(
            id=unique_id(model_id(entry.stem), path.parent.name, fallback, taken),
            name=readable_name(entry.stem, facts.name if facts else ""),
            path=str(path),
            size_bytes=entry.size_bytes,
            kind=facts.kind if facts else "other",
            publisher=self._publisher(path) or (facts.publisher if facts else ""),
            architecture=facts.architecture if facts else "",
            quantization=facts.quantization if facts else "",
            n_params=entry.n_params or None,
            n_ctx_train=facts.n_ctx_train if facts else None,
            n_layer=facts.n_layer if facts else None,
            licence=STARTER_LICENCE if entry.starter else (facts.licence if facts else ""),
            starter=entry.starter,
            created_s=entry.modified_s,
            problem=problem,
        )

    def _publisher(self, path: Path) -> str:
        """The first folder of `models/<publisher>/<repo>/<file>`."""
        try:
            parts = path.relative_to(self._models_path).parts
        except ValueError:
            return ""
        return parts[0] if len(parts) > 2 else ""  # noqa: PLR2004 - publisher, repo, file


def _groups(files: Iterator[Path]) -> list[tuple[str, tuple[Path, ...]]]:
    """Files as models: split sets together, in order of their numbers."""
    sets: dict[tuple[Path, str, int], list[Path]] = {}
    groups: list[tuple[str, tuple[Path, ...]]] = []
    for path in files:
        split = split_name(path.name)
        if split is None:
            groups.append((path.stem, (path,)))
        else:
            sets.setdefault((path.parent, split.stem, split.count), []).append(path)
    groups += [(stem, tuple(sorted(paths))) for (_, stem, _), paths in sets.items()]
    return groups


def _whole_set(path: Path, split: SplitName) -> tuple[Path, ...]:
    """The parts that stand beside this one, in order."""
    names = (f"{split.stem}-{number:05d}-of-{split.count:05d}{path.suffix}" for number in range(1, split.count + 1))
    return tuple(part for name in names if (part := path.parent / name).is_file()) or (path,)


def _missing_parts(paths: tuple[Path, ...], split: SplitName) -> FileTruncated:
    present = {found.number for path in paths if (found := split_name(path.name)) is not None}
    missing = [str(number) for number in range(1, split.count + 1) if number not in present]
    listed = ", ".join(missing[:8]) + (" and more" if len(missing) > 8 else "")  # noqa: PLR2004 - a readable list
    which = f"part {listed} is" if len(missing) == 1 else f"parts {listed} are"
    return FileTruncated(
        f"The model has {split.count} parts, and {which} missing.",
        hint="Download the missing parts.",
        path=str(paths[0]),
    )
