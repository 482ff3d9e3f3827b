"""Files of messages and drafts: their bytes once by hash, and who they belong to."""

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import astuple

from app.store.codec import kind_of
from app.store.records import Attachment

_MOST = 2**31 - 1
_COLUMNS = "sha256, kind, mime, name, size_bytes, width_px, height_px"


def put_files(connection: sqlite3.Connection, files: Mapping[str, bytes]) -> None:
    """Keep the bytes of these files by their hash; those already there stay."""
    connection.executemany("INSERT OR IGNORE INTO attachment (sha256, data) VALUES (?, ?)", files.items())


def file_data(connection: sqlite3.Connection, sha256: str) -> bytes | None:
    """The bytes of a file, or `None` where they are gone."""
    row = connection.execute("SELECT data FROM attachment WHERE sha256 = ?", (sha256,)).fetchone()
    return None if row is None else bytes(row[0])


def attach(
    connection: sqlite3.Connection, conversation_id: str, message_id: str | None, attachments: Iterable[Attachment]
) -> None:
    """Make these the files of a message, or of the conversation's draft where there is no message."""
    connection.execute(
        "DELETE FROM attached WHERE conversation_id = ? AND message_id IS ?", (conversation_id, message_id)
    )
    connection.executemany(
        f"INSERT INTO attached (conversation_id, message_id, position, {_COLUMNS}) "  # noqa: S608 - a constant
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [(conversation_id, message_id, at, *astuple(one)) for at, one in enumerate(attachments)],
    )


def attached(connection: sqlite3.Connection, conversation_id: str) -> dict[str, tuple[Attachment, ...]]:
    """The files of a conversation by message id, in order; those of its draft under the empty id."""
    rows = connection.execute(
        f"SELECT message_id, {_COLUMNS} FROM attached WHERE conversation_id = ? "  # noqa: S608 - a constant
        "ORDER BY message_id, position",
        (conversation_id,),
    ).fetchall()
    found: dict[str, tuple[Attachment, ...]] = {}
    for row in rows:
        message_id = row[0] or ""
        found[message_id] = (*found.get(message_id, ()), _attachment(*row[1:]))
    return found


def _attachment(
    sha256: str, kind: str, mime: str, name: str, size_bytes: int, width_px: int, height_px: int
) -> Attachment:
    sizes = (min(max(size, 0), _MOST) for size in (size_bytes, width_px, height_px))
    return Attachment(sha256, kind_of(kind), mime, name, *sizes)


def erase_orphans(connection: sqlite3.Connection, *, limit: int) -> None:
    """Erase bytes that belong to no message and no draft any more, at most `limit` files."""
    connection.execute(
        "DELETE FROM attachment WHERE seq IN (SELECT seq FROM attachment WHERE sha256 NOT IN "
        "(SELECT sha256 FROM attached) LIMIT ?)",
        (limit,),
    )
