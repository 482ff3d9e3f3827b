"""Writing to conversations, open ones and those left in the background: questions, answers, results of tools."""

from PySide6.QtCore import QObject, Signal

from app.answering import Answering
from app.opened import Opened
from app.presets import Presets
from app.saver import Saver
from app.store import new_id
from app.store.records import Attachment, ConversationChange, MessageRecord
from app.title import title_from
from app.transcript import Node
from runtime import units


class Turns(QObject):
    """Adds messages to transcripts and hands them to the saver. Home thread: main."""

    path_changed = Signal(str)
    """Conversation id: messages came to its shown branch."""

    title_changed = Signal(str)
    """Conversation id: it got its title."""

    def __init__(self, presets: Presets, saver: Saver, answering: Answering, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._presets = presets
        self._saver = saver
        self._answering = answering

    def adopt_preset(self, opened: Opened) -> None:
        """The default preset becomes a conversation's own choice when it is first kept."""
        if opened.is_kept:
            return
        opened.preset_id = opened.preset(self._presets).id
        opened.is_kept = True
        self._saver.change(opened.id, ConversationChange(preset_id=opened.preset_id))

    def add(self, opened: Opened, record: MessageRecord) -> Node:
        """Add a message below its parent, show and keep it. Follow with `answer`, or emit `path_changed`."""
        node = opened.transcript.add(record)
        self._saver.put(node.record(opened.id))
        self.put_active(opened, record.parent_id)
        return node

    def ask(self, opened: Opened, text: str, attachments: tuple[Attachment, ...] = (), *, parent_id: str = "") -> None:
        """Add a question and have it answered. The draft is used up."""
        opened.draft = ""
        opened.draft_attachments = ()
        self.adopt_preset(opened)
        change = ConversationChange(draft="", draft_attachments=(), updated_s=units.now())
        self._saver.change(opened.id, change)
        question = self.add(
            opened,
            MessageRecord(
                id=new_id(),
                conversation_id=opened.id,
                parent_id=parent_id,
                role="user",
                content=text,
                created_s=units.now(),
                attachments=attachments,
            ),
        )
        if not opened.title:
            opened.title = title_from(text) or title_from(attachments[0].name if attachments else "")
            self._saver.change(opened.id, ConversationChange(title=opened.title))
            self.title_changed.emit(opened.id)
        self.answer(opened, question.id)

    def answer(self, opened: Opened, parent_id: str) -> Node:
        """Add an answer below this message and have it written."""
        node = opened.transcript.add(
            MessageRecord(
                id=new_id(),
                conversation_id=opened.id,
                parent_id=parent_id,
                role="assistant",
                state="queued",
                created_s=units.now(),
            )
        )
        self.put_active(opened, parent_id)
        self.write(opened, node)
        return node

    def write(self, opened: Opened, node: Node) -> None:
        """Have this answer written, or gone on with."""
        self.path_changed.emit(opened.id)
        self._answering.begin(opened, node)

    def put_active(self, opened: Opened, parent_id: str) -> None:
        """Keep which branch is shown below a message (or at the beginning)."""
        parent = opened.transcript.get(parent_id)
        if parent is not None:
            self._saver.put(parent.record(opened.id))
        else:
            change = ConversationChange(active_child_id=opened.transcript.active_child_id)
            self._saver.change(opened.id, change)
