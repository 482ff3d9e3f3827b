"""The conversations at the left: new, search, open, rename, pin, duplicate, delete with undo."""

from PySide6.QtCore import QEvent, QModelIndex, QObject, QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent, QKeySequence, QMouseEvent
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QListView, QMenu, QVBoxLayout, QWidget

from app.conversations import ConversationRow, Conversations
from app.ui.appearance import Appearance
from app.ui.chat.conversation_rows import ROW_ROLE, ConversationDelegate, ConversationModel
from app.ui.controls.buttons import IconButton, TintedButton
from app.ui.controls.labels import label
from app.ui.theme import Size, Space

SEARCH_PAUSE_MS = 150
NEAR_END_ROWS = 12
"""Older rows are asked for when so few are left below."""


class _List(QListView):
    """A list view whose rows have a "more" place and that says when Enter or Delete is pressed."""

    more_wanted = Signal(QModelIndex, QPoint)
    open_wanted = Signal(QModelIndex)
    delete_wanted = Signal(QModelIndex)

    def __init__(self, delegate: ConversationDelegate, parent: QWidget) -> None:
        super().__init__(parent)
        self._delegate = delegate
        self.setItemDelegate(delegate)
        self.setMouseTracking(True)
        self.setUniformItemSizes(False)
        self.setEditTriggers(QListView.EditTrigger.EditKeyPressed)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollMode(QListView.ScrollMode.ScrollPerPixel)
        self.setLayoutMode(QListView.LayoutMode.Batched)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        super().mouseReleaseEvent(event)
        index = self.indexAt(event.position().toPoint())
        if not isinstance(index.data(ROW_ROLE), ConversationRow) or event.button() != Qt.MouseButton.LeftButton:
            return
        more = self._delegate.more_rect(self.visualRect(index))
        if more.contains(event.position().toPoint()):
            self.more_wanted.emit(index, self.viewport().mapToGlobal(more.bottomLeft()))
        else:
            self.open_wanted.emit(index)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        index = self.indexAt(event.position().toPoint())
        if isinstance(index.data(ROW_ROLE), ConversationRow):
            self.edit(index)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.open_wanted.emit(self.currentIndex())
        elif event.key() in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace):
            self.delete_wanted.emit(self.currentIndex())
        else:
            super().keyPressEvent(event)


