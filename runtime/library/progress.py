"""How a long piece of work on files tells how far it is, and is told to stop.

Such work is a plain function that runs in a thread of its caller's choice: it calls `report` and asks `is_cancelled` at
least once a `CHUNK_BYTES`, and raises `Cancelled` after it has cleaned up. The host makes a `Job` of it.
"""

import time
from collections.abc import Callable
from typing import Protocol

CHUNK_BYTES = 4 * 1024 * 1024
"""Bytes read or copied between two looks at `is_cancelled`."""

SPEED_PERIOD_S = 0.5
"""The speed told is taken anew so often, and smoothed over about four of these."""

IsCancelled = Callable[[], bool]


class Report(Protocol):
    """Hears how far the work is."""

    def __call__(self, fraction: float, stage: str = "", speed_bps: float = 0.0, /) -> None:
        """`fraction` in 0..1, `stage` a few words for a person, `speed_bps` bytes a second."""


class Cancelled(Exception):
    """The work was told to stop and has cleaned up. Not an error: the job ends as cancelled."""


def ignore(fraction: float, stage: str = "", speed_bps: float = 0.0, /) -> None:
    """A `Report` for callers that do not look."""


def never() -> bool:
    """An `IsCancelled` for work that is not to be stopped."""
    return False


class Meter:
    """Counts bytes of one piece of work, tells them on, and stops the work when asked. Home thread: the work's own."""

    def __init__(self, total_bytes: int, report: Report, is_cancelled: IsCancelled) -> None:
        self._total_bytes = total_bytes
        self._report = report
        self._is_cancelled = is_cancelled
        self._done_bytes = 0
        self._stage = ""
        self._speed_bps = 0.0
        self._mark = (time.monotonic(), 0)

    def stage(self, text: str) -> None:
        """What is being done now.

        Raises:
            Cancelled: if the work was told to stop.
        """
        self._stage = text
        self.add(0)

    def add(self, n_bytes: int) -> None:
        """So many more are done.

        Raises:
            Cancelled: if the work was told to stop.
        """
        if self._is_cancelled():
            raise Cancelled
        self._done_bytes += n_bytes
        at_s, since = time.monotonic(), self._mark
        if at_s - since[0] >= SPEED_PERIOD_S:
            now_bps = (self._done_bytes - since[1]) / (at_s - since[0])
            self._speed_bps = self._speed_bps * 0.75 + now_bps * 0.25 if self._speed_bps else now_bps
            self._mark = (at_s, self._done_bytes)
        fraction = min(self._done_bytes / self._total_bytes, 1.0) if self._total_bytes else 0.0
        self._report(fraction, self._stage, self._speed_bps)
