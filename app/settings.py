"""What the window remembers about itself: `window.toml`.

Load options and API settings belong to the host; conversations and presets to `app.store`.
"""

import contextlib
import logging
import os
from pathlib import Path
from typing import Literal

import msgspec
import tomli_w
from PySide6.QtCore import QCoreApplication, QObject, QTimer, Signal, Slot

from app.notices import Notices
from app.store.records import ToolSetup
from app.tasks import Lane
from runtime import units
from runtime.toml_text import read_toml

Theme = Literal["system", "light", "dark"]

VERSION = 1
"""Version of the file's fields. A file of a newer version is read as far as it is understood; what is not is kept."""

SAVE_DELAY_MS = 300
MAX_FILE_BYTES = 1024 * 1024

_log = logging.getLogger(__name__)


class WindowSettings(msgspec.Struct, frozen=True):
    """Values of `window.toml`. Change them with `Settings.update`.

    Attributes:
        geometry: `QWidget.saveGeometry`, base64; empty before the first close.
        window_state: `QMainWindow.saveState`, base64.
        splitters: sizes in pixels by splitter name.
        page: name of the page that was open.
        theme: "system", "light" or "dark".
        zoom_percent: text size, 50..200.
        last_model: id of the model to load at start; empty means the starter model.
        default_preset: id of the preset for new conversations; empty means none.
        last_conversation: id of the conversation that was open.
        conversations_open: whether the list of conversations is shown.
        inspector_open: whether the inspector is shown.
        default_tools: which tools new conversations use.
        tools_allowed: tools that need no question anywhere, as (server, tool, fingerprint).
        trust_read_only: tools that say they only read need no question.
        kept_host_pid: process id of a host that was left on when the window closed; 0 for none.
    """

    geometry: str = ""
    window_state: str = ""
    splitters: dict[str, tuple[int, ...]] = {}
    page: str = "chat"
    theme: Theme = "system"
    zoom_percent: int = 100
    last_model: str = ""
    default_preset: str = ""
    last_conversation: str = ""
    conversations_open: bool = True
    inspector_open: bool = False
    default_tools: ToolSetup = ToolSetup()
    tools_allowed: tuple[tuple[str, str, str], ...] = ()
    trust_read_only: bool = False
    kept_host_pid: int = 0


class Settings(QObject):
    """Holds the window's settings and saves them. Home thread: main; writing happens on a lane."""

    changed = Signal(object)
    """`WindowSettings` after a change."""

    def __init__(self, path: Path, lane: Lane, notices: Notices, parent: QObject | None = None) -> None:
        """Reads `path` at once (a few kilobytes). A broken file is moved aside, defaults are used, and it is said."""
        super().__init__(parent)
        self._path = path
        self._lane = lane
        self._notices = notices
        self._raw: dict[str, object] = {}
        self._values = WindowSettings()
        self._note_id: int | None = None
        self._read()
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(SAVE_DELAY_MS)
        self._timer.timeout.connect(self.flush)

    @property
    def values(self) -> WindowSettings:
        """The settings as they are now."""
        return self._values

    def update(self, **changes: object) -> None:
        """Change fields by name: `settings.update(theme="dark")`. Saved atomically within half a second.

        Raises:
            TypeError: if a field does not exist.
        """
        changed = msgspec.structs.replace(self._values, **changes)
        if changed == self._values:
            return
        self._values = changed
        self._timer.start()
        self.changed.emit(changed)

    @Slot()
    def flush(self) -> None:
        """Hand unsaved changes to the lane now (the window closes)."""
        if not self._timer.isActive() and self.sender() is not self._timer:
            return
        self._timer.stop()
        # Unknown keys, of a newer version, are written back as they were read.
        self._raw = self._raw | {"version": max(VERSION, _version(self._raw))} | _plain(self._values)
        raw = tomli_w.dumps(self._raw).encode()
        path = self._path
        self._lane.submit(lambda: _write(path, raw), self._saved, self._save_failed)

    def _saved(self, _: None) -> None:
        if self._note_id is not None:
            self._notices.withdraw(self._note_id)
            self._note_id = None

    def _save_failed(self, error: Exception) -> None:
        _log.error("the window's settings were not saved", exc_info=error)
        if self._note_id is None:
            text = QCoreApplication.translate("Settings", "The window's settings could not be saved: {reason}.")
            self._note_id = self._notices.say("warning", text.format(reason=str(error).rstrip(".")))

    def _read(self) -> None:
        try:
            with self._path.open("rb") as file:
                raw = file.read(MAX_FILE_BYTES)
        except FileNotFoundError:
            return
        except OSError as error:
            self._say_defaults(str(error))
            return
        try:
            self._raw = read_toml(raw.decode())
        except ValueError as error:
            self._move_aside()
            self._say_defaults(str(error))
            return
        self._values, is_whole = _values(self._raw)
        if not is_whole:
            self._copy_aside(raw)
            self._say_defaults(QCoreApplication.translate("Settings", "some values were not understood"))

    def _aside(self) -> Path:
        stamp = units.now_local().strftime("%Y%m%d-%H%M%S")
        return self._path.with_name(f"{self._path.stem}.damaged-{stamp}{self._path.suffix}")

    def _move_aside(self) -> None:
        with contextlib.suppress(OSError):
            self._path.replace(self._aside())

    def _copy_aside(self, raw: bytes) -> None:
        with contextlib.suppress(OSError):
            self._aside().write_bytes(raw)

    def _say_defaults(self, reason: str) -> None:
        text = QCoreApplication.translate(
            "Settings",
            "The window's settings could not be read ({reason}), so the usual ones are used. A copy of the old file "
            "was kept beside it.",
        )
        self._notices.say("warning", text.format(reason=reason))


def _version(raw: dict[str, object]) -> int:
    version = raw.get("version", VERSION)
    return version if isinstance(version, int) else VERSION


def _plain(values: WindowSettings) -> dict[str, object]:
    return msgspec.convert(msgspec.to_builtins(values), dict[str, object])


def _values(raw: dict[str, object]) -> tuple[WindowSettings, bool]:
    """Take field by field, so that one wrong value costs only itself. The second value tells whether all were right."""
    taken: dict[str, object] = {}
    is_whole = True
    for field in msgspec.structs.fields(WindowSettings):
        if field.name in raw:
            try:
                taken[field.name] = msgspec.convert(raw[field.name], field.type)
            except msgspec.ValidationError:
                is_whole = False
    return msgspec.structs.replace(WindowSettings(), **taken), is_whole


def _write(path: Path, raw: bytes) -> None:
    """Beside it, flushed to the disk, then in its place: a crash leaves the old file or the new one."""
    draft = path.with_name(f"{path.name}.new")
    with draft.open("wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
