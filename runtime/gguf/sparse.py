"""Files that have a header and a size but no weights: what llama.cpp needs to measure a model that is not here.

llama.cpp checks that every tensor lies inside the file and, told to allocate nothing, reads none of them. So the bytes
before the tensors and a hole of the right length are enough, and the hole takes no room on file systems that know
sparse files (ext4, xfs, btrfs, APFS, NTFS; not FAT or exFAT).
"""

import errno
import os
import sys
from pathlib import Path

from runtime.errors import DiskFull, StorageFault
from runtime.units import format_bytes

_SLACK_BYTES = 16 * 1024 * 1024
"""More than the head may be taken: file systems round up, and keep room for their own tables."""


def write_sparse(head: bytes, size_bytes: int, path: Path) -> None:
    """Write `head` followed by a hole, `size_bytes` in all.

    The file appears whole or not at all. A file of that name is replaced.

    Args:
        head: bytes from the start of the file up to where tensor data begins.
        size_bytes: size of the whole file; not under `len(head)`.
        path: file to write; its folder must exist.

    Raises:
        ValueError: if the size is smaller than the head.
        DiskFull: no room for the head, or for the size where the file system has no sparse files.
        StorageFault: the file system cannot hold a file of that size without writing it, or the folder refuses.
    """
    if size_bytes < len(head):
        raise ValueError("a file cannot be smaller than its head")
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("wb") as file:
            file.write(head)
            file.flush()
            if sys.platform == "win32":
                _mark_sparse(file.fileno())
            file.truncate(size_bytes)
        _check_is_sparse(partial, len(head), size_bytes)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise _fault(error, path, size_bytes) from error
    except StorageFault:
        partial.unlink(missing_ok=True)
        raise


def _check_is_sparse(path: Path, head_bytes: int, size_bytes: int) -> None:
    """Refuse what took the room of the whole file: a few of those would fill the disk."""
    blocks = getattr(path.stat(), "st_blocks", None)  # Windows tells none; there truncate fails or is sparse
    if blocks is not None and blocks * 512 > head_bytes + min(size_bytes - head_bytes, _SLACK_BYTES) + _SLACK_BYTES:
        raise _not_sparse(path, size_bytes)


def _fault(error: OSError, path: Path, size_bytes: int) -> StorageFault:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(
            f"There is no room in {path.parent} to measure this model.",
            hint="Free some room on that disk.",
            path=str(path.parent),
            needed_bytes=size_bytes,
        )
    if error.errno in (errno.EFBIG, errno.EINVAL, errno.EOPNOTSUPP):
        return _not_sparse(path, size_bytes)
    return StorageFault(
        f"{path.parent} cannot be written: {error.strerror}.",
        hint="Check that the folder is there and may be written.",
        path=str(path.parent),
    )


def _not_sparse(path: Path, size_bytes: int) -> StorageFault:
    return StorageFault(
        f"The disk of {path.parent} cannot hold an empty file of {format_bytes(size_bytes)} without taking that room.",
        hint="Move Deskside's data folder to a disk with NTFS, APFS, ext4, xfs or btrfs.",
        path=str(path.parent),
    )


if sys.platform == "win32":
    import ctypes
    import msvcrt
    from ctypes import wintypes

    _FSCTL_SET_SPARSE = 0x000900C4  # winioctl.h

    def _mark_sparse(descriptor: int) -> None:
        """Tell NTFS not to reserve what is never written."""
        kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel32.DeviceIoControl.argtypes = (
            wintypes.HANDLE,
            wintypes.DWORD,
            wintypes.LPVOID,
            wintypes.DWORD,
            wintypes.LPVOID,
            wintypes.DWORD,
            ctypes.POINTER(wintypes.DWORD),
            wintypes.LPVOID,
        )
        kernel32.DeviceIoControl.restype = wintypes.BOOL
        handle = msvcrt.get_osfhandle(descriptor)
        returned = wintypes.DWORD()
        if not kernel32.DeviceIoControl(handle, _FSCTL_SET_SPARSE, None, 0, None, 0, ctypes.byref(returned), None):
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
