"""Writing to a terminal: colour only where it is wanted, and nothing in a model's words that could steer it."""

import contextlib
import io
import os
import shutil
import sys
from collections.abc import Mapping
from typing import Literal, TextIO

Style = Literal["bold", "dim", "red", "green", "yellow", "blue", "cyan"]

_CODES: Mapping[Style, str] = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "cyan": "36",
}
_DELETE = 0x7F
_CONTROL_PICTURES = 0x2400  # Unicode has a picture of each of the first 32 controls, in their order
_DELETE_PICTURE = "\u2421"
_REPLACEMENT = "\ufffd"
# Marks that reorder what is shown, so that text reads other than it is (Unicode TR36, "bidirectional text spoofing").
_REORDERING = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))


def _table() -> dict[int, str]:
    table = {code: chr(_CONTROL_PICTURES + code) for code in range(0x20)}
    del table[ord("\n")], table[ord("\t")]
    table[_DELETE] = _DELETE_PICTURE
    table |= dict.fromkeys(range(0x80, 0xA0), _REPLACEMENT)  # C1: one of them begins an escape sequence as ESC [ does
    table |= dict.fromkeys(_REORDERING, _REPLACEMENT)
    table |= dict.fromkeys(range(0xD800, 0xE000), _REPLACEMENT)  # lone surrogates cannot be encoded
    return table


_NEUTRAL = _table()


def neutralise(text: str) -> str:
    """Text that can be shown without acting on the terminal: control characters become pictures of themselves.

    Line feeds and tabs stay, and a carriage return before a line feed goes.
    """
    return text.replace("\r\n", "\n").translate(_NEUTRAL)


def wants_colour(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Colour on a terminal, unless NO_COLOR is set to anything (no-color.org) or the terminal is dumb."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


class Terminal:
    """Standard output and error with their manners. Home thread: main."""

    def __init__(
        self, out: TextIO | None = None, err: TextIO | None = None, environ: Mapping[str, str] = os.environ
    ) -> None:
        self.out = sys.stdout if out is None else out
        self.err = sys.stderr if err is None else err
        self.out_is_tty = self.out.isatty()
        self.err_is_tty = self.err.isatty()
        self._colour_out = wants_colour(self.out, environ)
        self._colour_err = wants_colour(self.err, environ)

    @property
    def width(self) -> int:
        """Columns; 80 when it is not known."""
        return shutil.get_terminal_size().columns

    def paint(self, text: str, *styles: Style, on_error: bool = False) -> str:
        """Text in these styles, or as it is where colour is not wanted."""
        if not styles or not text or not (self._colour_err if on_error else self._colour_out):
            return text
        return f"\x1b[{';'.join(_CODES[style] for style in styles)}m{text}\x1b[0m"

    def line(self, text: str = "", *styles: Style) -> None:
        """A line on standard output."""
        self.out.write(f"{self.paint(text, *styles)}\n")

    def say(self, text: str, *styles: Style) -> None:
        """A line on standard error: what is not the answer itself."""
        self.err.write(f"{self.paint(text, *styles, on_error=True)}\n")
        self.err.flush()

    def error(self, message: str, hint: str = "") -> None:
        """What went wrong, and what to do about it."""
        self.err.write(f"{self.paint('deskside:', 'red', 'bold', on_error=True)} {neutralise(message)}\n")
        if hint:
            self.err.write(f"  {neutralise(hint)}\n")
        self.err.flush()

    def warn(self, message: str) -> None:
        """Something to know that stops nothing."""
        self.err.write(f"{self.paint('note:', 'yellow', on_error=True)} {neutralise(message)}\n")
        self.err.flush()


class ProgressBar:
    """One line on standard error that fills up; without a terminal a line at every quarter."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._last_percent = -1
        self._drawn = False

    def show(self, label: str, fraction: float) -> None:
        """Draw; `fraction` is 0..1. Calls that change nothing to see cost nothing."""
        percent = round(100 * min(1.0, max(0.0, fraction)))
        if percent == self._last_percent:
            return
        terminal = self._terminal
        label = neutralise(label)[: max(10, terminal.width - 20)]
        if not terminal.err_is_tty:
            if percent // 25 > max(self._last_percent, 0) // 25 or self._last_percent < 0:
                terminal.say(f"{label} {percent} %")
            self._last_percent = percent
            return
        self._last_percent = percent
        room = max(10, min(40, terminal.width - len(label) - 10))
        filled = round(room * percent / 100)
        bar = terminal.paint("█" * filled, "cyan", on_error=True) + terminal.paint(
            "░" * (room - filled), "dim", on_error=True
        )
        terminal.err.write(f"\r\x1b[K{label} {bar} {percent:3d} %")
        terminal.err.flush()
        self._drawn = True

    def clear(self) -> None:
        """Take the line away."""
        if self._drawn:
            self._terminal.err.write("\r\x1b[K")
            self._terminal.err.flush()
        self._drawn = False
        self._last_percent = -1


def table(rows: list[tuple[str, ...]], *, right: frozenset[int] = frozenset()) -> list[str]:
    """Rows as lines with aligned columns; `right` are the columns that end together."""
    if not rows:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def prepare_streams() -> None:
    """Make printing safe: UTF-8 on Windows, no failure on a character the locale lacks, escape codes understood."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError, ValueError):
                if sys.platform == "win32":
                    stream.reconfigure(encoding="utf-8", errors="replace")
                else:
                    stream.reconfigure(errors="replace")
    if sys.platform == "win32":
        import ctypes

        virtual_terminal = 0x0004  # ENABLE_VIRTUAL_TERMINAL_PROCESSING, consoleapi.h
        utf8 = 65001
        kernel = ctypes.windll.kernel32
        kernel.SetConsoleOutputCP(utf8)
        for number in (-11, -12):  # STD_OUTPUT_HANDLE, STD_ERROR_HANDLE
            handle = kernel.GetStdHandle(number)
            mode = ctypes.c_ulong()
            if kernel.GetConsoleMode(handle, ctypes.byref(mode)):
                kernel.SetConsoleMode(handle, mode.value | virtual_terminal)
