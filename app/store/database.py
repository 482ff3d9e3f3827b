"""Opening the file, whatever state it is in. Nothing a person made is ever deleted here.

* damaged: moved aside with the time in its name, a new file is made and filled with every row that can be read;
* made by a newer Deskside: left alone, a second file beside it is used;
* cannot be opened at all: kept in memory, and said.
"""

import contextlib
import logging
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from app.store.faults import damage, is_busy, is_damage
from app.store.salvage import FILES_TABLE, TABLES, mended_text, salvage
from app.store.schema import LATEST, migrate, rebuild_search, version_of
from runtime import units

Incident = Literal["damaged", "newer", "not_saved"]

BUSY_TIMEOUT_S = 5.0
"""How long a statement waits for another window that writes to the same file. Only the store's thread waits."""

BUSY_PAUSE_S = 0.02

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Opened:
    """An open database, ready for use.

    Attributes:
        connection: in autocommit mode; transactions by `app.store.transaction`.
        path: the file in use; `None` when kept in memory.
        incident: what a person must be told, if anything.
        aside: where the file that could not be used is.
        n_recovered: conversations read out of a damaged file.
        reason: the system's words, for "not_saved".
    """

    connection: sqlite3.Connection
    path: Path | None
    incident: Incident | None = None
    aside: Path | None = None
    n_recovered: int = 0
    reason: str = ""


def open_database(path: Path) -> Opened:
    """Open or make the file; see the module's text for what happens when it cannot be used as it is."""
    try:
        return _open_or_recover(path)
    except (sqlite3.Error, OSError) as error:
        _log.exception("the conversations file cannot be used")
        connection = _connect(":memory:")
        migrate(connection)
        return Opened(connection, None, "not_saved", reason=str(error))


def _open_or_recover(path: Path) -> Opened:
    if _version_in_header(path) > LATEST:
        return _open_beside(path)
    try:
        connection = _open_checked(path)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return recover(path)
    except UnicodeDecodeError:  # of a message of SQLite that names what is damaged
        return recover(path)
    if version_of(connection) > LATEST:  # only its log told so far
        connection.close()
        return _open_beside(path)
    migrate(connection)
    return Opened(connection, path)


def _open_beside(path: Path) -> Opened:
    inner = _open_or_recover(path.with_name(f"{path.stem}.v{LATEST}{path.suffix}"))
    return Opened(inner.connection, inner.path, inner.incident or "newer", inner.aside or path, inner.n_recovered)


def _version_in_header(path: Path) -> int:
    """`user_version` without opening the database, which would write to it.

    Source: https://sqlite.org/fileformat.html, 1.3: four bytes, big-endian, at offset 60.
    """
    try:
        with path.open("rb") as file:
            header = file.read(64)
    except FileNotFoundError:
        return 0
    return int.from_bytes(header[60:64]) if header.startswith(b"SQLite format 3\0") and len(header) == 64 else 0  # noqa: PLR2004


def recover(path: Path) -> Opened:
    """Move a damaged file aside, make a new one and fill it with what can be read. The old connection is closed.

    Raises:
        sqlite3.Error: if no new file can be made.
        OSError: if the old file cannot be moved.
    """
    aside = _move_aside(path)
    connection = _connect(path)
    migrate(connection)
    n_recovered = salvage(aside, connection)
    rebuild_search(connection)
    return Opened(connection, path, "damaged", aside, n_recovered)


def close_database(connection: sqlite3.Connection) -> None:
    """Fold the log into the file and close."""
    with contextlib.suppress(sqlite3.Error):
        connection.execute("PRAGMA optimize")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def _connect(target: Path | str) -> sqlite3.Connection:
    """Connect and set up; waits up to `BUSY_TIMEOUT_S` for another window that does the same.

    SQLite does not wait by itself where a file is switched to WAL (https://sqlite.org/wal.html, "Sometimes queries
    return SQLITE_BUSY").
    """
    give_up_s = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            return _connect_once(target)
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > give_up_s:
                raise
        time.sleep(BUSY_PAUSE_S)


def _connect_once(target: Path | str) -> sqlite3.Connection:
    connection = sqlite3.connect(target, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    connection.text_factory = mended_text
    try:
        # Space of deleted conversations is given back by `Store.purge`; must come before the first table.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        # In WAL mode NORMAL loses nothing when the program dies; a power cut can take the last transactions, never
        # the file (https://sqlite.org/pragma.html#pragma_synchronous).
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA secure_delete = FAST")
        connection.execute("PRAGMA journal_size_limit = 67108864")
    except (sqlite3.Error, UnicodeDecodeError):
        connection.close()
        raise
    return connection


def _open_checked(path: Path) -> sqlite3.Connection:
    log_path = path.with_name(path.name + "-wal")
    was_closed_cleanly = not log_path.exists() or log_path.stat().st_size == 0
    connection = _connect(path)
    try:
        if not was_closed_cleanly and not are_tables_sound(connection):
            raise damage("a check found damage")
    except (sqlite3.Error, UnicodeDecodeError):
        connection.close()
        raise
    return connection


def are_tables_sound(connection: sqlite3.Connection) -> bool:
    """Whether what a person wrote is whole.

    The search index, which can be built anew, is not looked at, nor the bytes of files, which may be gigabytes.
    """
    try:
        there = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        checked = [table for table in TABLES if table in there and table != FILES_TABLE]
        verdicts = [connection.execute(f"PRAGMA quick_check({table})").fetchone()[0] for table in checked]
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return False
    return all(verdict == "ok" for verdict in verdicts)


def is_schema_sound(connection: sqlite3.Connection) -> bool:
    """Whether tables, indexes and triggers are those that the migrations make."""
    fresh = _connect(":memory:")
    try:
        migrate(fresh)
        wanted, found = (
            set(one.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL"))
            for one in (fresh, connection)
        )
    except (sqlite3.Error, UnicodeDecodeError):
        return False
    finally:
        fresh.close()
    return wanted <= found


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
    return aside
