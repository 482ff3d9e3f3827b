"""What SQLite says, as this program's errors. The only module that reads SQLite's error codes."""

import sqlite3
from pathlib import Path

from PySide6.QtCore import QCoreApplication

from runtime.errors import BugFault, RuntimeFault, StorageFault

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_WORLD = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "the file is write-protected",
    sqlite3.SQLITE_PERM: "access is denied",
    sqlite3.SQLITE_AUTH: "access is denied",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened",
    sqlite3.SQLITE_IOERR: "the disk reported an error",
    sqlite3.SQLITE_BUSY: "another program holds the file",
    sqlite3.SQLITE_LOCKED: "another program holds the file",
    sqlite3.SQLITE_NOMEM: "memory is full",
    sqlite3.SQLITE_TOOBIG: "a text is too long",
    sqlite3.SQLITE_CORRUPT: "the file is damaged",
    sqlite3.SQLITE_NOTADB: "the file is damaged",
}


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's primary result code (the low byte; https://sqlite.org/rescode.html), 0 if it gave none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file itself is damaged.

    Our own tables say which of their rules was broken; where nothing is said, it was one inside the search index, as
    where that index asks to be made anew.
    """
    code = int(getattr(error, "sqlite_errorcode", 0))
    is_index = code in (sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_CONSTRAINT_VTAB) or "run 'rebuild'" in str(error)
    return is_index or primary_code(error) in _DAMAGED


def damage(words: str) -> sqlite3.DatabaseError:
    """An error that says that the file is damaged, where Python's own says something else."""
    error = sqlite3.DatabaseError(words)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection is in the way for now."""
    return primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def fault_of(error: sqlite3.Error, path: Path) -> RuntimeFault:
    """The world's fault (disk full, damaged, locked) as `StorageFault`, anything else as `BugFault`."""
    reason = _WORLD.get(primary_code(error))
    if reason is None:
        return BugFault(f"The conversations file refused a statement: {error}")
    text = QCoreApplication.translate("Store", "Your conversations could not be read or saved: {reason}.")
    return StorageFault(text.format(reason=QCoreApplication.translate("Store", reason)), path=str(path))
