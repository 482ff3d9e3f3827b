"""The lane on which the store lives."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from PySide6.QtCore import QCoreApplication, QObject, Signal

from app.notices import Notices
from app.store.database import Opened
from app.store.store import Store
from app.tasks import Lane

T = TypeVar("T")

_log = logging.getLogger(__name__)


class StoreLane(QObject):
    """Hands work to the store's thread, in order. Home thread: main.

    The file is opened by the first task. What happened to it (damaged, too new, not writable) is said as a notice.
    """

    closed = Signal()
    """Everything is written and the file is closed, after `close`."""

    def __init__(self, path: Path, notices: Notices, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._path = path
        self._notices = notices
        self._store: Store | None = None  # the lane's thread only
        self._lane = Lane("store", self)
        self._lane.closed.connect(self.closed)

    @property
    def is_closed(self) -> bool:
        """Whether `closed` was emitted."""
        return self._lane.is_closed

    def submit(
        self,
        work: Callable[[Store], T],
        done: Callable[[T], None] | None = None,
        failed: Callable[[Exception], None] | None = None,
    ) -> None:
        """Run `work(store)` on the store's thread; then `done(result)` or `failed(error)` on the main thread.

        Without `failed`, an error is said as a notice.
        """

        def run() -> tuple[T, Opened | None]:
            store = self._opened()
            return store.run(work), store.take_incident()

        def tell(answer: tuple[T, Opened | None]) -> None:
            result, incident = answer
            if incident is not None:
                self._say(incident)
            if done is not None:
                done(result)

        self._lane.submit(run, tell, failed or self.say_error)

    def close(self) -> None:
        """Write what was handed in, close the file; `closed` follows."""
        self._lane.submit(self._close_store)
        self._lane.close()

    def _opened(self) -> Store:
        if self._store is None:
            self._store = Store(self._path)
        return self._store

    def _close_store(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def say_error(self, error: Exception) -> None:
        """Say a failed task as a notice."""
        _log.error("the store failed", exc_info=error)
        self._notices.say("error", str(error))

    def _say(self, opened: Opened) -> None:
        aside = opened.aside.name if opened.aside else ""
        if opened.incident == "damaged":
            text = QCoreApplication.translate(
                "StoreLane",
                "The file with your conversations was damaged. {count} conversations could be read; the damaged file "
                "was kept as {name}.",
            )
            self._notices.say("error", text.format(count=opened.n_recovered, name=aside))
        elif opened.incident == "newer":
            text = QCoreApplication.translate(
                "StoreLane",
                "Your conversations were saved by a newer version of Deskside, which this one cannot read. They are "
                "untouched in {name}; chats you make now are kept apart. Update Deskside to see them all.",
            )
            self._notices.say("warning", text.format(name=aside))
        else:
            text = QCoreApplication.translate(
                "StoreLane",
                "Conversations cannot be saved now ({reason}). Chats last until you close the window. Free some disk "
                "space or check the rights of the data folder, then start Deskside again.",
            )
            self._notices.say("error", text.format(reason=opened.reason))
