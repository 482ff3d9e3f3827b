"""Looks at disks that may never answer: each in a thread of its own, with a bound on the wait.

A call of the system that asks a network drive which is gone comes back after minutes, or never, and nothing can end it.
So whoever looks says beforehand which path is asked (`touch`), and whoever waits sees which one it is. A path that does
not answer is passed over by all further looks until its thread is back; everything else is looked at without it.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

SILENT_AFTER_S = 5.0
"""A path that was asked and says nothing for so long does not answer. A disk that has to start turning needs longer,
and is found by the next look."""
FIRST_WITHIN_S = 30.0
"""What answers, but slowly, is waited for so long the first time."""
AGAIN_WITHIN_S = 8.0
"""Later looks take what the last one found where this one takes longer. Longer than `SILENT_AFTER_S`, so that one look
finds out what does not answer and ends without it."""
MAX_STUCK = 8
"""Threads that wait for paths of one lane; with more of them the lane is left alone until one is back."""

T = TypeVar("T")

_here = threading.local()


class NotAnswering(OSError):
    """A path is passed over: a call that asked for it has not come back."""


class _Abandoned(BaseException):
    """Nobody waits for this look any more."""


def touch(path: str | os.PathLike[str]) -> None:
    """Say which path the next calls of the system ask. Costs next to nothing, and nothing outside of a lane.

    Raises:
        NotAnswering: it is one that does not answer. Passed over like any path that cannot be read.
    """
    look: _Look | None = getattr(_here, "look", None)
    if look is not None:
        look.touch(os.fspath(path))


class _Look:
    """One thread's work. Fields are written by that thread alone, but for `is_abandoned`."""

    def __init__(self, work: Callable[[], object], silent: tuple[str, ...]) -> None:
        self.path = ""
        self.touched_at = time.monotonic()
        self.value: object = None
        self.error: BaseException | None = None
        self.done = threading.Event()
        self.is_abandoned = False
        self.passed_over: list[str] = []
        self._work = work
        self._silent = silent
        # A daemon: the end of the program must not wait for a drive either.
        threading.Thread(target=self._run, name="look", daemon=True).start()

    def touch(self, path: str) -> None:
        if self.is_abandoned:
            raise _Abandoned
        place = leads_to(path, self._silent) if self._silent else ""
        if place:
            self.passed_over.append(place)
            raise NotAnswering(f"{path} does not answer")
        self.path, self.touched_at = path, time.monotonic()

    def _run(self) -> None:
        _here.look = self
        try:
            self.value = self._work()
        except BaseException as error:  # noqa: BLE001 - told to who waits
            self.error = error
        finally:
            self.done.set()


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What a lane came to.

    Attributes:
        value: what was found, without what does not answer; `None` if nothing is known yet.
        silent: paths that do not answer, as far as this look came across them.
        is_old: this look is not at its end; `value` is what an earlier one found.
    """

    value: T | None
    silent: tuple[str, ...] = ()
    is_old: bool = False


class Lane(Generic[T]):
    """The looks at one place, one at a time. Not locked: one thread asks."""

    _also: tuple[str, ...] = ()
    _passed_over: tuple[str, ...] = ()

    def __init__(self, work: Callable[[], T]) -> None:
        """`work` runs in a thread of its own, and calls `touch` before whatever may wait."""
        self._work = work
        self._look: _Look | None = None
        self._stuck: list[_Look] = []
        self._last: T | None = None

    @property
    def silent(self) -> tuple[str, ...]:
        """Paths that do not answer now."""
        self._stuck = [look for look in self._stuck if not look.done.is_set()]
        return tuple(dict.fromkeys(look.path for look in self._stuck))

    def begin(self, also_silent: tuple[str, ...] = ()) -> None:
        """Begin to look, unless the last look is still under way. `also_silent` does not answer other lanes."""
        self._also = also_silent
        if self._look is not None and self._look.done.is_set():
            with suppress(Exception):  # of a look that nobody waited for to its end; the next one says it again
                self._take(self._look)
        if self._look is None and len(self.silent) < MAX_STUCK:
            self._look = _Look(self._work, tuple(dict.fromkeys((*self.silent, *self._also))))

    def finish(self, began_at: float) -> Answer[T]:
        """Wait for the look that was begun, as long as it answers and the bounds allow.

        Args:
            began_at: of all looks that are waited for together (`time.monotonic`).

        Raises:
            Exception: whatever the work raised.
        """
        until = began_at + (FIRST_WITHIN_S if self._last is None else AGAIN_WITHIN_S)
        while (look := self._look) is not None:
            silent_at = look.touched_at + SILENT_AFTER_S
            if look.done.wait(max(0.0, min(until, silent_at) - time.monotonic())):
                self._take(look)
                return Answer(self._last, self._told())
            if time.monotonic() >= look.touched_at + SILENT_AFTER_S and look.path:
                look.is_abandoned = True
                self._stuck.append(look)
                self._look = None
                self.begin(self._also)
            elif time.monotonic() >= until:
                break
        # Of a place that gave up on too many paths nothing that was found earlier can be trusted to be there.
        return Answer(self._last if self._look is not None else None, self._told(), is_old=self._look is not None)

    def close(self) -> None:
        """Wait for nothing of it any more."""
        if self._look is not None:
            self._look.is_abandoned = True

    def _told(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.silent, *self._passed_over)))

    def _take(self, look: _Look) -> None:
        self._look = None
        self._passed_over = tuple(dict.fromkeys(look.passed_over))
        if look.error is not None:
            raise look.error
        self._last = look.value  # type: ignore[assignment]  # the work's


def words_for(silent: tuple[str, ...]) -> str:
    """A sentence for a person."""
    first = silent[0].encode("utf-8", "replace").decode()
    more = f" (and {len(silent) - 1} more)" if len(silent) > 1 else ""
    return f"{first}{more} does not answer. If it is on another drive or in the network, check the connection."


def leads_to(path: str, silent: tuple[str, ...]) -> str:
    """Which of these a path is, lies below, or leads to the same place as; "" none."""
    target = _target(path)
    for place in silent:
        if _is_at(path, place) or (target and _is_at(target, _place_of(place))):
            return place
    return ""


def _is_at(path: str, place: str) -> bool:
    return path == place or path.startswith(place if place.endswith(os.sep) else place + os.sep)


def _place_of(path: str) -> str:
    """The folder that a link's file is in; links to several files of a drive that is gone each wait for it."""
    target = _target(path)
    return str(Path(target).parent) if target else path


def _target(path: str) -> str:
    """Where a link leads, by the link alone: what it leads to is not asked."""
    with suppress(OSError, ValueError):
        return os.path.join(Path(path).parent, Path(path).readlink())  # noqa: PTH118 - `/` would tidy it
    return ""
