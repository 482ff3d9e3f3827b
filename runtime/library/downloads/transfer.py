"""Fetching one file into its partial file: reconnects, resumes, and stops at the first sign of other bytes."""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from runtime.errors import HashMismatch, HubChanged, HubFault, HubOffline
from runtime.library.downloads.partial import PartialFile
from runtime.library.downloads.record import Part
from runtime.library.downloads.stop import Stop
from runtime.library.hub.faults import may_pass, retry_after_s
from runtime.library.hub.transport import Place
from runtime.units import format_bytes, format_duration

SYNC_EVERY_BYTES = 64 * 1024 * 1024
"""What a power cut may cost."""
NOT_SATISFIABLE = 416
PARTIAL_CONTENT = 206

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to try on. Waits double from the first to the longest.

    Attributes:
        give_up_s: without a byte for so long while the hub cannot be reached: a night without a connection.
        max_refusals: answers in a row with an error that may pass.
    """

    first_wait_s: float = 1.0
    longest_wait_s: float = 30.0
    give_up_s: float = 12 * 3600.0
    max_refusals: int = 40


class FileBody(Protocol):
    """What `Hub.open_file` opens."""

    status: int
    start: int
    total_bytes: int | None
    etag: str
    sha256: str

    def chunks(self) -> Iterator[bytes]:
        """The bytes as they come."""

    def cut(self) -> None:
        """End it now."""


class FileOpener(Protocol):
    """The part of `Hub` that is used."""

    def open_file(
        self, place: Place, *, start: int = 0, n_bytes: int | None = None, if_range: str = ""
    ) -> AbstractContextManager[FileBody]:
        """A file's bytes from `start` on."""


class Watcher(Protocol):
    """Who is told how it goes."""

    def received(self, n_bytes: int) -> None:
        """So many bytes came in."""

    def reached(self, length: int) -> None:
        """The partial file has so many bytes."""

    def waits(self, why: str) -> None:
        """Nothing moves, because of that; "" when it moves again."""

    def synced(self) -> None:
        """The part's record says more than before and should be kept."""


