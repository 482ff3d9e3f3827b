"""A person's words, turned into a search that cannot be malformed, and its hits."""

import re
import sqlite3
from dataclasses import dataclass

from app.store.codec import sound_time
from app.store.records import HIT_BEGIN, HIT_END, FoundRow

MAX_TERMS = 16
"""Words of a search that count; the rest is passed over."""

MAX_HITS = 400
"""Messages looked at, best first, before they are folded into conversations."""

SNIPPET_TOKENS = 16

# Scripts written without spaces: the index sees a whole sentence as one word there, so text is compared instead.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_SNIPPET_CHARS = 80


@dataclass(frozen=True, slots=True)
class _Hit:
    conversation_id: str
    snippet: str


def match_expression(text: str) -> str:
    """An FTS5 expression: every word quoted, the last one as a prefix. Empty when there is no word in it."""
    terms = re.findall(r"\w+", text.replace("\0", " "))[:MAX_TERMS]
    # A word of marks alone (an underscore) leaves an empty phrase, which FTS5 takes as "matches nothing".
    return " ".join(f'"{term}"' for term in terms) + "*" if terms else ""


def find_conversations(connection: sqlite3.Connection, text: str, *, limit: int) -> tuple[FoundRow, ...]:
    """Conversations with all the words in their title or in one of their messages, titles first, best first."""
    expression = match_expression(text)
    if not text.strip():
        return ()
    if not expression or _UNSPACED.search(text):
        hits = _compare(connection, text.strip())
    else:
        hits = _match(connection, expression)
    found: dict[str, str] = {}
    for hit in hits:
        if len(found) >= limit and hit.conversation_id not in found:
            break
        if not found.get(hit.conversation_id):
            found[hit.conversation_id] = hit.snippet
    return tuple(row for row in (_row(connection, key, snippet) for key, snippet in found.items()) if row is not None)


def _match(connection: sqlite3.Connection, expression: str) -> list[_Hit]:
    titles = connection.execute(
        """
        SELECT c.id FROM conversation_text JOIN conversation c ON c.seq = conversation_text.rowid
        WHERE conversation_text MATCH ? AND c.deleted_s IS NULL ORDER BY rank LIMIT ?
        """,
        (expression, MAX_HITS),
    ).fetchall()
    texts = connection.execute(
        """
        SELECT m.conversation_id, snippet(message_text, -1, ?, ?, '…', ?)
        FROM message_text JOIN message m ON m.seq = message_text.rowid
        JOIN conversation c ON c.id = m.conversation_id
        WHERE message_text MATCH ? AND m.deleted_s IS NULL AND c.deleted_s IS NULL
        ORDER BY rank LIMIT ?
        """,
        (HIT_BEGIN, HIT_END, SNIPPET_TOKENS, expression, MAX_HITS),
    ).fetchall()
    return [_Hit(row[0], "") for row in titles] + [_Hit(row[0], row[1]) for row in texts]


def _compare(connection: sqlite3.Connection, text: str) -> list[_Hit]:
    pattern = "%" + re.sub(r"([\\%_])", r"\\\1", text) + "%"
    titles = connection.execute(
        r"""
        SELECT id FROM conversation WHERE title LIKE ? ESCAPE '\' AND deleted_s IS NULL
        ORDER BY updated_s DESC LIMIT ?
        """,
        (pattern, MAX_HITS),
    ).fetchall()
    texts = connection.execute(
        r"""
        SELECT m.conversation_id, CASE WHEN m.content LIKE :p ESCAPE '\' THEN m.content ELSE m.reasoning END
        FROM message m JOIN conversation c ON c.id = m.conversation_id
        WHERE (m.content LIKE :p ESCAPE '\' OR m.reasoning LIKE :p ESCAPE '\')
        AND m.deleted_s IS NULL AND c.deleted_s IS NULL ORDER BY c.updated_s DESC, m.seq DESC LIMIT :n
        """,
        {"p": pattern, "n": MAX_HITS},
    ).fetchall()
    return [_Hit(row[0], "") for row in titles] + [_Hit(row[0], _cut_out(row[1], text)) for row in texts]


def _cut_out(whole: str, text: str) -> str:
    at = whole.lower().find(text.lower())
    if at < 0 or len(whole.lower()) != len(whole):
        return whole[:_SNIPPET_CHARS]
    begin = max(0, at - _SNIPPET_CHARS // 2)
    end = at + len(text)
    before = ("…" if begin else "") + whole[begin:at]
    after = whole[end : end + _SNIPPET_CHARS // 2]
    return before + HIT_BEGIN + whole[at:end] + HIT_END + after


def _row(connection: sqlite3.Connection, conversation_id: str, snippet: str) -> FoundRow | None:
    row = connection.execute(
        "SELECT id, title, updated_s, pinned FROM conversation WHERE id = ?", (conversation_id,)
    ).fetchone()
    return None if row is None else FoundRow(row[0], row[1], sound_time(row[2]), bool(row[3]), snippet)
