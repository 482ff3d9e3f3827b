"""Files of messages and drafts: kept once, found again, and erased with the last message that has them."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from app.store import Store
from app.store.records import Attachment, ConversationChange, MessageRecord, Preset
from app.store.store import KEEP_DELETED_S
from runtime import units
from runtime.messages.shared import AnswerShape, ToolCall
from runtime.units import now

CAT = Attachment("aa", "image", "image/png", "cat.png", 3, 640, 480)
NOTES = Attachment("bb", "text", "text/plain", "notes.md", 5)
FILES = {"aa": b"cat", "bb": b"notes"}
QUESTION = MessageRecord("q", "c", "", "user", content="What is this?", created_s=1.0, attachments=(NOTES, CAT))


def stored(store: Store) -> set[str]:
    with store._guard() as connection:
        return {row[0] for row in connection.execute("SELECT sha256 FROM attachment")}


def test_when_a_message_has_files_then_they_come_back_in_order_with_their_bytes(store: Store) -> None:
    store.save({"c": ConversationChange()}, [QUESTION], files=FILES)
    assert store.messages("c") == (QUESTION,)
    assert (store.file_data("aa"), store.file_data("bb"), store.file_data("cc")) == (b"cat", b"notes", None)
    store.save({}, [replace(QUESTION, attachments=(), active_child_id="x")])
    assert store.messages("c")[0].attachments == (NOTES, CAT)


def test_when_a_draft_has_files_then_they_are_the_drafts_until_they_are_taken_out(store: Store) -> None:
    store.save({"c": ConversationChange(draft="this one", draft_attachments=(CAT,))}, files=FILES)
    store.save({"c": ConversationChange(draft="that one")})
    record = store.conversation("c")
    assert record is not None
    assert (record.draft, record.draft_attachments) == ("that one", (CAT,))
    store.save({"c": ConversationChange(draft_attachments=())}, [QUESTION])
    record = store.conversation("c")
    assert record is not None
    assert record.draft_attachments == ()
    assert store.messages("c")[0].attachments == (NOTES, CAT)


def test_when_the_last_owner_is_erased_then_the_bytes_go_and_not_before(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save({"c": ConversationChange()}, [QUESTION], files=FILES | {"zz": b"nobody's"})
    store.save({"d": ConversationChange(draft_attachments=(CAT,))})
    store.save({}, [], {"q": True})
    store.purge()
    assert stored(store) == {"aa", "bb"}
    store.save({}, [], {"q": False})
    assert store.messages("c") == (QUESTION,)
    store.save({}, [], {"q": True})
    later_s = now() + KEEP_DELETED_S + 1
    monkeypatch.setattr(units, "now", lambda: later_s)
    store.purge()
    assert stored(store) == {"aa"}


def test_when_duplicated_then_the_copy_has_the_same_files_without_a_second_copy_of_them(store: Store) -> None:
    store.save({"c": ConversationChange(title="T", draft_attachments=(CAT,))}, [QUESTION], files=FILES)
    store.duplicate("c", "copy", "T (copy)")
    copy = store.conversation("copy")
    assert copy is not None
    assert copy.draft_attachments == (CAT,)
    assert store.messages("copy")[0].attachments == (NOTES, CAT)
    assert stored(store) == {"aa", "bb"}


def test_when_an_answer_calls_tools_then_calls_and_results_come_back(store: Store) -> None:
    calls = (ToolCall("1", "weather", '{"city": "Rome"}'), ToolCall("2", "time", "{}"))
    answer = MessageRecord("a", "c", "q", "assistant", tool_calls=calls, created_s=2.0)
    result = MessageRecord("t", "c", "a", "tool", content="rain", tool_call_id="1", tool_name="weather", created_s=3.0)
    store.save({"c": ConversationChange()}, [QUESTION, replace(answer, tool_calls=()), result], files=FILES)
    store.save({}, [answer, replace(result, is_error=True, duration_s=0.25)])
    assert store.messages("c") == (QUESTION, answer, replace(result, is_error=True, duration_s=0.25))
    assert [row.snippet for row in store.list_conversations(limit=9).rows] == ["What is this?"]


def test_when_the_shape_of_answers_is_kept_then_it_comes_back_and_a_broken_one_is_left_out(store: Store) -> None:
    shape = AnswerShape(json_schema='{"type": "object"}', reasoning="on", reasoning_budget=100)
    store.save({"c": ConversationChange(shape=shape)})
    store.put_preset(Preset("p", "json", shape=shape))
    record = store.conversation("c")
    assert record is not None
    assert record.shape == shape
    assert store.presets()[0].shape == shape
    store.save({"d": ConversationChange(preset_id="p")})
    store.delete_preset(store.presets()[0])
    record = store.conversation("d")
    assert record is not None
    assert (record.preset_id, record.shape) == ("", shape)
    with store._guard() as connection:
        connection.execute("UPDATE conversation SET shape = 'nonsense'")
    record = store.conversation("c")
    assert record is not None
    assert record.shape is None


def test_when_the_file_of_version_1_was_not_closed_then_it_is_checked_and_brought_up_to_date(path: Path) -> None:
    with Store(path) as store:
        store.save({"c": ConversationChange(title="old")}, [replace(QUESTION, attachments=())])
    connection = sqlite3.connect(path)
    for statement in (
        "DROP TABLE attached",
        "DROP TABLE attachment",
        "ALTER TABLE conversation DROP COLUMN shape",
        "ALTER TABLE conversation DROP COLUMN tools",
        "ALTER TABLE preset DROP COLUMN shape",
        *(
            f"ALTER TABLE message DROP COLUMN {name}"
            for name in ("tool_calls", "tool_call_id", "tool_name", "is_error", "duration_s")
        ),
        "PRAGMA user_version = 1",
    ):
        connection.execute(statement)
    connection.close()
    path.with_name(path.name + "-wal").write_bytes(b"x")
    with Store(path) as store:
        assert store.take_incident() is None
        store.save({"c": ConversationChange(draft_attachments=(CAT,))}, files=FILES)
        assert store.messages("c") == (replace(QUESTION, attachments=()),)


def test_when_the_file_is_damaged_then_files_are_salvaged_with_their_messages(path: Path) -> None:
    big = b"\x01" * 200_000
    with Store(path) as store:
        store.save(
            {"c": ConversationChange(title="T", draft_attachments=(NOTES,))},
            [QUESTION],
            files=FILES | {"big": big},
        )
    connection = sqlite3.connect(path)
    root_page = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'preset'").fetchone()[0]
    connection.close()
    raw = bytearray(path.read_bytes())
    raw[(root_page - 1) * 4096 : root_page * 4096] = b"\xff" * 4096
    path.write_bytes(raw)
    path.with_name(path.name + "-wal").write_bytes(b"x")
    with Store(path) as store:
        incident = store.take_incident()
        assert incident is not None
        assert incident.incident == "damaged"
        assert store.messages("c")[0].attachments == (NOTES, CAT)
        record = store.conversation("c")
        assert record is not None
        assert record.draft_attachments == (NOTES,)
        assert (store.file_data("aa"), store.file_data("big")) == (b"cat", big)
