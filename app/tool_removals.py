"""Removes tool servers with a delay, so that it can be undone: their secrets are gone for good only then."""

from PySide6.QtCore import QCoreApplication, QObject, QTimer

from app.link import HostLink
from app.notices import Notices
from app.removals import UNDO_MS
from app.tool_book import ToolBook
from app.tools_link import ToolsLink
from runtime.errors import Failure


class ToolRemovals(QObject):
    """Home thread: main."""

    def __init__(self, link: HostLink, book: ToolBook, notices: Notices, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._link = link
        self._servers = ToolsLink(link, self)
        self._book = book
        self._notices = notices
        self._pending: dict[str, tuple[QTimer, int]] = {}
        link.tools_changed.connect(self._forget_gone)

    def remove(self, name: str) -> None:
        """Remove a server in a while; a notice offers to undo it."""
        if name in self._pending:
            return
        timer = QTimer(self)
        timer.setSingleShot(True)
        timer.setInterval(UNDO_MS)
        timer.timeout.connect(lambda: self._carry_out(name))
        text = QCoreApplication.translate("ToolRemovals", "The tool server {name} was removed.")
        note_id = self._notices.say(
            "info",
            text.format(name=name),
            action_label=QCoreApplication.translate("ToolRemovals", "Undo"),
            on_action=lambda: self.undo(name),
        )
        self._pending[name] = (timer, note_id)
        timer.start()
        self._book.hide(frozenset(self._pending))

    def undo(self, name: str) -> None:
        """Keep a server after all; too late it does nothing."""
        one = self._pending.get(name)
        if one is not None and one[0].isActive():
            self._forget(name)

    def finish(self) -> None:
        """Carry out what waits: the window closes."""
        for name, (timer, _) in tuple(self._pending.items()):
            if timer.isActive():
                self._carry_out(name)

    def _carry_out(self, name: str) -> None:
        """The server stays hidden until the host says that it is gone: ending it may take a while."""
        timer, note_id = self._pending[name]
        timer.stop()
        self._notices.withdraw(note_id)
        self._servers.remove(name, failed=lambda failure: self._failed(name, failure))

    def _failed(self, name: str, failure: Failure) -> None:
        self._forget(name)
        self._link.request_failed.emit(failure)

    def _forget_gone(self) -> None:
        there = {server.config.name for server in self._link.tool_servers}
        for name in [name for name in self._pending if name not in there]:
            self._forget(name)

    def _forget(self, name: str) -> None:
        one = self._pending.pop(name, None)
        if one is not None:
            timer, note_id = one
            timer.stop()
            self._notices.withdraw(note_id)
            self._book.hide(frozenset(self._pending))
