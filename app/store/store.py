"""The store: every read and write of conversations, messages and presets. Lives on one thread; no Qt objects."""

import contextlib
import logging
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, TypeVar

import msgspec

from app.store.attachments import attach, attached, erase_orphans, file_data, put_files
from app.store.codec import (
    decode_failure,
    decode_options,
    decode_shape,
    decode_stats,
    decode_tool_calls,
    decode_tool_setup,
    encode,
    role_of,
    sound_time,
    state_of,
)
from app.store.database import Opened, are_tables_sound, close_database, is_schema_sound, open_database, recover
from app.store.faults import damage, fault_of, is_damage, primary_code
from app.store.records import (
    BUSY_STATES,
    Attachment,
    ConversationChange,
    ConversationRecord,
    FoundRow,
    MessageRecord,
    Preset,
)
from app.store.schema import rebuild_search
from app.store.search import find_conversations
from app.store.transaction import transaction
from app.title import title_from
from runtime import units
from runtime.messages.shared import AnswerShape

KEEP_DELETED_S = 24 * 3600.0
"""How long what was deleted can be brought back."""

PURGE_ROWS = 500
"""Most rows of a kind erased in one go, so that one purge stays short."""

STALE_S = 10.0
"""An unfinished answer not saved for so long has nobody who writes it (running ones are saved every second)."""

SNIPPET_CHARS = 120

_MAX_REPAIRS = 8
"""Repairs of one run of the program: a disk that damages what was just written is beyond us."""

R = TypeVar("R")

_log = logging.getLogger(__name__)

_CONVERSATION = (
    "id, title, titled_by_person, created_s, updated_s, pinned, model, preset_id, system_prompt, options, draft, "
    "active_child_id, shape, tools"
)
_MESSAGE = (
    "id, conversation_id, parent_id, role, content, reasoning, reasoning_s, state, notice, failure, stats, created_s, "
    "active_child_id, tool_calls, tool_call_id, tool_name, is_error, duration_s"
)
_JSON_FIELDS = ("options", "shape", "tools")
_SETTERS = {"title": "title = iif(titled_by_person, title, :title)"}
_BUSY = "('queued', 'reading', 'generating')"


