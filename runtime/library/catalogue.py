"""The catalogue file: one SQLite database that survives damage, two processes at once and a full disk.

This module owns the connection and nothing that is stored: each component (`runtime.library.files`,
`runtime.library.records`, downloads) brings its own tables as numbered migrations::

    catalogue.migrate("downloads", (Migration(1, ("CREATE TABLE download (...) STRICT",)),))
    rows = catalogue.run(lambda connection: connection.execute("SELECT ...").fetchall())

* damaged: moved aside with the time in its name, a new file is made and filled with every row that can be read;
* made by a newer Deskside whose tables this one does not know: left alone, a second file beside it is used;
* cannot be opened or written at all: kept in memory, and `problem` says so.
"""

import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from filelock import FileLock, Timeout

from runtime import units
from runtime.errors import BugFault, DiskFull, RuntimeFault, StorageFault

T = TypeVar("T")

FORMAT = 1
"""`PRAGMA user_version`. Migrations only add; who must break that raises it, and older programs keep away."""

BUSY_TIMEOUT_S = 5.0
"""How long a statement waits for another process that writes."""

BUSY_PAUSE_S = 0.02
MAX_LOG_BYTES = 16 * 1024 * 1024
"""Size the write-ahead log is cut back to."""
MAX_ASIDE = 3
"""Damaged files kept for a look; the oldest go."""

_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_WORLD = {
    sqlite3.SQLITE_READONLY: "the file is write-protected",
    sqlite3.SQLITE_PERM: "access is denied",
    sqlite3.SQLITE_AUTH: "access is denied",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened",
    sqlite3.SQLITE_IOERR: "the disk reported an error",
    sqlite3.SQLITE_BUSY: "another program holds the file",
    sqlite3.SQLITE_LOCKED: "another program holds the file",
    sqlite3.SQLITE_NOMEM: "memory is full",
    sqlite3.SQLITE_CORRUPT: "the file is damaged",
    sqlite3.SQLITE_NOTADB: "the file is damaged",
}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of a component's tables. Steps count from 1, are never changed and only add."""

    number: int
    statements: tuple[str, ...]


