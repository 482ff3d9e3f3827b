"""The list of conversations: search, rename, pin, duplicate, delete with undo, export."""

import datetime
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from PySide6.QtCore import QCoreApplication, QObject, QTimer, Signal, Slot

from app.export import to_markdown
from app.store import Store, StoreLane, new_id
from app.store.records import HIT_BEGIN, HIT_END, FoundRow
from app.store.store import Found
from app.transcript import Transcript
from runtime import units

Group = Literal["pinned", "today", "yesterday", "week", "older", "found"]

PAGE_ROWS = 300
"""Rows read at first and with each `show_more`."""

REFRESH_MS = 60
"""Changes and typing within this time are answered by one read."""

MAX_UNDO = 20
MAX_TITLE_CHARS = 200
WEEK_DAYS = 7


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

    deleted = Signal(str)
    """Id of a conversation just deleted."""

    retitled = Signal(str, str)
    """Id and new title, after `rename`; an empty title asks for the automatic one."""

    def __init__(self, store: StoreLane, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._store = store
        self._rows: tuple[ConversationRow, ...] = ()
        self._has_more = False
        self._limit = PAGE_ROWS
        self._search_text = ""
        self._busy: set[str] = set()
        self._reads = 0
        self._is_reading = False
        self._day = datetime.date.min
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._read)
        # A window that stays open over midnight moves its rows to the next group.
        self._midnight = QTimer(self)
        self._midnight.setInterval(60_000)
        self._midnight.timeout.connect(self._check_day)

    @property
    def rows(self) -> tuple[ConversationRow, ...]:
        """The rows last told."""
        return self._rows

    @property
    def has_more(self) -> bool:
        """Whether older rows exist beyond those shown; see `show_more`."""
        return self._has_more

    @property
    def search_text(self) -> str:
        """What is searched for; empty when not searching."""
        return self._search_text

    @Slot()
    def refresh(self) -> None:
        """Read the rows again (coalesced)."""
        if not self._timer.isActive():
            self._timer.start(REFRESH_MS)

    def show_more(self) -> None:
        """Show older rows too."""
        if self._has_more:
            self._limit += PAGE_ROWS
            self.refresh()

    def search(self, text: str) -> None:
        """Show what matches every word (the last as a prefix); empty text ends the search. Any text is safe."""
        if text.strip() != self._search_text:
            self._search_text = text.strip()
            self._limit = PAGE_ROWS
            self._timer.start(REFRESH_MS)

    def create(self) -> str:
        """Id of a new conversation. It is kept from its first message or draft on; open it by `ChatSession.open`."""
        return new_id()

    def rename(self, conversation_id: str, title: str) -> None:
        """Give it a title; empty text brings the automatic title back."""
        clean = " ".join(title.split())[:MAX_TITLE_CHARS]
        self._change(lambda store: store.rename(conversation_id, clean))
        self.retitled.emit(conversation_id, clean)

    def set_pinned(self, conversation_id: str, pinned: bool) -> None:
        """Keep it on top, or not."""
        self._change(lambda store: store.set_pinned(conversation_id, pinned=pinned))

    def duplicate(self, conversation_id: str, done: Callable[[str], None] | None = None) -> None:
        """Copy it with all branches; `done` gets the copy's id."""
        copy_id = new_id()
        suffix = QCoreApplication.translate("Conversations", "{title} (copy)")

        def work(store: Store) -> None:
            record = store.conversation(conversation_id)
            if record is not None:
                title = suffix.format(title=record.title) if record.title else ""
                store.duplicate(conversation_id, copy_id, title[:MAX_TITLE_CHARS])

        def finish(_: None) -> None:
            self.refresh()
            if done is not None:
                done(copy_id)

        self._store.submit(work, finish)

    def delete(self, conversation_id: str) -> None:
        """Delete it; `undo_offered` follows. Really erased a day later."""
        title = next((row.title for row in self._rows if row.id == conversation_id), untitled())
        self._change(lambda store: store.set_deleted(conversation_id, deleted=True))
        self._tell(tuple(row for row in self._rows if row.id != conversation_id))
        self.deleted.emit(conversation_id)
        text = QCoreApplication.translate("Conversations", "Deleted “{title}”")
        self.undo_offered.emit(conversation_id, text.format(title=title))

    def undo_delete(self, conversation_id: str) -> None:
        """Bring it back."""
        self._change(lambda store: store.set_deleted(conversation_id, deleted=False))

    def export_markdown(self, conversation_id: str, done: Callable[[str], None]) -> None:
        """`done` gets the conversation's shown branch as Markdown text."""

        def work(store: Store) -> str:
            record = store.conversation(conversation_id)
            if record is None:
                return ""
            transcript = Transcript(record.id, store.messages(record.id), active_child_id=record.active_child_id)
            return to_markdown(record.title or untitled(), record.system_prompt or "", transcript)

        self._store.submit(work, done)

    def set_busy(self, conversation_id: str, busy: bool) -> None:
        """An answer began or ended in this conversation."""
        if busy:
            self._busy.add(conversation_id)
        else:
            self._busy.discard(conversation_id)
        self._tell(tuple(replace(row, busy=row.id in self._busy) for row in self._rows))

    def _change(self, work: Callable[[Store], None]) -> None:
        self._store.submit(work, lambda _: self.refresh())

    @Slot()
    def _read(self) -> None:
        if not self._midnight.isActive():
            self._midnight.start()
        if self._is_reading:
            self._timer.start(REFRESH_MS)
            return
        self._is_reading = True
        text, limit = self._search_text, self._limit

        def work(store: Store) -> Found:
            return store.search(text, limit=limit) if text else store.list_conversations(limit=limit)

        def take(found: Found) -> None:
            self._is_reading = False
            if text == self._search_text:
                self._has_more = found.has_more
                self._tell(tuple(self._row(row, searching=bool(text)) for row in found.rows))

        def failed(error: Exception) -> None:
            self._is_reading = False
            self._store.say_error(error)

        self._store.submit(work, take, failed)

    def _row(self, found: FoundRow, *, searching: bool) -> ConversationRow:
        group: Group = "found" if searching else group_of(found.pinned, found.updated_s, units.now_local())
        snippet, hits = split_hits(found.snippet)
        return ConversationRow(
            id=found.id,
            title=found.title or untitled(),
            updated_s=found.updated_s,
            pinned=found.pinned,
            snippet=snippet,
            snippet_hits=hits,
            group=group,
            group_title=group_title(group),
            busy=found.id in self._busy,
        )

    def _tell(self, rows: tuple[ConversationRow, ...]) -> None:
        self._day = units.now_local().date()
        if rows != self._rows or not rows:
            self._rows = rows
            self.rows_changed.emit(rows)

    @Slot()
    def _check_day(self) -> None:
        if self._day != units.now_local().date():
            self.refresh()


