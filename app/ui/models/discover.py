"""The tab that finds models: a search of the hub, and picks that came with the program and need no network."""

import re
from collections.abc import Iterator
from functools import partial

import msgspec
from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from app.call import Call
from app.context import AppContext
from app.models_link import ModelsLink
from app.suggest import suggest
from app.ui.appearance import Appearance
from app.ui.controls.buttons import push_button
from app.ui.controls.gradual import Gradual
from app.ui.controls.labels import label
from app.ui.controls.states import EmptyState, Message, Waiting
from app.ui.models.entry_card import EntryCard
from app.ui.models.words import tr
from app.ui.pages.base import ScrolledColumn, clear_layout
from app.ui.theme import Space
from runtime.errors import Failure
from runtime.messages.fit import Machine
from runtime.messages.library import HubEntry, HubPage, HubSearch

SEARCH_AFTER_MS = 350
"""A person who stopped typing for so long wants to see results."""

MAX_SHOWN = 300
"""Most entries kept in the list; then a more exact search helps better than more rows."""

MAX_EMPTY_PAGES = 4
"""Pages of which a filter left nothing that are passed over by themselves."""

SIZES = (0, 4_000_000_000, 9_000_000_000, 16_000_000_000, 36_000_000_000, 80_000_000_000)
"""Most parameters of the filter; 0 is any."""

REPO = re.compile(r"^(?:https?://[^/\s]+/)?([\w.-]{1,96}/[\w.-]{1,96})(?:/.*)?$")


def repo_in(text: str) -> str:
    """The repository an address or `owner/name` stands for; empty when it is neither."""
    found = REPO.match(text.strip())
    return found.group(1) if found else ""


