"""One download from beginning to end: each file fetched and checked, then all of them put in place."""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from runtime.errors import HashMismatch, HubChanged, HubNotFound, StorageFault
from runtime.library.downloads.live import Live
from runtime.library.downloads.partial import PartialFile, hash_file
from runtime.library.downloads.record import Part, Record
from runtime.library.downloads.space import RESERVE_BYTES, SpaceGuard, disk_fault, free_bytes, full, sync_folder
from runtime.library.downloads.stop import Stop
from runtime.library.downloads.transfer import Patience, Transfer
from runtime.library.hub.hub import Hub
from runtime.library.hub.names import local_path
from runtime.library.hub.transport import Place
from runtime.messages.library import HubFile, HubModel

STALE = (HubChanged, HubNotFound, HashMismatch)
"""After these the hub's list is asked for again."""
SAME_BOOT_S = 60.0
"""Readings of when the machine was started differ by less, clock corrections included."""
N_REPLACE_TRIES = 20
REPLACE_WAIT_S = 0.25
"""On Windows a virus scanner may hold a new file for a moment."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Arrival:
    """Files that arrived whole: `paths` in order (projector last), with the checked hash of each ("" unknown)."""

    repo: str
    quantization: str
    paths: tuple[Path, ...]
    sha256: tuple[str, ...]


class Claims:
    """Which files are being written, so that two downloads that share a projector do not write it at once."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: dict[Path, str] = {}

    def take(self, path: Path, owner: str, stop: Stop, on_wait: Callable[[], None]) -> None:
        """Wait for the right to write a file.

        Raises:
            Stopped: if told to end meanwhile.
        """
        with self._changed:
            while self._held.get(path, owner) != owner:
                on_wait()
                self._changed.wait(0.2)
                stop.check()
            self._held[path] = owner

    def give_all(self, owner: str) -> None:
        """Give back all that is held."""
        with self._changed:
            self._held = {path: other for path, other in self._held.items() if other != owner}
            self._changed.notify_all()


