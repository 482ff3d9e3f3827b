"""Room on the disk, and what a file system says when it has none."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from runtime.errors import DiskFull, StorageFault
from runtime.units import format_bytes

RESERVE_BYTES = 512 * 1000 * 1000
"""Left free on purpose: a full disk stops other programs, and our own catalogue."""

_FULL = frozenset(code for code in (errno.ENOSPC, getattr(errno, "EDQUOT", None)) if code is not None)
_WINDOWS_FULL = frozenset({39, 112})
"""ERROR_HANDLE_DISK_FULL and ERROR_DISK_FULL (winerror.h)."""


def free_bytes(folder: Path) -> int:
    """Free room where a folder is or will be.

    Raises:
        StorageFault: if the disk is not there.
    """
    place = nearest(folder)
    try:
        return shutil.disk_usage(place).free
    except OSError as error:
        raise disk_fault(error, folder) from error


def device_of(folder: Path) -> int:
    """Which disk a folder is or will be on; 0 if that cannot be told."""
    try:
        return nearest(folder).stat().st_dev
    except OSError:
        return 0


def nearest(folder: Path) -> Path:
    """The folder itself, or the first one above it that exists."""
    place = folder.absolute()
    while not place.exists() and place.parent != place:
        place = place.parent
    return place


class SpaceGuard:
    """Looks at the room on the disk while a file grows, not at every write. Home thread: the transfer's."""

    LOOK_EVERY_BYTES = 16 * 1024 * 1024

    def __init__(self, reserve_bytes: int, free: Callable[[Path], int] = free_bytes) -> None:
        """Nothing is looked at yet.

        Args:
            reserve_bytes: what must stay free.
            free: tells the free bytes at a folder.
        """
        self._reserve_bytes = reserve_bytes
        self._free = free
        self._unlooked_bytes = self.LOOK_EVERY_BYTES

    def before_write(self, path: Path, n_bytes: int) -> None:
        """Check now and then that there is room.

        Raises:
            DiskFull: if less than the reserve would be left.
        """
        self._unlooked_bytes += n_bytes
        if self._unlooked_bytes < self.LOOK_EVERY_BYTES:
            return
        self._unlooked_bytes = 0
        free = self._free(path.parent)
        if free - n_bytes < self._reserve_bytes:
            self._unlooked_bytes = self.LOOK_EVERY_BYTES
            raise full(path.parent, n_bytes, free)


def full(folder: Path, needed_bytes: int, free: int) -> DiskFull:
    """The error for a disk without room."""
    return DiskFull(
        f"The disk of {folder} is full: {format_bytes(free)} are free.",
        hint="Free some room, then resume; what was fetched is kept.",
        path=str(folder),
        needed_bytes=needed_bytes,
        free_bytes=free,
    )


def disk_fault(error: OSError, path: Path) -> StorageFault:
    """An error of the file system in words. `path` is the file or folder it happened at."""
    folder = path.parent
    if error.errno in _FULL or getattr(error, "winerror", None) in _WINDOWS_FULL:
        try:
            free = shutil.disk_usage(nearest(folder)).free
        except OSError:
            free = 0
        return full(folder, 0, free)
    if error.errno == errno.EFBIG:
        return StorageFault(
            f"The disk of {folder} cannot hold a file as large as {path.name}.",
            hint="It is probably formatted as FAT32, which ends at 4 GB. Choose another models folder.",
            path=str(path),
        )
    return StorageFault(
        f"{path.name} cannot be written in {folder}: {error.strerror or error}.",
        hint="Check that the disk is connected and that the folder may be written, then resume.",
        path=str(path),
    )


def sync_folder(folder: Path) -> None:
    """Make names in a folder survive a power cut, where the system can (not on Windows)."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
