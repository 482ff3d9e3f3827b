"""The open conversation: what is shown of it and what a person can do with it."""

from PySide6.QtCore import QObject, Signal

from app.conversations import Conversations
from app.link import HostLink
from app.notices import Notices
from app.presets import Presets
from app.settings import Settings
from app.speed import Speed
from app.store import StoreLane
from app.transcript import AnswerStats, MessageState, MessageView
from runtime.options import GenerateOptions

__all__ = ["AnswerStats", "ChatSession", "MessageState", "MessageView"]

MAX_RUNNING = 4
"""Conversations of this window that may have an answer in the making at once."""


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

    setup_changed = Signal()
    """System prompt, options or preset of the open conversation changed."""

    draft_restored = Signal(str)
    """Text for the composer: the unsent draft of the conversation just opened."""

    removed_undoable = Signal(str)
    """Sentence ("Deleted 3 messages"); `undo_delete` brings them back."""

    def __init__(
        self,
        store: StoreLane,
        link: HostLink,
        conversations: Conversations,
        presets: Presets,
        settings: Settings,
        speed: Speed,
        notices: Notices,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        raise NotImplementedError

    # --- what is shown

    @property
    def conversation_id(self) -> str:
        """The open conversation."""
        raise NotImplementedError

    @property
    def title(self) -> str:
        """Its title; "New chat" before the first question."""
        raise NotImplementedError

    @property
    def is_busy(self) -> bool:
        """Whether it has an answer in the making."""
        raise NotImplementedError

    @property
    def is_loading(self) -> bool:
        """Whether its messages are still being read from disk."""
        raise NotImplementedError

    @property
    def draft(self) -> str:
        """The unsent text."""
        raise NotImplementedError

    @property
    def system_prompt(self) -> str:
        """The system prompt in force (own, or the preset's)."""
        raise NotImplementedError

    @property
    def options(self) -> GenerateOptions:
        """The options in force (own, or the preset's)."""
        raise NotImplementedError

    @property
    def preset_id(self) -> str:
        """The preset chosen; empty for none."""
        raise NotImplementedError

    @property
    def is_customized(self) -> bool:
        """Whether system prompt or options differ from the preset's."""
        raise NotImplementedError

    def messages(self) -> tuple[MessageView, ...]:
        """The shown path, oldest first."""
        raise NotImplementedError

    def message(self, message_id: str) -> MessageView | None:
        """One message of the shown path."""
        raise NotImplementedError

    # --- what a person can do

    def open(self, conversation_id: str) -> None:
        """Open a conversation (an id unknown to the store is a new, empty one). `opened`, then `reset` follow."""
        raise NotImplementedError

    def send(self, text: str) -> bool:
        """Send a question. False (and a notice) when it is empty or cannot be taken now; the draft stays then.

        While no model is ready the answer waits in state "queued" and begins when one is.
        """
        raise NotImplementedError

    def stop(self) -> None:
        """Stop the answer of the open conversation; what came stays."""
        raise NotImplementedError

    def regenerate(self, message_id: str) -> bool:
        """Answer again as a new branch (id of an answer, or of a question). A failed empty answer is replaced."""
        raise NotImplementedError

    def edit_and_resend(self, message_id: str, text: str) -> bool:
        """Send a changed question as a new branch."""
        raise NotImplementedError

    def continue_answer(self, message_id: str) -> bool:
        """Go on writing the last answer."""
        raise NotImplementedError

    def select_branch(self, message_id: str, index: int) -> None:
        """Show another sibling (from 0) of this message and what follows it."""
        raise NotImplementedError

    def delete_message(self, message_id: str) -> None:
        """Delete a message and what follows it; `removed_undoable` follows."""
        raise NotImplementedError

    def undo_delete(self) -> None:
        """Bring back what `delete_message` last deleted here."""
        raise NotImplementedError

    def set_draft(self, text: str) -> None:
        """The composer's text changed: kept (debounced) and counted."""
        raise NotImplementedError

    def set_system_prompt(self, text: str) -> None:
        """This conversation's own system prompt, from the next question on."""
        raise NotImplementedError

    def set_options(self, options: GenerateOptions) -> None:
        """This conversation's own options, from the next question on."""
        raise NotImplementedError

    def use_preset(self, preset_id: str) -> None:
        """Take a preset (empty: none) and drop this conversation's own changes."""
        raise NotImplementedError

    def set_model(self, model_id: str) -> None:
        """Which loaded model answers here; empty means whichever is ready."""
        raise NotImplementedError
