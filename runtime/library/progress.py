"""How a long piece of work on files tells how far it is, and is told to stop.

Such work is a plain function that runs in a thread of its caller's choice: it calls `report` at least once a
`CHUNK_BYTES`, asks `is_cancelled` as often, and raises `Cancelled` after it has cleaned up. The host makes a `Job` of
it.
"""

from collections.abc import Callable
from dataclasses import dataclass

CHUNK_BYTES = 4 * 1024 * 1024
"""Bytes read or copied between two looks at `is_cancelled`."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the work is. `stage` is a sentence for a person; the bytes never go back."""

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
