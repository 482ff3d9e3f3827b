"""The store's lane: in order, off the main thread, and it says what happened to the file."""

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.notices import Notices
from app.store import Store, StoreLane
from app.store.records import ConversationChange
from tests.app.conftest import WAIT_MS, Wait


@pytest.fixture
def notices(qtbot: QtBot) -> Notices:  # noqa: ARG001 - qtbot brings the event loop
    return Notices()


@pytest.fixture
def lane(path: Path, notices: Notices, qtbot: QtBot) -> Iterator[StoreLane]:
    one = StoreLane(path, notices)
    yield one
    one.close()
    qtbot.waitUntil(lambda: one.is_closed, timeout=WAIT_MS)


def note_thread(worked: list[str], _: Store) -> None:
    worked.append(threading.current_thread().name)


def tell(told: list[int], number: int, _: None) -> None:
    told.append(number)


def save_one(conversation_id: str, store: Store) -> None:
    store.save({conversation_id: ConversationChange(title=conversation_id)})


def test_when_work_is_handed_in_then_it_runs_in_order_elsewhere_and_is_told_here(lane: StoreLane, wait: Wait) -> None:
    worked: list[str] = []
    told: list[int] = []
    homes: list[str] = []
    for number in range(20):
        lane.submit(partial(note_thread, worked), partial(tell, told, number))
    lane.submit(lambda _: None, lambda _: homes.append(threading.current_thread().name))
    wait(lambda: bool(homes))
    assert told == list(range(20))
    assert set(worked) == {"lane store"}
    assert homes == ["MainThread"]


def test_when_the_file_was_damaged_then_it_is_said_once(
    lane: StoreLane, path: Path, notices: Notices, wait: Wait
) -> None:
    path.write_bytes(b"rubbish" * 1000)
    told: list[object] = []
    lane.submit(lambda store: store.list_conversations(limit=1), told.append)
    lane.submit(lambda store: store.list_conversations(limit=1), told.append)
    wait(lambda: len(told) == 2)
    said = notices.take_waiting()
    assert len(said) == 1
    assert "damaged" in said[0].text
    assert "conversations.damaged-" in said[0].text


def test_when_the_file_is_of_the_future_then_it_is_said_in_words(
    path: Path, notices: Notices, wait: Wait, qtbot: QtBot
) -> None:
    with Store(path) as store, store._guard() as connection:
        connection.execute("PRAGMA user_version = 999")
    lane = StoreLane(path, notices)
    told: list[object] = []
    lane.submit(lambda store: store.list_conversations(limit=1), told.append)
    wait(lambda: bool(told))
    assert "newer version of Deskside" in notices.take_waiting()[0].text
    lane.close()
    qtbot.waitUntil(lambda: lane.is_closed, timeout=WAIT_MS)


def test_when_work_fails_then_it_is_said_or_handed_over(lane: StoreLane, notices: Notices, wait: Wait) -> None:
    def fail(_: Store) -> None:
        raise ValueError("no luck")

    failed: list[Exception] = []
    lane.submit(fail)
    lane.submit(fail, failed=failed.append)
    wait(lambda: bool(failed))
    assert [note.text for note in notices.take_waiting()] == ["no luck"]


def test_when_closed_then_everything_handed_in_is_written(path: Path, notices: Notices, qtbot: QtBot) -> None:
    lane = StoreLane(path, notices)
    for number in range(100):
        lane.submit(partial(save_one, f"c{number}"))
    lane.close()
    lane.submit(partial(save_one, "late"))
    qtbot.waitUntil(lambda: lane.is_closed, timeout=WAIT_MS)
    with Store(path) as store:
        assert len(store.list_conversations(limit=500).rows) == 100
    assert not path.with_name(path.name + "-wal").exists()
