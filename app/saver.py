"""Carries changes of conversations to the store: collected, in order, and tried again until they are written."""

from collections.abc import Iterable

from PySide6.QtCore import QCoreApplication, QObject, QTimer, Signal, Slot

from app.notices import Notices
from app.store import StoreLane
from app.store.records import ConversationChange, MessageRecord

RETRY_MS = 5000
"""Pause before a failed save is tried again."""


class Saver(QObject):
    """Home thread: main.

    A change waits here until the store has confirmed it, so a full disk loses nothing while the window is open. The
    number of changes is bounded by what a person does: one record a message, the newest only.
    """

    saved = Signal()
    """Something was written: the list of conversations may look different."""

    def __init__(self, store: StoreLane, notices: Notices, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._store = store
        self._notices = notices
        self._changes: dict[str, ConversationChange] = {}
        self._messages: dict[str, MessageRecord] = {}
        self._deletions: dict[str, bool] = {}
        self._files: dict[str, bytes] = {}
        self._note_id: int | None = None
        self._is_writing = False
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self.flush)

    def change(self, conversation_id: str, change: ConversationChange) -> None:
        """Write these fields of a conversation (made if new) before the next turn of the event loop ends."""
        before = self._changes.get(conversation_id, ConversationChange())
        self._changes[conversation_id] = before.merged(change)
        self._schedule()

    def put(self, record: MessageRecord) -> None:
        """Write this message. Its conversation must have been made by `change` first, its parent put before it."""
        self._messages[record.id] = record
        self._changes.setdefault(record.conversation_id, ConversationChange())
        self._schedule()

    def mark_deleted(self, message_ids: Iterable[str], *, deleted: bool) -> None:
        """Write that these messages are deleted, or are not any more."""
        self._deletions |= dict.fromkeys(message_ids, deleted)
        self._schedule()

    def put_file(self, sha256: str, data: bytes) -> None:
        """Write the bytes of an attachment; the message or draft that names it is handed in before the loop turns."""
        self._files[sha256] = data
        self._schedule()

    def pending_file(self, sha256: str) -> bytes | None:
        """The bytes of an attachment that the store does not have yet (nor is about to get)."""
        return self._files.get(sha256)

    def pending(self, conversation_id: str) -> dict[str, MessageRecord]:
        """Messages of this conversation that the store does not have yet (nor is about to get), by id."""
        return {key: one for key, one in self._messages.items() if one.conversation_id == conversation_id}

    @Slot()
    def flush(self) -> None:
        """Hand what is collected to the store now."""
        self._timer.stop()
        if not self._has_work:
            return
        changes, messages, deletions, files = self._changes, self._messages, self._deletions, self._files
        self._changes, self._messages, self._deletions, self._files = {}, {}, {}, {}
        self._is_writing = True

        def written(_: None) -> None:
            self._is_writing = False
            if self._note_id is not None:
                self._notices.withdraw(self._note_id)
                self._note_id = None
            self.saved.emit()
            self._schedule()

        def failed(error: Exception) -> None:
            self._is_writing = False
            for conversation_id, newer in self._changes.items():
                changes[conversation_id] = changes.get(conversation_id, ConversationChange()).merged(newer)
            self._changes = changes
            self._messages = messages | self._messages
            self._deletions = deletions | self._deletions
            self._files = files | self._files
            if self._note_id is None:
                text = QCoreApplication.translate("Saver", "{reason} It is tried again every few seconds.")
                self._note_id = self._notices.say("error", text.format(reason=error), lasts=True)
            self._timer.start(RETRY_MS)

        self._store.submit(lambda store: store.save(changes, messages.values(), deletions, files), written, failed)

    def _schedule(self) -> None:
        # While a save is on its way, what comes meanwhile waits for it and goes as one.
        if self._has_work and not self._is_writing and not self._timer.isActive():
            self._timer.start(0)

    @property
    def _has_work(self) -> bool:
        return bool(self._changes or self._messages or self._deletions or self._files)
