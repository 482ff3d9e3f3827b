"""Looks at all folders at once, each in a lane of its own, so that one that does not answer holds up no other."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from runtime.library.disk import DiskFile, look_at, walk
from runtime.library.facts import Reading, is_lasting, read_file
from runtime.library.foreign import PROGRAMS
from runtime.library.foreign.program import ForeignModel, Listing
from runtime.library.patience import Lane, NotAnswering, leads_to, touch, words_for
from runtime.library.roots import Root, Roots, free_bytes

_STILL_LOOKING = "This folder is still being looked through."

T = TypeVar("T")

Readings = Mapping[DiskFile, Reading]
IsKnown = Callable[[DiskFile], bool]


@dataclass(frozen=True, slots=True)
class Found:
    """One folder.

    Attributes:
        readings: headers of files that were not known.
        free_bytes: room on its disk; 0 unknown.
        is_there: the folder itself.
    """

    listing: Listing = field(default_factory=Listing)
    readings: Readings = field(default_factory=dict)
    free_bytes: int = 0
    is_there: bool = True


class Looker:
    """The lanes, which outlive a look. Not locked: the library's lock holds."""

    def __init__(self, is_known: IsKnown) -> None:
        """`is_known` says whether a file's header need not be read; asked from any thread, and must not wait."""
        self._is_known = is_known
        self._lanes: dict[Root, Lane[Found]] = {}
        self._alone: tuple[tuple[Path, ...], Lane[Found]] | None = None
        self._silent: tuple[str, ...] = ()

    @property
    def silent(self) -> tuple[str, ...]:
        """Paths that did not answer the last time."""
        return self._silent

    def is_silent(self, path: str) -> bool:
        """Whether a path leads where nothing answered the last time. Does not ask the disk where it leads."""
        return leads_to(path, self._silent) != ""

    def look(
        self, roots: Roots, in_place: Sequence[Path], also_silent: tuple[str, ...] = ()
    ) -> tuple[tuple[Found, ...], Found]:
        """Every root, and the files brought in by their path. Bounded by the lanes' bounds, whatever the disks do."""
        began_at = time.monotonic()
        for root in tuple(self._lanes):
            if root not in roots.searched:
                self._lanes.pop(root).close()
        lanes = [self._lane(root) for root in roots.searched]
        alone = self._lane_of(tuple(in_place))
        known = tuple(dict.fromkeys((*also_silent, *(path for lane in (*lanes, alone) for path in lane.silent))))
        for lane in (*lanes, alone):
            lane.begin(known)
        silent: list[str] = []
        found = tuple(_finished(lane, began_at, silent) for lane in lanes)
        by_path = _finished(alone, began_at, silent) if in_place else Found()
        self._silent = tuple(dict.fromkeys(silent))
        return found, by_path

    def _lane(self, root: Root) -> Lane[Found]:
        if root not in self._lanes:
            self._lanes[root] = Lane(lambda: self._folder(root))
        return self._lanes[root]

    def _lane_of(self, in_place: tuple[Path, ...]) -> Lane[Found]:
        if self._alone is None or self._alone[0] != in_place:
            if self._alone is not None:
                self._alone[1].close()
            self._alone = (in_place, Lane(lambda: self._files(in_place)))
        return self._alone[1]

    def _folder(self, root: Root) -> Found:
        """In a lane."""
        if root.origin in PROGRAMS:
            listing = PROGRAMS[root.origin].list(root.path)
        else:
            tree = walk(root.path)
            listing = Listing(tree.files, problem=tree.problem)
        readings, missing = self._read(_files_of(listing))
        try:
            touch(root.path)
            return Found(_without(listing, missing), readings, free_bytes(root.path), root.path.exists())
        except OSError:
            return Found(_without(listing, missing), readings)

    def _files(self, paths: Sequence[Path]) -> Found:
        """In a lane."""
        files = tuple(file for path in paths if (file := look_at(path)) is not None)
        readings, missing = self._read(files)
        return Found(_without(Listing(files), missing), readings)

    def _read(self, files: Sequence[DiskFile]) -> tuple[Readings, frozenset[DiskFile]]:
        """Headers that are not known, and files that do not answer or went meanwhile."""
        readings: dict[DiskFile, Reading] = {}
        missing: set[DiskFile] = set()
        for file in files:
            if self._is_known(file):
                continue
            try:
                touch(file.path)
                readings[file] = read_file(file)
                if not is_lasting(readings[file]) and not file.path.exists():
                    missing.add(file)
            except NotAnswering:
                missing.add(file)
        return readings, frozenset(missing)


def _finished(lane: Lane[Found], began_at: float, silent: list[str]) -> Found:
    answer = lane.finish(began_at)
    silent += answer.silent
    problem = words_for(answer.silent) if answer.silent else _STILL_LOOKING if answer.is_old else ""
    if answer.value is None:
        return Found(Listing(problem=problem))
    if not problem:
        return answer.value
    return replace(answer.value, listing=replace(answer.value.listing, problem=problem))


def _files_of(listing: Listing) -> tuple[DiskFile, ...]:
    found = [*listing.files]
    for model in listing.models:
        found += _files_of_model(model)
    return tuple(found)


def _files_of_model(model: ForeignModel) -> tuple[DiskFile, ...]:
    return (*model.files, *((model.projector,) if model.projector is not None else ()))


def _without(listing: Listing, missing: frozenset[DiskFile]) -> Listing:
    if not missing:
        return listing
    return replace(
        listing,
        files=tuple(file for file in listing.files if file not in missing),
        models=tuple(model for model in listing.models if missing.isdisjoint(_files_of_model(model))),
    )
