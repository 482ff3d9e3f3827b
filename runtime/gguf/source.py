"""Where header bytes come from: the one seam between a file on disk and one that is still elsewhere."""

import errno
import stat
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self


class ByteSource(Protocol):
    """Random access to bytes of known total length."""

    @property
    def name(self) -> str:
        """What to call the source in a message to a person."""

    @property
    def size_bytes(self) -> int:
        """Total length."""

    def read_at(self, offset: int, n_bytes: int) -> bytes:
        """Up to `n_bytes` from `offset`, none only at the end; ask again for the rest where it is needed.

        Raises:
            OSError: if the bytes cannot be had.
        """


class FileSource:
    """A local file. Use as a context manager; home thread: the one that opened it."""

    def __init__(self, path: Path) -> None:
        """Opens it.

        Raises:
            OSError: it cannot be opened, or is no ordinary file: a pipe would be waited for without end.
        """
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError(errno.EINVAL, "It is no ordinary file", str(path))
        self._file = path.open("rb", buffering=0)
        self._path = path
        self._size_bytes = path.stat().st_size

    @property
    def name(self) -> str:
        """The file's name, without its folder."""
        return self._path.name

    @property
    def size_bytes(self) -> int:
        """Size when it was opened."""
        return self._size_bytes

    def read_at(self, offset: int, n_bytes: int) -> bytes:
        """Up to `n_bytes` from `offset`; fewer only at the end."""
        self._file.seek(offset)
        parts: list[bytes] = []
        while n_bytes > 0:
            part = self._file.read(n_bytes)
            if not part:
                break
            parts.append(part)
            n_bytes -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


class MemorySource:
    """Bytes that are already here (a fetched header, a test)."""

    def __init__(self, data: bytes, *, name: str = "header", size_bytes: int | None = None) -> None:
        self._data = data
        self._name = name
        self._size_bytes = len(data) if size_bytes is None else size_bytes

    @property
    def name(self) -> str:
        """The name given."""
        return self._name

    @property
    def size_bytes(self) -> int:
        """Length of the whole file, which may be more than is here."""
        return self._size_bytes

    def read_at(self, offset: int, n_bytes: int) -> bytes:
        """Up to `n_bytes` from `offset`; fewer where the bytes here end."""
        return self._data[offset : offset + n_bytes]