def new_id() -> str:
    """A new id of a conversation, message or preset."""
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of the list; `has_more` tells that the limit cut some off."""

    rows: tuple[FoundRow, ...]
    has_more: bool


class Store:
    """All methods block and belong to one thread. SQLite's errors come out as `RuntimeFault`.

    A damaged file is moved aside and salvaged wherever it shows itself; `take_incident` then tells what to say.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened = open_database(path)
        self._has_rebuilt_search = False
        self._n_repairs = 0
        self._is_checked = False
        self._incidents: list[Opened] = [self._opened] if self._opened.incident else []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Fold the log into the file and close it."""
        close_database(self._opened.connection)

    def take_incident(self) -> Opened | None:
        """What happened to the file that a person must be told, once each."""
        return self._incidents.pop(0) if self._incidents else None

    @contextlib.contextmanager
    def _guard(self) -> Iterator[sqlite3.Connection]:
        try:
            yield self._opened.connection
        except sqlite3.Error as error:
            raise fault_of(error, self._path) from error
        except UnicodeDecodeError as error:  # of a message of SQLite that names what is damaged
            found = damage(str(error))
            raise fault_of(found, self._path) from found

    def run(self, work: Callable[[Self], R]) -> R:
        """`work(store)`; where it meets damage that is put right (the search index, then the whole file), once more.

        Raises:
            Exception: whatever `work` raises last.
        """
        while True:
            try:
                return work(self)
            except Exception as error:
                cause = error.__cause__ if isinstance(error.__cause__, sqlite3.Error) else error
                if not isinstance(cause, sqlite3.Error) or self._n_repairs >= _MAX_REPAIRS or not self.repair(cause):
                    raise
                self._n_repairs += 1
                _log.warning("the conversations file was repaired after: %s", cause)

    def repair(self, error: sqlite3.Error) -> bool:
        """After an error: put the file right if it is damaged. True when trying again makes sense."""
        path = self._opened.path
        # A rule of ours that is broken may also mean that its index is damaged, a refused statement that words are.
        is_rule = not is_damage(error) and (
            isinstance(error, sqlite3.IntegrityError) or primary_code(error) == sqlite3.SQLITE_ERROR
        )
        if path is None or not (is_rule or is_damage(error)):
            return False
        with self._guard() as connection:
            if is_rule and are_tables_sound(connection) and is_schema_sound(connection):
                return False
            if is_rule or not self._rebuild_search(connection):
                connection.close()
                self._opened = recover(path)
                self._incidents.append(self._opened)
        return True

    def _rebuild_search(self, connection: sqlite3.Connection) -> bool:
        """Whether the damage was in the search index alone, which is whole again."""
        if self._has_rebuilt_search or not are_tables_sound(connection):
            return False
        self._has_rebuilt_search = True
        try:
            rebuild_search(connection)
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            return False
        return True

    # --- conversations

    def list_conversations(self, *, limit: int) -> Found:
        """Pinned ones first, then newest first, with the beginning of their last message. Empty ones are left out."""
        with self._guard() as connection:
            rows = connection.execute(
                """
                SELECT id, title, updated_s, pinned, coalesce((
                    SELECT substr(content, 1, ?) FROM message
                    WHERE conversation_id = conversation.id AND deleted_s IS NULL AND role <> 'tool' AND content <> ''
                    ORDER BY seq DESC LIMIT 1
                ), draft)
                FROM conversation WHERE deleted_s IS NULL AND (
                    title <> '' OR draft <> '' OR pinned
                    OR EXISTS (SELECT 1 FROM message WHERE conversation_id = conversation.id AND deleted_s IS NULL)
                ) ORDER BY pinned DESC, updated_s DESC LIMIT ?
                """,
                (SNIPPET_CHARS, limit + 1),
            ).fetchall()
        found = tuple(FoundRow(row[0], row[1], sound_time(row[2]), bool(row[3]), row[4]) for row in rows[:limit])
        return Found(found, len(rows) > limit)

    def search(self, text: str, *, limit: int) -> Found:
        """Conversations that hold the words; any text is safe."""
        with self._guard() as connection:
            rows = find_conversations(connection, text, limit=limit + 1)
        return Found(rows[:limit], len(rows) > limit)

    def conversation(self, conversation_id: str) -> ConversationRecord | None:
        """One conversation, also a deleted one."""
        with self._guard() as connection:
            row = connection.execute(
                f"SELECT {_CONVERSATION} FROM conversation WHERE id = ?",  # noqa: S608 - a constant
                (conversation_id,),
            ).fetchone()
            files = attached(connection, conversation_id)
        return None if row is None else _conversation(row, files.get("", ()))

    def rename(self, conversation_id: str, title: str) -> None:
        """A person's own title; an empty one brings the automatic title, from the first question, back."""
        with self._guard() as connection:
            first = connection.execute(
                "SELECT content FROM message WHERE conversation_id = ? AND deleted_s IS NULL ORDER BY seq LIMIT 1",
                (conversation_id,),
            ).fetchone()
            connection.execute(
                "UPDATE conversation SET title = ?, titled_by_person = ? WHERE id = ?",
                (title or title_from(first[0] if first else ""), bool(title), conversation_id),
            )

    def set_pinned(self, conversation_id: str, *, pinned: bool) -> None:
        """Keep on top, or not."""
        with self._guard() as connection:
            connection.execute("UPDATE conversation SET pinned = ? WHERE id = ?", (pinned, conversation_id))

    def set_deleted(self, conversation_id: str, *, deleted: bool) -> None:
        """Delete, or bring back until `KEEP_DELETED_S` later."""
        with self._guard() as connection:
            connection.execute(
                "UPDATE conversation SET deleted_s = ? WHERE id = ?",
                (units.now() if deleted else None, conversation_id),
            )

    def duplicate(self, conversation_id: str, copy_id: str, title: str) -> None:
        """Copy with all branches under a new id. An unfinished answer is copied as interrupted."""
        record = self.conversation(conversation_id)
        if record is None:
            return
        messages = self.messages(conversation_id)
        ids = {message.id: new_id() for message in messages}
        copies: list[MessageRecord] = []
        placed: set[str] = set()
        for message in messages:
            copies.append(
                replace(
                    message,
                    id=ids[message.id],
                    conversation_id=copy_id,
                    # A parent that is gone, or comes behind its child in a damaged file, is none.
                    parent_id=ids[message.parent_id] if message.parent_id in placed else "",
                    active_child_id=ids.get(message.active_child_id, ""),
                    state="interrupted" if message.state in BUSY_STATES else message.state,
                )
            )
            placed.add(message.id)
        now_s = units.now()
        with self._guard() as connection, transaction(connection):
            connection.execute(
                f"INSERT INTO conversation ({_CONVERSATION}) VALUES (?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                (
                    copy_id,
                    title,
                    record.titled_by_person,
                    now_s,
                    now_s,
                    record.model,
                    record.preset_id,
                    record.system_prompt,
                    encode(record.options),
                    record.draft,
                    ids.get(record.active_child_id, ""),
                    encode(record.shape),
                    encode(record.tools),
                ),
            )
            attach(connection, copy_id, None, record.draft_attachments)
            _put_messages(connection, copies)

    # --- messages

    def messages(self, conversation_id: str) -> tuple[MessageRecord, ...]:
        """All messages of all branches, parents before children, deleted ones left out."""
        with self._guard() as connection:
            rows = connection.execute(
                f"SELECT {_MESSAGE} FROM message WHERE conversation_id = ? AND deleted_s IS NULL ORDER BY seq",  # noqa: S608
                (conversation_id,),
            ).fetchall()
            files = attached(connection, conversation_id)
        return tuple(_message(row, files.get(row[0], ())) for row in rows)

    def file_data(self, sha256: str) -> bytes | None:
        """The bytes of an attachment; `None` where they were lost."""
        with self._guard() as connection:
            return file_data(connection, sha256)

    def save(
        self,
        changes: dict[str, ConversationChange],
        messages: Iterable[MessageRecord] = (),
        deletions: dict[str, bool] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        """Write changes of conversations (made if new) and whole messages (made or replaced), all or nothing.

        Parents come before their children. `deletions` tells by message id whether it is deleted from now on, or
        brought back (possible until `KEEP_DELETED_S` later). `files` are bytes of attachments by hash.
        """
        with self._guard() as connection, transaction(connection):
            put_files(connection, files or {})
            for conversation_id, change in changes.items():
                now_s = units.now()
                connection.execute(
                    "INSERT OR IGNORE INTO conversation (id, created_s, updated_s) VALUES (?, ?, ?)",
                    (conversation_id, now_s, now_s),
                )
                fields = {
                    name: encode(value) if name in _JSON_FIELDS else value
                    for name in change.__struct_fields__
                    if (value := getattr(change, name)) is not msgspec.UNSET and name != "draft_attachments"
                }
                if change.draft_attachments is not msgspec.UNSET:
                    attach(connection, conversation_id, None, change.draft_attachments)
                if fields:
                    setters = ", ".join(_SETTERS.get(name, f"{name} = :{name}") for name in fields)
                    connection.execute(
                        f"UPDATE conversation SET {setters} WHERE id = :conversation_id",  # noqa: S608 - field names
                        fields | {"conversation_id": conversation_id},
                    )
            _put_messages(connection, messages)
            connection.executemany(
                "UPDATE message SET deleted_s = ? WHERE id = ?",
                [(units.now() if deleted else None, one) for one, deleted in (deletions or {}).items()],
            )

    def mark_interrupted(self) -> int:
        """Answers that nobody writes any more become "interrupted"; what came stays.

        Returns:
            How many there were.
        """
        with self._guard() as connection:
            done = connection.execute(
                f"UPDATE message SET state = 'interrupted' WHERE state IN {_BUSY} AND saved_s < ?",  # noqa: S608
                (units.now() - STALE_S,),
            )
        return done.rowcount

    # --- presets

    def presets(self) -> tuple[Preset, ...]:
        """All presets by name, deleted ones left out."""
        with self._guard() as connection:
            rows = connection.execute(
                "SELECT id, name, system_prompt, options, shape FROM preset WHERE deleted_s IS NULL "
                "ORDER BY name COLLATE NOCASE"
            ).fetchall()
        return tuple(
            Preset(row[0], row[1], row[2], options, decode_shape(row[4]) or AnswerShape())
            for row in rows
            if (options := decode_options(row[3])) is not None
        )

    def put_preset(self, preset: Preset) -> None:
        """Make or replace a preset; a deleted one is brought back."""
        with self._guard() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO preset (id, name, system_prompt, options, shape) VALUES (?, ?, ?, ?, ?)",
                (preset.id, preset.name, preset.system_prompt, encode(preset.options), encode(preset.shape)),
            )

    def delete_preset(self, preset: Preset) -> None:
        """Delete a preset; conversations that follow it keep its values as their own."""
        with self._guard() as connection, transaction(connection):
            connection.execute("UPDATE preset SET deleted_s = ? WHERE id = ?", (units.now(), preset.id))
            connection.execute(
                """
                UPDATE conversation SET preset_id = '', system_prompt = coalesce(system_prompt, ?),
                options = coalesce(options, ?), shape = coalesce(shape, ?) WHERE preset_id = ?
                """,
                (preset.system_prompt, encode(preset.options), encode(preset.shape), preset.id),
            )

    # --- housekeeping

    def purge(self) -> None:
        """Erase what was deleted longer than `KEEP_DELETED_S` ago, at most `PURGE_ROWS` of a kind.

        The first time the whole file is checked: through a damaged index SQLite finds nothing, and says nothing.
        """
        before_s = units.now() - KEEP_DELETED_S
        with self._guard() as connection:
            if not self._is_checked:
                self._is_checked = True
                if not are_tables_sound(connection):
                    raise damage("a check found damage")
            with transaction(connection):
                for table in ("conversation", "message", "preset"):
                    connection.execute(
                        f"DELETE FROM {table} WHERE rowid IN "  # noqa: S608 - one of the three names above
                        f"(SELECT rowid FROM {table} WHERE deleted_s < ? LIMIT ?)",
                        (before_s, PURGE_ROWS),
                    )
                erase_orphans(connection, limit=PURGE_ROWS)
            connection.execute("PRAGMA incremental_vacuum(2000)").fetchall()


