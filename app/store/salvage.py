"""Reading what can be read out of a damaged file."""

import contextlib
import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from app.store.transaction import transaction
from app.title import title_from

FILES_TABLE = "attachment"
"""Bytes of pictures, sounds and text files."""

TABLES = ("conversation", "message", "preset", "attached", FILES_TABLE)

_log = logging.getLogger(__name__)


def mended_text(raw: bytes) -> str:
    """A text as it is stored; a damaged letter costs itself, not the row."""
    return raw.decode("utf-8", "replace")


def salvage(damaged: Path, target: sqlite3.Connection) -> int:
    """Copy every readable row into `target`, which has the newest tables and is empty.

    A table is read forwards up to the first damaged page and backwards down to the last one, so what is lost lies
    between. Messages without their conversation get one of their own, titled anew; those without their parent become
    first ones.

    Returns:
        Number of conversations in `target` afterwards.
    """
    source = sqlite3.connect(damaged, isolation_level=None)
    source.text_factory = mended_text
    try:
        # An index or a trigger whose own words are damaged would otherwise hide every table (sqlite.org/pragma.html).
        source.execute("PRAGMA writable_schema = ON")
        target.execute("PRAGMA foreign_keys = OFF")
        with transaction(target):
            for table in TABLES:
                _copy(source, target, table)
            _join_loose_ends(target)
        target.execute("PRAGMA foreign_keys = ON")
    finally:
        with contextlib.suppress(sqlite3.Error):
            source.close()
    return int(target.execute("SELECT count(*) FROM conversation WHERE deleted_s IS NULL").fetchone()[0])


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    try:
        return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return []


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, table: str) -> None:
    known = set(_columns(target, table))
    columns = [name for name in _columns(source, table) if name in known]
    if not columns:
        return
    names = ", ".join(columns)
    insert = f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608 - ours
    for direction in ("ASC", "DESC"):
        complete = True
        for row in _readable(source, f"SELECT {names} FROM {table} ORDER BY rowid {direction}"):  # noqa: S608 - ours
            if row is None:
                complete = False
                break
            with contextlib.suppress(sqlite3.IntegrityError):  # a damaged value: the row cannot be kept
                target.execute(insert, row)
        if complete:
            return


def _readable(source: sqlite3.Connection, query: str) -> Iterator[tuple[object, ...] | None]:
    """Rows up to the end, or up to the first one that cannot be read, then `None`."""
    try:
        yield from source.execute(query)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        _log.warning("a damaged table could not be read to its end: %s", error)
        yield None


def _join_loose_ends(target: sqlite3.Connection) -> None:
    target.execute(
        """
        INSERT INTO conversation (id, created_s, updated_s)
        SELECT conversation_id, min(created_s), max(created_s) FROM message
        WHERE conversation_id NOT IN (SELECT id FROM conversation) GROUP BY conversation_id
        """
    )
    target.execute(
        "UPDATE message SET parent_id = NULL WHERE parent_id IS NOT NULL AND parent_id NOT IN (SELECT id FROM message)"
    )
    target.execute(
        "DELETE FROM attached WHERE conversation_id NOT IN (SELECT id FROM conversation) "
        "OR (message_id IS NOT NULL AND message_id NOT IN (SELECT id FROM message))"
    )
    untitled = target.execute(
        """
        SELECT c.id, (SELECT content FROM message WHERE conversation_id = c.id AND role = 'user' ORDER BY seq LIMIT 1)
        FROM conversation c WHERE c.title = ''
        """
    ).fetchall()
    for conversation_id, question in untitled:
        title = title_from(question or "")
        target.execute("UPDATE conversation SET title = ? WHERE id = ?", (title, conversation_id))
