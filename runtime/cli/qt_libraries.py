"""The system libraries that Qt needs on Linux, checked by name before a window is opened.

Without one of them Qt ends the process with no word of use. What is needed is read from the files of the installed
Qt (its platform plugin and what that asks for in turn), so the list is always that of this version.

`python -m runtime.cli.qt_libraries PLUGIN` prints what is missing and the exact command that installs it, and ends
with 1; with nothing missing it prints nothing and ends with 0. PLUGIN is `xcb`, `wayland` or `offscreen`.
"""

import ctypes
import importlib.util
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runtime.cli.elf import needed_libraries

Family = Literal["debian", "fedora", "arch", "suse"]

_MODULES = ("QtCore", "QtGui", "QtWidgets", "QtNetwork", "QtSvg")
"""What the window imports of PySide6."""

PLUGINS: Mapping[str, tuple[str, ...]] = {
    "xcb": ("platforms/libqxcb.so",),
    "wayland": (
        "platforms/libqwayland.so",
        "platforms/libqwayland-generic.so",  # its name before Qt 6.10
        "wayland-shell-integration/libxdg-shell.so",
    ),
    "offscreen": ("platforms/libqoffscreen.so",),
}

# soname: package on Debian and Ubuntu, Fedora, Arch, openSUSE.
_PACKAGES: Mapping[str, tuple[str, str, str, str]] = {
    "libEGL.so.1": ("libegl1", "libglvnd-egl", "libglvnd", "libglvnd"),
    "libGL.so.1": ("libgl1", "libglvnd-glx", "libglvnd", "libglvnd"),
    "libX11-xcb.so.1": ("libx11-xcb1", "libX11-xcb", "libx11", "libX11-xcb1"),
    "libX11.so.6": ("libx11-6", "libX11", "libx11", "libX11-6"),
    "libbrotlicommon.so.1": ("libbrotli1", "libbrotli", "brotli", "libbrotlicommon1"),
    "libbrotlidec.so.1": ("libbrotli1", "libbrotli", "brotli", "libbrotlidec1"),
    "libdbus-1.so.3": ("libdbus-1-3", "dbus-libs", "dbus", "libdbus-1-3"),
    "libfontconfig.so.1": ("libfontconfig1", "fontconfig", "fontconfig", "libfontconfig1"),
    "libfreetype.so.6": ("libfreetype6", "freetype", "freetype2", "libfreetype6"),
    "libglib-2.0.so.0": ("libglib2.0-0", "glib2", "glib2", "libglib-2_0-0"),
    "libgssapi_krb5.so.2": ("libgssapi-krb5-2", "krb5-libs", "krb5", "krb5"),
    "libgthread-2.0.so.0": ("libglib2.0-0", "glib2", "glib2", "libgthread-2_0-0"),
    "libgcc_s.so.1": ("libgcc-s1", "libgcc", "gcc-libs", "libgcc_s1"),
    "libstdc++.so.6": ("libstdc++6", "libstdc++", "gcc-libs", "libstdc++6"),
    "libwayland-client.so.0": ("libwayland-client0", "libwayland-client", "wayland", "libwayland-client0"),
    "libwayland-cursor.so.0": ("libwayland-cursor0", "libwayland-cursor", "wayland", "libwayland-cursor0"),
    "libxcb-cursor.so.0": ("libxcb-cursor0", "xcb-util-cursor", "xcb-util-cursor", "libxcb-cursor0"),
    "libxcb-glx.so.0": ("libxcb-glx0", "libxcb", "libxcb", "libxcb-glx0"),
    "libxcb-icccm.so.4": ("libxcb-icccm4", "xcb-util-wm", "xcb-util-wm", "libxcb-icccm4"),
    "libxcb-image.so.0": ("libxcb-image0", "xcb-util-image", "xcb-util-image", "libxcb-image0"),
    "libxcb-keysyms.so.1": ("libxcb-keysyms1", "xcb-util-keysyms", "xcb-util-keysyms", "libxcb-keysyms1"),
    "libxcb-randr.so.0": ("libxcb-randr0", "libxcb", "libxcb", "libxcb-randr0"),
    "libxcb-render-util.so.0": (
        "libxcb-render-util0",
        "xcb-util-renderutil",
        "xcb-util-renderutil",
        "libxcb-render-util0",
    ),
    "libxcb-render.so.0": ("libxcb-render0", "libxcb", "libxcb", "libxcb-render0"),
    "libxcb-shape.so.0": ("libxcb-shape0", "libxcb", "libxcb", "libxcb-shape0"),
    "libxcb-shm.so.0": ("libxcb-shm0", "libxcb", "libxcb", "libxcb-shm0"),
    "libxcb-sync.so.1": ("libxcb-sync1", "libxcb", "libxcb", "libxcb-sync1"),
    "libxcb-util.so.1": ("libxcb-util1", "xcb-util", "xcb-util", "libxcb-util1"),
    "libxcb-xfixes.so.0": ("libxcb-xfixes0", "libxcb", "libxcb", "libxcb-xfixes0"),
    "libxcb-xkb.so.1": ("libxcb-xkb1", "libxcb", "libxcb", "libxcb-xkb1"),
    "libxcb.so.1": ("libxcb1", "libxcb", "libxcb", "libxcb1"),
    "libxkbcommon-x11.so.0": ("libxkbcommon-x11-0", "libxkbcommon-x11", "libxkbcommon-x11", "libxkbcommon-x11-0"),
    "libxkbcommon.so.0": ("libxkbcommon0", "libxkbcommon", "libxkbcommon", "libxkbcommon0"),
    "libz.so.1": ("zlib1g", "zlib", "zlib", "libz1"),
    "libzstd.so.1": ("libzstd1", "libzstd", "zstd", "libzstd1"),
}
_COMMANDS: Mapping[Family, str] = {
    "debian": "apt-get install",
    "fedora": "dnf install",
    "arch": "pacman -S",
    "suse": "zypper install",
}
_FAMILIES: tuple[Family, ...] = ("debian", "fedora", "arch", "suse")
_FAMILY_OF: Mapping[str, Family] = {
    "debian": "debian",
    "ubuntu": "debian",
    "fedora": "fedora",
    "rhel": "fedora",
    "centos": "fedora",
    "arch": "arch",
    "suse": "suse",
    "opensuse": "suse",
}


