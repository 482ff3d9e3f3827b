"""One host uses a data folder: the lock, and the file that tells others where it is."""

import contextlib
from types import TracebackType
from typing import Self

import filelock
import msgspec

from runtime.atomic_files import write_atomically
from runtime.errors import AlreadyRunning, StorageFault
from runtime.messages.api import HostFile
from runtime.paths import DataFolder
from runtime.unreadable import UNREADABLE


class Ownership:
    """Held from start to end of a host; a context manager."""

    def __init__(self, data: DataFolder) -> None:
        self._data = data
        self._lock = filelock.FileLock(data.lock_file)

    def __enter__(self) -> Self:
        """Take the folder.

        Raises:
            AlreadyRunning: another host has it.
            StorageFault: it cannot be made or written.
        """
        try:
            self._data.ensure()
            self._lock.acquire(timeout=0)
        except filelock.Timeout:
            other = read_host_file(self._data)
            where = f" (process {other.pid}, {other.address})" if other else ""
            raise AlreadyRunning(
                f"Deskside already runs on this data folder{where}.",
                hint="Use that one, end it, or choose another folder with --data-dir.",
                pid=other.pid if other else 0,
                address=other.address if other else "",
            ) from None
        except OSError as error:
            raise StorageFault(
                f"The data folder cannot be used: {error.strerror or error}.",
                hint="Check its permissions, or choose another folder with --data-dir.",
                path=str(self._data.root),
            ) from error
        return self

    def publish(self, host_file: HostFile) -> None:
        """Say where the host is.

        Raises:
            StorageFault: if it cannot be written.
        """
        try:
            write_atomically(self._data.host_file, msgspec.json.encode(host_file), private=True)
        except OSError as error:
            raise StorageFault(
                f"The data folder {self._data.root} cannot be written: {error.strerror or error}.",
                hint="Make room or check its permissions, or choose another folder with --data-dir.",
                path=str(self._data.root),
            ) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the folder back."""
        with contextlib.suppress(OSError):
            self._data.host_file.unlink(missing_ok=True)
        self._lock.release()


def read_host_file(data: DataFolder) -> HostFile | None:
    """Where the host of this folder says it is; `None` when it does not say."""
    try:
        return msgspec.json.decode(data.host_file.read_bytes(), type=HostFile)
    except (OSError, *UNREADABLE):
        return None
