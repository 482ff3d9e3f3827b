"""Tokens a second over the last moments, from bare counts."""

import time
from collections import deque
from collections.abc import Callable

WINDOW_S = 2.0
_BUCKET_S = 0.1


class SlidingRate:
    """A rate over `WINDOW_S`, kept in at most `WINDOW_S / 0.1` buckets."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: deque[list[float]] = deque()  # [start, count]
        self._since: float | None = None

    def add(self, count: int) -> None:
        """Count events that happened now."""
        now = self._clock()
        if not self._buckets:
            self._since = now
        if self._buckets and now - self._buckets[-1][0] < _BUCKET_S:
            self._buckets[-1][1] += count
        else:
            self._buckets.append([now, float(count)])
        self._drop_old(now)

    def per_second(self) -> float:
        """Events a second in the window; a run younger than the window is divided by its own age."""
        now = self._clock()
        self._drop_old(now)
        if not self._buckets or self._since is None:
            return 0.0
        span_s = min(WINDOW_S, max(now - self._since, _BUCKET_S))
        return sum(bucket[1] for bucket in self._buckets) / span_s

    def _drop_old(self, now: float) -> None:
        while self._buckets and now - self._buckets[0][0] > WINDOW_S:
            self._buckets.popleft()
