"""The list of conversations: search, rename, pin, duplicate, delete with undo, export."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from PySide6.QtCore import QObject, Signal

from app.notices import Notices
from app.store import StoreLane

Group = Literal["pinned", "today", "yesterday", "week", "older", "found"]


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """One row.

    Attributes:
        id: the conversation.
        title: what to show; never empty.
        updated_s: wall clock of the last change.
        pinned: kept on top.
        snippet: while searching, the place found; else the beginning of the last message. One line.
        snippet_hits: `(start, end)` character ranges of the words found in `snippet`.
        group: key of the group; `group_title` is its text for people.
        group_title: "Pinned", "Today", "Yesterday", "Previous 7 days", "Older", "Results".
        busy: an answer is being made in it now.
    """

    id: str
    title: str
    updated_s: float
    pinned: bool
    snippet: str
    snippet_hits: tuple[tuple[int, int], ...]
    group: Group
    group_title: str
    busy: bool = False


class Conversations(QObject):
    """Home thread: main; the store works on its lane."""

    rows_changed = Signal(object)
    """`tuple[ConversationRow, ...]` in display order, grouped (pinned, then by day). While searching: best match
    first, one group."""

    undo_offered = Signal(str, str)
    """Conversation id and sentence ("Deleted ...") after a delete; `undo_delete(id)` brings it back."""

    def __init__(self, store: StoreLane, notices: Notices, parent: QObject | None = None) -> None:
        super().__init__(parent)
        raise NotImplementedError

    @property
    def rows(self) -> tuple[ConversationRow, ...]:
        """The rows last told."""
        raise NotImplementedError

    @property
    def has_more(self) -> bool:
        """Whether older rows exist beyond those shown; see `show_more`."""
        raise NotImplementedError

    @property
    def search_text(self) -> str:
        """What is searched for; empty when not searching."""
        raise NotImplementedError

    def refresh(self) -> None:
        """Read the rows again (coalesced)."""
        raise NotImplementedError

    def show_more(self) -> None:
        """Show older rows too."""
        raise NotImplementedError

    def search(self, text: str) -> None:
        """Show what matches every word (the last as a prefix); empty text ends the search. Any text is safe."""
        raise NotImplementedError

    def create(self) -> str:
        """Id of a new conversation. It is kept from its first message or draft on; open it by `ChatSession.open`."""
        raise NotImplementedError

    def rename(self, conversation_id: str, title: str) -> None:
        """Give it a title; empty text brings the automatic title back."""
        raise NotImplementedError

    def set_pinned(self, conversation_id: str, pinned: bool) -> None:
        """Keep it on top, or not."""
        raise NotImplementedError

    def duplicate(self, conversation_id: str, done: Callable[[str], None] | None = None) -> None:
        """Copy it with all branches; `done` gets the copy's id."""
        raise NotImplementedError

    def delete(self, conversation_id: str) -> None:
        """Delete it; `undo_offered` follows. Really erased a day later."""
        raise NotImplementedError

    def undo_delete(self, conversation_id: str) -> None:
        """Bring it back."""
        raise NotImplementedError

    def export_markdown(self, conversation_id: str, done: Callable[[str], None]) -> None:
        """`done` gets the conversation's shown branch as Markdown text."""
        raise NotImplementedError
