"""Moving the main folder elsewhere: nothing is deleted before its checked copy is there and the new folder is in use.

1. `move` puts every own file below the target: by renaming on one disk, else by a checked copy. Each is noted: a rename
   before it happens, a copy once it is checked.
2. The caller saves the new main folder in the settings.
3. `MoveTable.finish` deletes from the old folder what was noted as copied.

When the program ends before step 2, `take_back` renames back what was renamed and leaves the checked copies, so that
the next try goes on from them. Both run when a library is made, unless another process is at it.
"""

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from runtime.errors import BadRequest, Busy, StorageFault
from runtime.library.catalogue import Catalogue, Migration
from runtime.library.copying import check_room, copy_file, remove_stale, storage_faults
from runtime.library.disk import DiskFile, extended, is_below, look_at
from runtime.library.listing import plain
from runtime.library.progress import Cancelled, IsCancelled, Meter, Report
from runtime.library.removal import prune

MIGRATIONS = (
    Migration(
        1,
        (
            """
            CREATE TABLE move (
                id INTEGER PRIMARY KEY CHECK (id = 1), source BLOB NOT NULL, target BLOB NOT NULL
            ) STRICT
            """,
            "CREATE TABLE moved (source BLOB PRIMARY KEY, target BLOB NOT NULL) STRICT",
        ),
    ),
)

