"""What the catalogue remembers of each file: header facts, hashes, whose it is. Correct without it, only slower.

A row holds for a stamp (size, time, inode). When a file was moved or renamed, what was known of it goes along: by the
inode, or by name, size and time where it changed the disk.
"""

import contextlib
import logging
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from runtime import units
from runtime.library.catalogue import Catalogue, Migration
from runtime.library.disk import DiskFile, Stamp
from runtime.library.facts import Reading, is_lasting, reader_number
from runtime.unreadable import UNREADABLE

Verified = Literal["", "ok", "bad"]

MAX_ROWS = 20_000
FORGET_AFTER_S = 180 * 86_400
"""A file that was not seen for so long is forgotten; until then it may be on a drive that is not connected."""
SEEN_AGAIN_S = 86_400
"""`seen_s` is written anew once a day: a scan of unchanged files writes nothing."""

MIGRATIONS = (
    Migration(
        1,
        (
            # Paths are bytes: names on Linux need not be text. Stamps are text: inodes of Windows have 128 bits.
            """
            CREATE TABLE file (
                path BLOB PRIMARY KEY,
                stamp TEXT NOT NULL,
                reader INTEGER NOT NULL,
                reading BLOB,
                seen_s REAL NOT NULL,
                sha256 TEXT NOT NULL DEFAULT '',
                expected TEXT NOT NULL DEFAULT '',
                verified TEXT NOT NULL DEFAULT '',
                is_ours INTEGER NOT NULL DEFAULT 0,
                repo TEXT NOT NULL DEFAULT '',
                model TEXT NOT NULL DEFAULT ''
            ) STRICT
            """,
            "CREATE TABLE in_place (path BLOB PRIMARY KEY, added_s REAL NOT NULL) STRICT",
        ),
    ),
)

_log = logging.getLogger(__name__)
_reading = msgspec.msgpack.Decoder(Reading)
_COLUMNS = "path, stamp, reader, reading, seen_s, sha256, expected, verified, is_ours, repo, model"


class Known(msgspec.Struct, frozen=True):
    """What is remembered of one file.

    Attributes:
        sha256: of its content, as last computed by us; "" unknown.
        expected: the hash it was announced with; "" unknown.
        is_ours: downloaded, imported or made by Deskside.
        repo: the hub repository it came from.
        model: the id it was last listed by.
    """

    stamp: Stamp
    reading: Reading | None = None
    seen_s: float = 0.0
    sha256: str = ""
    expected: str = ""
    verified: Verified = ""
    is_ours: bool = False
    repo: str = ""
    model: str = ""