class Transfer:
    """One file. Home thread: the download's."""

    def __init__(
        self,
        hub: FileOpener,
        place: Place,
        part: Part,
        partial: PartialFile,
        stop: Stop,
        *,
        watcher: Watcher,
        patience: Patience,
        clock: Callable[[], float],
    ) -> None:
        """Nothing is asked yet.

        Args:
            hub: where from.
            place: which file.
            part: what is known of it; `etag` and `synced_bytes` are brought up to date.
            partial: where to; what it holds must be hashed already.
            stop: ends it.
            watcher: is told how it goes.
            patience: how long to try on.
            clock: seconds, rising.
        """
        self._hub = hub
        self._place = place
        self._part = part
        self._partial = partial
        self._stop = stop
        self._watcher = watcher
        self._patience = patience
        self._clock = clock
        self._name = PurePosixPath(part.remote).name
        self._without_ranges = False

    def run(self) -> None:
        """Fetch what is missing and check all of it. The file is synced when this returns.

        Bytes that were put together from several connections and are wrong are fetched once more, in one go.

        Raises:
            Stopped: if told to end.
            HubChanged, HashMismatch, HubFault: as the hub behaved.
            DiskFull, StorageFault: as the disk did.
        """
        is_last_try = False
        while True:
            had_bytes = self._partial.length > 0
            n_connections = self._fill()
            self._keep_synced()
            found = self._partial.sha256()
            if not self._part.sha256 or found == self._part.sha256:
                return
            _log.warning("%s arrived with the wrong hash %s", self._place, found)
            self._restart()
            if is_last_try or not (had_bytes or n_connections > 1):
                break
            is_last_try = True
            self._watcher.waits("What was here was damaged; it is fetched again from the start.")
        raise HashMismatch(
            f"{self._name} arrived with other bytes than the hub announced; they were thrown away.",
            hint="Try again; if it happens again, the file on the hub or a proxy in between is damaged.",
            path=self._part.local,
            expected=self._part.sha256,
            found=found,
        )

    def _fill(self) -> int:
        """Connect as often as needed; answers how often."""
        n_connections = n_refusals = n_waits = 0
        gained_at_s = self._clock()
        while self._partial.length < self._part.size_bytes:
            self._stop.check()
            before = self._partial.length
            fault: HubFault = HubOffline("The connection to the hub broke off.", hint="Deskside tries again.")
            try:
                self._connect()
            except HubFault as raised:
                self._stop.check()  # a body that was cut by us reports a broken connection
                if not may_pass(raised):
                    raise
                fault = raised
            finally:
                n_connections += 1
                self._watcher.reached(self._partial.length)
            if self._partial.length >= self._part.size_bytes:
                break
            if self._partial.length > before:
                n_refusals, n_waits, gained_at_s = 0, 0, self._clock()
            n_refusals = 0 if isinstance(fault, HubOffline) else n_refusals + 1
            if n_refusals >= self._patience.max_refusals or self._clock() - gained_at_s >= self._patience.give_up_s:
                raise fault
            self._wait(fault, n_waits)
            n_waits += 1
        return n_connections

    def _wait(self, fault: HubFault, n_before: int) -> None:
        patience = self._patience
        asked_s = retry_after_s(fault)
        wait_s = min(patience.first_wait_s * 2 ** min(n_before, 16), patience.longest_wait_s)
        wait_s = wait_s if asked_s is None else max(asked_s, wait_s)
        when = f" Trying again in {format_duration(wait_s)}." if wait_s >= 1 else " Trying again."
        self._watcher.waits(fault.message + when)
        self._stop.wait(wait_s)

    def _connect(self) -> None:
        """One request, read as far as it goes."""
        length = self._partial.length
        start = 0 if self._without_ranges else length
        with self._hub.open_file(self._place, start=start, if_range=self._part.etag) as body:
            self._stop.attach(body)
            try:
                self._check_identity(body)
                if not self._part.etag and not body.sha256:
                    self._part.etag = body.etag
                self._read(body, skip=self._to_skip(body, length))
            finally:
                self._stop.detach()

    def _check_identity(self, body: FileBody) -> None:
        part = self._part
        is_other = (
            (part.sha256 and body.sha256 and part.sha256 != body.sha256)
            or (body.total_bytes is not None and body.total_bytes != part.size_bytes)
            or (part.etag and body.etag and part.etag != body.etag and not body.sha256)
        )
        if is_other:
            raise HubChanged(
                f"{self._name} was changed on the hub after its download began.",
                hint="Resume to fetch the new one from the start.",
                repo=self._place.repo,
                file=part.remote,
            )

    def _to_skip(self, body: FileBody, length: int) -> int:
        """Bytes at the start of the body that are here already."""
        if body.status == NOT_SATISFIABLE or not 0 <= body.start <= length:
            self._without_ranges = True
            raise HubFault(f"The hub gave another part of {self._name} than was asked for.", status=502)
        skip = length - body.start
        if skip:
            self._watcher.waits(f"The hub cannot resume: {format_bytes(skip)} are read again.")
        return skip

    def _read(self, body: FileBody, *, skip: int) -> None:
        for raw in body.chunks():
            self._stop.check()
            self._watcher.received(len(raw))
            chunk = raw[skip:] if skip else raw
            skip = max(skip - len(raw), 0)
            if not chunk:
                continue
            try:
                self._partial.append(chunk)
            except ValueError:
                self._restart()
                raise HubFault(
                    f"The hub sends more of {self._name} than the {format_bytes(self._part.size_bytes)} it announced.",
                    hint="What came was thrown away. Choose another file, or try again later.",
                    repo=self._place.repo,
                ) from None
            self._watcher.reached(self._partial.length)
            if self._partial.length - self._part.synced_bytes >= SYNC_EVERY_BYTES:
                self._keep_synced()

    def _keep_synced(self) -> None:
        self._partial.sync()
        self._part.synced_bytes = self._partial.length
        self._watcher.synced()

    def _restart(self) -> None:
        self._partial.truncate(0)
        self._part.synced_bytes = 0
        self._part.etag = ""
        self._watcher.reached(0)
