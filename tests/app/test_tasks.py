"""Lanes."""

import gc
import threading

import pytest
from pytestqt.qtbot import QtBot

from app.tasks import MAX_TASKS, Lane
from runtime.errors import BugFault
from tests.app.conftest import WAIT_MS, Wait


def lane_threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "lane test"]


def test_when_a_task_fails_then_the_lane_lives_on(qtbot: QtBot, wait: Wait) -> None:
    lane = Lane("test")
    failed: list[Exception] = []
    done: list[int] = []
    lane.submit(lambda: 1 // 0, failed=failed.append)
    lane.submit(lambda: 7, done.append)
    wait(lambda: done == [7])
    assert isinstance(failed[0], ZeroDivisionError)
    with qtbot.waitSignal(lane.closed, timeout=WAIT_MS):
        lane.close()
        lane.close()
    qtbot.waitUntil(lambda: not lane_threads(), timeout=WAIT_MS)


def test_when_forgotten_then_its_thread_ends(qtbot: QtBot) -> None:
    lane = Lane("test")
    lane.submit(lambda: 1, lambda _: None)
    lane.deleteLater()
    del lane
    gc.collect()
    qtbot.waitUntil(lambda: not lane_threads(), timeout=WAIT_MS)


def test_when_far_too_much_waits_then_it_is_refused(qtbot: QtBot) -> None:
    lane = Lane("test")
    gate = threading.Event()
    lane.submit(gate.wait)
    qtbot.waitUntil(lane._tasks.empty, timeout=WAIT_MS)
    for _ in range(MAX_TASKS):
        lane.submit(lambda: None)
    with pytest.raises(BugFault, match="tasks wait"):
        lane.submit(lambda: None)
    gate.set()
    with qtbot.waitSignal(lane.closed, timeout=WAIT_MS):
        lane.close()
