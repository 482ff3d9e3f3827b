"""Tokens a second: a live value over a sliding window and a short history for the sparkline."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QObject, Signal

HISTORY_S = 60
"""Length of the history; one value a second, oldest first."""

WINDOW_S = 2.0
"""Width of the sliding window of the live value."""


@dataclass(frozen=True, slots=True)
class SpeedView:
    """`now_tps` is `None` while nothing generates; `history_tps` has one value a second, at most `HISTORY_S`."""

    now_tps: float | None
    history_tps: tuple[float, ...]


class Speed(QObject):
    """Counts generated tokens of all answers of this window. Home thread: main."""

    changed = Signal(object)
    """`SpeedView`, at most twice a second, and only while something generates or the history decays."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, parent: QObject | None = None) -> None:
        super().__init__(parent)
        raise NotImplementedError

    @property
    def view(self) -> SpeedView:
        """The values as of now."""
        raise NotImplementedError

    def add(self, n_tokens: int) -> None:
        """Tokens arrived now."""
        raise NotImplementedError
