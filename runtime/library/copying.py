"""Bytes of model files: hashing them, and copying them so that only whole and checked copies get their name."""

import contextlib
import errno
import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from runtime.errors import DiskFull, StorageFault
from runtime.library.disk import extended
from runtime.library.listing import plain
from runtime.library.progress import CHUNK_BYTES, Meter
from runtime.library.roots import free_bytes
from runtime.units import format_bytes, now

UNFINISHED = ".copying"
"""Ending of a copy that is not whole yet; never looked at as a model."""
STALE_S = 86_400
"""An unfinished copy that nobody wrote to for so long was left by a program that ended."""
ROOM_LEFT_BYTES = 64 * 1024 * 1024
"""What a copy leaves free for everything else on the disk."""


def hash_file(path: Path, meter: Meter) -> str:
    """SHA-256 of a file, in lower-case hexadecimal.

    Raises:
        StorageFault: if it cannot be read.
        Cancelled: as the meter says.
    """
    digest = hashlib.sha256()
    with storage_faults(path, "read"), open(extended(str(path)), "rb", buffering=0) as file:  # noqa: PTH123
        _advise(file.fileno(), 0, _SEQUENTIAL)
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            meter.add(len(chunk))
    return digest.hexdigest()


def copy_file(source: Path, target: Path, meter: Meter) -> str:
    """Copy and check: the copy is read back from the disk and its hash compared before it gets its name.

    The meter counts every byte twice: once written, once checked. What is in the way under that name is replaced.

    Returns:
        The SHA-256 of both.

    Raises:
        DiskFull: if the disk is full; StorageFault: if one cannot be read or written, or the copy differs.
        Cancelled: as the meter says. In all cases nothing is left behind.
    """
    partial = target.with_name(target.name + UNFINISHED)
    try:
        with storage_faults(target, "written"):
            Path(extended(str(target.parent))).mkdir(parents=True, exist_ok=True)
        sha256 = _write(source, partial, meter)
        _check_copy(source, target, sha256, hash_file(partial, meter))
        with storage_faults(target, "written"):
            status = Path(extended(str(source))).stat()
            os.utime(extended(str(partial)), ns=(status.st_atime_ns, status.st_mtime_ns))
            Path(extended(str(partial))).replace(extended(str(target)))
    except BaseException:
        with contextlib.suppress(OSError):
            Path(extended(str(partial))).unlink(missing_ok=True)
        raise
    return sha256


def check_room(folder: Path, needed_bytes: int) -> None:
    """Whether so much can be written there.

    Raises:
        DiskFull: if not.
    """
    free = free_bytes(folder)
    if needed_bytes + ROOM_LEFT_BYTES > free:
        raise DiskFull(
            f"{format_bytes(needed_bytes)} are needed on the disk of {plain(str(folder))}, "
            f"{format_bytes(free)} are free.",
            hint="Free some room, or choose another folder.",
            path=plain(str(folder)),
            needed_bytes=needed_bytes,
            free_bytes=free,
        )


def remove_stale(folder: Path) -> None:
    """Remove unfinished copies that a program left when it ended in the middle."""
    with contextlib.suppress(OSError):
        for path in folder.rglob(f"*{UNFINISHED}"):
            with contextlib.suppress(OSError):
                if now() - path.stat().st_mtime > STALE_S:
                    path.unlink()


@contextlib.contextmanager
def storage_faults(path: Path, what: str) -> Iterator[None]:
    """Say what went wrong with a file. `what` completes "cannot be ..."."""
    try:
        yield
    except OSError as error:
        where = plain(str(path))
        if error.errno in (errno.ENOSPC, errno.EDQUOT if hasattr(errno, "EDQUOT") else errno.ENOSPC):
            raise DiskFull(
                f"{plain(path.name.removesuffix(UNFINISHED))} cannot be {what}: the disk is full.",
                hint="Free some room and try again.",
                path=where,
                free_bytes=free_bytes(path.parent),
            ) from error
        name = plain(path.name.removesuffix(UNFINISHED))
        raise StorageFault(f"{name} cannot be {what}: {error.strerror or error}.", path=where) from error


def _check_copy(source: Path, target: Path, wanted: str, found: str) -> None:
    if found != wanted:
        raise StorageFault(
            f"The copy of {plain(source.name)} differs from the file it was made of.",
            hint="Check the disk it was copied to.",
            path=plain(str(target)),
        )


def _write(source: Path, partial: Path, meter: Meter) -> str:
    digest = hashlib.sha256()
    with contextlib.ExitStack() as files:
        with storage_faults(source, "read"):
            reading = files.enter_context(open(extended(str(source)), "rb", buffering=0))  # noqa: PTH123
        with storage_faults(partial, "written"):
            writing = files.enter_context(open(extended(str(partial)), "wb", buffering=0))  # noqa: PTH123
        while True:
            with storage_faults(source, "read"):
                chunk = reading.read(CHUNK_BYTES)
            if not chunk:
                break
            digest.update(chunk)
            with storage_faults(partial, "written"):
                rest = memoryview(chunk)
                while rest:
                    rest = rest[writing.write(rest) :]
            meter.add(len(chunk))
        with storage_faults(partial, "written"):
            os.fsync(writing.fileno())
        _advise(writing.fileno(), 0, _DONT_NEED)
    return digest.hexdigest()


if sys.platform == "linux":
    _SEQUENTIAL = os.POSIX_FADV_SEQUENTIAL
    _DONT_NEED = os.POSIX_FADV_DONTNEED

    def _advise(descriptor: int, length: int, advice: int) -> None:
        """Tell the system how a file is read; what was written is read back from the disk, not from memory."""
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, 0, length, advice)

else:
    _SEQUENTIAL = _DONT_NEED = 0

    def _advise(descriptor: int, length: int, advice: int) -> None:
        """Only Linux is told."""