class ConversationList(QWidget):
    """The side panel of the chat page."""

    open_wanted = Signal(str)
    new_wanted = Signal()
    export_wanted = Signal(str)

    def __init__(self, conversations: Conversations, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._conversations = conversations
        self._appearance = appearance
        self.setProperty("role", "side")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setMinimumWidth(Size.SIDE_MIN_W)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, Space.XS, 0, 0)
        column.setSpacing(Space.HAIR)

        top = QHBoxLayout()
        top.setContentsMargins(Space.XS, 0, Space.XS, Space.HAIR)
        top.setSpacing(Space.XS)
        self._search = QLineEdit()
        self._search.setPlaceholderText(self.tr("Search all chats"))
        self._search.setAccessibleName(self.tr("Search all chats"))
        self._search.setClearButtonEnabled(True)
        self._search.setMinimumHeight(Size.CONTROL_H)
        self._search_icon = self._search.addAction(appearance.icon("search"), QLineEdit.ActionPosition.LeadingPosition)
        appearance.changed.connect(self._tint)
        new = IconButton(appearance, "new-chat", self.tr("New chat"), size=Size.ICON_L)
        new.setToolTip(self.tr("New chat (Ctrl+N)"))
        new.clicked.connect(lambda _checked=False: self.new_wanted.emit())
        top.addWidget(self._search, 1)
        top.addWidget(new)
        column.addLayout(top)

        self._model = ConversationModel(self)
        self._delegate = ConversationDelegate(appearance, self)
        self._list = _List(self._delegate, self)
        self._list.setAccessibleName(self.tr("Chats"))
        self._list.setModel(self._model)
        self._list.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        column.addWidget(self._list, 1)
        self._empty = QWidget()
        empty = QVBoxLayout(self._empty)
        empty.setContentsMargins(Space.M, Space.XL, Space.M, Space.M)
        empty.setSpacing(Space.S)
        self._empty_text = label("", "muted", wrap=True)
        self._empty_button = TintedButton(appearance, "new-chat", self.tr("New chat"))
        self._empty_button.clicked.connect(lambda _checked=False: self.new_wanted.emit())
        empty.addWidget(self._empty_text)
        empty.addWidget(self._empty_button, 0, Qt.AlignmentFlag.AlignLeft)
        empty.addStretch(1)
        column.addWidget(self._empty, 1)

        self._pause = QTimer(self)
        self._pause.setSingleShot(True)
        self._pause.setInterval(SEARCH_PAUSE_MS)
        self._pause.timeout.connect(self._run_search)
        self._search.textChanged.connect(lambda _text: self._pause.start())
        self._search.installEventFilter(self)
        self._list.open_wanted.connect(self._open)
        self._list.delete_wanted.connect(self._delete)
        self._list.more_wanted.connect(self._menu)
        self._list.customContextMenuRequested.connect(self._menu_at)
        self._list.verticalScrollBar().valueChanged.connect(self._more_if_near_end)
        self._model.renamed.connect(conversations.rename)
        conversations.rows_changed.connect(self._show_rows)
        appearance.changed.connect(self._list.viewport().update)
        self._show_rows(conversations.rows)

    def _tint(self) -> None:
        self._search_icon.setIcon(self._appearance.icon("search"))

    def focus_search(self) -> None:
        """Put the cursor into the search field."""
        self._search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self._search.selectAll()

    def show_open(self, conversation_id: str) -> None:
        """Mark the conversation that is open."""
        self._delegate.open_id = conversation_id
        self._list.viewport().update()

    def rename_open(self) -> None:
        """Rename the open conversation in place."""
        index = self._model.index_of(self._delegate.open_id)
        if index.isValid():
            self._list.scrollTo(index)
            self._list.edit(index)

    def _show_rows(self, rows: tuple[ConversationRow, ...]) -> None:
        searching = bool(self._conversations.search_text)
        changed = searching != self._delegate.searching
        self._delegate.searching = searching
        self._model.set_rows(rows)
        if changed:
            self._list.scheduleDelayedItemsLayout()
        self._list.setVisible(bool(rows))
        self._empty.setVisible(not rows)
        self._empty_button.setVisible(not searching)
        self._empty_text.setText(
            self.tr("No chat holds these words.") if searching else self.tr("Your chats will be listed here.")
        )

    def _run_search(self) -> None:
        self._conversations.search(self._search.text())

    def _row(self, index: QModelIndex) -> ConversationRow | None:
        entry = index.data(ROW_ROLE) if index.isValid() else None
        return entry if isinstance(entry, ConversationRow) else None

    def _open(self, index: QModelIndex) -> None:
        row = self._row(index)
        if row is not None:
            self.open_wanted.emit(row.id)

    def _delete(self, index: QModelIndex) -> None:
        row = self._row(index)
        if row is not None:
            self._conversations.delete(row.id)

    def _more_if_near_end(self) -> None:
        bar = self._list.verticalScrollBar()
        if self._conversations.has_more and bar.maximum() - bar.value() < NEAR_END_ROWS * Size.ROW_H:
            self._conversations.show_more()

    def _menu_at(self, point: QPoint) -> None:
        self._menu(self._list.indexAt(point), self._list.viewport().mapToGlobal(point))

    def _menu(self, index: QModelIndex, at: QPoint) -> None:
        row = self._row(index)
        if row is None:
            return
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        rename = menu.addAction(self.tr("Rename"))
        rename.setShortcut(QKeySequence(Qt.Key.Key_F2))
        rename.triggered.connect(lambda _checked=False: self._list.edit(self._model.index_of(row.id)))
        pin = menu.addAction(self.tr("Unpin") if row.pinned else self.tr("Pin"))
        pin.triggered.connect(lambda _checked=False: self._conversations.set_pinned(row.id, not row.pinned))
        copy = menu.addAction(self.tr("Duplicate"))
        copy.triggered.connect(lambda _checked=False: self._conversations.duplicate(row.id, self.open_wanted.emit))
        export = menu.addAction(self.tr("Export as Markdown…"))
        export.triggered.connect(lambda _checked=False: self.export_wanted.emit(row.id))
        menu.addSeparator()
        delete = menu.addAction(self.tr("Delete"))
        delete.setShortcut(QKeySequence(Qt.Key.Key_Delete))
        delete.triggered.connect(lambda _checked=False: self._conversations.delete(row.id))
        menu.popup(at)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self._search and isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            if event.key() == Qt.Key.Key_Escape and self._search.text():
                self._search.clear()
                return True
            if event.key() == Qt.Key.Key_Down:
                self._list.setFocus(Qt.FocusReason.TabFocusReason)
                return True
        return False
