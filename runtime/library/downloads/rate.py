"""Speed and time left, from what really arrived lately."""

import threading
from collections import deque
from collections.abc import Callable

WINDOW_S = 8.0
BUCKET_S = 0.25
STALLED_AFTER_S = 3.0
"""Without a byte for so long nothing is said about the time left."""
SURE_AFTER_S = 1.0


class Rate:
    """Counts bytes of one transfer. Home thread: any (locked); keeps `WINDOW_S / BUCKET_S` figures at most."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: deque[tuple[float, int]] = deque(maxlen=int(WINDOW_S / BUCKET_S) + 1)
        self._start_s = self._last_s = clock()

    def restart(self) -> None:
        """Begin anew: what came before a pause says nothing."""
        with self._lock:
            self._buckets.clear()
            self._start_s = self._last_s = self._clock()

    def add(self, n_bytes: int) -> None:
        """So many bytes arrived now."""
        at_s = self._clock()
        with self._lock:
            self._last_s = at_s
            if self._buckets and at_s - self._buckets[-1][0] < BUCKET_S:
                begun_s, so_far = self._buckets[-1]
                self._buckets[-1] = (begun_s, so_far + n_bytes)
            else:
                self._buckets.append((at_s, n_bytes))

    def stalled_s(self) -> float:
        """Seconds since the last byte."""
        with self._lock:
            return max(self._clock() - self._last_s, 0.0)

    def speed_bps(self) -> float:
        """Bytes a second over the window; 0 while nothing moves."""
        with self._lock:
            at_s = self._clock()
            if at_s - self._last_s >= STALLED_AFTER_S:
                return 0.0
            since_s = max(self._start_s, at_s - WINDOW_S)
            n_bytes = sum(count for begun_s, count in self._buckets if begun_s >= since_s)
            return n_bytes / max(at_s - since_s, BUCKET_S)

    def left_s(self, remaining_bytes: int) -> float | None:
        """Seconds until so many bytes more are here; `None` when nobody could know."""
        speed_bps = self.speed_bps()
        with self._lock:
            is_sure = self._clock() - self._start_s >= SURE_AFTER_S
        return remaining_bytes / speed_bps if is_sure and speed_bps > 0 else None
