"""The tables, as numbered migrations. `PRAGMA user_version` is the number of the last one applied.

To add one: append a `Migration`, never change an old one, and write `test_when_migrated_to_<number>_then_...` in
`tests/app/store/test_schema.py` (a test counts them).
"""

import sqlite3
from dataclasses import dataclass

from app.store.transaction import transaction


@dataclass(frozen=True, slots=True)
class Migration:
    """One step. `script` is run as a whole inside one transaction."""

    number: int
    name: str
    statements: tuple[str, ...]


# Search indexes are external-content FTS5 tables kept in step by triggers (https://sqlite.org/fts5.html, 4.4.3).
# An answer enters the index when it is complete, not at each save while it streams.
_IS_INDEXED = "{row}.state NOT IN ('queued', 'reading', 'generating')"
_ADD = "INSERT INTO message_text (rowid, content, reasoning) SELECT new.seq, new.content, new.reasoning WHERE "
_DROP = (
    "INSERT INTO message_text (message_text, rowid, content, reasoning) "
    "SELECT 'delete', old.seq, old.content, old.reasoning WHERE "
)

MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        1,
        "conversations, messages, presets, search",
        (
            """
            CREATE TABLE conversation (
                seq INTEGER PRIMARY KEY,
                id TEXT NOT NULL UNIQUE,
                title TEXT NOT NULL DEFAULT '',
                titled_by_person INTEGER NOT NULL DEFAULT 0,
                created_s REAL NOT NULL,
                updated_s REAL NOT NULL,
                pinned INTEGER NOT NULL DEFAULT 0,
                deleted_s REAL,
                model TEXT NOT NULL DEFAULT '',
                preset_id TEXT NOT NULL DEFAULT '',
                system_prompt TEXT,
                options TEXT,
                draft TEXT NOT NULL DEFAULT '',
                active_child_id TEXT NOT NULL DEFAULT ''
            ) STRICT
            """,
            "CREATE INDEX conversation_by_time ON conversation (deleted_s, pinned, updated_s)",
            """
            CREATE TABLE message (
                seq INTEGER PRIMARY KEY,
                id TEXT NOT NULL UNIQUE,
                conversation_id TEXT NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
                parent_id TEXT REFERENCES message (id) ON DELETE CASCADE,
                role TEXT NOT NULL,
                content TEXT NOT NULL,
                reasoning TEXT NOT NULL DEFAULT '',
                reasoning_s REAL,
                state TEXT NOT NULL,
                notice TEXT NOT NULL DEFAULT '',
                failure TEXT,
                stats TEXT,
                created_s REAL NOT NULL,
                saved_s REAL NOT NULL,
                deleted_s REAL,
                active_child_id TEXT NOT NULL DEFAULT ''
            ) STRICT
            """,
            "CREATE INDEX message_by_conversation ON message (conversation_id, seq)",
            "CREATE INDEX message_by_parent ON message (parent_id)",
            "CREATE INDEX message_unfinished ON message (state) WHERE state IN ('queued', 'reading', 'generating')",
            "CREATE INDEX message_deleted ON message (deleted_s) WHERE deleted_s IS NOT NULL",
            """
            CREATE TABLE preset (
                id TEXT PRIMARY KEY,
                name TEXT NOT NULL,
                system_prompt TEXT NOT NULL DEFAULT '',
                options TEXT NOT NULL,
                deleted_s REAL
            ) STRICT
            """,
            """
            CREATE VIRTUAL TABLE message_text USING fts5 (
                content, reasoning, content = 'message', content_rowid = 'seq',
                tokenize = "unicode61 remove_diacritics 2", prefix = '2 3'
            )
            """,
            """
            CREATE VIRTUAL TABLE conversation_text USING fts5 (
                title, content = 'conversation', content_rowid = 'seq',
                tokenize = "unicode61 remove_diacritics 2", prefix = '2 3'
            )
            """,
            f"""
            CREATE TRIGGER message_added AFTER INSERT ON message BEGIN
                {_ADD} {_IS_INDEXED.format(row="new")};
            END
            """,
            f"""
            CREATE TRIGGER message_removed AFTER DELETE ON message BEGIN
                {_DROP} {_IS_INDEXED.format(row="old")};
            END
            """,
            f"""
            CREATE TRIGGER message_changed AFTER UPDATE OF content, reasoning, state ON message BEGIN
                {_DROP} {_IS_INDEXED.format(row="old")};
                {_ADD} {_IS_INDEXED.format(row="new")};
            END
            """,
            """
            CREATE TRIGGER conversation_added AFTER INSERT ON conversation BEGIN
                INSERT INTO conversation_text (rowid, title) VALUES (new.seq, new.title);
            END
            """,
            """
            CREATE TRIGGER conversation_removed AFTER DELETE ON conversation BEGIN
                INSERT INTO conversation_text (conversation_text, rowid, title) VALUES ('delete', old.seq, old.title);
            END
            """,
            """
            CREATE TRIGGER conversation_retitled AFTER UPDATE OF title ON conversation BEGIN
                INSERT INTO conversation_text (conversation_text, rowid, title) VALUES ('delete', old.seq, old.title);
                INSERT INTO conversation_text (rowid, title) VALUES (new.seq, new.title);
            END
            """,
        ),
    ),
    Migration(
        2,
        "tools, attachments, shape of answers",
        (
            "ALTER TABLE message ADD COLUMN tool_calls TEXT",
            "ALTER TABLE message ADD COLUMN tool_call_id TEXT NOT NULL DEFAULT ''",
            "ALTER TABLE message ADD COLUMN tool_name TEXT NOT NULL DEFAULT ''",
            "ALTER TABLE message ADD COLUMN is_error INTEGER NOT NULL DEFAULT 0",
            "ALTER TABLE message ADD COLUMN duration_s REAL",
            "ALTER TABLE conversation ADD COLUMN shape TEXT",
            "ALTER TABLE preset ADD COLUMN shape TEXT",
            """
            CREATE TABLE attachment (
                seq INTEGER PRIMARY KEY,
                sha256 TEXT NOT NULL UNIQUE,
                data BLOB NOT NULL
            ) STRICT
            """,
            # Which files belong to a message, or (without one) to the draft of a conversation. The hash is no foreign
            # key: of a file lost with a damaged database the message still tells that it was there.
            """
            CREATE TABLE attached (
                seq INTEGER PRIMARY KEY,
                conversation_id TEXT NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
                message_id TEXT REFERENCES message (id) ON DELETE CASCADE,
                position INTEGER NOT NULL,
                sha256 TEXT NOT NULL,
                kind TEXT NOT NULL,
                mime TEXT NOT NULL,
                name TEXT NOT NULL,
                size_bytes INTEGER NOT NULL,
                width_px INTEGER NOT NULL DEFAULT 0,
                height_px INTEGER NOT NULL DEFAULT 0
            ) STRICT
            """,
            "CREATE INDEX attached_to_message ON attached (message_id)",
            "CREATE INDEX attached_to_conversation ON attached (conversation_id)",
            "CREATE INDEX attached_by_hash ON attached (sha256)",
        ),
    ),
    Migration(3, "tools a conversation uses", ("ALTER TABLE conversation ADD COLUMN tools TEXT",)),
)

LATEST = MIGRATIONS[-1].number


def version_of(connection: sqlite3.Connection) -> int:
    """Number of the last migration applied."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, *, up_to: int = LATEST) -> None:
    """Apply what is missing, each step whole or not at all.

    Raises:
        sqlite3.Error: if a step fails; earlier steps stay.
    """
    for step in MIGRATIONS:
        if not version_of(connection) < step.number <= up_to:
            continue
        with transaction(connection):
            # Two windows may begin at once: the second one waited for the lock, and finds the step done.
            if version_of(connection) < step.number:
                for statement in step.statements:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {step.number}")


def rebuild_search(connection: sqlite3.Connection) -> None:
    """Build the search indexes anew from the texts."""
    with transaction(connection):
        connection.execute("INSERT INTO conversation_text (conversation_text) VALUES ('rebuild')")
        # 'rebuild' would also take in answers that are still being written, and the triggers could then not take
        # them out again exactly: empty the index and add the complete ones.
        connection.execute("INSERT INTO message_text (message_text) VALUES ('delete-all')")
        connection.execute(
            "INSERT INTO message_text (rowid, content, reasoning) SELECT seq, content, reasoning FROM message "
            "WHERE state NOT IN ('queued', 'reading', 'generating')"
        )