@dataclass(frozen=True, slots=True)
class Policy:
    """How downloads behave.

    Attributes:
        patience: how long to try on without a byte.
        reserve_bytes: what must stay free on the disk.
        free: tells the free bytes at a folder.
        clock: seconds, rising.
    """

    patience: Patience = field(default_factory=Patience)
    reserve_bytes: int = RESERVE_BYTES
    free: Callable[[Path], int] = free_bytes
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all downloads of one program share."""

    hub: Hub
    claims: Claims
    policy: Policy


class Run:
    """Runs one download once. Home thread: its own."""

    def __init__(self, record: Record, live: Live, stop: Stop, around: Surroundings) -> None:
        self._record = record
        self._live = live
        self._stop = stop
        self._around = around

    def fetch(self) -> None:
        """Fetch and check every file that is not in place yet.

        Raises:
            Stopped: if told to end.
            HubFault, StorageFault: as the hub and the disk behaved.
        """
        self._live.begin()
        self._check_room()
        for index, part in enumerate(self._record.parts):
            self._live.turn_to(index)
            self._around.claims.take(
                self._record.target(part),
                self._record.id,
                self._stop,
                lambda: self._live.waits("Another download fetches the same file."),
            )
            if not self._is_in_place(part):
                self._fetch_part(part)

    def arrive(self) -> Arrival:
        """Put the files in place, the first part of the model last: until then nothing of it is listed as a model.

        Raises:
            Stopped: if told to end.
            StorageFault: if the disk refuses.
        """
        record = self._record
        for part in reversed(record.parts):
            target, partial = record.target(part), record.partial(part)
            if partial.exists():
                if target.exists():
                    raise _in_the_way(target)
                self._replace(partial, target)
            elif not target.exists():
                raise StorageFault(
                    f"{partial.name} has vanished from {partial.parent}.",
                    hint="Resume to fetch it again.",
                    path=str(target),
                )
        paths = tuple(record.target(part) for part in record.parts)
        for folder in {path.parent for path in paths}:
            with contextlib.suppress(OSError):
                sync_folder(folder)
        return Arrival(record.repo, record.quantization, paths, tuple(part.sha256 for part in record.parts))

    def _check_room(self) -> None:
        folder = Path(self._record.root)
        missing_bytes = self._record.size_bytes - self._live.done_bytes
        free = self._around.policy.free(folder)
        if missing_bytes > 0 and free - missing_bytes < self._around.policy.reserve_bytes:
            raise full(folder, missing_bytes + self._around.policy.reserve_bytes, free)

    def _is_in_place(self, part: Part) -> bool:
        """A file of that name is there already: it is the one, or it is in the way."""
        target = self._record.target(part)
        try:
            size_bytes = target.stat().st_size
        except OSError:
            return False
        if size_bytes != part.size_bytes:
            raise _in_the_way(target)
        if part.sha256:
            with self._verifying():
                if hash_file(target, self._stop, self._live.reached) != part.sha256:
                    raise _in_the_way(target)
        self._live.reached(part.size_bytes)
        with contextlib.suppress(OSError):
            self._record.partial(part).unlink(missing_ok=True)
        return True

    def _fetch_part(self, part: Part) -> None:
        try:
            self._fill(part)
        finally:
            path = self._record.partial(part)
            with contextlib.suppress(OSError):
                if path.stat().st_size == 0:
                    path.unlink()

    def _fill(self, part: Part) -> None:
        around = self._around
        guard = SpaceGuard(around.policy.reserve_bytes, around.policy.free)
        with PartialFile(self._record.partial(part), part.size_bytes, guard) as partial:
            self._trust(part, partial)
            if part.checked_ns and (partial.length, partial.modified_ns) == (part.size_bytes, part.checked_ns):
                self._live.reached(partial.length)
                return
            part.checked_ns = 0
            part.boot_s = psutil.boot_time()
            if partial.length:
                with self._verifying():
                    partial.hash_existing(self._stop, self._live.reached)
            self._live.reached(partial.length)
            try:
                Transfer(
                    around.hub,
                    Place(self._record.repo, self._record.commit, part.remote),
                    part,
                    partial,
                    self._stop,
                    watcher=self._live,
                    patience=around.policy.patience,
                    clock=around.policy.clock,
                ).run()
            finally:
                with contextlib.suppress(StorageFault):
                    partial.sync()
                    part.synced_bytes = partial.length
            part.checked_ns = partial.modified_ns
            self._live.synced()

    def _trust(self, part: Part, partial: PartialFile) -> None:
        """Keep of a partial file what can be relied upon.

        After a power cut a file may be as long as it was told to be and hold nothing at its end. A file of unknown
        origin is taken on only when the hash will judge it.
        """
        if not partial.length:
            return
        if not part.boot_s:
            if not part.sha256:
                partial.truncate(0)
        elif abs(part.boot_s - psutil.boot_time()) > SAME_BOOT_S and partial.length > part.synced_bytes:
            _log.info("%s: back to %d bytes, the machine was restarted", part.local, part.synced_bytes)
            partial.truncate(part.synced_bytes)

    @contextlib.contextmanager
    def _verifying(self) -> Iterator[None]:
        self._live.verifying(True)
        try:
            yield
        finally:
            self._live.verifying(False)

    def _replace(self, partial: Path, target: Path) -> None:
        for attempt in range(1, N_REPLACE_TRIES + 1):
            try:
                partial.replace(target)
            except PermissionError as error:
                if os.name != "nt" or attempt == N_REPLACE_TRIES:
                    raise disk_fault(error, target) from error
                self._stop.wait(REPLACE_WAIT_S)
            except OSError as error:
                raise disk_fault(error, target) from error
            else:
                return


def parts_of(model: HubModel, file: HubFile, *, with_projector: bool) -> list[Part]:
    """The files of one quantization, the projector last.

    Raises:
        HubFault: if a name cannot be one here.
    """
    files = [file]
    if with_projector and file.projector:
        files += [each for each in model.projectors if each.name == file.projector]
    return [
        Part(
            remote=remote,
            local=local_path(model.entry.repo, remote).as_posix(),
            size_bytes=size_bytes,
            sha256=sha256,
            is_projector=each is not file,
        )
        for each in files
        for remote, size_bytes, sha256 in zip(each.paths, each.sizes_bytes, each.sha256, strict=True)
    ]


def renew(record: Record, model: HubModel) -> None:
    """Take over the hub's present list: what is still the same keeps its bytes, the rest begins anew.

    Raises:
        HubChanged: if the files are not there any more under these names.
        HubFault: if a name cannot be one here.
    """
    listed = {
        path: (size_bytes, sha256)
        for file in (*model.files, *model.projectors)
        for path, size_bytes, sha256 in zip(file.paths, file.sizes_bytes, file.sha256, strict=True)
    }
    if any(part.remote not in listed for part in record.parts):
        raise HubChanged(
            f"{record.repo} does not have {record.name} any more.",
            hint="Remove this download and choose another file.",
            repo=record.repo,
            file=record.name,
        )
    for part in record.parts:
        size_bytes, sha256 = listed[part.remote]
        is_same = bool(sha256) and (size_bytes, sha256) == (part.size_bytes, part.sha256)
        part.size_bytes, part.sha256 = size_bytes, sha256
        if not is_same:
            part.forget_bytes()
            try:
                record.partial(part).unlink(missing_ok=True)
            except OSError as error:
                raise disk_fault(error, record.partial(part)) from error
    record.commit = model.commit
    record.is_stale = False


def _in_the_way(target: Path) -> StorageFault:
    return StorageFault(
        f"Another file called {target.name} is in {target.parent} already; it was left alone.",
        hint="Move or remove that file, then resume.",
        path=str(target),
    )
