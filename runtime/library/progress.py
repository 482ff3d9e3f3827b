"""How a long piece of work on files tells how far it is, and is told to stop.

Such work is a plain function that runs in a thread of its caller's choice: it calls `report` and asks `is_cancelled` at
least once a `CHUNK_BYTES`, and raises `Cancelled` after it has cleaned up. The host makes a `Job` of it, and its speed
and time left of the reports.
"""

from collections.abc import Callable
from dataclasses import dataclass

CHUNK_BYTES = 4 * 1024 * 1024
"""Bytes read or copied between two looks at `is_cancelled`."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the work is. `stage` is a few words for a person; the bytes never go back."""

    done_bytes: int
    total_bytes: int
    stage: str = ""

    @property
    def fraction(self) -> float:
        """0..1."""
        return min(self.done_bytes / self.total_bytes, 1.0) if self.total_bytes else 0.0


Report = Callable[[Progress], None]
IsCancelled = Callable[[], bool]


class Cancelled(Exception):
    """The work was told to stop and has cleaned up. Not an error: the job ends as cancelled."""


def ignore(_: Progress) -> None:
    """A `Report` for callers that do not look."""


def never() -> bool:
    """An `IsCancelled` for work that is not to be stopped."""
    return False


class Meter:
    """Counts the bytes of one piece of work and stops it when asked. Home thread: the work's own."""

    def __init__(self, total_bytes: int, report: Report = ignore, is_cancelled: IsCancelled = never) -> None:
        self._total_bytes = total_bytes
        self._report = report
        self._is_cancelled = is_cancelled
        self._done_bytes = 0
        self._stage = ""

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
        self._report(Progress(self._done_bytes, self._total_bytes, self._stage))