def untitled() -> str:
    """What a conversation without a title is called."""
    return QCoreApplication.translate("Conversations", "New chat")


def group_of(pinned: bool, updated_s: float, now: datetime.datetime) -> Group:
    """The group of a conversation changed at this time, by calendar days of `now`'s zone."""
    if pinned:
        return "pinned"
    days = (now.date() - datetime.datetime.fromtimestamp(updated_s, now.tzinfo).date()).days
    if days <= 0:
        return "today"
    if days == 1:
        return "yesterday"
    return "week" if days <= WEEK_DAYS else "older"


def group_title(group: Group) -> str:
    """The group's text for people."""
    titles: dict[Group, str] = {
        "pinned": QCoreApplication.translate("Conversations", "Pinned"),
        "today": QCoreApplication.translate("Conversations", "Today"),
        "yesterday": QCoreApplication.translate("Conversations", "Yesterday"),
        "week": QCoreApplication.translate("Conversations", "Previous 7 days"),
        "older": QCoreApplication.translate("Conversations", "Older"),
        "found": QCoreApplication.translate("Conversations", "Results"),
    }
    return titles[group]


def split_hits(marked: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Text in one line without marks, and the ranges that were marked."""
    text: list[str] = []
    hits: list[tuple[int, int]] = []
    begin = -1
    for char in " ".join(marked.split()):
        if char == HIT_BEGIN:
            begin = len(text)
        elif char == HIT_END:
            if begin >= 0:
                hits.append((begin, len(text)))
            begin = -1
        else:
            text.append(char)
    return "".join(text), tuple(hits)
