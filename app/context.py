"""The objects of the desktop program, built and wired; no widget in it.

`app.main` resolves the data folder, makes an `AppContext`, shows the window, then calls `start`.
"""

import logging

from PySide6.QtCore import QCoreApplication, QObject, QTimer, Signal, Slot

from app.answering import Answering
from app.arrivals import Arrivals
from app.conversations import Conversations
from app.garbage import Garbage
from app.host_process import CommandProvider, HostProcess, host_command
from app.link import HostLink
from app.media import Media
from app.models_link import ModelsLink
from app.notices import Notices
from app.presets import Presets
from app.removals import Removals
from app.saver import Saver
from app.session import ChatSession
from app.settings import Settings
from app.speed import Speed
from app.store import Store, StoreLane
from app.tasks import Lane
from app.tool_book import ToolBook
from app.tool_removals import ToolRemovals
from runtime.errors import Failure, HostUnreachable, to_failure
from runtime.messages.api import HostFile
from runtime.options import LoadOptions
from runtime.paths import DataFolder

PURGE_MS = 3_600_000
"""Pause between two erasures of what was deleted long ago."""

CLOSE_TIMEOUT_MS = 15_000
"""`closed` comes at the latest so long after `close`, even if a disk or a process hangs."""

_log = logging.getLogger(__name__)


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
        folder.ensure()
        self.folder = folder
        self._garbage = Garbage(self)
        self.notices = Notices(self)
        self._files = Lane("files", self)
        self.store = StoreLane(folder.conversations_file, self.notices, self)
        self.settings = Settings(folder.window_file, self._files, self.notices, self)
        self.host = HostProcess(folder, command=command, parent=self)
        self.link = HostLink(self)
        self.models = ModelsLink(self.link, self)
        self.removals = Removals(self.link, self.models, self.notices, self)
        self.arrivals = Arrivals(self.link, self.notices, self)
        self.speed = Speed(parent=self)
        self.presets = Presets(self.store, self.settings, self)
        self.conversations = Conversations(self.store, self)
        saver = Saver(self.store, self.notices, self)
        self.media = Media(self.store, saver, self)
        self.tools = ToolBook(self.link, self.settings, saver, self)
        self.tool_removals = ToolRemovals(self.link, self.tools, self.notices, self)
        self._answering = Answering(self.link, self.presets, saver, self.media, self.tools, self.speed, self)
        self.session = ChatSession(
            self.store, saver, self.link, self.conversations, self.presets, self._answering, self.notices, self
        )
        self._host_note: int | None = None
        self._is_closing = False
        self._is_closed = False
        self._purge = QTimer(self)
        self._purge.setInterval(PURGE_MS)
        self._purge.timeout.connect(self._tidy)
        self.host.set_kept_pid(self.settings.values.kept_host_pid)
        self.host.started.connect(self._host_started)
        self.host.died.connect(self._host_died)
        self.host.failed.connect(self._host_failed)
        self.host.stopped.connect(self._look_whether_closed)
        self.store.closed.connect(self._look_whether_closed)
        self._files.closed.connect(self._look_whether_closed)
        self.link.connected.connect(self._connected)
        self.link.disconnected.connect(self._disconnected)
        self.link.notice.connect(self.notices.say)
        self.link.request_failed.connect(self._request_failed)
        self.session.opened.connect(self._remember_conversation)
        self.session.title_changed.connect(self._remember_conversation)

    @property
    def is_closed(self) -> bool:
        """Whether `closed` was emitted."""
        return self._is_closed

    def start(self) -> None:
        """After the first paint: read conversations, start the host, then load the last or starter model."""
        self._garbage.start()
        self._answering.set_model_expected(True)
        self.presets.load()
        self.conversations.refresh()
        last = self.settings.values.last_conversation
        if last:
            self.session.open(last)
        self._purge.start()
        self._tidy()  # checks the file; before that nothing is written, since writing spreads damage
        self.store.submit(lambda store: store.mark_interrupted())
        self.host.start()

    def load_model(self, model_id: str, options: LoadOptions | None = None, *, anyway: bool = False) -> None:
        """Load a model and make it the one loaded at the next start.

        `options` are remembered for it; `None` takes those remembered last. With `anyway` it is tried also where it
        does not fit, and not at the next start.
        """
        if not anyway:
            self.settings.update(last_model=model_id)
        self._answering.set_model_expected(True)
        self.link.load_model(model_id, options, anyway=anyway, failed=self._load_failed)

    def close(self) -> None:
        """The window closes: stop answers, save, end the host; `closed` follows within a few seconds at most."""
        if self._is_closing:
            return
        self._is_closing = True
        api = self.link.api
        keep = api is not None and api.running and api.options.keep_when_window_closes
        self.session.close()
        self.removals.finish()
        self.tool_removals.finish()
        self.settings.update(kept_host_pid=self.host.host.pid if keep and self.host.host else 0)
        self.settings.flush()
        self.link.detach()
        self.host.stop(keep=keep)
        self.store.close()
        self._files.close()
        QTimer.singleShot(CLOSE_TIMEOUT_MS, self, self._give_up_closing)

    # --- the host

    @Slot(object)
    def _host_started(self, host: HostFile) -> None:
        self.link.attach(host)

    @Slot(str)
    def _host_died(self, text: str) -> None:
        self._withdraw_host_note()
        self._host_note = self.notices.say("warning", text)
        self._answering.set_model_expected(True)

    @Slot(str)
    def _host_failed(self, text: str) -> None:
        self._withdraw_host_note()
        label = QCoreApplication.translate("AppContext", "Try again")
        self._host_note = self.notices.say("error", text, action_label=label, on_action=self.host.retry)
        self._answering.set_model_expected(False)
        self._answering.fail_waiting(to_failure(HostUnreachable(text)))

    @Slot()
    def _connected(self) -> None:
        self._withdraw_host_note()
        if not self.link.loaded:
            wanted = self.settings.values.last_model
            known = {model.id for model in self.link.installed if not model.problem and model.kind == "chat"}
            if wanted not in known:
                starters = [model.id for model in self.link.installed if model.starter and model.id in known]
                wanted = starters[0] if starters else ""
            if wanted:
                self._answering.set_model_expected(True)
                self.link.load_model(wanted, failed=self._load_failed)
                return
        self._answering.set_model_expected(False)

    @Slot(str)
    def _disconnected(self, reason: str) -> None:
        if self._is_closing:
            return
        _log.warning("the host was lost: %s", reason)
        self._answering.set_model_expected(True)
        self.host.check()

    def _load_failed(self, failure: Failure) -> None:
        self._answering.set_model_expected(False)
        self._request_failed(failure)

    @Slot(object)
    def _request_failed(self, failure: Failure) -> None:
        self.notices.say("error", f"{failure.message} {failure.hint}".strip())

    def _withdraw_host_note(self) -> None:
        if self._host_note is not None:
            self.notices.withdraw(self._host_note)
            self._host_note = None

    # --- the rest

    @Slot()
    def _remember_conversation(self) -> None:
        self.settings.update(last_conversation=self.session.conversation_id)

    @Slot()
    def _tidy(self) -> None:
        self.store.submit(Store.purge)

    def _still_open(self) -> list[str]:
        ends = {
            "host": self.host.state == "stopped",
            "store": self.store.is_closed,
            "settings": self._files.is_closed,
        }
        return [name for name, is_done in ends.items() if not is_done]

    @Slot()
    def _look_whether_closed(self) -> None:
        if self._is_closing and not self._is_closed and not self._still_open():
            self._finish_closing()

    @Slot()
    def _give_up_closing(self) -> None:
        if not self._is_closed:
            _log.error("closing took too long; still open: %s", ", ".join(self._still_open()))
            self._finish_closing()

    def _finish_closing(self) -> None:
        self._is_closed = True
        self._garbage.stop()
        self.closed.emit()