@dataclass(frozen=True, slots=True)
class MissingLibraries:
    """What Qt would not find. `command` installs it; empty on a distribution that is not known here."""

    sonames: tuple[str, ...]
    command: str

    @property
    def sentence(self) -> str:
        """What is missing, for a person."""
        return f"The window needs system libraries that are not installed: {', '.join(self.sonames)}."

    @property
    def advice(self) -> str:
        """The line to type."""
        return self.command or "Install the packages of your distribution that hold these libraries."


def can_load(soname: str) -> bool:
    """Whether the dynamic linker finds the library and all that it needs."""
    try:
        ctypes.CDLL(soname)
    except OSError:
        return False
    return True


def qt_folder() -> Path | None:
    """Where PySide6 is installed, without importing it; `None` on systems where Qt brings all it needs."""
    spec = importlib.util.find_spec("PySide6") if sys.platform == "linux" else None
    places = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(places))) if places else None


def needed_by_qt(folder: Path, plugin: str) -> tuple[str, ...]:
    """The system libraries that the plugin and the Qt modules of the window need, Qt's own left out."""
    ours = {
        path.name: path
        for place in (folder, folder / "Qt" / "lib", folder.parent / "shiboken6")
        for path in place.glob("lib*.so*")
    }
    waiting = [folder / f"{name}.abi3.so" for name in _MODULES]
    waiting += [folder / "Qt" / "plugins" / name for name in PLUGINS[plugin]]
    seen: set[Path] = set()
    wanted: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in seen or not path.exists():
            continue
        seen.add(path)
        for soname in needed_libraries(path):
            if soname in ours:
                waiting.append(ours[soname])
            else:
                wanted.add(soname)
    return tuple(sorted(wanted))


def missing_libraries(
    plugin: str,
    *,
    folder: Path | None = None,
    os_release: Path = Path("/etc/os-release"),
    loads: Callable[[str], bool] = can_load,
) -> MissingLibraries | None:
    """What this plugin would not find; `None` when nothing is missing (or this is not Linux)."""
    place = folder or qt_folder()
    if place is None:
        return None
    missing = tuple(soname for soname in needed_by_qt(place, plugin) if not loads(soname))
    return MissingLibraries(missing, install_command(missing, os_release)) if missing else None


def install_command(sonames: Iterable[str], os_release: Path = Path("/etc/os-release")) -> str:
    """The command of this distribution; empty when it or one of the libraries is not known here."""
    family = distribution_family(os_release)
    if family is None:
        return ""
    column = _FAMILIES.index(family)
    names = {_PACKAGES[soname][column] for soname in sonames if soname in _PACKAGES}
    if not names or any(soname not in _PACKAGES for soname in sonames):
        return ""
    return f"sudo {_COMMANDS[family]} {' '.join(sorted(names))}"


def distribution_family(os_release: Path) -> Family | None:
    """From ID and ID_LIKE of os-release(5)."""
    try:
        lines = os_release.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    values = {}
    for line in lines:
        key, _, raw = line.partition("=")
        try:
            values[key.strip()] = " ".join(shlex.split(raw))
        except ValueError:
            continue
    for word in (values.get("ID", ""), *values.get("ID_LIKE", "").split()):
        family = _FAMILY_OF.get(word.lower().partition("-")[0])
        if family is not None:
            return family
    return None


def main(arguments: list[str]) -> int:
    """Entry point of `python -m runtime.cli.qt_libraries`."""
    if len(arguments) != 1 or arguments[0] not in PLUGINS:
        print(f"usage: python -m runtime.cli.qt_libraries {{{','.join(PLUGINS)}}}", file=sys.stderr)
        return 2
    missing = missing_libraries(arguments[0])
    if missing is None:
        return 0
    print(missing.sentence)
    print(missing.advice)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
