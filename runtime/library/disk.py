"""What stands in a folder tree: GGUF files with what identifies them. Reads no file, writes nothing.

Files and folders that vanish or cannot be read while one looks are passed over; only the root itself has a problem.
What may have to wait for a drive is announced to `patience`.
"""

import logging
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from runtime.library.patience import touch

MAX_FILES = 10_000
"""Most model files looked at below one root; the rest is left out."""
MAX_DEPTH = 12
MAX_FOLDERS = 50_000
"""Most folders entered below one root: a root may be a whole home folder by mistake."""
MODEL_SUFFIX = ".gguf"
LONG_WINDOWS_PATH = 240
"""Paths of Windows' older interface end at 260 characters, file names included."""

_log = logging.getLogger(__name__)


class Stamp(NamedTuple):
    """What identifies a file's content without reading it. `inode` is 0 where the file system tells none."""

    size_bytes: int
    mtime_ns: int
    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class DiskFile:
    """A file as it was when it was looked at.

    Attributes:
        path: as a person would write it.
        real: its folder with all links followed, and its own name: what would be deleted.
        n_links: names this content has (hard links).
        is_link: a symbolic link to a file elsewhere.
    """

    path: Path
    real: str
    stamp: Stamp
    n_links: int = 1
    is_link: bool = False

    @property
    def identity(self) -> tuple[int, int] | str:
        """Equal for two names of one content."""
        return (self.stamp.device, self.stamp.inode) if self.stamp.inode else os.path.realpath(self.real)


@dataclass(frozen=True, slots=True)
class Tree:
    """All model files below a root, sorted. `problem` says why the root could not be looked at."""

    files: tuple[DiskFile, ...]
    problem: str = ""


def extended(path: str, platform: str = sys.platform) -> str:
    r"""Long Windows paths in the form without a limit (`\\?\C:\...`); others as they are.

    Source: Microsoft, "Maximum Path Length Limitation".
    """
    if platform != "win32" or len(path) < LONG_WINDOWS_PATH or path.startswith("\\\\?\\"):
        return path
    return f"\\\\?\\UNC\\{path[2:]}" if path.startswith("\\\\") else f"\\\\?\\{path}"


def look_at(path: Path) -> DiskFile | None:
    """One file; `None` if there is none, it is no ordinary one, or it cannot be read."""
    try:
        touch(path)
        real_folder = os.path.realpath(path.parent)
        status = Path(extended(str(path))).stat()
        is_link = path.is_symlink()
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return DiskFile(path, os.path.join(real_folder, path.name), stamp_of(status), status.st_nlink, is_link)  # noqa: PTH118


def stamp_of(status: os.stat_result) -> Stamp:
    """The stamp of what `stat` told."""
    return Stamp(status.st_size, status.st_mtime_ns, status.st_dev, status.st_ino)


def walk(root: Path) -> Tree:
    """Every model file below `root`, links to folders followed, each folder once; hidden ones are passed over."""
    files: list[DiskFile] = []
    start = str(root)
    try:
        touch(start)
        real_start = os.path.realpath(start)
        entries = sorted(os.scandir(extended(start)), key=_name)
    except OSError as error:
        return Tree((), _root_problem(root, error))
    visited = {real_start}
    waiting: list[tuple[str, str, list[os.DirEntry[str]], int]] = [(start, real_start, entries, 0)]
    while waiting:
        folder, real, entries, depth = waiting.pop()
        below: list[tuple[str, str, list[os.DirEntry[str]], int]] = []
        for entry in entries:
            name = entry.name
            if name.startswith("."):
                continue
            try:
                if name.lower().endswith(MODEL_SUFFIX) and _is_file(entry):
                    if len(files) >= MAX_FILES:
                        _log.warning("only %d model files below %s are looked at", MAX_FILES, root)
                        return Tree(tuple(files))
                    files.append(_file(entry, folder, real))
                elif depth + 1 < MAX_DEPTH and len(visited) < MAX_FOLDERS and _is_folder(entry):
                    inner = _enter(entry, real, visited)
                    if inner is not None:
                        path = os.path.join(folder, name)  # noqa: PTH118 - this loop runs for every file of a disk
                        below.append((path, inner, sorted(os.scandir(entry.path), key=_name), depth + 1))
            except (OSError, ValueError) as error:
                _log.debug("passed over %s: %s", entry.path, error)
        waiting.extend(reversed(below))
    return Tree(tuple(files))


def _name(entry: "os.DirEntry[str]") -> str:
    return entry.name


def _is_file(entry: "os.DirEntry[str]") -> bool:
    """An ordinary one: to open a pipe is to wait for ever."""
    touch(entry.path)
    return entry.is_file()


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    touch(entry.path)
    return entry.is_dir()


def _file(entry: "os.DirEntry[str]", folder: str, real: str) -> DiskFile:
    # On Windows a directory entry tells neither inode nor device (documentation of os.DirEntry.stat).
    status = Path(entry.path).stat() if sys.platform == "win32" else entry.stat()
    join = os.path.join
    return DiskFile(
        Path(join(folder, entry.name)), join(real, entry.name), stamp_of(status), status.st_nlink, entry.is_symlink()
    )


def _enter(entry: "os.DirEntry[str]", real: str, visited: set[str]) -> str | None:
    """The real path of a folder that was not looked at yet."""
    if sys.platform == "win32" or entry.is_symlink():  # junctions of Windows are no symbolic links
        inner = os.path.realpath(entry.path)
    else:
        inner = os.path.join(real, entry.name)  # noqa: PTH118
    if inner in visited:
        return None
    visited.add(inner)
    return inner


def _root_problem(root: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "This folder is not there now. If it is on another drive, connect it."
    if isinstance(error, NotADirectoryError):
        return f"{root.name} is not a folder."
    return f"This folder cannot be read: {error.strerror or error}."


def is_below(path: str, folder: str) -> bool:
    """Whether a real path is a folder or lies in it. Case counts only where the system says so."""
    path, folder = os.path.normcase(path), os.path.normcase(folder)
    return path == folder or path.startswith(folder if folder.endswith(os.sep) else folder + os.sep)
