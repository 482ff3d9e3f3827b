"""Builds many widgets a few at a time, so that a long list never holds the window up."""

import time
from collections.abc import Callable, Iterator

from PySide6.QtCore import QObject, QTimer

SLICE_S = 0.004
"""Longest work in one turn of the event loop, beside the one step that is under way."""


class Gradual(QObject):
    """Runs steps one after another; a new run takes the place of one that is under way. Home thread: main."""

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._steps: Iterator[object] | None = None
        self._done: Callable[[], None] | None = None
        self._timer = QTimer(self)
        self._timer.setInterval(0)
        self._timer.timeout.connect(self._go_on)

    @property
    def is_running(self) -> bool:
        """Whether steps are left."""
        return self._steps is not None

    def run(self, steps: Iterator[object], done: Callable[[], None] | None = None) -> None:
        """Take a generator's steps in later turns of the event loop, beside none of what called; then `done`."""
        self._steps, self._done = steps, done
        self._timer.start()

    def stop(self) -> None:
        """Leave what is left undone."""
        self._steps = self._done = None
        self._timer.stop()

    def _go_on(self) -> None:
        end_s = time.monotonic() + SLICE_S
        steps = self._steps
        while steps is not None and steps is self._steps:
            try:
                next(steps)
            except StopIteration:
                done = self._done
                self.stop()
                if done is not None:
                    done()
                return
            if time.monotonic() >= end_s:
                self._timer.start()
                return
