"""Saving, and trying again when the disk was full."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

import app.saver
from app.notices import Notices
from app.saver import Saver
from app.store import Store, StoreLane
from app.store.records import ConversationChange, MessageRecord
from tests.app.conftest import WAIT_MS, Wait


@pytest.fixture
def notices(qtbot: QtBot) -> Notices:  # noqa: ARG001 - qtbot brings the event loop
    return Notices()


@pytest.fixture
def store(qtbot: QtBot, tmp_path: Path, notices: Notices) -> Iterator[StoreLane]:
    one = StoreLane(tmp_path / "c.sqlite3", notices)
    yield one
    one.close()
    qtbot.waitUntil(lambda: one.is_closed, timeout=WAIT_MS)


def set_page_limit(store: Store, *, full: bool) -> None:
    with store._guard() as connection:
        n_pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {n_pages if full else 1_000_000}")


def test_when_changes_come_together_then_one_save_writes_the_newest(
    store: StoreLane, notices: Notices, qtbot: QtBot, wait: Wait
) -> None:
    saver = Saver(store, notices)
    saves: list[int] = []
    saver.saved.connect(lambda: saves.append(1))
    with qtbot.waitSignal(saver.saved, timeout=WAIT_MS):
        saver.change("c", ConversationChange(draft="a", model="m"))
        saver.change("c", ConversationChange(draft="b"))
        saver.put(MessageRecord("m", "c", "", "user", content="1"))
        saver.put(MessageRecord("m", "c", "", "user", content="2"))
    found: list[tuple[object, ...]] = []
    store.submit(lambda inner: (inner.conversation("c"), inner.messages("c")), found.append)
    wait(lambda: bool(found))
    conversation, messages = found[0]
    assert str(conversation).count("draft='b'") == 1
    assert str(conversation).count("model='m'") == 1
    assert messages == (MessageRecord("m", "c", "", "user", content="2"),)
    assert saves == [1]


def test_when_the_disk_is_full_then_it_is_said_and_written_when_there_is_room(
    store: StoreLane, notices: Notices, wait: Wait, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.saver, "RETRY_MS", 20)
    saver = Saver(store, notices)
    said: list[str] = []
    lasting: list[bool] = []
    withdrawn: list[int] = []
    notices.take_waiting()
    notices.said.connect(lambda note: said.append(note.text))
    notices.said.connect(lambda note: lasting.append(note.lasts))
    notices.withdrawn.connect(withdrawn.append)
    store.submit(lambda inner: set_page_limit(inner, full=True))
    saver.change("c", ConversationChange(title="T", draft="old"))
    saver.put(MessageRecord("m", "c", "", "user", content="x" * 100_000))
    wait(lambda: bool(said))
    assert "the disk is full" in said[0]
    assert lasting == [True]
    saver.change("c", ConversationChange(draft="new"))
    assert set(saver.pending("c")) == {"m"}
    with qtbot.waitSignal(saver.saved, timeout=WAIT_MS):
        store.submit(lambda inner: set_page_limit(inner, full=False))
    assert len(said) == 1
    assert len(withdrawn) == 1
    found: list[tuple[object, ...]] = []
    store.submit(lambda inner: (inner.conversation("c"), len(inner.messages("c"))), found.append)
    wait(lambda: bool(found))
    assert "draft='new'" in str(found[0][0])
    assert found[0][1] == 1
