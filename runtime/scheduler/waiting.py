"""Units that wait for a sequence, in order, and how long that takes."""

import math
from collections import deque
from collections.abc import Iterator

from runtime.scheduler.types import EngineOutput, Waiting
from runtime.scheduler.unit import Unit

_FIRST_GUESS_S = 5.0
_SMOOTHING = 0.2
MAX_RETRY_AFTER_S = 600


class WaitingLine:
    """The queue.

    Its bound is kept where requests come in (`Engine.submit`); units that had to give up their
    place come back to the front and are bounded by the number of sequences.
    """

    def __init__(self) -> None:
        self._units: deque[Unit] = deque()
        self._moved = False
        self._service_s = 0.0

    def __len__(self) -> int:
        return len(self._units)

    def __iter__(self) -> Iterator[Unit]:
        return iter(tuple(self._units))

    def append(self, unit: Unit) -> None:
        """A new request; one from the window stands before all others, behind earlier ones from the window."""
        if unit.job.request.from_window:
            at = 0
            for waiting in self._units:
                if not (waiting.job.request.from_window or waiting.job.admitted_s is not None):
                    break
                at += 1
            self._units.insert(at, unit)
        else:
            self._units.append(unit)
        self._moved = True

    def put_back(self, unit: Unit) -> None:
        """A unit that lost its place, or found none after its prompt, goes to the front."""
        self._units.appendleft(unit)
        self._moved = True

    def remove(self, unit: Unit) -> None:
        """Take a unit out, admitted or ended."""
        self._units.remove(unit)
        self._moved = True

    def tell_positions(self) -> list[EngineOutput]:
        """A `Waiting` for each new request whose position changed since it was last told."""
        if not self._moved:
            return []
        self._moved = False
        told: list[EngineOutput] = []
        for position, unit in enumerate(self._units, start=1):
            job = unit.job
            if job.admitted_s is None and job.position_told != position:
                job.position_told = position
                told.append(Waiting(job.request.request_id, position))
        return told

    def note_service(self, service_s: float) -> None:
        """A request took this long from admission to its end."""
        self._service_s = (
            service_s if not self._service_s else (self._service_s + _SMOOTHING * (service_s - self._service_s))
        )

    def retry_after_s(self, n_waiting: int, n_parallel: int) -> int:
        """Whole seconds after which a place is likely: what waits, at the measured time of a request, in parallel."""
        each = self._service_s or _FIRST_GUESS_S
        return max(1, min(MAX_RETRY_AFTER_S, math.ceil(each * (n_waiting + 1) / n_parallel)))
