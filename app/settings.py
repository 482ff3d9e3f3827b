"""What the window remembers about itself: `window.toml`.

Load options and API settings belong to the host; conversations and presets to `app.store`.
"""

from pathlib import Path
from typing import Literal

import msgspec
from PySide6.QtCore import QObject, Signal

from app.notices import Notices
from app.tasks import Lane

Theme = Literal["system", "light", "dark"]
VERSION = 1


class WindowSettings(msgspec.Struct, frozen=True):
    """Values of `window.toml`. Change them with `Settings.update`.

    Attributes:
        geometry: `QWidget.saveGeometry`, base64; empty before the first close.
        window_state: `QMainWindow.saveState`, base64.
        splitters: sizes in pixels by splitter name.
        page: name of the page that was open.
        zoom_percent: text size, 50..200.
        last_model: id of the model to load at start; empty means the starter model.
        default_preset: id of the preset for new conversations; empty means none.
        last_conversation: id of the conversation that was open.
        conversations_open: whether the list of conversations is shown.
        inspector_open: whether the inspector is shown.
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


class Settings(QObject):
    """Holds the window's settings and saves them. Home thread: main; writing happens on a lane."""

    changed = Signal(object)
    """`WindowSettings` after a change."""

    def __init__(self, path: Path, lane: Lane, notices: Notices, parent: QObject | None = None) -> None:
        """Reads `path` at once (a few kilobytes). A broken file is moved aside, defaults are used, and it is said."""
        super().__init__(parent)
        raise NotImplementedError

    @property
    def values(self) -> WindowSettings:
        """The settings as they are now."""
        raise NotImplementedError

    def update(self, **changes: object) -> None:
        """Change fields by name: `settings.update(theme="dark")`. Saved atomically within half a second.

        Raises:
            TypeError: if a field does not exist.
        """
        raise NotImplementedError

    def flush(self) -> None:
        """Hand unsaved changes to the lane now (the window closes)."""
        raise NotImplementedError
