"""Migrations: each has its test, each is whole or not at all."""

import sqlite3
from collections.abc import Iterator

import pytest

from app.store.schema import LATEST, MIGRATIONS, migrate, rebuild_search, version_of


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    one = sqlite3.connect(":memory:", isolation_level=None)
    one.execute("PRAGMA foreign_keys = ON")
    yield one
    one.close()


def test_when_a_migration_is_added_then_it_has_a_test_of_its_number() -> None:
    for step in MIGRATIONS:
        assert any(name.startswith(f"test_when_migrated_to_{step.number}_then_") for name in globals()), step.name
    assert [step.number for step in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))


def test_when_migrated_to_1_then_texts_are_found_and_children_go_with_their_parents(
    connection: sqlite3.Connection,
) -> None:
    migrate(connection, up_to=1)
    assert version_of(connection) == 1
    connection.execute("INSERT INTO conversation (id, title, created_s, updated_s) VALUES ('c', 'Whales', 1, 1)")
    for one, parent, text in (("a", None, "hello ocean"), ("b", "a", "deep blue")):
        connection.execute(
            "INSERT INTO message (id, conversation_id, parent_id, role, content, state, created_s, saved_s) "
            "VALUES (?, 'c', ?, 'user', ?, 'done', 1, 1)",
            (one, parent, text),
        )
    assert _found(connection, "ocean") == 1
    connection.execute("UPDATE message SET content = 'changed' WHERE id = 'a'")
    assert (_found(connection, "ocean"), _found(connection, "changed")) == (0, 1)
    connection.execute("DELETE FROM conversation")
    assert connection.execute("SELECT count(*) FROM message").fetchone() == (0,)
    assert (_found(connection, "blue"), _found(connection, "changed")) == (0, 0)
    connection.execute("INSERT INTO message_text (message_text, rank) VALUES ('integrity-check', 1)")


def test_when_migrated_to_3_then_conversations_have_no_own_choice_of_tools(connection: sqlite3.Connection) -> None:
    migrate(connection, up_to=2)
    connection.execute("INSERT INTO conversation (id, title, created_s, updated_s) VALUES ('c', 'Whales', 1, 1)")
    migrate(connection, up_to=3)
    assert connection.execute("SELECT title, tools FROM conversation").fetchall() == [("Whales", None)]


def test_when_migrated_to_2_then_what_was_there_stays_and_files_go_with_their_message(
    connection: sqlite3.Connection,
) -> None:
    migrate(connection, up_to=1)
    connection.execute("INSERT INTO conversation (id, title, created_s, updated_s) VALUES ('c', 'Whales', 1, 1)")
    connection.execute(
        "INSERT INTO message (id, conversation_id, role, content, state, created_s, saved_s) "
        "VALUES ('a', 'c', 'user', 'hello ocean', 'done', 1, 1)"
    )
    connection.execute("INSERT INTO preset (id, name, options) VALUES ('p', 'P', '{}')")
    migrate(connection, up_to=2)
    row = connection.execute("SELECT content, tool_calls, tool_call_id, is_error, duration_s FROM message").fetchone()
    assert row == ("hello ocean", None, "", 0, None)
    assert connection.execute("SELECT shape FROM conversation UNION SELECT shape FROM preset").fetchall() == [(None,)]
    assert _found(connection, "ocean") == 1
    for message_id in ("a", None):
        connection.execute(
            "INSERT INTO attached (conversation_id, message_id, position, sha256, kind, mime, name, size_bytes) "
            "VALUES ('c', ?, 0, 'h', 'image', 'image/png', '', 1)",
            (message_id,),
        )
    connection.execute("DELETE FROM message")
    assert connection.execute("SELECT message_id FROM attached").fetchall() == [(None,)]
    connection.execute("DELETE FROM conversation")
    assert connection.execute("SELECT count(*) FROM attached").fetchone() == (0,)


def test_when_an_answer_is_unfinished_then_it_enters_the_index_only_at_its_end(connection: sqlite3.Connection) -> None:
    migrate(connection)
    connection.execute("INSERT INTO conversation (id, created_s, updated_s) VALUES ('c', 1, 1)")
    connection.execute(
        "INSERT INTO message (id, conversation_id, role, content, state, created_s, saved_s) "
        "VALUES ('a', 'c', 'assistant', 'half', 'generating', 1, 1)"
    )
    connection.execute("UPDATE message SET content = 'half a whale'")
    rebuild_search(connection)
    assert _found(connection, "whale") == 0
    connection.execute("UPDATE message SET state = 'done'")
    assert _found(connection, "whale") == 1
    connection.execute("UPDATE message SET content = 'none', state = 'generating'")
    assert _found(connection, "whale") == 0


def test_when_migrated_twice_then_nothing_changes(connection: sqlite3.Connection) -> None:
    migrate(connection)
    migrate(connection)
    assert version_of(connection) == LATEST


def test_when_a_step_fails_then_nothing_of_it_stays(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE preset (other TEXT)")  # in the way of the first step's third table
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection)
    assert version_of(connection) == 0
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    assert tables == {"preset"}


def _found(connection: sqlite3.Connection, word: str) -> int:
    return len(connection.execute("SELECT rowid FROM message_text WHERE message_text MATCH ?", (word,)).fetchall())
