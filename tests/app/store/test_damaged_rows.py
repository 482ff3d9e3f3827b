"""Values in a damaged file that make no sense: they cost themselves, never the conversation they belong to."""

import sqlite3
from pathlib import Path

import pytest

from app.store import Store
from app.store.records import Attachment, ConversationChange, MessageRecord
from runtime.errors import BugFault

PICTURE = Attachment("ab" * 32, "image", "image/png", "cat.png", 9, 3, 4)


def fill(path: Path) -> None:
    rows = [
        MessageRecord("q", "c", "", "user", "Which cat?", attachments=(PICTURE,)),
        MessageRecord("a", "c", "q", "assistant", "That cat."),
    ]
    with Store(path) as store:
        store.save({"c": ConversationChange(title="Cats")}, rows, files={PICTURE.sha256: b"cat"})


def change(path: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement, values)
    connection.close()


@pytest.mark.parametrize(
    ("statement", "value"),
    [
        ("UPDATE message SET role = ?", "narrator"),
        ("UPDATE message SET state = ?", "asleep"),
        ("UPDATE message SET created_s = ?", 1e300),
        ("UPDATE conversation SET updated_s = ?", -1e300),
        ("UPDATE conversation SET options = ?", "[" * 100_000),
        ("UPDATE message SET stats = ?", '{"a":' * 100_000),
        ("UPDATE attached SET kind = ?", "smell"),
        ("UPDATE attached SET width_px = ?", -(2**63)),
        ("UPDATE message SET parent_id = ?", "a"),
        ("UPDATE message SET content = CAST(? AS TEXT) WHERE id = 'q'", b"Which \xff\xfecat?"),
    ],
)
def test_when_a_value_makes_no_sense_then_the_conversation_is_shown_all_the_same(
    path: Path, statement: str, value: object
) -> None:
    fill(path)
    change(path, statement, value)
    with Store(path) as store:
        (row,) = store.list_conversations(limit=9).rows
        record, (question, answer) = store.conversation(row.id), store.messages(row.id)
        assert record is not None
        assert 0 <= row.updated_s < 4e10
        assert (question.content[:6], answer.content) == ("Which ", "That cat.")
        assert {question.state, answer.state} <= {"done", "interrupted"}
        (file,) = question.attachments
        assert (file.sha256, file.width_px >= 0) == (PICTURE.sha256, True)
        store.duplicate(row.id, "copy", "Copy")
        assert [one.content for one in store.messages("copy")] == [question.content, answer.content]


def test_when_the_search_index_is_damaged_then_the_first_write_mends_it(path: Path) -> None:
    fill(path)
    change(path, "UPDATE message_text_config SET v = 0")
    with Store(path) as store:
        dog = MessageRecord("m", "d", "", "user", "Dog?")
        store.run(lambda one: one.save({"d": ConversationChange(title="Dogs")}, [dog]))
        assert [row.id for row in store.search("dog", limit=9).rows] == ["d"]
        assert [row.id for row in store.search("which", limit=9).rows] == ["c"]


def test_when_bytes_of_a_file_are_damaged_then_the_rest_is_carried_over_at_once(path: Path) -> None:
    fill(path)
    with Store(path) as store:
        store.save({}, files={"cd" * 32: bytes(50_000)})
    connection = sqlite3.connect(path)
    (page,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'attachment'").fetchone()
    connection.close()
    raw = bytearray(path.read_bytes())
    raw[4096 * (page - 1) : 4096 * (page - 1) + 8] = b"\xff" * 8
    path.write_bytes(raw)
    with Store(path) as store:
        assert store.run(lambda one: one.file_data(PICTURE.sha256)) is None
        incident = store.take_incident()
        assert incident is not None
        assert incident.incident == "damaged"
        assert [row.title for row in store.list_conversations(limit=9).rows] == ["Cats"]


def test_when_sqlite_names_damage_in_letters_that_do_not_read_then_what_can_be_read_is_carried_over(path: Path) -> None:
    fill(path)
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"CREATE INDEX conversation_by_time ON", b"CREATE INDEX conversation\xb6by_time ON"))
    with Store(path) as store:
        assert [row.title for row in store.run(lambda one: one.list_conversations(limit=9)).rows] == ["Cats"]


def test_when_an_index_finds_nothing_any_more_then_housekeeping_finds_that_out_and_nothing_is_lost(path: Path) -> None:
    fill(path)
    raw = bytearray(path.read_bytes())
    connection = sqlite3.connect(path)
    (page,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'message_by_conversation'").fetchone()
    connection.close()
    at = 4096 * (page - 1)
    raw[at + 3 : at + 5] = bytes(2)  # the number of its cells
    path.write_bytes(raw)
    with Store(path) as store:
        assert store.messages("c") == ()
        store.run(Store.purge)
        incident = store.take_incident()
        assert incident is not None
        assert incident.incident == "damaged"
        assert [one.content for one in store.messages("c")] == ["Which cat?", "That cat."]


def test_when_an_index_of_names_is_damaged_then_a_copy_is_made_all_the_same(path: Path) -> None:
    fill(path)
    raw = bytearray(path.read_bytes())
    connection = sqlite3.connect(path)
    (page,) = connection.execute(
        "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_message_1'"
    ).fetchone()
    connection.close()
    at = 4096 * (page - 1)
    raw[at + 8 : at + 4096] = bytes(4096 - 8)
    path.write_bytes(raw)
    with Store(path) as store:
        store.run(lambda one: one.duplicate("c", "copy", "Copy"))
        assert [one.content for one in store.messages("copy")] == ["Which cat?", "That cat."]


def test_when_a_rule_is_broken_in_a_sound_file_then_nothing_is_moved_aside(path: Path) -> None:
    fill(path)
    orphan = MessageRecord("m", "nobody", "", "user", "?")
    with Store(path) as store:
        with pytest.raises(BugFault, match="FOREIGN KEY"):
            store.run(lambda one: one.save({}, [orphan]))
        assert store.take_incident() is None


def test_when_words_of_a_trigger_are_damaged_then_the_next_write_brings_all_over(path: Path) -> None:
    fill(path)
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"INSERT INTO message_text (rowid", b"INSERT INTO message_text (rNwid"))
    with Store(path) as store:
        dog = MessageRecord("m", "d", "", "user", "Dog?")
        store.run(lambda one: one.save({"d": ConversationChange(title="Dogs")}, [dog]))
        assert {row.title for row in store.list_conversations(limit=9).rows} == {"Cats", "Dogs"}
        assert [row.id for row in store.search("dog", limit=9).rows] == ["d"]
