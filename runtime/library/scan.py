"""One look at all folders: which models are there now. Reads headers only of files that are new or changed."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runtime.errors import StorageFault
from runtime.library.disk import DiskFile, Tree, look_at, walk
from runtime.library.facts import FileFacts, is_lasting, read_file
from runtime.library.files import FileTable, Known
from runtime.library.foreign import PROGRAMS
from runtime.library.foreign.hf_cache import publisher_of
from runtime.library.foreign.program import ForeignModel, Listing
from runtime.library.grouping import Group, group
from runtime.library.listing import Entry
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


def look(roots: Roots, in_place: Sequence[Path], starter: Path | None) -> Sight:
    """Walk all folders."""
    listings = []
    for root in roots.searched:
        if root.origin in PROGRAMS:
            listings.append(PROGRAMS[root.origin].list(root.path))
        else:
            tree: Tree = walk(root.path)
            listings.append(Listing(tree.files, problem=tree.problem))
    alone = [file for path in in_place if (file := look_at(path)) is not None]
    return Sight(roots, tuple(listings), tuple(alone), look_at(starter) if starter is not None else None)


class Reader:
    """Headers of files, from memory where they did not change. Not locked: the library's lock holds."""

    def __init__(self, table: FileTable) -> None:
        self._table = table
        self.n_read = 0

    def known(self, file: DiskFile) -> Known:
        """What is known of a file, its header included."""
        known = self._table.get(file)
        if known is not None and known.reading is not None and is_lasting(known.reading):
            return known
        self.n_read += 1
        return self._table.note_reading(file, read_file(file))

    def facts(self, file: DiskFile) -> FileFacts | None:
        """Facts of a file; `None` if it has none."""
        reading = self.known(file).reading
        return reading.facts if reading is not None else None


def entries_of(sight: Sight, reader: Reader) -> tuple[Entry, ...]:
    """The models in what was seen; each content once, by the first name it was found under."""
    found: list[Entry] = []
    seen: set[object] = set()

    def add(entry: Entry) -> None:
        if _is_gone(entry):
            return
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


def _is_gone(entry: Entry) -> bool:
    """Whether a file went between the walk and the reading of its header."""
    return any(
        known.reading is not None and not is_lasting(known.reading) and not path.exists()
        for path, known in entry.known.items()
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
