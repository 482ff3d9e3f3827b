"""Ending a transfer from outside, at once, also while it waits for a byte that never comes."""

import threading
from typing import Literal, Protocol

StopReason = Literal["", "pause", "cancel", "hold", "close"]


class Cuttable(Protocol):
    """What is being read."""

    def cut(self) -> None:
        """Wake its reader; the rest is not wanted."""


class Stopped(Exception):
    """The transfer was told to end; nothing is wrong."""


class Stop:
    """One transfer's stop sign. Home thread: any (locked). The first reason stays, but cancelling wins."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._event = threading.Event()
        self._reading: Cuttable | None = None
        self._reason: StopReason = ""

    @property
    def reason(self) -> StopReason:
        """Why, "" while it goes on."""
        with self._lock:
            return self._reason

    @property
    def is_set(self) -> bool:
        """Whether it was told to end."""
        return self._event.is_set()

    def request(self, reason: StopReason) -> None:
        """Tell it to end."""
        with self._lock:
            if not self._reason or reason == "cancel":
                self._reason = reason
            self._event.set()
            if self._reading is not None:
                self._reading.cut()

    def attach(self, reading: Cuttable) -> None:
        """This is being read now, until `detach`.

        Raises:
            Stopped: if it was told to end already.
        """
        with self._lock:
            if self._event.is_set():
                raise Stopped
            self._reading = reading

    def detach(self) -> None:
        """Nothing is being read."""
        with self._lock:
            self._reading = None

    def check(self) -> None:
        """Go on?

        Raises:
            Stopped: no.
        """
        if self._event.is_set():
            raise Stopped

    def wait(self, duration_s: float) -> None:
        """Wait so long.

        Raises:
            Stopped: as soon as it is told to end.
        """
        if self._event.wait(duration_s):
            raise Stopped
