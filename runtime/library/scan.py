"""One look at all folders: which models are there now. Reads headers only of files that are new or changed."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runtime.errors import StorageFault
from runtime.library.disk import DiskFile, look_at
from runtime.library.facts import FileFacts, Reading, is_lasting, read_file
from runtime.library.files import FileTable, Known
from runtime.library.foreign.hf_cache import publisher_of
from runtime.library.foreign.program import ForeignModel, Listing
from runtime.library.grouping import Group, group
from runtime.library.listing import Entry
from runtime.library.looking import Looker
from runtime.library.roots import Root, Roots
from runtime.messages.library import Origin

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sight:
    """Everything that was seen, before any file was read. Two equal ones mean that nothing changed."""

    roots: Roots
    listings: tuple[Listing, ...]
    in_place: tuple[DiskFile, ...]
    starter: DiskFile | None

    @property
    def files(self) -> tuple[DiskFile, ...]:
        """Every file, also those listed twice."""
        found: list[DiskFile] = [*self.in_place]
        for listing in self.listings:
            found += listing.files
            for model in listing.models:
                found += model.files
                if model.projector is not None:
                    found.append(model.projector)
        return tuple(found if self.starter is None else [*found, self.starter])

    def without(self, is_hidden: Callable[[DiskFile], bool]) -> "Sight":
        """The same, without some files of folders."""
        kept = [
            replace(listing, files=tuple(file for file in listing.files if not is_hidden(file)))
            for listing in self.listings
        ]
        return replace(self, listings=tuple(kept))


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look came to: beside what was seen what must not count as a change.

    Attributes:
        readings: headers that were read during the look.
        free_bytes: of the disk of each root.
        there: roots that exist.
    """

    sight: Sight
    readings: Mapping[DiskFile, Reading]
    free_bytes: Mapping[Path, int]
    there: frozenset[Path]


def look(
    looker: Looker,
    roots: Roots,
    in_place: Sequence[Path],
    starter: Path | None,
    also_silent: tuple[str, ...] = (),
) -> Seen:
    """Look at all folders, those that do not answer left out. `also_silent` is known not to."""
    found, alone = looker.look(roots, in_place, also_silent)
    readings: dict[DiskFile, Reading] = dict(alone.readings)
    for one in found:
        readings.update(one.readings)
    sight = Sight(
        roots,
        tuple(one.listing for one in found),
        alone.listing.files,
        look_at(starter) if starter is not None else None,
    )
    by_root = dict(zip(roots.searched, found, strict=True))
    return Seen(
        sight,
        readings,
        {root.path: one.free_bytes for root, one in by_root.items()},
        frozenset(root.path for root, one in by_root.items() if one.is_there),
    )


class Reader:
    """Headers of files, from memory where they did not change. Not locked: the library's lock holds."""

    def __init__(self, table: FileTable) -> None:
        self._table = table
        self._read: Mapping[DiskFile, Reading] = {}
        self.n_read = 0

    def offer(self, readings: Mapping[DiskFile, Reading]) -> None:
        """Headers that were read elsewhere, until the next ones are offered."""
        self._read = readings

    def known(self, file: DiskFile) -> Known:
        """What is known of a file, its header included."""
        known = self._table.get(file)
        if known is not None and known.reading is not None and is_lasting(known.reading):
            return known
        self.n_read += 1
        return self._table.note_reading(file, self._read.get(file) or read_file(file))

    def facts(self, file: DiskFile) -> FileFacts | None:
        """Facts of a file; `None` if it has none."""
        reading = self.known(file).reading
        return reading.facts if reading is not None else None


def entries_of(sight: Sight, reader: Reader) -> tuple[Entry, ...]:
    """The models in what was seen; each content once, by the first name it was found under."""
    found: list[Entry] = []
    seen: set[object] = set()

    def add(entry: Entry) -> None:
        identity = tuple(file.identity for file in entry.files)
        if identity not in seen:
            seen.add(identity)
            found.append(entry)

    for root, listing in zip(sight.roots.searched, sight.listings, strict=True):
        for one in group(listing.files, reader.facts, root.path):
            add(_of_group(one, root, sight.roots, listing, reader))
        for model in listing.models:
            add(_of_program(model, root, reader))
    if sight.in_place:
        folder = sight.in_place[0].path.parent
        for one in group(sight.in_place, reader.facts, folder.parent):
            root = Root(one.files[0].path.parent, "folder")
            entry = _of_group(one, root, sight.roots, Listing(), reader)
            add(replace(entry, in_place=True))
    if sight.starter is not None:
        known = {sight.starter.path: reader.known(sight.starter)}
        add(Entry(sight.starter.path.stem, (sight.starter,), "starter", sight.starter.path.parent, known))
    return tuple(found)


def entry_at(file: DiskFile, beside: Sequence[DiskFile], roots: Roots, reader: Reader) -> Entry:
    """The model that a file anywhere is, or is a part of. `beside` are the model files in its folder."""
    folder = file.path.parent
    root = Root(folder, "folder")
    for one in group((*beside,), reader.facts, folder):
        if any(part.path == file.path for part in one.files):
            return _of_group(one, root, roots, Listing(), reader)
    return _of_group(Group(file.path.stem, (file,)), root, roots, Listing(), reader)


def _of_group(one: Group, root: Root, roots: Roots, listing: Listing, reader: Reader) -> Entry:
    first = one.files[0]
    known = _known((*one.files, *((one.projector,) if one.projector is not None else ())), reader)
    return Entry(
        stem=one.stem,
        files=one.files,
        origin=_owner(one.files, root, roots, known),
        root=root.path,
        known=known,
        projector=one.projector,
        spares=one.spares,
        publisher=_publisher(first.path, root),
        expected={file.path: listing.sha256[file.path] for file in one.files if file.path in listing.sha256},
    )


def _of_program(model: ForeignModel, root: Root, reader: Reader) -> Entry:
    files = (*model.files, *((model.projector,) if model.projector is not None else ()))
    return Entry(
        stem=model.stem,
        files=model.files,
        origin=root.origin,
        root=root.path,
        known=_known(files, reader),
        projector=model.projector,
        publisher=model.publisher,
        expected=model.sha256,
        told=model.problem,
    )


def _known(files: Sequence[DiskFile], reader: Reader) -> dict[Path, Known]:
    return {file.path: reader.known(file) for file in files}


def _owner(files: Sequence[DiskFile], root: Root, roots: Roots, known: dict[Path, Known]) -> Origin:
    """Theirs if one file is: a set is deleted as a whole or not at all."""
    for file in files:
        owner = roots.owner(file.real, root.origin, is_ours=known[file.path].is_ours)
        if owner != root.origin:
            return owner
    return root.origin


def _publisher(path: Path, root: Root) -> str:
    """The first folder of `<root>/<publisher>/<repo>/<file>`."""
    if root.origin == "hf_cache":
        return publisher_of(path)
    try:
        parts = path.relative_to(root.path).parts
    except ValueError:
        return ""
    return parts[0] if len(parts) > 2 else ""  # noqa: PLR2004 - publisher, repo, file


def settle(table: FileTable, files: Sequence[DiskFile]) -> None:
    """Write what was learnt; a catalogue that cannot be written costs only time at the next start."""
    try:
        table.settle(files)
    except StorageFault as fault:
        _log.warning("what was learnt of model files could not be kept: %s", fault.message)