class FileTable:
    """All rows, in memory and in the catalogue. Not locked: the library's lock holds. Bounded by `MAX_ROWS`.

    Attributes:
        revision: another number whenever a row says something new that a scan would not see.
    """

    def __init__(self, catalogue: Catalogue | None) -> None:
        self._catalogue = catalogue
        self._rows: dict[Path, Known] = {}
        self._by_inode: dict[tuple[int, int], Path] = {}
        self._by_name: dict[tuple[str, int, int], Path] = {}
        self._dirty: set[Path] = set()
        self._in_place: list[Path] = []
        self._version = -1
        self.revision = 0
        if catalogue is not None:
            catalogue.migrate("files", MIGRATIONS)

    def refresh(self) -> None:
        """Take over what another process wrote. Costs one small question when there is nothing new.

        Raises:
            StorageFault: if the catalogue cannot be read.
        """
        if self._catalogue is None:
            return
        version = self._catalogue.run(
            lambda connection: int(connection.execute("PRAGMA data_version").fetchone()[0]), writes=False
        )
        if version == self._version:
            return
        rows = self._catalogue.run(
            lambda connection: connection.execute(f"SELECT {_COLUMNS} FROM file").fetchall(),  # noqa: S608
            writes=False,
        )
        self._version = version
        self.revision += 1
        kept = {path: self._rows[path] for path in self._dirty if path in self._rows}
        self._rows = {}
        self._by_inode.clear()
        self._by_name.clear()
        for row in rows:
            with contextlib.suppress(ValueError):
                self._put(_path(row[0]), _known(row))
        for path, known in kept.items():
            self._put(path, known)

    def get(self, file: DiskFile) -> Known | None:
        """What is known of this very content; also when it was moved here by hand."""
        known = self._rows.get(file.path)
        if known is not None and known.stamp == file.stamp:
            return known
        if known is not None and _same_but_device(known.stamp, file.stamp):
            return self._update(file.path, msgspec.structs.replace(known, stamp=file.stamp))
        before = self._moved_from(file)
        if before is None:
            return None
        moved = msgspec.structs.replace(self._rows[before], stamp=file.stamp, is_ours=False)
        if moved.stamp.inode != self._rows[before].stamp.inode:  # a copy: its bytes were never looked at
            moved = msgspec.structs.replace(moved, sha256="", verified="")
        return self._update(file.path, moved)

    def has_reading(self, file: DiskFile) -> bool:
        """Whether a file's header need not be read. Only looks, so it may be asked from any thread."""
        known = self._rows.get(file.path)
        return (
            known is not None and known.reading is not None and known.stamp == file.stamp and is_lasting(known.reading)
        )

    def at(self, path: Path) -> Known | None:
        """What is remembered of a path, whatever stands there now."""
        return self._rows.get(path)

    def note_reading(self, file: DiskFile, reading: Reading) -> Known:
        """Remember a header. Hashes of an older content go, and what was announced where the size is another one."""
        before = self._rows.get(file.path)
        known = Known(file.stamp, reading)
        if before is not None:
            same = before.stamp == file.stamp
            known = msgspec.structs.replace(
                known,
                expected=before.expected if before.stamp.size_bytes == file.stamp.size_bytes else "",
                is_ours=before.is_ours and before.stamp.inode == file.stamp.inode,
                repo=before.repo,
                model=before.model,
                sha256=before.sha256 if same else "",
                verified=before.verified if same else "",
            )
        return self._update(file.path, known)

    def note_hash(self, file: DiskFile, sha256: str, verified: Verified, expected: str = "") -> None:
        """Remember what a check found."""
        self.revision += 1
        known = self._rows.get(file.path) or Known(file.stamp)
        self._update(
            file.path,
            msgspec.structs.replace(
                known, stamp=file.stamp, sha256=sha256, verified=verified, expected=expected or known.expected
            ),
        )

    def note_ours(self, file: DiskFile, sha256: str, *, is_checked: bool, repo: str = "") -> None:
        """Remember that we put this file here, with its hash ("" unknown)."""
        self.revision += 1
        known = self._rows.get(file.path) or Known(file.stamp)
        self._update(
            file.path,
            msgspec.structs.replace(
                known,
                stamp=file.stamp,
                reading=None,
                sha256=sha256,
                expected=sha256,
                verified="ok" if is_checked and sha256 else "",
                is_ours=True,
                repo=repo,
            ),
        )

    def note_moved(self, file: DiskFile, before: Known | None, sha256: str) -> None:
        """Remember that we put this file here from elsewhere: what was known of it there still holds."""
        self.revision += 1
        known = before or Known(file.stamp)
        self._update(
            file.path,
            msgspec.structs.replace(known, stamp=file.stamp, sha256=sha256 or known.sha256, is_ours=True),
        )

    def note_model(self, path: Path, model: str) -> None:
        """Remember by which id a file is listed."""
        known = self._rows.get(path)
        if known is not None and known.model != model:
            self._update(path, msgspec.structs.replace(known, model=model))

    def forget(self, paths: Sequence[Path]) -> None:
        """Forget files that we deleted or moved away."""
        for path in paths:
            self._rows.pop(path, None)
            self._dirty.discard(path)
        if self._catalogue is not None:
            keys = [(_key(path),) for path in paths]
            self._catalogue.run(
                lambda connection: connection.executemany("DELETE FROM file WHERE path = ?", keys).close()
            )

    def settle(self, seen: Sequence[DiskFile]) -> None:
        """After a scan: write what changed, and forget what was not seen for long.

        Raises:
            StorageFault: if the catalogue cannot be written.
        """
        now = units.now()
        for file in seen:
            known = self._rows.get(file.path)
            if known is not None and now - known.seen_s > SEEN_AGAIN_S:
                self._update(file.path, msgspec.structs.replace(known, seen_s=now))
        if self._catalogue is None:
            present = {file.path for file in seen}
            rows_kept = {path: known for path, known in self._rows.items() if path in present}
            self._rows, self._by_inode, self._by_name = {}, {}, {}
            for path, known in rows_kept.items():
                self._put(path, known)
            self._dirty.clear()
            return
        if not self._dirty:
            return
        rows = [_row(path, self._rows[path]) for path in self._dirty if path in self._rows]

        def work(connection: sqlite3.Connection) -> None:
            marks = ", ".join("?" * 11)
            connection.executemany(f"INSERT OR REPLACE INTO file ({_COLUMNS}) VALUES ({marks})", rows)  # noqa: S608
            connection.execute("DELETE FROM file WHERE seen_s < ?", (now - FORGET_AFTER_S,))
            oldest = "SELECT path FROM file ORDER BY seen_s DESC LIMIT -1 OFFSET ?"
            connection.execute(f"DELETE FROM file WHERE path IN ({oldest})", (MAX_ROWS,))  # noqa: S608

        self._catalogue.run(work)
        self._dirty.clear()

    # --- files used where they are ------------------------------------------------------------------------

    def in_place(self) -> tuple[Path, ...]:
        """Files elsewhere that a person brought in without copying, oldest first."""
        if self._catalogue is None:
            return tuple(self._in_place)
        rows = self._catalogue.run(
            lambda connection: connection.execute("SELECT path FROM in_place ORDER BY added_s, path").fetchall(),
            writes=False,
        )
        return tuple(_path(row[0]) for row in rows)

    def add_in_place(self, paths: Sequence[Path]) -> None:
        """List these files from now on."""
        if self._catalogue is None:
            self._in_place += [path for path in paths if path not in self._in_place]
            return
        rows = [(_key(path), units.now()) for path in paths]
        self._catalogue.run(
            lambda connection: connection.executemany("INSERT OR IGNORE INTO in_place VALUES (?, ?)", rows).close()
        )

    def drop_in_place(self, paths: Sequence[Path]) -> None:
        """List them no more; the files stay."""
        if self._catalogue is None:
            self._in_place = [path for path in self._in_place if path not in paths]
            return
        keys = [(_key(path),) for path in paths]
        self._catalogue.run(
            lambda connection: connection.executemany("DELETE FROM in_place WHERE path = ?", keys).close()
        )

    # --- rows ---------------------------------------------------------------------------------------------

    def _update(self, path: Path, known: Known) -> Known:
        if not known.seen_s:
            known = msgspec.structs.replace(known, seen_s=units.now())
        self._put(path, known)
        self._dirty.add(path)
        return known

    def _put(self, path: Path, known: Known) -> None:
        self._rows[path] = known
        if known.stamp.inode:
            self._by_inode[known.stamp.device, known.stamp.inode] = path
        self._by_name[path.name, known.stamp.size_bytes, known.stamp.mtime_ns] = path

    def _moved_from(self, file: DiskFile) -> Path | None:
        stamp = file.stamp
        for before in (
            self._by_inode.get((stamp.device, stamp.inode)) if stamp.inode else None,
            self._by_name.get((file.path.name, stamp.size_bytes, stamp.mtime_ns)),
        ):
            known = self._rows.get(before) if before is not None else None
            if before is None or known is None or before == file.path:
                continue
            if (known.stamp.size_bytes, known.stamp.mtime_ns) == (stamp.size_bytes, stamp.mtime_ns):
                return before
        return None


