"""Lanes: background threads for work that may block, with results back on the main thread.

The main thread never waits for a lane. A lane's thread is no daemon: when the program ends, Python lets it finish
what it was handed, so nothing saved is cut off.
"""

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from PySide6.QtCore import QObject, Qt, Signal, Slot

from runtime.errors import BugFault

T = TypeVar("T")
Work = Callable[[], None]

MAX_TASKS = 10_000
"""Most tasks a lane holds. A person cannot make so many; a fault that does is refused at once."""

_log = logging.getLogger(__name__)


class _Mailbox(QObject):
    """Carries results to the main thread. Only the signal is touched by the lane's thread."""

    arrived = Signal()

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._letters: deque[Work] = deque()
        self._lock = threading.Lock()
        self._is_open = True
        self.arrived.connect(self._deliver, Qt.ConnectionType.QueuedConnection)

    def post(self, letter: Work) -> None:
        """Any thread: run `letter` on the main thread; dropped once the mailbox is shut."""
        with self._lock:
            if not self._is_open:
                return
            self._letters.append(letter)
            if len(self._letters) == 1:
                self.arrived.emit()

    def shut(self) -> None:
        """Main thread: deliver no more."""
        with self._lock:
            self._is_open = False
            self._letters.clear()

    @Slot()
    def _deliver(self) -> None:
        with self._lock:
            letters = list(self._letters)
            self._letters.clear()
        for letter in letters:
            letter()


class Lane(QObject):
    """One named thread that does tasks in the order they were handed in. Home thread: main."""

    closed = Signal()
    """The lane finished all its tasks after `close` and its thread is about to end."""

    def __init__(self, name: str, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._mailbox = _Mailbox(self)
        self._tasks: queue.Queue[Work | None] = queue.Queue(MAX_TASKS + 3)
        self._is_closing = False
        self._has_ended = False
        self._thread = threading.Thread(target=_run, args=(self._tasks,), name=f"lane {name}")
        self._thread.start()
        # Whoever forgets `close` must not leave a thread that keeps the program from ending.
        tasks, mailbox = self._tasks, self._mailbox
        self.destroyed.connect(lambda: _abandon(tasks, mailbox))

    @property
    def is_closed(self) -> bool:
        """Whether `closed` was emitted."""
        return self._has_ended

    def submit(
        self,
        work: Callable[[], T],
        done: Callable[[T], None] | None = None,
        failed: Callable[[Exception], None] | None = None,
    ) -> None:
        """Run `work` on the lane; then `done(result)` or `failed(error)` on the main thread.

        An error nobody asked for is logged. After `close`, work is dropped.

        Raises:
            BugFault: if `MAX_TASKS` are waiting.
        """
        if self._is_closing:
            return
        if self._tasks.qsize() >= MAX_TASKS:
            raise BugFault(f"More than {MAX_TASKS} tasks wait for {self._thread.name}.")
        self._tasks.put_nowait(_task(work, done, failed, self._mailbox))

    def close(self) -> None:
        """Take no more tasks; `closed` follows when those handed in are done. Idempotent."""
        if self._is_closing:
            return
        self._is_closing = True
        self._tasks.put_nowait(lambda: self._mailbox.post(self._end))
        self._tasks.put_nowait(None)

    def _end(self) -> None:
        self._mailbox.shut()
        self._has_ended = True
        self.closed.emit()


def _task(
    work: Callable[[], T],
    done: Callable[[T], None] | None,
    failed: Callable[[Exception], None] | None,
    mailbox: _Mailbox,
) -> Work:
    def run() -> None:
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - a top loop: the lane must live on
            if failed is None:
                _log.exception("a background task failed")
                return
            kept, tell_failed = error, failed
            mailbox.post(lambda: tell_failed(kept))
        else:
            if done is not None:
                tell_done = done
                mailbox.post(lambda: tell_done(result))

    return run


def _run(tasks: "queue.Queue[Work | None]") -> None:
    while (task := tasks.get()) is not None:
        task()


def _abandon(tasks: "queue.Queue[Work | None]", mailbox: _Mailbox) -> None:
    mailbox.shut()
    tasks.put_nowait(None)