class DiscoverView(QWidget):
    """Picks and what is popular while nothing is searched; results of the search else."""

    opened = Signal(str)
    """Repository to show."""

    settings_wanted = Signal()

    def __init__(self, context: AppContext, appearance: Appearance) -> None:
        super().__init__()
        self._models = ModelsLink(context.link, self)
        self._link = context.link
        self._appearance = appearance
        self._call: Call | None = None
        self._cursor = ""
        self._entries: list[HubEntry] = []
        self._has_begun = False
        self._picked: tuple[HubEntry, ...] = ()
        self._shown_picks: tuple[HubEntry, ...] = ()
        self._n_empty = 0
        self._build = Gradual(self)
        self._build_picks = Gradual(self)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        area = ScrolledColumn()
        outer.addWidget(area)
        area.column.addLayout(self._build_head())
        self._message = Message()
        area.column.addWidget(self._message)
        self._picks_title = label("", "heading")
        self._picks_note = label("", "muted", wrap=True)
        self._picks = QVBoxLayout()
        self._picks.setSpacing(Space.XS)
        self._list_title = label(tr("Popular at the moment"), "heading")
        self._holder = QWidget()
        self._list = QVBoxLayout(self._holder)
        self._list.setContentsMargins(0, 0, 0, 0)
        self._list.setSpacing(Space.XS)
        self._waiting = Waiting()
        self._waiting_picks = Waiting()
        area.column.addWidget(self._picks_title)
        area.column.addWidget(self._picks_note)
        area.column.addWidget(self._waiting_picks)
        area.column.addLayout(self._picks)
        self._all = push_button(tr("Show all"), self._show_all_picks)
        area.column.addWidget(self._all)
        area.column.addSpacing(Space.XS)
        area.column.addWidget(self._list_title)
        area.column.addWidget(self._waiting)
        area.column.addWidget(self._holder)
        self._empty = EmptyState(appearance, "search")
        area.column.addWidget(self._empty)
        self._more = push_button(tr("Show more"), self._search_more)
        area.column.addWidget(self._more)
        self._more.hide()
        area.column.addStretch(1)
        self._pause = QTimer(self)
        self._pause.setSingleShot(True)
        self._pause.setInterval(SEARCH_AFTER_MS)
        self._pause.timeout.connect(self.search)
        self._link.connected.connect(self._reconnected)
        self._show_sections()

    def _build_head(self) -> QHBoxLayout:
        head = QHBoxLayout()
        head.setSpacing(Space.XS)
        self.field = QLineEdit()
        self.field.setPlaceholderText(tr("Search models, or paste the address of one"))
        self.field.setAccessibleName(tr("Search models"))
        self.field.setClearButtonEnabled(True)
        self.field.textChanged.connect(lambda _text: self._pause.start())
        self.field.returnPressed.connect(self._on_return)
        head.addWidget(self.field, 1)
        self._kind = QComboBox()
        self._kind.setAccessibleName(tr("Kind of model"))
        for text, kind in (
            (tr("Any kind"), "any"),
            (tr("Chat"), "chat"),
            (tr("Sees pictures"), "vision"),
            (tr("Embedding"), "embedding"),
        ):
            self._kind.addItem(text, kind)
        self._size = QComboBox()
        self._size.setAccessibleName(tr("Largest number of parameters"))
        for size in SIZES:
            text = tr("Up to {n}B parameters").format(n=size // 10**9) if size else tr("Any size")
            self._size.addItem(text, size)
        self._sort = QComboBox()
        self._sort.setAccessibleName(tr("Order of the results"))
        for text, sort in (
            (tr("Trending"), "trending"),
            (tr("Most downloads"), "downloads"),
            (tr("Most liked"), "likes"),
            (tr("Newest"), "updated"),
        ):
            self._sort.addItem(text, sort)
        for box in (self._kind, self._size, self._sort):
            box.currentIndexChanged.connect(lambda _at: self.search())
            head.addWidget(box)
        return head

    # --- asking

    def begin(self) -> None:
        """Ask for picks and what is popular, once; the field gets the focus."""
        self.field.setFocus()
        if not self._has_begun and self._link.is_connected:
            self._has_begun = True
            self._models.picks(self._take_picks, failed=lambda _failure: None)
            self.search()

    def _reconnected(self) -> None:
        if self.isVisible():
            self.begin()

    @property
    def request(self) -> HubSearch:
        """What is searched for."""
        return HubSearch(
            text=self.field.text().strip()[:256],
            sort=self._sort.currentData(),
            kind=self._kind.currentData(),
            max_params=self._size.currentData(),
        )

    @property
    def is_searching(self) -> bool:
        """Whether the person looks for something of their own: then the picks step back."""
        request = self.request
        return bool(request.text) or request.kind != "any" or request.max_params > 0

    def _on_return(self) -> None:
        repo = repo_in(self.field.text())
        if repo:
            self.opened.emit(repo)
        else:
            self.search()

    def search(self) -> None:
        """Search anew; an earlier answer still on its way is dropped."""
        self._pause.stop()
        self._cursor = ""
        self._ask(self.request, is_more=False)

    def _search_more(self) -> None:

        self._ask(msgspec.structs.replace(self.request, cursor=self._cursor), is_more=True)

    def _ask(self, request: HubSearch, *, is_more: bool) -> None:
        if self._call is not None:
            self._call.drop()
        self._message.hide()
        self._empty.hide()
        self._more.hide()
        self._waiting.start(tr("Asking the hub…"))
        self._holder.setEnabled(is_more)
        self._call = self._models.search(request, partial(self._show_page, is_more), failed=self._show_failure)
        self._show_sections()

    # --- showing

    def _take_picks(self, page: HubPage) -> None:
        """Which of them to show first depends on the computer; until it is known, none is shown."""
        self._picked = page.entries
        self._waiting_picks.start(tr("Looking at this computer…"))
        self._models.machine(self._show_suggested, failed=lambda _failure: self._show_all_picks())

    def _show_suggested(self, machine: Machine) -> None:
        self._show_picks(suggest(self._picked, machine) or self._picked)

    def _show_all_picks(self) -> None:
        self._show_picks(self._picked)

    def _show_picks(self, entries: tuple[HubEntry, ...]) -> None:
        self._waiting_picks.stop()
        self._build_picks.stop()
        clear_layout(self._picks)
        self._shown_picks = entries
        are_all = len(entries) == len(self._picked)
        self._picks_title.setText(tr("Good ones to begin with") if are_all else tr("Good ones for this computer"))
        self._picks_note.setText(
            tr("Chosen by hand. Open one to see which version suits this computer, before anything is downloaded.")
            if are_all
            else tr("Chosen by hand; these should answer faster than people read. Open one to see its versions.")
        )
        self._all.setText(tr("Show all {n}").format(n=len(self._picked)))
        self._build_picks.run(self._cards(self._picks, list(entries)), self._show_sections)
        self._show_sections()

    def _show_page(self, is_more: bool, page: HubPage) -> None:
        self._call = None
        self._waiting.stop()
        if not is_more:
            self._build.stop()
            clear_layout(self._list)
            self._entries = []
        self._holder.setEnabled(True)
        hidden = set() if self.is_searching else {entry.repo for entry in self._picked}
        fresh = [entry for entry in page.entries if entry.repo not in hidden][: MAX_SHOWN - len(self._entries)]
        self._entries += fresh
        self._build.run(self._cards(self._list, fresh))
        self._cursor = page.cursor
        self._n_empty = 0 if fresh else self._n_empty + 1
        if not fresh and page.cursor and self._n_empty < MAX_EMPTY_PAGES:
            self._search_more()  # the filter left nothing of this page; the next one may have some
            return
        self._more.setVisible(bool(page.cursor) and bool(self._entries) and len(self._entries) < MAX_SHOWN)
        if page.offline:
            text = tr("{why} Only the models that Deskside knows by itself are shown.").format(why=page.offline)
            self._message.say("warning", text, tr("Try again"), self.search)
        if not self._entries and self.is_searching:
            self._empty.say(
                tr("Nothing found"),
                tr("No model has these words in its name. Fewer words or a larger size may find one."),
                tr("Clear the search"),
                self.clear,
            )
        self._show_sections()

    def _show_failure(self, failure: Failure) -> None:
        self._call = None
        self._waiting.stop()
        self._holder.setEnabled(True)
        self._build.stop()
        clear_layout(self._list)
        self._entries = []
        self._message.say_failure(failure, tr("Try again"), self.search)
        self._show_sections()

    def _show_sections(self) -> None:
        picks = bool(self._shown_picks) and not self.is_searching
        self._all.setVisible(picks and len(self._shown_picks) < len(self._picked))
        self._picks_title.setVisible(picks)
        self._picks_note.setVisible(picks)
        for at in range(self._picks.count()):
            item = self._picks.itemAt(at)
            widget = item.widget() if item is not None else None
            if widget is not None:
                widget.setVisible(picks)
        self._list_title.setText(tr("Results") if self.is_searching else tr("Popular at the moment"))
        self._list_title.setVisible(bool(self._entries) or (self.is_searching and self._call is not None))

    def _cards(self, column: QVBoxLayout, entries: list[HubEntry]) -> Iterator[None]:
        for entry in entries:
            card = EntryCard(entry)
            card.clicked.connect(lambda _checked=False, repo=entry.repo: self.opened.emit(repo))
            column.addWidget(card)
            yield

    def show_kind(self, kind: str) -> None:
        """Show models of this kind alone."""
        self._kind.setCurrentIndex(max(0, self._kind.findData(kind)))

    def clear(self) -> None:
        """Show the picks again."""
        for box in (self._kind, self._size):
            box.blockSignals(True)
            box.setCurrentIndex(0)
            box.blockSignals(False)
        self.field.clear()
        self.field.setFocus()
        self.search()