class Catalogue:
    """The open file. Home thread: any (one connection, locked); every call touches the disk.

    Attributes:
        problem: a sentence when a person should know something (damaged and made anew, kept in memory), else "".
        aside: where a damaged file was moved, if one was.
    """

    def __init__(self, path: Path | None) -> None:
        """Open or make the file; never raises for what is wrong with it, see the module's text.

        Args:
            path: the file; `None` keeps everything in memory.
        """
        self.problem = ""
        self.aside: Path | None = None
        self._path = path
        self._lock = threading.RLock()
        self._components: dict[str, tuple[Migration, ...]] = {}
        self._connection = self._open(path)

    @property
    def path(self) -> Path | None:
        """The file in use; `None` when kept in memory."""
        return self._path

    def migrate(self, component: str, migrations: Sequence[Migration]) -> None:
        """Bring a component's tables up to date; call once, before the first use of them.

        Raises:
            StorageFault: if the file cannot be written.
        """
        with self._lock:
            self._components[component] = tuple(migrations)
            try:
                self._guarded(lambda connection: _migrate(connection, component, migrations))
            except BugFault:
                # Pages may be whole and their contents wrong all the same: tables that the record does not know of.
                if self._path is None:
                    raise
                self._begin_anew(self._path)
            if self.aside is not None:
                _salvage(self.aside, self._connection)

    def run(self, work: Callable[[sqlite3.Connection], T], *, writes: bool = True) -> T:
        """Run `work` in one transaction: all of it or none. After damage it runs once more, on the new file.

        Args:
            work: uses the connection and returns plain values, no cursors; must be short (others wait).
            writes: false for reading only, which never waits for another process.

        Raises:
            DiskFull, StorageFault: if the file cannot be read or written; nothing was changed.
        """

        def whole(connection: sqlite3.Connection) -> T:
            with _transaction(connection, writes=writes):
                return work(connection)

        with self._lock:
            if self._connection.in_transaction:  # a `run` inside a `run`: one whole, and the outer one recovers
                return work(self._connection)
            return self._guarded(whole)

    @contextlib.contextmanager
    def connection(self, *, writes: bool = True) -> Iterator[sqlite3.Connection]:
        """The connection inside a transaction, for the length of a `with`. As `run`, but without the second try.

        Raises:
            DiskFull, StorageFault: as `run`.
        """
        with self._lock:
            try:
                with _transaction(self._connection, writes=writes):
                    yield self._connection
            except sqlite3.Error as error:
                if _code(error) in _DAMAGED:
                    with contextlib.suppress(sqlite3.Error):
                        self._recover()
                raise self._fault(error) from error

    def close(self) -> None:
        """Fold the log into the file and close. A second call does nothing."""
        with self._lock:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("PRAGMA optimize")
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._connection.close()

    # --- opening ------------------------------------------------------------------------------------------

    def _open(self, path: Path | None, *, is_suspect: bool = False) -> sqlite3.Connection:
        if path is None:
            return _connect(":memory:")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if _format_in_header(path) > FORMAT:
                path = path.with_name(f"{path.stem}.v{FORMAT}{path.suffix}")
                self.problem = "The catalogue of models was made by a newer Deskside; a second one is kept beside it."
            self._path = path
            try:
                return _connect_checked(path, is_suspect=is_suspect)
            except sqlite3.DatabaseError as error:
                if _code(error) not in _DAMAGED:
                    raise
                return self._set_aside(path)
        except (sqlite3.Error, OSError, Timeout) as error:
            _log.warning("the catalogue cannot be used: %s", error)
            reason = _WORLD.get(_code(error), str(error)) if isinstance(error, sqlite3.Error) else str(error)
            self.problem = f"The catalogue of models cannot be used ({reason}); what is learnt now is forgotten later."
            self._path = None
            return _connect(":memory:")

    def _set_aside(self, path: Path) -> sqlite3.Connection:
        """Move the damaged file away and begin a new one, unless another process has just done so."""
        with FileLock(path.with_name(path.name + ".lock"), timeout=BUSY_TIMEOUT_S):
            with contextlib.suppress(sqlite3.DatabaseError):
                return _connect_checked(path, is_suspect=True)
            return self._make_anew(path)

    def _make_anew(self, path: Path) -> sqlite3.Connection:
        self.aside = _move_aside(path)
        _log.warning("the catalogue was damaged; it is kept as %s", self.aside.name)
        self.problem = f"The catalogue of models was damaged and made anew; the old file is {self.aside.name}."
        return _connect(path)

    def _begin_anew(self, path: Path) -> None:
        """Put a file aside that no check finds fault with."""
        try:
            self._connection.close()
            with FileLock(path.with_name(path.name + ".lock"), timeout=BUSY_TIMEOUT_S):
                self._connection = self._make_anew(path)
            for component, migrations in self._components.items():
                _migrate(self._connection, component, migrations)
        except sqlite3.Error as error:
            raise self._fault(error) from error

    def _recover(self) -> None:
        """Begin anew after damage was met; raises `sqlite3.Error` when that fails too."""
        self._connection.close()
        self._connection = self._open(self._path, is_suspect=True)
        for component, migrations in self._components.items():
            _migrate(self._connection, component, migrations)
        if self.aside is not None:
            _salvage(self.aside, self._connection)

    # --- errors -------------------------------------------------------------------------------------------

    def _guarded(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            try:
                with _garbled_words_are_damage():
                    return work(self._connection)
            except sqlite3.DatabaseError as error:
                if _code(error) not in _DAMAGED:
                    raise
                self._recover()
                return work(self._connection)
        except sqlite3.Error as error:
            raise self._fault(error) from error

    def _fault(self, error: sqlite3.Error) -> RuntimeFault:
        """The world's fault as `StorageFault`, anything else as `BugFault`."""
        where = str(self._path or "")
        if _code(error) == sqlite3.SQLITE_FULL:
            return DiskFull(
                "The catalogue of models cannot be written: the disk is full.", hint="Free some room.", path=where
            )
        reason = _WORLD.get(_code(error))
        if reason is None:
            return BugFault(f"The catalogue of models refused a statement: {error}")
        return StorageFault(f"The catalogue of models cannot be used: {reason}.", path=where)


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code (the low byte; https://sqlite.org/rescode.html), 0 if it gave none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _format_in_header(path: Path) -> int:
    """`user_version` without opening the database, which would write to it.

    Source: https://sqlite.org/fileformat.html, 1.3: four bytes, big-endian, at offset 60.
    """
    try:
        with path.open("rb") as file:
            header = file.read(64)
    except FileNotFoundError:
        return 0
    return int.from_bytes(header[60:64]) if header.startswith(b"SQLite format 3\0") and len(header) == 64 else 0  # noqa: PLR2004


def _connect(target: Path | str) -> sqlite3.Connection:
    """Connect and set up; waits for another process that does the same.

    SQLite does not wait by itself where a file is switched to WAL (https://sqlite.org/wal.html, "Sometimes queries
    return SQLITE_BUSY").
    """
    give_up_s = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            return _connect_once(target)
        except sqlite3.OperationalError as error:
            if _code(error) not in _BUSY or time.monotonic() > give_up_s:
                raise
        time.sleep(BUSY_PAUSE_S)


def _connect_once(target: Path | str) -> sqlite3.Connection:
    connection = sqlite3.connect(target, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        # In WAL mode NORMAL loses nothing when the program dies; a power cut can take the last transactions, never
        # the file (https://sqlite.org/pragma.html#pragma_synchronous).
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA journal_size_limit = {MAX_LOG_BYTES}")
        if connection.execute("PRAGMA user_version").fetchone()[0] == FORMAT:
            return connection
        with _transaction(connection):
            connection.execute("CREATE TABLE IF NOT EXISTS component (name TEXT PRIMARY KEY, number INTEGER) STRICT")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_checked(path: Path, *, is_suspect: bool) -> sqlite3.Connection:
    """Connect; look the file through when it is suspected, or was not closed in order.

    Raises:
        sqlite3.DatabaseError: with the code of damage, if it is damaged.
    """
    log_path = path.with_name(path.name + "-wal")
    was_closed_cleanly = not log_path.exists() or log_path.stat().st_size == 0
    with _garbled_words_are_damage():
        connection = _connect(path)
        try:
            check = is_suspect or not was_closed_cleanly
            if check and connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                _raise_damage()
        except BaseException:
            connection.close()
            raise
    return connection


@contextlib.contextmanager
def _garbled_words_are_damage() -> Iterator[None]:
    """SQLite quotes damaged pages in its errors, and then Python cannot read the error itself."""
    try:
        yield
    except UnicodeDecodeError:
        _raise_damage()


def _raise_damage() -> None:
    error = sqlite3.DatabaseError("a check found damage")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    raise error


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection, *, writes: bool = True) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # SQLite has rolled back by itself after some errors
            connection.execute("ROLLBACK")
        raise
    try:
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _migrate(connection: sqlite3.Connection, component: str, migrations: Sequence[Migration]) -> None:
    """Apply what is missing, each step whole or not at all. Two processes may do so at once."""
    for step in migrations:
        with _transaction(connection):
            row = connection.execute("SELECT number FROM component WHERE name = ?", (component,)).fetchone()
            if row is not None and row[0] >= step.number:
                continue
            for statement in step.statements:
                connection.execute(statement)
            connection.execute(
                "INSERT OR REPLACE INTO component (name, number) VALUES (?, ?)", (component, step.number)
            )


# --- damage -----------------------------------------------------------------------------------------------


def _move_aside(path: Path) -> Path:
    stamp = units.now_local().strftime("%Y%m%d-%H%M%S")
    aside = path.with_name(f"{path.stem}.damaged-{stamp}{path.suffix}")
    number = 2
    while aside.exists():
        aside = path.with_name(f"{path.stem}.damaged-{stamp}-{number}{path.suffix}")
        number += 1
    for ending in ("", "-wal", "-shm"):
        part = path.with_name(path.name + ending)
        if part.exists():
            part.replace(aside.with_name(aside.name + ending))
    kept = sorted(path.parent.glob(f"{path.stem}.damaged-*{path.suffix}"))
    for old in kept[:-MAX_ASIDE]:
        for ending in ("", "-wal", "-shm"):
            with contextlib.suppress(OSError):
                old.with_name(old.name + ending).unlink(missing_ok=True)
    return aside


def _salvage(damaged: Path, target: sqlite3.Connection) -> None:
    """Copy every row that can be read into the tables that are there and empty."""
    source = sqlite3.connect(damaged, isolation_level=None)
    try:
        tables = target.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        for (table,) in tables.fetchall():
            if table == "component" or target.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchone():  # noqa: S608
                continue
            with contextlib.suppress(sqlite3.DatabaseError), _transaction(target):
                _copy(source, target, table)
    finally:
        with contextlib.suppress(sqlite3.Error):
            source.close()


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, table: str) -> None:
    wanted = {row[1] for row in target.execute(f'PRAGMA table_info("{table}")')}
    try:
        columns = [row[1] for row in source.execute(f'PRAGMA table_info("{table}")') if row[1] in wanted]
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return
    if not columns:
        return
    names = ", ".join(f'"{column}"' for column in columns)
    insert = f'INSERT OR IGNORE INTO "{table}" ({names}) VALUES ({", ".join("?" * len(columns))})'  # noqa: S608
    for order in ("ASC", "DESC"):  # up to the first damaged page, and down to the last one
        with contextlib.suppress(sqlite3.DatabaseError, UnicodeDecodeError):
            for row in source.execute(f'SELECT {names} FROM "{table}" ORDER BY rowid {order}'):  # noqa: S608
                with contextlib.suppress(sqlite3.IntegrityError):
                    target.execute(insert, row)
