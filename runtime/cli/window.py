"""`deskside`: open the window, where there can be one.

The window is a program of its own (`python -m app`) that this one becomes. Without a display, `deskside serve` is
started instead; without one of Qt's system libraries, the command that installs it is printed.
"""

import argparse
import ctypes
import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from runtime.cli import exit_codes
from runtime.cli.terminal import Terminal
from runtime.errors import WorldFault
from runtime.paths import ENV_DATA_DIR, DataFolder

WINDOW_MODULE = "app"
_PLATFORM = "QT_QPA_PLATFORM"


def has_display(environ: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Whether a window can be shown: on Linux a display must be named, elsewhere there is one."""
    if not platform.startswith("linux"):
        return True
    return any(environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", _PLATFORM))


def silent_display(environ: Mapping[str, str]) -> str:
    """The display that is named and does not answer; empty when it does. Qt would end the process there."""
    first = platform_plugins(environ)[0] if sys.platform == "linux" else ""
    if first == "wayland":
        name = environ.get("WAYLAND_DISPLAY", "")
        path = Path(environ.get("XDG_RUNTIME_DIR", "")) / name  # an absolute name stands for itself
        return "" if path.is_socket() or environ.get("DISPLAY") else name
    if first == "xcb":
        try:
            xlib = ctypes.CDLL("libX11.so.6")
        except OSError:
            return ""  # the check of the libraries says it better
        xlib.XOpenDisplay.restype, xlib.XOpenDisplay.argtypes = ctypes.c_void_p, (ctypes.c_char_p,)
        xlib.XCloseDisplay.argtypes = (ctypes.c_void_p,)
        name = environ.get("DISPLAY", "")
        display = xlib.XOpenDisplay(name.encode())
        if not display:
            return name
        xlib.XCloseDisplay(display)
    return ""


def platform_plugins(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Qt's platform plugins that could show the window here, the one Qt would take first."""
    chosen = environ.get(_PLATFORM, "")
    if chosen:
        return tuple(name.partition(":")[0].removesuffix("-egl") for name in chosen.split(";"))
    wayland, x11 = bool(environ.get("WAYLAND_DISPLAY")), bool(environ.get("DISPLAY"))
    if wayland and (environ.get("XDG_SESSION_TYPE") == "wayland" or not x11):
        return ("wayland", "xcb") if x11 else ("wayland",)
    return ("xcb",)


def window_command(data: DataFolder) -> list[str]:
    """What starts the window."""
    return [sys.executable, "-m", WINDOW_MODULE, "--data-dir", str(data.root)]


def run(parsed: argparse.Namespace, data: DataFolder, terminal: Terminal) -> int:  # noqa: RET503 - execve ends it
    """Become the window, or serve where there can be none."""
    if not has_display(os.environ):
        terminal.say("There is no display here (neither DISPLAY nor WAYLAND_DISPLAY is set), so there is no window.")
        return _serve_instead(parsed, data, terminal)
    if importlib.util.find_spec("PySide6") is None or importlib.util.find_spec(WINDOW_MODULE) is None:
        raise WorldFault(
            "The window is not installed here: PySide6 is missing.",
            hint="Install Deskside with its window, or use `deskside serve` and `deskside chat`.",
        )
    environ = dict(os.environ) | {ENV_DATA_DIR: str(data.root)}
    plugin = usable_plugin(environ, terminal) if sys.platform == "linux" else ""
    if plugin is None:
        return exit_codes.FAILURE
    if plugin:
        environ[_PLATFORM] = plugin
    silent = silent_display(environ)
    if silent:
        terminal.say(f"The display {silent} does not answer, so there is no window.")
        return _serve_instead(parsed, data, terminal)
    command = window_command(data)
    sys.stdout.flush()
    if sys.platform == "win32":
        return subprocess.run(command, env=environ, check=False).returncode
    else:  # noqa: RET505 - so that each system's type check sees only its own branch
        os.execve(command[0], command, environ)  # noqa: S606 - our own words; the window takes this process over


def _serve_instead(parsed: argparse.Namespace, data: DataFolder, terminal: Terminal) -> int:
    from runtime.cli.arguments import parse
    from runtime.cli.serve import run as serve

    terminal.say("Starting `deskside serve` with the starter model instead.")
    options = parse(["--debug", "serve"] if parsed.debug else ["serve"])
    return serve(options, data, terminal)


def usable_plugin(environ: Mapping[str, str], terminal: Terminal) -> str | None:
    """The plugin to force, empty to leave the choice to Qt; `None` when none can work, which is then said."""
    from runtime.cli.qt_libraries import PLUGINS, MissingLibraries, missing_libraries

    first: MissingLibraries | None = None
    for number, plugin in enumerate(platform_plugins(environ)):
        missing = missing_libraries(plugin) if plugin in PLUGINS else None
        if missing is None:
            return plugin if number else ""
        first = first or missing
    if first is not None:
        terminal.error(first.sentence, f"Install them, then start again:\n\n    {first.advice}\n")
    return None
