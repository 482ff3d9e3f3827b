"""Files in every bad state: nothing is deleted, the program goes on, and what can be read is read."""

import os
import random
import sqlite3
import threading
from pathlib import Path

import pytest

from app.store import Store
from app.store.records import ConversationChange, MessageRecord
from app.store.schema import LATEST

PAGE_BYTES = 4096


def fill(path: Path, n_conversations: int = 40, n_messages: int = 20) -> None:
    with Store(path) as store:
        for number in range(n_conversations):
            key = f"c{number}"
            store.save(
                {key: ConversationChange(title=f"Title {number}")},
                [
                    MessageRecord(
                        f"{key}m{one}", key, f"{key}m{one - 1}" if one else "", "user", content=f"word{one} " * 60
                    )
                    for one in range(n_messages)
                ],
            )


def asides(path: Path) -> list[Path]:
    return sorted(path.parent.glob("conversations.damaged-*.sqlite3"))


def test_when_new_then_the_file_is_made_for_many_years(path: Path) -> None:
    with Store(path) as store, store._guard() as connection:
        values = {
            name: connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "foreign_keys", "synchronous", "user_version", "auto_vacuum")
        }
    assert values == {
        "journal_mode": "wal",
        "foreign_keys": 1,
        "synchronous": 1,
        "user_version": LATEST,
        "auto_vacuum": 2,
    }


@pytest.mark.parametrize(
    "raw", [b"this is no database, but a letter to somebody " * 100, bytes(5000), b"SQLite format 3"]
)
def test_when_the_file_is_something_else_then_it_is_kept_aside_and_a_new_one_is_made(path: Path, raw: bytes) -> None:
    path.write_bytes(raw)
    with Store(path) as store:
        incident = store.take_incident()
        store.save({"c": ConversationChange(title="new")})
        assert [row.title for row in store.list_conversations(limit=9).rows] == ["new"]
    assert incident is not None
    assert incident.incident == "damaged"
    assert incident.aside is not None
    assert incident.aside.read_bytes() == raw
    assert asides(path) == [incident.aside]


def test_when_pages_are_damaged_then_the_other_rows_are_recovered(path: Path) -> None:
    fill(path)
    raw = bytearray(path.read_bytes())
    n_pages = len(raw) // PAGE_BYTES
    chance = random.Random(8)
    for page in chance.sample(range(n_pages // 2, n_pages), 3):
        raw[page * PAGE_BYTES : (page + 1) * PAGE_BYTES] = chance.randbytes(PAGE_BYTES)
    path.write_bytes(raw)
    path.with_name(path.name + "-wal").write_bytes(b"x")  # not closed cleanly: it is checked
    with Store(path) as store:
        incident = store.take_incident()
        assert incident is not None
        assert incident.n_recovered >= 35
        rows = store.list_conversations(limit=100).rows
        n_messages = sum(len(store.messages(row.id)) for row in rows)
        assert n_messages > 400
        assert store.search("word3", limit=5).rows
    assert len(asides(path)) == 1
    with Store(path) as store:  # the new file is sound
        assert store.take_incident() is None
        assert len(store.list_conversations(limit=100).rows) == len(rows)


def test_when_damage_shows_only_while_running_then_it_is_recovered_and_the_work_is_done(path: Path) -> None:
    fill(path)
    connection = sqlite3.connect(path)
    root_page = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'conversation'").fetchone()[0]
    connection.close()
    raw = bytearray(path.read_bytes())
    raw[(root_page - 1) * PAGE_BYTES : root_page * PAGE_BYTES] = b"\xff" * PAGE_BYTES
    path.write_bytes(raw)
    with Store(path) as store:
        assert store.take_incident() is None
        with pytest.raises(Exception, match="damaged") as caught:
            store.list_conversations(limit=100)
        cause = caught.value.__cause__
        assert isinstance(cause, sqlite3.Error)
        assert store.repair(cause)
        rows = store.list_conversations(limit=100).rows
        assert len(rows) == 40
        assert rows[0].title.startswith("word0 word0")
        assert len(store.messages("c7")) == 20
        incident = store.take_incident()
    assert incident is not None
    assert incident.incident == "damaged"


def test_when_it_was_made_by_a_newer_program_then_it_is_untouched_and_another_is_used(path: Path) -> None:
    fill(path, 2, 2)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {LATEST + 1}")
    connection.close()
    before = path.read_bytes()
    for _ in range(2):
        with Store(path) as store:
            incident = store.take_incident()
            store.save({"c": ConversationChange(title="kept apart")})
            assert [row.title for row in store.list_conversations(limit=9).rows] == ["kept apart"]
        assert incident is not None
        assert (incident.incident, incident.aside) == ("newer", path)
    assert path.read_bytes() == before


@pytest.mark.skipif(os.name != "posix", reason="POSIX rights")
def test_when_the_folder_does_not_exist_then_chats_go_on_in_memory(tmp_path: Path) -> None:
    with Store(tmp_path / "missing" / "conversations.sqlite3") as store:
        incident = store.take_incident()
        store.save({"c": ConversationChange(title="in memory")})
        assert [row.title for row in store.list_conversations(limit=9).rows] == ["in memory"]
    assert incident is not None
    assert incident.incident == "not_saved"
    assert incident.reason


def test_when_the_search_index_is_damaged_then_it_is_built_anew(path: Path) -> None:
    fill(path, 3, 3)
    with Store(path) as store:
        with store._guard() as connection:
            connection.execute("UPDATE message_text_data SET block = x'00' WHERE id > 10")
        with pytest.raises(Exception, match="damaged") as caught:
            store.search("word1", limit=5)
        cause = caught.value.__cause__
        assert isinstance(cause, sqlite3.Error)
        assert store.repair(cause)
        assert len(store.search("word1", limit=5).rows) == 3
        assert store.take_incident() is None


def test_when_the_disk_is_full_then_it_is_the_worlds_fault_and_nothing_is_half_written(path: Path) -> None:
    fill(path, 2, 2)
    with Store(path) as store:
        with store._guard() as connection:
            n_pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {n_pages}")
        with pytest.raises(Exception, match="the disk is full"):
            store.save(
                {"new": ConversationChange(title="T")}, [MessageRecord("m", "new", "", "user", content="x" * 50_000)]
            )
        with store._guard() as connection:
            connection.execute("PRAGMA max_page_count = 1000000")
        assert store.conversation("new") is None
        store.save({"new": ConversationChange(title="T")})
        assert store.conversation("new") is not None


def test_when_two_windows_make_the_file_at_once_then_both_use_it(path: Path) -> None:
    gate = threading.Barrier(4)
    incidents: list[object] = []

    def begin() -> None:
        gate.wait()
        with Store(path) as store:
            incidents.append(store.take_incident())
            store.save({threading.current_thread().name: ConversationChange(title="T")})

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert incidents == [None] * 4
    with Store(path) as store:
        assert len(store.list_conversations(limit=9).rows) == 4
