"""The collector runs on the main thread only."""

import gc
import threading
import weakref

from pytestqt.qtbot import QtBot

from app.garbage import Garbage
from tests.app.conftest import WAIT_MS


class Knot:
    """Keeps itself alive by a cycle; tells where it was freed."""

    def __init__(self) -> None:
        self.me = self


def test_when_taken_over_then_cycles_are_freed_on_the_main_thread_only(qtbot: QtBot) -> None:
    garbage = Garbage()
    garbage._timer.setInterval(10)
    homes: list[str] = []

    def allocate() -> None:
        for _ in range(gc.get_threshold()[0] * 20):
            knot = Knot()
            weakref.finalize(knot, lambda: homes.append(threading.current_thread().name))

    garbage.start()
    try:
        thread = threading.Thread(target=allocate)
        thread.start()
        thread.join()
        assert homes == []
        qtbot.waitUntil(lambda: len(homes) > 0, timeout=WAIT_MS)
        assert set(homes) == {"MainThread"}
    finally:
        garbage.stop()
    assert not gc.isenabled()  # as the tests around have it


def test_when_it_never_began_then_stopping_changes_nothing(qtbot: QtBot) -> None:  # noqa: ARG001
    Garbage().stop()
    assert not gc.isenabled()
