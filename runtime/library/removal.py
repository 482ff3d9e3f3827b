"""Taking model files away: to the system's trash where there is one. The only importer of send2trash."""

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import send2trash
from send2trash.exceptions import TrashPermissionError

from runtime.errors import StorageFault
from runtime.library.copying import storage_faults
from runtime.library.disk import DiskFile, extended, is_below, look_at
from runtime.library.listing import plain
from runtime.messages.library import RemoveAnswer

ToTrash = Callable[[str], None]
"""Moves a file to the trash; raises `TrashPermissionError` where the disk has none, `OSError` for anything else."""


def send_to_trash(path: str) -> None:
    """The system's trash: Windows' recycle bin, macOS' and freedesktop's trash."""
    send2trash.send2trash(path)


def remove_files(files: Sequence[DiskFile], root: Path, to_trash: ToTrash = send_to_trash) -> RemoveAnswer:
    """Take away all files of a model, then the folders below `root` that are empty because of it.

    A link is taken away, never what it leads to. Room is only counted for content that has no other name. Files that
    are gone already are no error.

    Raises:
        StorageFault: if one could not be taken away; those before it are gone.
    """
    freed_bytes, removed, all_in_trash = 0, [], True
    for file in files:
        now = look_at(file.path)
        if now is None and not file.path.is_symlink():
            continue
        all_in_trash = _remove(file.path, to_trash) and all_in_trash
        removed.append(file.path)
        if now is not None and not now.is_link and now.n_links == 1:
            freed_bytes += now.stamp.size_bytes
    prune({path.parent for path in removed}, root)
    return RemoveAnswer(freed_bytes, tuple(plain(str(path)) for path in removed), all_in_trash and bool(removed))


def prune(folders: set[Path], root: Path) -> None:
    """Remove folders that are empty, and those above them that become so; never `root` itself."""
    real_root = os.path.realpath(root)
    for folder in folders:
        here = folder
        while is_below(os.path.realpath(here), real_root) and os.path.realpath(here) != real_root:
            try:
                Path(extended(str(here))).rmdir()
            except OSError:
                break
            here = here.parent


def _remove(path: Path, to_trash: ToTrash) -> bool:
    """Whether it is in the trash."""
    try:
        to_trash(str(path))
    except TrashPermissionError:
        pass  # this disk has no trash: what was asked for is to be rid of the file
    except OSError as error:
        raise StorageFault(
            f"{plain(path.name)} could not be moved to the trash: {error.strerror or error}.",
            hint="Another program may be using it. Close it and try again.",
            path=plain(str(path)),
        ) from error
    if not os.path.lexists(path):
        return True
    with storage_faults(path, "deleted"), contextlib.suppress(FileNotFoundError):
        Path(extended(str(path))).unlink()
    return False
