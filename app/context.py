"""The objects of the desktop program, built and wired; no widget in it.

`app.main` resolves the data folder, makes an `AppContext`, shows the window, then calls `start`.
"""

from PySide6.QtCore import QObject, Signal

from app.conversations import Conversations
from app.host_process import CommandProvider, HostProcess, host_command
from app.link import HostLink
from app.notices import Notices
from app.presets import Presets
from app.session import ChatSession
from app.settings import Settings
from app.speed import Speed
from runtime.paths import DataFolder


class AppContext(QObject):
    """Home thread: main. Attributes are ready after construction; nothing runs before `start`."""

    closed = Signal()
    """After `close`: everything is saved and the host ended (or was left on as the person wants); quit now."""

    def __init__(
        self, folder: DataFolder, *, command: CommandProvider = host_command, parent: QObject | None = None
    ) -> None:
        """Creates the folders of the data folder.

        Raises:
            OSError: if they cannot be created.
        """
        super().__init__(parent)
        self.folder: DataFolder
        self.notices: Notices
        self.settings: Settings
        self.host: HostProcess
        self.link: HostLink
        self.speed: Speed
        self.presets: Presets
        self.conversations: Conversations
        self.session: ChatSession
        raise NotImplementedError

    def start(self) -> None:
        """After the first paint: read conversations, start the host, then load the last or starter model."""
        raise NotImplementedError

    def close(self) -> None:
        """The window closes: stop answers, save, end the host; `closed` follows within a few seconds at most."""
        raise NotImplementedError
