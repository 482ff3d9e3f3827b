"""What the person is about to send in the open conversation: text and files, kept while they are unsent."""

from collections.abc import Callable

from PySide6.QtCore import QCoreApplication, QObject, QTimer, Signal, Slot

from app.answering import Answering, cannot_sense
from app.notices import Notices
from app.opened import Opened
from app.request import needed_sense
from app.saver import Saver
from app.store.records import MAX_ATTACHMENTS, MAX_MESSAGE_BYTES, Attachment, ConversationChange
from app.turns import Turns
from runtime.errors import Failure

SAVE_MS = 500
MAX_QUESTION_CHARS = 4_000_000
"""Longest question taken; far beyond any model's context, and small enough to show."""


class SessionDraft(QObject):
    """Of whichever conversation is open. Home thread: main."""

    changed = Signal()
    """Text or files changed."""

    files_changed = Signal()
    """Files came or went, or the model that would answer can now take them, or not any more."""

    def __init__(
        self,
        saver: Saver,
        turns: Turns,
        answering: Answering,
        notices: Notices,
        opened: Callable[[], Opened],
        parent: QObject | None = None,
    ) -> None:
        """`opened` tells which conversation is open."""
        super().__init__(parent)
        self._saver = saver
        self._turns = turns
        self._answering = answering
        self._notices = notices
        self._opened = opened
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(SAVE_MS)
        self._timer.timeout.connect(self.save)

    @property
    def text(self) -> str:
        """The unsent text."""
        return self._opened().draft

    @property
    def files(self) -> tuple[Attachment, ...]:
        """The files that go with the next question."""
        return self._opened().draft_attachments

    @property
    def obstacle(self) -> Failure | None:
        """Why the model that would answer cannot take these files; `None` while no model is ready."""
        model = self._answering.choice(self._opened()).ready
        lacking = needed_sense(self.files, model.facts) if model is not None else ""
        return cannot_sense(model, lacking) if model is not None and lacking else None

    def set_text(self, text: str) -> None:
        """The composer's text changed: kept (debounced) and counted."""
        if text != self._opened().draft:
            self._opened().draft = text[:MAX_QUESTION_CHARS]
            self._timer.start()
            self.changed.emit()

    def attach(self, conversation_id: str, attachment: Attachment, data: bytes) -> bool:
        """Put a file to the draft; False, which is said, where it would be more than one message takes.

        A file brought for a conversation that is no longer open is not put to another one.
        """
        if conversation_id != self._opened().id:
            text = QCoreApplication.translate(
                "SessionDraft", "{name} was not attached: another chat was opened before it was read."
            )
            name = attachment.name or QCoreApplication.translate("SessionDraft", "The picture")
            self._notices.say("warning", text.format(name=name))
            return False
        files = self.files
        if any(one.sha256 == attachment.sha256 for one in files):
            return True
        if len(files) >= MAX_ATTACHMENTS:
            text = QCoreApplication.translate("SessionDraft", "A message takes {count} files at most.")
            self._notices.say("warning", text.format(count=MAX_ATTACHMENTS))
            return False
        if sum(one.size_bytes for one in files) + attachment.size_bytes > MAX_MESSAGE_BYTES:
            text = QCoreApplication.translate(
                "SessionDraft", "The files of a message take {size} MiB at most: {name} does not fit any more."
            )
            self._notices.say("warning", text.format(size=MAX_MESSAGE_BYTES // 2**20, name=attachment.name))
            return False
        self._answering.media.hold(attachment.sha256, data)
        self._set_files((*files, attachment))
        return True

    def detach(self, sha256: str) -> None:
        """Take a file out of the draft."""
        self._set_files(tuple(one for one in self.files if one.sha256 != sha256))

    def sent(self) -> None:
        """The draft became a question."""
        self._timer.stop()
        self.files_changed.emit()

    @Slot()
    def save(self) -> None:
        """Hand the text to the saver now."""
        self._timer.stop()
        opened = self._opened()
        if opened.is_loading or (not opened.is_kept and not opened.draft.strip()):
            return
        self._turns.adopt_preset(opened)
        self._saver.change(opened.id, ConversationChange(draft=opened.draft))

    def _set_files(self, files: tuple[Attachment, ...]) -> None:
        opened = self._opened()
        if files == opened.draft_attachments:
            return
        self._turns.adopt_preset(opened)
        opened.draft_attachments = files
        self._saver.change(opened.id, ConversationChange(draft_attachments=files))
        self.files_changed.emit()
        self.changed.emit()
