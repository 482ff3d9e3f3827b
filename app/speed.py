"""Tokens a second: a live value over a sliding window and a short history for the sparkline."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QObject, QTimer, Signal, Slot

HISTORY_S = 60
"""Length of the history; one value a second, oldest first."""

WINDOW_S = 2.0
"""Width of the sliding window of the live value."""

TICK_MS = 500
MAX_SAMPLES = 1024
"""Most batches looked at; four answers at 30 batches a second fill a quarter of it."""


@dataclass(frozen=True, slots=True)
class SpeedView:
    """`now_tps` is `None` while nothing generates; `history_tps` has one value a second, at most `HISTORY_S`."""

    now_tps: float | None
    history_tps: tuple[float, ...]


class SlidingRate:
    """Events a second over the last `WINDOW_S` seconds. Not a Qt object."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque(maxlen=MAX_SAMPLES)

    def add(self, at_s: float, count: int) -> None:
        """`count` events happened up to `at_s`, which never goes back."""
        self._samples.append((at_s, count))

    def clear(self) -> None:
        """Forget everything."""
        self._samples.clear()

    def rate(self, at_s: float) -> float | None:
        """The rate at `at_s`; `None` before the second sample and when nothing came for `WINDOW_S`.

        The first sample of the window only marks the time: its events happened before it.
        """
        while self._samples and self._samples[0][0] < at_s - WINDOW_S:
            self._samples.popleft()
        if len(self._samples) < 2:  # noqa: PLR2004 - two points make a span
            return None
        span_s = at_s - self._samples[0][0]
        counted = sum(count for _, count in self._samples) - self._samples[0][1]
        return counted / span_s if span_s > 0 else None


class Speed(QObject):
    """Counts generated tokens of all answers of this window. Home thread: main."""

    changed = Signal(object)
    """`SpeedView`, at most twice a second, and only while something generates or the history decays."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._clock = clock
        self._rate = SlidingRate()
        self._seconds: deque[tuple[int, int]] = deque(maxlen=HISTORY_S + 1)
        self._timer = QTimer(self)
        self._timer.setInterval(TICK_MS)
        self._timer.timeout.connect(self._tick)

    @property
    def view(self) -> SpeedView:
        """The values as of now."""
        now_s = self._clock()
        current = int(now_s)
        counts = dict(self._seconds)
        seconds = [second for second in counts if current - HISTORY_S <= second < current]
        history = tuple(float(counts.get(second, 0)) for second in range(min(seconds), current)) if seconds else ()
        return SpeedView(self._rate.rate(now_s), history)

    def add(self, n_tokens: int) -> None:
        """Tokens arrived now."""
        if n_tokens <= 0:
            return
        now_s = self._clock()
        self._rate.add(now_s, n_tokens)
        second = int(now_s)
        if self._seconds and self._seconds[-1][0] == second:
            self._seconds[-1] = (second, self._seconds[-1][1] + n_tokens)
        else:
            self._seconds.append((second, n_tokens))
        if not self._timer.isActive():
            self._timer.start()

    @Slot()
    def _tick(self) -> None:
        view = self.view
        if self._seconds[-1][0] < int(self._clock()) - HISTORY_S:
            self._timer.stop()
            self._seconds.clear()
        self.changed.emit(view)
