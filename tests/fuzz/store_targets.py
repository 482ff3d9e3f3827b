"""Targets: the conversations file, with damaged bytes and with rows that make no sense."""

import math
import random
import sqlite3
import tempfile
from pathlib import Path
from typing import get_args

from app.conversations import group_of
from app.export import to_markdown
from app.store.records import (
    Attachment,
    AttachmentKind,
    ConversationChange,
    MessageRecord,
    MessageState,
    Preset,
)
from app.store.store import Store
from app.transcript import Transcript
from runtime.messages.shared import Role, ToolCall
from runtime.units import now_local
from tests.fuzz.damage import ODD_TEXTS
from tests.fuzz.target import Target

_TABLES = ("conversation", "message", "preset", "attached", "attachment")
_PAGE_BYTES = 4096
_N_CONVERSATIONS = 3


def targets() -> tuple[Target, ...]:
    """All of them."""
    return (
        Target("conversations file", _damaged_file, _check_file, ()),
        Target("rows of conversations", _damaged_rows, _check_file, ()),
    )


def _sound() -> bytes:
    if not _MADE:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "conversations.sqlite3"
            with Store(path) as store:
                for number in range(_N_CONVERSATIONS):
                    _fill(store, f"c{number}")
            _MADE.append(path.read_bytes())
    return _MADE[0]


_MADE: list[bytes] = []


def _fill(store: Store, name: str) -> None:
    picture = Attachment("ab" * 32, "image", "image/png", "cat.png", 9, 3, 4)
    calls = (ToolCall("call1", "search", '{"q": "a"}'),)
    rows = [
        MessageRecord(f"{name}q", name, "", "user", "What is on this picture? " * 20, attachments=(picture,)),
        MessageRecord(f"{name}a", name, f"{name}q", "assistant", "", "Hm.", tool_calls=calls),
        MessageRecord(f"{name}t", name, f"{name}a", "tool", "A cat.", tool_call_id="call1", tool_name="search"),
        MessageRecord(f"{name}b", name, f"{name}t", "assistant", "A *cat*.", state="generating"),
    ]
    change = ConversationChange(title=f"Cats {name}", model="org/model", draft="and", draft_attachments=(picture,))
    store.save({name: change}, rows, files={picture.sha256: b"not a cat"})
    store.put_preset(Preset(f"p{name}", "Brief", "Be brief."))


def _damaged_file(draw: random.Random) -> bytes:
    raw = bytearray(_sound())
    for _ in range(draw.choice((1, 1, 2, 5))):
        # Pages begin with what says where everything is.
        page = draw.randrange(len(raw) // _PAGE_BYTES) * _PAGE_BYTES
        at = min(page + draw.choice((draw.randrange(40), draw.randrange(_PAGE_BYTES))), len(raw) - 1)
        size = draw.choice((1, 1, 2, 8, 200))
        raw[at : at + size] = bytes(draw.randrange(256) for _ in range(min(size, len(raw) - at)))
    if draw.random() < 0.1:
        del raw[draw.randrange(len(raw)) :]
    return bytes(raw)


def _damaged_rows(draw: random.Random) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "conversations.sqlite3"
        path.write_bytes(_sound())
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA foreign_keys = OFF")
        for _ in range(draw.randint(1, 4)):
            table = draw.choice(_TABLES)
            columns = [(row[1], row[2]) for row in connection.execute(f"PRAGMA table_info({table})")]
            name, kind = draw.choice(columns)
            try:
                connection.execute(
                    f"UPDATE OR IGNORE {table} SET {name} = ? WHERE rowid % ? = 0",  # noqa: S608 - ours
                    (_odd_value(draw, kind), draw.choice((1, 2, 3))),
                )
            except sqlite3.IntegrityError:
                continue  # a column that refuses it
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.close()
        return path.read_bytes()


def _odd_value(draw: random.Random, kind: str) -> object:
    texts = (*ODD_TEXTS, "[" * 60_000, '{"a":' * 60_000, "user", "system", "queued", "[1]", '{"tools": 1}', "c1", "c0q")
    by_kind: dict[str, tuple[object, ...]] = {
        "TEXT": texts,
        "INTEGER": (0, -1, 7, 2**63 - 1, -(2**63)),
        "REAL": (0.0, -1.0, 1e18, -1e300, math.inf, 5e-324),
        "BLOB": (b"", b"\0\xff" * 9),
    }
    return draw.choice((*by_kind[kind], None))


def _check_file(raw: bytes, draw: random.Random) -> None:
    """Whatever the file holds: it opens, what can be read is shown, and what is written now is kept."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "conversations.sqlite3"
        path.write_bytes(raw)
        with Store(path) as store:
            assert store._opened.incident != "not_saved", store._opened.reason
            for row in store.run(lambda one: one.list_conversations(limit=50)).rows:
                group_of(row.pinned, row.updated_s, now_local())
                _show(store, row.id)
            store.run(lambda one: one.search(draw.choice(("cat", "*", '"', "ca", "日本")), limit=5))
            store.run(Store.presets)
            store.run(Store.purge)  # as the window does at its start, before anything is written
            store.run(Store.mark_interrupted)
            for row in store.run(lambda one: one.list_conversations(limit=50)).rows:
                store.run(lambda one, name=row.id: one.duplicate(name, f"{name} copy", "Copy"))  # type: ignore[misc]
            _write(store)
            aside = store._opened.aside
            assert aside is None or aside.exists(), "what a person wrote was thrown away"
        with Store(path) as store:
            assert [one.content for one in store.run(lambda one: one.messages("new"))] == ["Still here?"]


def _show(store: Store, name: str) -> None:
    record = store.run(lambda one: one.conversation(name))
    messages = store.run(lambda one: one.messages(name))
    for one in messages:
        assert one.role in get_args(Role)
        assert one.state in get_args(MessageState)
        for file in one.attachments:
            assert file.kind in get_args(AttachmentKind)
            store.run(lambda inner, sha256=file.sha256: inner.file_data(sha256))  # type: ignore[misc]
    transcript = Transcript(name, messages, active_child_id=record.active_child_id if record else "")
    for node in transcript.path():
        transcript.view(node)
    to_markdown(record.title if record else "", "", transcript)


def _write(store: Store) -> None:
    row = MessageRecord("new message", "new", "", "user", "Still here?")
    store.run(lambda one: one.save({"new": ConversationChange(title="New")}, [row]))
