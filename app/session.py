"""The open conversation: what is shown of it and what a person can do with it."""

from PySide6.QtCore import QCoreApplication, QObject, Signal, Slot

from app.answering import MAX_RUNNING, Answering
from app.context_count import ContextCount
from app.conversations import Conversations, untitled
from app.link import HostLink
from app.notices import Notices
from app.opened import Opened
from app.presets import Presets
from app.saver import Saver
from app.session_draft import MAX_QUESTION_CHARS, SessionDraft
from app.session_setup import SessionSetup
from app.store import StoreLane, new_id
from app.store.records import Attachment, ConversationRecord, MessageRecord
from app.title import title_from
from app.tool_rounds import ToolRounds
from app.transcript import AnswerStats, MessageState, MessageView, Transcript
from app.turns import Turns
from runtime.messages.api import LoadedModel

__all__ = ["AnswerStats", "ChatSession", "MessageState", "MessageView"]


class ChatSession(QObject):
    """The open conversation. Home thread: main.

    An answer goes on when another conversation is opened; its row in the list shows busy.
    """

    opened = Signal(str)
    """Conversation id: another conversation is open (its messages may still be on their way: `reset` follows)."""

    reset = Signal()
    """Everything changed: read `messages()` and the other properties anew."""

    message_added = Signal(str)
    """Message id, appended at the end of the shown path."""

    text_appended = Signal(str, str, str)
    """Message id, new reasoning, new content (either may be empty); about 30 times a second at most."""

    message_changed = Signal(str)
    """Message id: anything but appended text changed (state, stats, progress, branches, notice, error). At most
    about 30 times a second while the prompt is read."""

    messages_removed = Signal(object)
    """`tuple[str, ...]` of message ids that are no longer shown; always the end of the shown path."""

    busy_changed = Signal(bool)
    """Whether the open conversation has an answer in the making."""

    context_used = Signal(int, int)
    """Tokens of the conversation and the model's context length (0 when no model is loaded)."""

    draft_counted = Signal(int, int)
    """Tokens the conversation would be with the draft sent, and the context length; 300 ms after typing."""

    speed_changed = Signal(object)
    """`float | None`: live tokens a second of this conversation's answer."""

    time_to_first_token_changed = Signal(object)
    """`float | None`: seconds, of the last answer."""

    title_changed = Signal(str)
    """The title of the open conversation."""

    draft_restored = Signal(str)
    """Text for the composer: the unsent draft of the conversation just opened. Its files: `draft.files`."""

    removed_undoable = Signal(str)
    """Sentence ("Deleted 3 messages"); `undo_delete` brings them back."""

    def __init__(
        self,
        store: StoreLane,
        saver: Saver,
        link: HostLink,
        conversations: Conversations,
        presets: Presets,
        answering: Answering,
        notices: Notices,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._store = store
        self._saver = saver
        self._conversations = conversations
        self._answering = answering
        self._notices = notices
        self._open = Opened(Transcript(new_id()))
        self._shown: dict[str, None] = {}  # ids of the shown path, in order
        self._turns = Turns(presets, saver, answering, self)
        self._turns.path_changed.connect(self._path_changed)
        self._turns.title_changed.connect(self._title_given)
        self.setup = SessionSetup(presets, saver, self._turns, lambda: self._open, self)
        """How the open conversation is answered."""
        self.setup.changed.connect(self._setup_changed)
        self.draft = SessionDraft(saver, self._turns, answering, notices, lambda: self._open, self)
        """What the person is about to send in it."""
        self._context = ContextCount(link, presets, answering, answering.media, self)
        self.tools = ToolRounds(link, self._turns, answering, saver, lambda: self._open, self)
        """Calls of tools, of this conversation and of others."""
        self.draft.changed.connect(self._context.count_soon)
        self._context.used_changed.connect(self.context_used)
        self._context.draft_counted.connect(self.draft_counted)
        self._context.follow(self._open)
        link.models_changed.connect(self._models_changed)
        link.connected.connect(self._models_changed)
        answering.appended.connect(self._text_appended)
        answering.changed.connect(self._message_changed)
        answering.context_used.connect(self._answer_context_used)
        answering.speed_changed.connect(self._answer_speed_changed)
        answering.busy_changed.connect(self._answer_busy_changed)
        conversations.deleted.connect(self._conversation_deleted)
        conversations.retitled.connect(self._conversation_retitled)
        saver.saved.connect(conversations.refresh)

    # --- what is shown

    @property
    def conversation_id(self) -> str:
        """The open conversation."""
        return self._open.id

    @property
    def title(self) -> str:
        """Its title; "New chat" before the first question."""
        return self._open.title or untitled()

    @property
    def is_busy(self) -> bool:
        """Whether it has an answer in the making."""
        return self._answering.opened(self._open.id) is not None

    @property
    def is_loading(self) -> bool:
        """Whether its messages are still being read from disk."""
        return self._open.is_loading

    @property
    def is_empty(self) -> bool:
        """Whether it has no message."""
        return not self._shown and not self._open.is_loading

    @property
    def model(self) -> LoadedModel | None:
        """The model that would answer now; `None` while none is ready."""
        return self._answering.choice(self._open).ready

    @property
    def tokens_used(self) -> int:
        """Tokens of the conversation as last told by `context_used`."""
        return self._context.used

    def messages(self) -> tuple[MessageView, ...]:
        """The shown path, oldest first."""
        transcript = self._open.transcript
        return tuple(transcript.view(node) for node in transcript.path())

    def message(self, message_id: str) -> MessageView | None:
        """One message of the shown path."""
        node = self._open.transcript.get(message_id)
        return self._open.transcript.view(node) if node is not None else None

    # --- opening

    def open(self, conversation_id: str) -> None:
        """Open a conversation (an id unknown to the store is a new, empty one). `opened`, then `reset` follow."""
        if conversation_id == self._open.id and (self._open.is_kept or self._open.is_loading):
            return
        self.draft.save()
        was_busy = self.is_busy
        running = self._answering.opened(conversation_id)
        self._open = running or Opened(Transcript(conversation_id), is_loading=True)
        self._show_all()
        self.opened.emit(conversation_id)
        self.reset.emit()
        if was_busy != self.is_busy:
            self.busy_changed.emit(self.is_busy)
        if running is not None:
            self._tell_opened()
            return
        opened = self._open

        def read(found: tuple[ConversationRecord | None, tuple[MessageRecord, ...]]) -> None:
            record, records = found
            opened.is_loading = False
            if record is not None:
                opened.take(record)
                # With a full disk the newest messages are still waiting to be written.
                newest = {one.id: one for one in records} | self._saver.pending(record.id)
                opened.transcript = Transcript(record.id, newest.values(), active_child_id=record.active_child_id)
            if opened is self._open:
                self._show_all()
                self.reset.emit()
                self._tell_opened()

        def failed(error: Exception) -> None:
            opened.is_loading = False
            self._store.say_error(error)
            if opened is self._open:
                self.reset.emit()

        self._saver.flush()  # what was just written must be in what is read
        self._store.submit(lambda store: (store.conversation(opened.id), store.messages(opened.id)), read, failed)

    def open_new(self) -> None:
        """Open a new, empty conversation; does nothing when the open one is empty already."""
        if not (self.is_empty and not self._open.draft and not self._open.is_kept):
            self.open(self._conversations.create())

    # --- what a person can do

    def send(self, text: str) -> bool:
        """Send a question; False when it cannot be taken, and the draft stays.

        The draft's files go with it. It is not taken when it is empty, while this conversation is busy or loading, as
        long as there is a `draft.obstacle`, and (which is said) when it is too long or too many conversations are busy.

        While no model is ready the answer waits in state "queued" and begins when one is.
        """
        files = self.draft.files
        if not (text.strip() or files) or not self._may_answer() or not self._fits(text) or self.draft.obstacle:
            return False
        last = self._open.transcript.last()
        self._ask(text, files, parent_id=last.id if last else "")
        return True

    def stop(self) -> None:
        """Stop the answer of the open conversation; what came stays."""
        self._answering.stop(self._open.id)

    def regenerate(self, message_id: str) -> bool:
        """Answer again as a new branch (id of an answer, or of a question). A failed empty answer is replaced."""
        transcript = self._open.transcript
        node = transcript.get(message_id)
        if node is None or not self._may_answer():
            return False
        if node.role == "assistant":
            parent_id = node.parent_id
            if node.state == "failed" and not len(node.content) and not node.tool_calls and not node.child_ids:
                self._saver.mark_deleted([node.id], deleted=True)
                transcript.remove(node.id)
        else:
            parent_id = node.id
        self._turns.answer(self._open, parent_id)
        return True

    def edit_and_resend(self, message_id: str, text: str) -> bool:
        """Send a changed question, with its files, as a new branch."""
        node = self._open.transcript.get(message_id)
        if node is None or node.role != "user" or not (text.strip() or node.attachments):
            return False
        if not self._may_answer() or not self._fits(text):
            return False
        self._ask(text, node.attachments, parent_id=node.parent_id)
        return True

    def continue_answer(self, message_id: str) -> bool:
        """Go on writing the last answer."""
        node = self._open.transcript.get(message_id)
        if node is None or not self._open.transcript.view(node).can_continue or not self._may_answer():
            return False
        self._turns.write(self._open, node)
        return True

    def go_on(self, message_id: str) -> None:
        """Run the calls of an answer that were not run, or let the model go on behind results of tools."""
        if not self.is_loading:
            self.tools.go_on(self._open, message_id)

    def select_branch(self, message_id: str, index: int) -> None:
        """Show another sibling (from 0) of this message and what follows it."""
        transcript = self._open.transcript
        sibling_id = transcript.sibling(message_id, index)
        if sibling_id is None or sibling_id == message_id:
            return
        transcript.show(sibling_id)
        node = transcript.get(sibling_id)
        self._turns.put_active(self._open, node.parent_id if node else "")
        self._follow_path()

    def delete_message(self, message_id: str) -> None:
        """Delete a message and what follows it; `removed_undoable` follows."""
        transcript = self._open.transcript
        if transcript.get(message_id) is None:
            return
        ids = transcript.subtree(message_id)
        answer = self._answering.answer(self._open.id)
        if answer is not None and answer.node.id in ids:
            self._answering.drop(self._open.id)
        removed = transcript.remove(message_id)
        self._open.push_removed(removed)
        self._saver.mark_deleted(ids, deleted=True)
        self._turns.put_active(self._open, removed[0].parent_id)
        self._follow_path()
        if len(ids) == 1:
            text = QCoreApplication.translate("ChatSession", "Deleted the message")
        else:
            text = QCoreApplication.translate("ChatSession", "Deleted {count} messages")
        self.removed_undoable.emit(text.format(count=len(ids)))

    def undo_delete(self) -> None:
        """Bring back what `delete_message` last deleted here."""
        if not self._open.removed:
            return
        removed = self._open.removed.pop()
        if self._open.transcript.put_back(removed):
            self._saver.mark_deleted([node.id for node in removed], deleted=False)
            self._turns.put_active(self._open, removed[0].parent_id)
            self._follow_path()

    def close(self) -> None:
        """The window closes: stop every answer and hand everything to the store."""
        self.draft.save()
        self._answering.drop_all()
        self._saver.flush()

    # --- answering

    def _may_answer(self) -> bool:
        if self.is_loading or self.is_busy:
            return False
        if self._answering.is_full:
            text = QCoreApplication.translate(
                "ChatSession",
                "{count} conversations are being answered already. Wait for one of them, or stop one.",
            )
            self._notices.say("info", text.format(count=MAX_RUNNING))
            return False
        return True

    def _fits(self, text: str) -> bool:
        if len(text) <= MAX_QUESTION_CHARS:
            return True
        text = QCoreApplication.translate("ChatSession", "This text is too long to send. Shorten it, please.")
        self._notices.say("warning", text)
        return False

    def _ask(self, text: str, files: tuple[Attachment, ...], *, parent_id: str) -> None:
        self._turns.ask(self._open, text, files, parent_id=parent_id)
        self.draft.sent()

    # --- what answers tell; only the open conversation's is passed on

    @Slot(str, str, str)
    def _text_appended(self, message_id: str, reasoning: str, content: str) -> None:
        if message_id in self._shown:
            self.text_appended.emit(message_id, reasoning, content)

    @Slot(str)
    def _message_changed(self, message_id: str) -> None:
        if message_id in self._shown:
            self.message_changed.emit(message_id)
            answer = self._answering.answer(self._open.id)
            if answer is not None and answer.node.id == message_id:
                self.time_to_first_token_changed.emit(answer.time_to_first_token_s)

    @Slot(str, int)
    def _answer_context_used(self, message_id: str, used: int) -> None:
        if message_id in self._shown:
            self._context.note(used)

    @Slot(str, object)
    def _answer_speed_changed(self, message_id: str, speed_tps: float | None) -> None:
        if message_id in self._shown:
            self.speed_changed.emit(speed_tps)

    @Slot(str, bool)
    def _answer_busy_changed(self, conversation_id: str, busy: bool) -> None:
        self._conversations.set_busy(conversation_id, busy)
        if conversation_id == self._open.id:
            self.busy_changed.emit(busy)
            if not busy and self._open.draft:
                self._context.count_soon()

    # --- the rest of the world

    @Slot()
    def _models_changed(self) -> None:
        self._context.models_changed()
        self._answering.models_changed()
        if self.draft.files:
            self.draft.files_changed.emit()

    @Slot(str)
    def _conversation_deleted(self, conversation_id: str) -> None:
        self._answering.drop(conversation_id)
        if conversation_id == self._open.id:
            self.open(self._conversations.create())

    @Slot(str, str)
    def _conversation_retitled(self, conversation_id: str, title: str) -> None:
        opened = self._answering.opened(conversation_id) or self._open
        if opened.id != conversation_id:
            return
        opened.titled_by_person = bool(title)
        opened.title = title
        if not title:
            first = next(iter(opened.transcript.path()), None)
            opened.title = title_from(first.content.text) if first else ""
        if opened is self._open:
            self.title_changed.emit(self.title)

    # --- small steps

    @Slot()
    def _setup_changed(self) -> None:
        self._context.tell()
        self._context.count_soon()

    @Slot(str)
    def _title_given(self, conversation_id: str) -> None:
        if conversation_id == self._open.id:
            self.title_changed.emit(self.title)

    @Slot(str)
    def _path_changed(self, conversation_id: str) -> None:
        if conversation_id == self._open.id:
            self._follow_path()

    def _show_all(self) -> None:
        self._shown = dict.fromkeys(node.id for node in self._open.transcript.path())

    def _follow_path(self) -> None:
        """The shown path changed: tell what went at its end and what came."""
        before, now = list(self._shown), [node.id for node in self._open.transcript.path()]
        kept = 0
        while kept < len(before) and kept < len(now) and before[kept] == now[kept]:
            kept += 1
        self._shown = dict.fromkeys(now)
        if before[kept:]:
            self.messages_removed.emit(tuple(before[kept:]))
        for message_id in now[kept:]:
            self.message_added.emit(message_id)
        if kept and before[kept:] != now[kept:]:
            self.message_changed.emit(now[kept - 1])  # it may be the last one now, or no longer
        self._context.tell()

    def _tell_opened(self) -> None:
        self.title_changed.emit(self.title)
        self.setup.changed.emit()
        self.draft_restored.emit(self._open.draft)
        self.draft.files_changed.emit()
        last = self._open.transcript.last()
        stats = last.stats if last else None
        self.time_to_first_token_changed.emit(stats.time_to_first_token_s if stats else None)
        self._context.follow(self._open)