def _same_but_device(known: Stamp, now: Stamp) -> bool:
    """A drive that was connected again may have another device number."""
    return known._replace(device=now.device) == now


def _key(path: Path) -> bytes:
    return str(path).encode("utf-8", "surrogatepass")


def _path(key: bytes) -> Path:
    return Path(key.decode("utf-8", "surrogatepass"))


def _row(path: Path, known: Known) -> tuple[object, ...]:
    return (
        _key(path),
        " ".join(map(str, known.stamp)),
        reader_number(),
        msgspec.msgpack.encode(known.reading) if known.reading is not None else None,
        known.seen_s,
        known.sha256,
        known.expected,
        known.verified,
        int(known.is_ours),
        known.repo,
        known.model,
    )


def _known(row: Sequence[object]) -> Known:
    """One row.

    Raises:
        ValueError: if it does not read.
    """
    _, stamp, reader, raw, seen_s, sha256, expected, verified, is_ours, repo, model = row
    size_bytes, mtime_ns, device, inode = map(int, str(stamp).split())
    reading = None
    if reader == reader_number() and isinstance(raw, bytes):
        with contextlib.suppress(*UNREADABLE):
            reading = _reading.decode(raw)
    return Known(
        Stamp(size_bytes, mtime_ns, device, inode),
        reading,
        float(str(seen_s)),
        str(sha256),
        str(expected),
        "ok" if verified == "ok" else "bad" if verified == "bad" else "",
        bool(is_ours),
        str(repo),
        str(model),
    )