ALONG = (".partial",)
"""Endings of files that go along with models: downloads that are not whole yet."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Move:
    """A move that is not finished."""

    source: Path
    target: Path


class MoveTable:
    """Remembers the move that is open, and which of its files have a checked copy. Home thread: any.

    Bounded by the files of one folder (`disk.MAX_FILES`); emptied when the move is finished.
    """

    def __init__(self, catalogue: Catalogue | None) -> None:
        self._catalogue = catalogue
        self._open: Move | None = None
        self._moved: dict[Path, Path] = {}
        if catalogue is not None:
            catalogue.migrate("move", MIGRATIONS)
            row = catalogue.run(
                lambda connection: connection.execute("SELECT source, target FROM move").fetchone(), writes=False
            )
            if row is not None:
                self._open = Move(_path(row[0]), _path(row[1]))
            rows = catalogue.run(
                lambda connection: connection.execute("SELECT source, target FROM moved").fetchall(), writes=False
            )
            self._moved = {_path(source): _path(target) for source, target in rows}

    @property
    def open(self) -> Move | None:
        """The move that is not finished."""
        return self._open

    def begin(self, move: Move) -> None:
        """Remember a move before anything of it is done; one to the same place goes on.

        Raises:
            StorageFault: if it cannot be remembered; then nothing may be moved.
        """
        if self._open != move:
            self.abandon()
            if self._catalogue is not None:
                row = (_key(move.source), _key(move.target))
                with self._catalogue.connection() as connection:
                    connection.execute("INSERT INTO move (id, source, target) VALUES (1, ?, ?)", row)
            self._open = move

    def abandon(self) -> None:
        """Put back what was renamed, delete copies whose original is in its place, and forget the move.

        Raises:
            StorageFault: if the catalogue cannot be written.
        """
        if self._open is not None:
            made = list(self._moved.items())
            _undo(made, self._open.target, by_renaming=True)
            _undo([(path, self._moved[path]) for path in self.originals()], self._open.target, by_renaming=False)
        self.end()

    def end(self) -> None:
        """Forget it.

        Raises:
            StorageFault: if the catalogue cannot be written.
        """
        if self._catalogue is not None:
            with self._catalogue.connection() as connection:
                connection.execute("DELETE FROM move")
                connection.execute("DELETE FROM moved")
        self._open, self._moved = None, {}

    def note(self, source: Path, target: Path) -> None:
        """This file is about to be renamed to there, or has a checked copy there.

        Raises:
            StorageFault: if it cannot be remembered.
        """
        if self._catalogue is not None:
            row = (_key(source), _key(target))
            with self._catalogue.connection() as connection:
                connection.execute("INSERT OR REPLACE INTO moved VALUES (?, ?)", row)
        self._moved[source] = target

    def originals(self) -> frozenset[Path]:
        """Files of the old folder that have their checked copy in the new one."""
        return frozenset(path for path in self._moved if self.copy_of(look_at(path)) is not None)

    def copies(self) -> frozenset[Path]:
        """The copies of files that are still in the old folder, too."""
        return frozenset(self._moved[path] for path in self.originals())

    def copy_of(self, file: DiskFile | None) -> DiskFile | None:
        """The checked copy of a file, if there is one and it still has that size and time."""
        target = self._moved.get(file.path) if file is not None else None
        there = look_at(target) if target is not None else None
        if file is None or there is None or there.identity == file.identity or not _is_alike(file, there):
            return None
        return there

    def finish(self) -> None:
        """Delete from the old folder what has its copy in the new one; what cannot be deleted is tried again later.

        Raises:
            StorageFault: if the catalogue cannot be written.
        """
        opened = self._open
        if opened is None:
            return
        with self.alone() as is_alone:
            if not is_alone:
                return
            left = False
            folders: set[Path] = set()
            for path in self.originals():
                try:
                    Path(extended(str(path))).unlink()
                except OSError as error:  # Windows: a loaded model's file cannot be deleted
                    _log.warning("%s was copied but cannot be deleted yet: %s", plain(str(path)), error)
                    left = True
            folders.update(path.parent for path in self._moved)
            prune(folders, opened.source)
            if not left:
                self.end()

    def take_back(self) -> None:
        """Rename back what a move that did not come to its end has renamed. Copies stay for the next try."""
        opened = self._open
        if opened is None:
            return
        with self.alone() as is_alone:
            if is_alone:
                _undo(list(self._moved.items()), opened.target, by_renaming=True)

    @contextlib.contextmanager
    def alone(self) -> Iterator[bool]:
        """Keep other processes from moving. False if one is at it."""
        path = self._catalogue.path if self._catalogue is not None else None
        if path is None:
            yield True
            return
        lock = FileLock(path.with_name(path.name + ".move.lock"))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()


def check_target(source: Path, target: Path) -> None:
    """Whether a folder can become the main one.

    Raises:
        BadRequest: if not.
        StorageFault: if it cannot be written.
    """
    real_source, real_target = os.path.realpath(source), os.path.realpath(target)
    if not target.is_absolute():
        raise BadRequest(f"{plain(str(target))!r} is not a whole path.", hint="Begin at the root.", param="path")
    if os.path.normcase(real_source) == os.path.normcase(real_target):
        raise BadRequest("The models are in this folder already.", hint="Choose another folder.", param="path")
    if is_below(real_target, real_source):
        raise BadRequest(
            "The new folder lies inside the one that is to be moved.", hint="Choose another folder.", param="path"
        )
    if target.exists() and not target.is_dir():
        raise BadRequest(f"{plain(str(target))} is not a folder.", hint="Choose a folder.", param="path")
    with storage_faults(target, "written"):
        Path(extended(str(target))).mkdir(parents=True, exist_ok=True)
        probe = Path(extended(str(target))) / ".deskside-write-test"
        probe.touch()
        probe.unlink()


def files_along(folder: Path) -> list[DiskFile]:
    """Downloads below a folder that are not whole yet."""
    found = []
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.endswith(ALONG) and not name.startswith("."):
                file = look_at(Path(here) / name)
                if file is not None:
                    found.append(file)
    return found


def move(
    files: Sequence[DiskFile], wanted: Move, table: MoveTable, report: Report, is_cancelled: IsCancelled
) -> dict[Path, tuple[DiskFile, str]]:
    """Put files below the target, at the same places as below the source. The move stays open until `finish`.

    Returns:
        For each old path, the new file and its hash ("" where it was not computed).

    Raises:
        DiskFull, StorageFault: as the disk says; checked copies stay, and the next try goes on from them.
        Busy: if another process moves.
        Cancelled: when told to stop; all is as before.
    """
    with table.alone() as is_alone:
        if not is_alone:
            raise Busy("Another Deskside is moving the models folder.", hint="Wait for it to end.", retry_after_s=30)
        table.begin(wanted)
        try:
            return _move(files, wanted, table, report, is_cancelled)
        except Cancelled:
            table.abandon()
            raise
        except Exception:
            if not table.originals():  # no copy to go on from
                table.abandon()
            raise


def _move(
    files: Sequence[DiskFile], opened: Move, table: MoveTable, report: Report, is_cancelled: IsCancelled
) -> dict[Path, tuple[DiskFile, str]]:
    by_renaming = _is_one_disk(opened.source, opened.target)
    todo = [file for file in files if not by_renaming and table.copy_of(file) is None]
    check_room(opened.target, sum(file.stamp.size_bytes for file in todo))
    remove_stale(opened.target)
    meter = Meter(sum(2 * file.stamp.size_bytes for file in files), report, is_cancelled)
    done: dict[Path, tuple[DiskFile, str]] = {}
    for file in files:
        meter.stage(f"Moving {plain(file.path.name)}")
        there, sha256 = table.copy_of(file), ""
        if there is None:
            place = _free(opened.target / file.path.relative_to(opened.source))
            if by_renaming:
                table.note(file.path, place)
                _rename(file.path, place)
            else:
                sha256 = copy_file(file.path, place, meter)
                table.note(file.path, place)
            there = look_at(place)
        if not sha256:
            meter.add(2 * file.stamp.size_bytes)
        if there is not None:
            done[file.path] = (there, sha256)
    return done


def _rename(before: Path, after: Path) -> None:
    with storage_faults(before, "moved"):
        Path(extended(str(after.parent))).mkdir(parents=True, exist_ok=True)
        Path(extended(str(before))).replace(extended(str(after)))


def _undo(made: Sequence[tuple[Path, Path]], target: Path, *, by_renaming: bool) -> None:
    """Rename back what is only there, or remove copies whose original is where it was."""
    folders = set()
    for before, after in reversed(made):
        has_original, has_result = look_at(before) is not None, look_at(after) is not None
        try:
            if by_renaming and has_result and not has_original:
                _rename(after, before)
            elif not by_renaming and has_original:
                Path(extended(str(after))).unlink(missing_ok=True)
        except (OSError, StorageFault) as error:
            _log.warning("%s stays where it was moved to: %s", plain(str(after)), error)
        folders.add(after.parent)
    prune(folders, target)


def _is_alike(file: DiskFile, copy: DiskFile) -> bool:
    # File systems of USB sticks keep times to two seconds.
    near = abs(file.stamp.mtime_ns - copy.stamp.mtime_ns) <= 2_000_000_000  # noqa: PLR2004
    return file.stamp.size_bytes == copy.stamp.size_bytes and near


def _is_one_disk(source: Path, target: Path) -> bool:
    try:
        return source.stat().st_dev == target.stat().st_dev
    except OSError:
        return False


def _free(path: Path) -> Path:
    """The path, or one with a number where something else has that name."""
    candidate, number = path, 2
    while os.path.lexists(extended(str(candidate))):
        candidate = path.with_name(f"{path.stem}-{number}{path.suffix}")
        number += 1
    return candidate


def _key(path: Path) -> bytes:
    return str(path).encode("utf-8", "surrogatepass")


def _path(raw: bytes) -> Path:
    return Path(raw.decode("utf-8", "surrogatepass"))