def _put_messages(connection: sqlite3.Connection, messages: Iterable[MessageRecord]) -> None:
    now_s = units.now()
    messages = tuple(messages)
    connection.executemany(
        f"""
        INSERT INTO message ({_MESSAGE}, saved_s) VALUES ({", ".join("?" * (_MESSAGE.count(",") + 2))})
        ON CONFLICT (id) DO UPDATE SET content = excluded.content, reasoning = excluded.reasoning,
        reasoning_s = excluded.reasoning_s, state = excluded.state, notice = excluded.notice,
        failure = excluded.failure, stats = excluded.stats, active_child_id = excluded.active_child_id,
        tool_calls = excluded.tool_calls, is_error = excluded.is_error, duration_s = excluded.duration_s,
        saved_s = excluded.saved_s
        """,  # noqa: S608 - a constant
        [
            (
                one.id,
                one.conversation_id,
                one.parent_id or None,
                one.role,
                one.content,
                one.reasoning,
                one.reasoning_s,
                one.state,
                one.notice,
                encode(one.failure),
                encode(one.stats),
                one.created_s,
                one.active_child_id,
                encode(one.tool_calls or None),
                one.tool_call_id,
                one.tool_name,
                one.is_error,
                one.duration_s,
                now_s,
            )
            for one in messages
        ],
    )
    for one in messages:
        if one.attachments:  # never taken away from a message
            attach(connection, one.conversation_id, one.id, one.attachments)


