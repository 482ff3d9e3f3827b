"""Lanes: background threads for work that may block, with results back on the main thread.

The main thread never waits for a lane.
"""

from collections.abc import Callable
from typing import TypeVar

from PySide6.QtCore import QObject, Signal

T = TypeVar("T")


class Lane(QObject):
    """One named thread that does tasks in the order they were handed in. Home thread: main."""

    closed = Signal()
    """The lane finished all its tasks after `close` and its thread is about to end."""

    def __init__(self, name: str, parent: QObject | None = None) -> None:
        super().__init__(parent)
        raise NotImplementedError

    def submit(
        self,
        work: Callable[[], T],
        done: Callable[[T], None] | None = None,
        failed: Callable[[BaseException], None] | None = None,
    ) -> None:
        """Run `work` on the lane; then `done(result)` or `failed(error)` on the main thread."""
        raise NotImplementedError

    def close(self) -> None:
        """Take no more tasks; `closed` follows when those handed in are done."""
        raise NotImplementedError
