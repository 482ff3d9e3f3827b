"""Starts, watches, restarts and ends the host process of the data folder.

The host is handed a pipe as standard input; when this process ends in whatever way, the pipe closes and the host
ends too (unless the person chose to keep the API on). What the host says goes into a bounded tail.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from PySide6.QtCore import QObject, Signal

from runtime.messages.api import HostFile
from runtime.paths import DataFolder

HostState = Literal["stopped", "starting", "running", "restarting", "failed"]
CommandProvider = Callable[[DataFolder], Sequence[str]]
"""Gives the command line that starts the host; a frozen program puts its own executable here."""


def host_command(folder: DataFolder) -> Sequence[str]:
    """The host by this interpreter: `python -m runtime.host --data-dir D --with-parent`."""
    raise NotImplementedError


class HostProcess(QObject):
    """The host of one data folder, started here or found running. Home thread: main."""

    state_changed = Signal(str)
    """A new `HostState`."""

    started = Signal(object)
    """`HostFile`: the host answers at this address (after a start, a restart or an attach)."""

    died = Signal(str)
    """The host ended by itself; the sentence says what is done about it (a restart follows, or `failed`)."""

    failed = Signal(str)
    """The host cannot be kept running; the sentence says why and what to do. `retry` begins anew."""

    stopped = Signal()
    """After `stop`: the host has ended, or was left on because the person wants that."""

    def __init__(
        self, folder: DataFolder, *, command: CommandProvider = host_command, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        raise NotImplementedError

    @property
    def state(self) -> HostState:
        """Where the host stands."""
        raise NotImplementedError

    @property
    def is_attached(self) -> bool:
        """Whether the host was found running (and is not ours to end)."""
        raise NotImplementedError

    @property
    def last_lines(self) -> tuple[str, ...]:
        """The last lines the host said on standard error, bounded."""
        raise NotImplementedError

    def start(self) -> None:
        """Attach to a running host of this data folder, or start one."""
        raise NotImplementedError

    def retry(self) -> None:
        """After `failed`: forget the earlier deaths and start again."""
        raise NotImplementedError

    def check(self) -> None:
        """The link was lost: look whether the host still lives."""
        raise NotImplementedError

    def stop(self, *, keep: bool = False) -> None:
        """End the host we started (politely, then by force), or leave it on with `keep`. `stopped` follows."""
        raise NotImplementedError
