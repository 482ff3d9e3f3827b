"""Moving the main folder elsewhere: nothing is deleted before its checked copy is there and the new folder is in use.

1. `move` puts every own file below the target: by renaming on one disk, else by a checked copy. Each copy is noted, so
   that a move goes on after a crash where it stopped.
2. The caller saves the new main folder in the settings.
3. `finish` deletes from the old folder what was noted as copied, at once or when the program starts next.

While a move is open both folders are searched, so a crash at any moment hides nothing.
"""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime.errors import BadRequest, StorageFault
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
        self._copied: dict[Path, Path] = {}
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
            self._copied = {_path(source): _path(target) for source, target in rows}

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
            self.end()
            if self._catalogue is not None:
                row = (_key(move.source), _key(move.target))
                with self._catalogue.connection() as connection:
                    connection.execute("INSERT INTO move (id, source, target) VALUES (1, ?, ?)", row)
            self._open = move

    def end(self) -> None:
        """Forget it.

        Raises:
            StorageFault: if the catalogue cannot be written.
        """
        if self._catalogue is not None:
            with self._catalogue.connection() as connection:
                connection.execute("DELETE FROM move")
                connection.execute("DELETE FROM moved")
        self._open, self._copied = None, {}

    def note(self, source: Path, target: Path) -> None:
        """This file has a checked copy there.

        Raises:
            StorageFault: if it cannot be remembered.
        """
        if self._catalogue is not None:
            row = (_key(source), _key(target))
            with self._catalogue.connection() as connection:
                connection.execute("INSERT OR REPLACE INTO moved VALUES (?, ?)", row)
        self._copied[source] = target

    def copy_of(self, file: DiskFile) -> DiskFile | None:
        """The checked copy of a file, if there is one and it still has that size and time."""
        target = self._copied.get(file.path)
        there = look_at(target) if target is not None else None
        return there if there is not None and _is_alike(file, there) and there.identity != file.identity else None

    def finish(self) -> bool:
        """Delete from the old folder what has its copy in the new one. Whether nothing is left to do.

        Raises:
            StorageFault: if the catalogue cannot be written.
        """
        if self._open is None:
            return True
        left = False
        folders: set[Path] = set()
        for path in self._copied:
            file = look_at(path)
            if file is None or self.copy_of(file) is None:
                continue
            try:
                Path(extended(str(path))).unlink()
            except OSError as error:  # Windows: a loaded model's file cannot be deleted
                _log.warning("%s was copied but cannot be deleted yet: %s", plain(str(path)), error)
                left = True
            else:
                folders.add(path.parent)
        prune(folders, self._open.source)
        if not left:
            self.end()
        return not left


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
    files: Sequence[DiskFile], table: MoveTable, report: Report, is_cancelled: IsCancelled
) -> dict[Path, tuple[DiskFile, str]]:
    """Put files of the open move below its target, at the same places as below its source.

    Returns:
        For each old path, the new file and its hash ("" where it was not computed).

    Raises:
        DiskFull, StorageFault: as the disk says; what was done stays, and the next try goes on from it.
        Cancelled: when told to stop; all is as before.
    """
    opened = table.open
    assert opened is not None  # noqa: S101 - `begin` comes before
    by_renaming = _is_one_disk(opened.source, opened.target)
    todo = [file for file in files if not by_renaming and table.copy_of(file) is None]
    check_room(opened.target, sum(file.stamp.size_bytes for file in todo))
    remove_stale(opened.target)
    meter = Meter(sum(2 * file.stamp.size_bytes for file in files), report, is_cancelled)
    done: dict[Path, tuple[DiskFile, str]] = {}
    made: list[tuple[Path, Path]] = []
    try:
        for file in files:
            meter.stage(f"Moving {plain(file.path.name)}")
            there = table.copy_of(file)
            if there is not None:
                meter.add(2 * file.stamp.size_bytes)
                done[file.path] = (there, "")
                continue
            place = _free(opened.target / file.path.relative_to(opened.source))
            sha256 = "" if by_renaming else copy_file(file.path, place, meter)
            if by_renaming:
                _rename(file.path, place)
                meter.add(2 * file.stamp.size_bytes)
            else:
                table.note(file.path, place)
            made.append((file.path, place))
            there = look_at(place)
            if there is not None:
                done[file.path] = (there, sha256)
    except Cancelled:
        _undo(made, opened.target, by_renaming=by_renaming)
        raise
    return done


def _rename(before: Path, after: Path) -> None:
    with storage_faults(before, "moved"):
        Path(extended(str(after.parent))).mkdir(parents=True, exist_ok=True)
        Path(extended(str(before))).replace(extended(str(after)))


def _undo(made: Sequence[tuple[Path, Path]], target: Path, *, by_renaming: bool) -> None:
    folders = set()
    for before, after in reversed(made):
        try:
            if by_renaming:
                _rename(after, before)
            else:
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