_Row = tuple[  # columns of _CONVERSATION
    str, str, int, float, float, int, str, str, str | None, str | None, str, str, str | None,
    str | None,
]  # fmt: skip


def _conversation(row: _Row, draft_attachments: tuple[Attachment, ...]) -> ConversationRecord:
    return ConversationRecord(
        id=row[0],
        title=row[1],
        titled_by_person=bool(row[2]),
        created_s=sound_time(row[3]),
        updated_s=sound_time(row[4]),
        pinned=bool(row[5]),
        model=row[6],
        preset_id=row[7],
        system_prompt=row[8],
        options=decode_options(row[9]),
        draft=row[10],
        active_child_id=row[11],
        shape=decode_shape(row[12]),
        draft_attachments=draft_attachments,
        tools=decode_tool_setup(row[13]),
    )


_MessageRow = tuple[  # columns of _MESSAGE
    str, str, str | None, str, str, str, float | None, str, str, str | None, str | None, float, str,
    str | None, str, str, int, float | None,
]  # fmt: skip


def _message(row: _MessageRow, attachments: tuple[Attachment, ...]) -> MessageRecord:
    return MessageRecord(
        id=row[0],
        conversation_id=row[1],
        parent_id=row[2] or "",
        role=role_of(row[3]),
        content=row[4],
        reasoning=row[5],
        reasoning_s=row[6],
        state=state_of(row[7]),
        notice=row[8],
        failure=decode_failure(row[9]),
        stats=decode_stats(row[10]),
        created_s=sound_time(row[11]),
        active_child_id=row[12],
        tool_calls=decode_tool_calls(row[13]),
        tool_call_id=row[14],
        tool_name=row[15],
        is_error=bool(row[16]),
        duration_s=row[17],
        attachments=attachments,
    )
