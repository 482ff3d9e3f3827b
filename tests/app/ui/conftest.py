"""What the tests of the window share: a window with a pretended host behind it, and a heartbeat."""

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.context import AppContext
from app.ui.appearance import Appearance
from app.ui.window import MainWindow
from runtime.paths import DataFolder
from tests.fakes.fake_host import FakeHost

WAIT_MS = 10_000


@pytest.fixture(scope="session")
def appearance(qapp: QApplication) -> Appearance:
    return Appearance(qapp)


@pytest.fixture
def context(qtbot: QtBot, tmp_path: Path) -> Iterator[AppContext]:
    one = AppContext(DataFolder(tmp_path))
    one.presets.load()
    yield one
    one.close()
    qtbot.waitUntil(lambda: one.is_closed, timeout=WAIT_MS)


@pytest.fixture
def window(qtbot: QtBot, context: AppContext, appearance: Appearance) -> Iterator[MainWindow]:
    """A shown window without a host."""
    one = MainWindow(context, appearance)
    one.show()
    qtbot.waitExposed(one)
    yield one
    one.close()
    one.deleteLater()


@pytest.fixture
def live_window(qtbot: QtBot, window: MainWindow, context: AppContext, fake_host: FakeHost) -> MainWindow:
    """A window whose host answers and has a model ready."""
    with qtbot.waitSignal(context.link.connected, timeout=WAIT_MS):
        context.link.attach(fake_host.host_file)
    return window


class Heartbeat:
    """Measures how long the event loop of the main thread does not come round.

    On Linux the time the thread was ready but another process had the processor is taken off, so that a busy machine
    does not count as a stalled window.
    """

    def __init__(self) -> None:
        self.gaps_s: list[float] = []
        self.began_s = time.monotonic()
        self.long: list[str] = []
        """When the longer gaps were, for the message of a failed test."""
        self._schedstat = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        self._last_s = self._now()
        self._collecting_s = 0.0
        gc.callbacks.append(self._on_collection)
        self._timer = QTimer()
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.setInterval(2)
        self._timer.timeout.connect(self._beat)
        self._timer.start()

    def _now(self) -> float:
        waited_ns = 0
        if sys.platform == "linux" and self._schedstat.exists():
            waited_ns = int(self._schedstat.read_text().split()[1])
        return time.monotonic() - waited_ns / 1e9

    def _beat(self) -> None:
        now_s = self._now()
        gap_s = now_s - self._last_s
        self.gaps_s.append(gap_s)
        if gap_s > 0.02:
            self.long.append(f"{gap_s * 1000:.0f} ms at {time.monotonic() - self.began_s:.1f} s")
        self._last_s = now_s

    def stop(self) -> None:
        """Measure no longer."""
        self._timer.stop()
        gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting_s = time.monotonic()
        elif (took_s := time.monotonic() - self._collecting_s) > 0.01:
            self.long.append(f"collection of generation {info['generation']}: {took_s * 1000:.0f} ms")


@pytest.fixture
def ask(qtbot: QtBot, context: AppContext) -> Callable[[MainWindow, str], None]:
    """Send a question and wait for the end of the answer."""

    def send(window: MainWindow, text: str) -> None:
        qtbot.waitUntil(lambda: not context.session.is_loading, timeout=WAIT_MS)
        before = len(context.session.messages())
        window.chat.send(text)
        qtbot.waitUntil(lambda: len(context.session.messages()) > before, timeout=WAIT_MS)
        qtbot.waitUntil(lambda: not context.session.is_busy, timeout=WAIT_MS)
        qtbot.waitUntil(lambda: window.chat.transcript.is_settled, timeout=WAIT_MS)

    return send
