"""Where models are looked for, and whose files stand there."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime.library.disk import is_below
from runtime.library.foreign import PROGRAMS, Surroundings
from runtime.library.patience import NotAnswering, touch
from runtime.messages.library import Origin
from runtime.options import ModelsOptions
from runtime.paths import DataFolder


@dataclass(frozen=True, slots=True)
class Root:
    """A folder that is searched. `is_told`: a person named it, so that a missing one is worth a word."""

    path: Path
    origin: Origin
    is_main: bool = False
    is_told: bool = True


@dataclass(frozen=True, slots=True)
class Roots:
    """All folders in order, and what may not be touched.

    Attributes:
        searched: own folders first: where two list the same file, the earlier one's name is used.
        foreign: real paths of other programs' folders, with their origin, also while they are not searched.
    """

    searched: tuple[Root, ...]
    foreign: tuple[tuple[str, Origin], ...]

    def owner(self, real: str, origin: Origin, *, is_ours: bool) -> Origin:
        """Whose a file is: a folder of another program's stays theirs whoever else searches it too.

        Args:
            real: the file's real path.
            origin: of the root it was found in.
            is_ours: we put it there.
        """
        if not is_ours:
            for folder, theirs in self.foreign:
                if is_below(real, folder):
                    return theirs
        return origin


def main_folder(folder: DataFolder, options: ModelsOptions | None) -> Path:
    """Where downloads arrive."""
    return Path(options.main_folder) if options is not None and options.main_folder else folder.models


def find_roots(
    folder: DataFolder, options: ModelsOptions | None, around: Surroundings | None, also: Sequence[Path] = ()
) -> Roots:
    """Folders to search under these options.

    Args:
        folder: the data folder; its own models folder is searched also when the main folder is another one.
        options: `None` searches only the data folder's models.
        around: where other programs keep things; `None` looks for none.
        also: further main folders (both ends of a move that is not finished).
    """
    main = main_folder(folder, options)
    searched = [Root(main, "deskside", is_main=True)]
    searched += [Root(path, "deskside", is_told=False) for path in also]
    if folder.models != main:
        searched.append(Root(folder.models, "deskside", is_told=False))
    if options is not None:
        searched += [Root(Path(path), "folder") for path in options.folders]
    foreign: list[tuple[str, Origin]] = []
    if around is not None:
        for origin, program in PROGRAMS.items():
            for path in program.folders(around):
                if not _may_be_folder(path):
                    continue
                foreign.append((_real(path), origin))
                if options is not None and options.use_other_programs:
                    searched.append(Root(path, origin, is_told=False))
    return Roots(_each_once(searched), tuple(foreign))


def _each_once(roots: Sequence[Root]) -> tuple[Root, ...]:
    found: dict[str, Root] = {}
    for root in roots:
        found.setdefault(os.path.normcase(_real(root.path)), root)
    return tuple(found.values())


def _may_be_folder(path: Path) -> bool:
    """One that does not answer is taken for a folder, so that it is named to the person."""
    try:
        touch(path)
    except NotAnswering:
        return True
    return path.is_dir()


def _real(path: Path) -> str:
    """With all links followed, where they can be."""
    try:
        touch(path)
    except NotAnswering:
        return str(path.absolute())
    return os.path.realpath(path)


def free_bytes(path: Path) -> int:
    """Room on the disk that a folder is, or would be, on; 0 where it cannot be told."""
    for place in (path, *path.parents):
        try:
            return shutil.disk_usage(place).free
        except FileNotFoundError:
            continue
        except OSError:
            break
    return 0
