"""A file that is not whole yet: appended to, hashed on the way, its length the one truth about how far it is."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from runtime.errors import StorageFault
from runtime.library.downloads.space import SpaceGuard, disk_fault
from runtime.library.downloads.stop import Stop

HASH_BYTES = 4 * 1024 * 1024


class PartialFile:
    """Open for appending. Home thread: the one that opened it; use as a context manager.

    Attributes:
        length: bytes in the file.
    """

    def __init__(self, path: Path, size_bytes: int, guard: SpaceGuard) -> None:
        """Open or make the file; one that is longer than it may be is emptied.

        Args:
            path: the file; its folder is made.
            size_bytes: length of the whole file.
            guard: asked before every write.

        Raises:
            StorageFault, DiskFull: if it cannot be opened.
        """
        self._path = path
        self._size_bytes = size_bytes
        self._guard = guard
        self._hash = hashlib.sha256()
        self._hashed_bytes = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o644)
        except OSError as error:
            raise disk_fault(error, path) from error
        # Unbuffered: a cut must not lose what has come, and the length must always be the truth.
        self._file = os.fdopen(descriptor, "r+b", buffering=0)
        try:
            self.length = os.fstat(descriptor).st_size
            if self.length > size_bytes:
                self.truncate(0)
        except BaseException:
            self._file.close()
            raise

    @property
    def modified_ns(self) -> int:
        """Modification time."""
        return os.fstat(self._file.fileno()).st_mtime_ns

    def truncate(self, length: int) -> None:
        """Keep only so much of the beginning.

        Raises:
            StorageFault: if the file system refuses.
        """
        try:
            self._file.truncate(length)
        except OSError as error:
            raise disk_fault(error, self._path) from error
        self.length = length
        if self._hashed_bytes > length:
            self._hash, self._hashed_bytes = hashlib.sha256(), 0

    def hash_existing(self, stop: Stop, progress: Callable[[int], None] = lambda _: None) -> None:
        """Read what is here into the hash.

        Args:
            stop: asked between pieces.
            progress: told how many bytes were read so far.

        Raises:
            Stopped: if told to end.
            StorageFault: if it cannot be read.
        """
        try:
            self._file.seek(self._hashed_bytes)
            while self._hashed_bytes < self.length:
                stop.check()
                piece = self._file.read(min(HASH_BYTES, self.length - self._hashed_bytes))
                if not piece:
                    raise StorageFault(f"{self._path.name} became shorter while it was read.", path=str(self._path))
                self._hash.update(piece)
                self._hashed_bytes += len(piece)
                progress(self._hashed_bytes)
        except OSError as error:
            raise disk_fault(error, self._path) from error

    def append(self, data: bytes) -> None:
        """Write at the end; what could be written before an error stays.

        Raises:
            DiskFull, StorageFault: if it cannot be written.
            ValueError: if the file would become longer than announced.
        """
        if self.length + len(data) > self._size_bytes:
            raise ValueError("more than announced")
        self._guard.before_write(self._path, len(data))
        view = memoryview(data)
        try:
            self._file.seek(self.length)
            while view:
                written = self._file.write(view)
                if self._hashed_bytes == self.length:
                    self._hash.update(view[:written])
                    self._hashed_bytes += written
                self.length += written
                view = view[written:]
        except OSError as error:
            raise disk_fault(error, self._path) from error

    def sync(self) -> None:
        """Wait until all of it is on the disk.

        Raises:
            DiskFull, StorageFault: if the disk refuses.
        """
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise disk_fault(error, self._path) from error

    def sha256(self) -> str:
        """Hash of all that is here; needs `hash_existing` after opening a file that was not empty."""
        if self._hashed_bytes != self.length:
            raise ValueError("not all of it was hashed")
        return self._hash.hexdigest()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def hash_file(path: Path, stop: Stop, progress: Callable[[int], None] = lambda _: None) -> str:
    """SHA-256 of a file as it is.

    Raises:
        Stopped: if told to end.
        StorageFault: if it cannot be read.
    """
    found = hashlib.sha256()
    n_bytes = 0
    try:
        with path.open("rb", buffering=0) as file:
            while piece := file.read(HASH_BYTES):
                stop.check()
                found.update(piece)
                n_bytes += len(piece)
                progress(n_bytes)
    except OSError as error:
        raise StorageFault(
            f"{path.name} cannot be read: {error.strerror or error}.", hint="Check the disk.", path=str(path)
        ) from error
    return found.hexdigest()
