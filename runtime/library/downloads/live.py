"""What is known of a download only while the program runs: how far it is, how fast, what it waits for."""

import threading
from collections.abc import Callable

from runtime.library.downloads.rate import Rate
from runtime.library.downloads.record import Record
from runtime.messages.library import Download, DownloadState


class Live:
    """Told by the thread that runs the download, read by everyone. Home thread: any (locked)."""

    def __init__(self, record: Record, clock: Callable[[], float], keep: Callable[[], None]) -> None:
        """Look at the disk for what is here already.

        Args:
            record: what is to be fetched.
            clock: seconds, rising.
            keep: writes the record down.
        """
        self._lock = threading.Lock()
        self._rate = Rate(clock)
        self._keep = keep
        self._waiting = ""
        self._current = 0
        self._is_verifying = False
        self._done = [_here_bytes(record, index) for index in range(len(record.parts))]

    # --- from the running thread --------------------------------------------------------------------------

    def begin(self) -> None:
        """It starts to run."""
        self._rate.restart()
        with self._lock:
            self._waiting = ""
            self._is_verifying = False

    def turn_to(self, index: int) -> None:
        """This part is next."""
        with self._lock:
            self._current = index
            self._waiting = ""

    def verifying(self, is_verifying: bool) -> None:
        """Bytes that are here are being read."""
        self._rate.restart()
        with self._lock:
            self._is_verifying = is_verifying

    def received(self, n_bytes: int) -> None:
        """So many bytes came in."""
        self._rate.add(n_bytes)

    def reached(self, length: int) -> None:
        """The current part has so many bytes."""
        with self._lock:
            if length > self._done[self._current]:
                self._waiting = ""
            self._done[self._current] = length

    def waits(self, why: str) -> None:
        """Nothing moves, because of that; "" when it moves again."""
        with self._lock:
            self._waiting = why

    def synced(self) -> None:
        """The record says more than before."""
        self._keep()

    # --- for everyone -------------------------------------------------------------------------------------

    @property
    def done_bytes(self) -> int:
        """Bytes that are here."""
        with self._lock:
            return sum(self._done)

    def look_again(self, record: Record) -> None:
        """Count what is on the disk (after files were removed, or the list changed)."""
        found = [_here_bytes(record, index) for index in range(len(record.parts))]
        with self._lock:
            self._done = found
            self._current = 0

    def described(self, record: Record) -> Download:
        """The download as people see it."""
        done_bytes, size_bytes = self.done_bytes, record.size_bytes
        with self._lock:
            waiting, is_verifying = self._waiting, self._is_verifying
        state: DownloadState = record.state
        speed_bps, left_s, stalled_s = 0.0, None, 0.0
        if state == "running":
            if is_verifying:
                state = "verifying"
            else:
                speed_bps = self._rate.speed_bps()
                left_s = None if waiting else self._rate.left_s(size_bytes - done_bytes)
                stalled_s = self._rate.stalled_s()
        return Download(
            id=record.id,
            repo=record.repo,
            name=record.name,
            quantization=record.quantization,
            state=state,
            done_bytes=size_bytes if state == "done" else min(done_bytes, size_bytes),
            size_bytes=size_bytes,
            speed_bps=speed_bps,
            left_s=left_s,
            stalled_s=stalled_s,
            started_s=record.started_s,
            model_id=record.model_id,
            failure=record.failure,
            waiting=waiting if record.state == "running" else "",
        )


def _here_bytes(record: Record, index: int) -> int:
    part = record.parts[index]
    for path in (record.target(part), record.partial(part)):
        try:
            return min(path.stat().st_size, part.size_bytes)
        except OSError:
            continue
    return 0
