"""A thread of its own for each source that can stall.

A driver call can hang for seconds (a card in trouble, a sleeping bus). Every source therefore reads in its own lane;
whoever samples asks all lanes at once, waits a short time, and takes the latest answer of each. A lane that hangs
keeps at most its one thread, is not asked again until it answers, and its neighbours never notice.
"""

import threading
import time
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

T = TypeVar("T")


class Lane(Generic[T]):
    """Runs `read` on demand in a daemon thread and keeps only the latest outcome.

    Home thread of `read`: the lane's own. All other methods: any thread.
    """

    def __init__(self, name: str, read: Callable[[], T]) -> None:
        self._read = read
        self._changed = threading.Condition()
        self._asked = False
        self._closed = False
        self._asked_at = 0.0
        self._answered_at: float | None = None
        self._latest: T | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"hardware-{name}", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """True while a reading is under way."""
        with self._changed:
            return self._asked

    @property
    def latest(self) -> T | None:
        """The last good reading, however old; see `silent_s`."""
        with self._changed:
            return self._latest

    @property
    def error(self) -> Exception | None:
        """Why the last reading failed; `None` after a good one."""
        with self._changed:
            return self._error

    @property
    def silent_s(self) -> float:
        """Seconds that the present reading has been under way; 0 when none is."""
        with self._changed:
            return time.monotonic() - self._asked_at if self._asked else 0.0

    def ask(self) -> None:
        """Start a reading unless one is under way."""
        with self._changed:
            if self._asked or self._closed:
                return
            self._asked = True
            self._asked_at = time.monotonic()
            self._changed.notify_all()

    def wait(self, until: float) -> bool:
        """Wait for the present reading until that monotonic time; tell whether it is done."""
        with self._changed:
            while self._asked:
                left_s = until - time.monotonic()
                if left_s <= 0:
                    return False
                self._changed.wait(left_s)
            return True

    def close(self) -> None:
        """Let the thread end; one that hangs in a reading ends with the process (it is a daemon)."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def join(self, until: float) -> bool:
        """Wait for the thread until that monotonic time; tell whether it has ended."""
        self._thread.join(max(0.0, until - time.monotonic()))
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._asked and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
            value: T | None = None
            error: Exception | None = None
            try:
                value = self._read()
            except Exception as raised:  # noqa: BLE001 - top of a thread; kept and told by `error`
                error = raised
            with self._changed:
                self._error = error
                if error is None:
                    self._latest = value
                self._asked = False
                self._changed.notify_all()


def ask_all(lanes: Collection["Lane[T]"], within_s: float) -> None:
    """Ask every lane at once and wait for all, at most `within_s` seconds together."""
    for lane in lanes:
        lane.ask()
    until = time.monotonic() + within_s
    for lane in lanes:
        lane.wait(until)
