"""What every module of this package gives and gets."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runtime.library.disk import DiskFile
from runtime.library.patience import touch

MAX_SETTINGS_BYTES = 4 * 1024 * 1024
"""Another program's settings are read up to this size; a larger file is not one."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The machine as far as it says where programs keep things.

    Attributes:
        platform: as `sys.platform`.
        home: the person's home folder.
        environ: environment variables.
        system: the root of the system's own folders (`/`); only Linux has services that keep models there.
    """

    platform: str
    home: Path
    environ: Mapping[str, str]
    system: Path = Path("/")

    @classmethod
    def here(cls) -> "Surroundings":
        """This machine, this person."""
        return cls(sys.platform, Path.home(), dict(os.environ))

    def variable(self, name: str) -> Path | None:
        """A folder named by an environment variable; quotes and spaces around it do not count."""
        raw = self.environ.get(name, "").strip().strip("\"'")
        return self.path(raw) if raw else None

    def path(self, raw: str) -> Path | None:
        """A whole path that another program wrote down, `~` resolved; `None` for anything else."""
        if raw.startswith("~"):
            raw = str(self.home) + raw[1:]
        path = Path(raw)
        return path if "\0" not in raw and path.is_absolute() else None

    @property
    def data(self) -> Path:
        """Where programs of this person keep data that roams (`dirs::data_dir`, Electron's `appData` but on Linux)."""
        if self.platform == "win32":
            return self.variable("APPDATA") or self.home / "AppData" / "Roaming"
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        return self.variable("XDG_DATA_HOME") or self.home / ".local" / "share"

    @property
    def local_data(self) -> Path:
        """As `data`, but what stays on this machine (Qt's `AppLocalDataLocation` without the program's name)."""
        if self.platform == "win32":
            return self.variable("LOCALAPPDATA") or self.home / "AppData" / "Local"
        return self.data

    @property
    def config(self) -> Path:
        """Where programs of this person keep settings."""
        if self.platform in ("win32", "darwin"):
            return self.data
        return self.variable("XDG_CONFIG_HOME") or self.home / ".config"


@dataclass(frozen=True, slots=True)
class ForeignModel:
    """A model as another program names it.

    Attributes:
        stem: what it is called there, without a file's ending; the library makes id and name of it.
        files: all parts in order.
        projector: the one that belongs to it; `None` lets the library look in the same folder.
        publisher: "" where the program does not tell.
        sha256: announced hashes by path.
        problem: a sentence, where it cannot be used from here.
    """

    stem: str
    files: tuple[DiskFile, ...]
    projector: DiskFile | None = None
    publisher: str = ""
    sha256: Mapping[Path, str] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """What one folder of a program holds: files to be grouped like any folder's, and models that it names itself."""

    files: tuple[DiskFile, ...] = ()
    models: tuple[ForeignModel, ...] = ()
    sha256: Mapping[Path, str] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    """`folders` are places to look (whether they exist or not), `list` what one of them holds."""

    folders: Callable[[Surroundings], tuple[Path, ...]]
    list: Callable[[Path], Listing]


def read_settings(path: Path) -> bytes:
    """The bytes of a small file; empty if there is none, or it cannot be read."""
    try:
        touch(path)
        with path.open("rb") as file:
            raw = file.read(MAX_SETTINGS_BYTES + 1)
    except (OSError, ValueError):
        return b""
    return raw if len(raw) <= MAX_SETTINGS_BYTES else b""


def each_once(*paths: Path | None) -> tuple[Path, ...]:
    """Those that are there, in order, each once."""
    return tuple(dict.fromkeys(path for path in paths if path is not None))
