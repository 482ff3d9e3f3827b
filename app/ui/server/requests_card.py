"""The live table of requests, with a way to cancel each."""

from PySide6.QtCore import (
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QRectF,
    QSortFilterProxyModel,
    Qt,
)
from PySide6.QtGui import QKeyEvent, QPainter, QResizeEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTableView,
    QWidget,
)

from app.link import HostLink
from app.ui.appearance import Appearance
from app.ui.controls.buttons import push_button
from app.ui.controls.labels import label
from app.ui.icons import paint_icon
from app.ui.server.request_model import ID_ROLE, IS_RUNNING_ROLE, RUNNING, SORT_ROLE, RequestModel, columns
from app.ui.server.watched_card import WatchedCard
from app.ui.server.words import tr
from app.ui.theme import Size, Space
from runtime.messages.api import RequestInfo

POLL_MS = 500
"""Pause between two looks; the next one waits for the answer to the last."""

MAX_VISIBLE_ROWS = 12
STRETCHED = ("client", "model")
NARROW_W = Size.PAGE_MAX_W - 2 * Size.NUMBER_W
LESS_NEEDED = ("first", "age")
"""Columns left out where there is little room."""


class _CancelDelegate(QStyledItemDelegate):
    """Draws a cross in the rows that run."""

    def __init__(self, appearance: Appearance, parent: QObject) -> None:
        super().__init__(parent)
        self._appearance = appearance

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        super().paint(painter, option, index)
        if index.data(IS_RUNNING_ROLE):
            spot = QRectF(0, 0, Size.ICON, Size.ICON)
            spot.moveCenter(QRectF(option.rect).center())
            paint_icon(painter, "close", self._appearance.tokens.text_muted, spot)


class RequestTable(QTableView):
    """Delete cancels what is selected; a click on the cross cancels its row."""

    def __init__(self, card: "RequestsCard") -> None:
        super().__init__()
        self._card = card

    def resizeEvent(self, event: QResizeEvent) -> None:
        """In a narrow window who asks and what is asked matter more than when."""
        narrow = event.size().width() < NARROW_W
        for at, column in enumerate(columns()):
            if column.name in LESS_NEEDED and self.isColumnHidden(at) != narrow:
                self.setColumnHidden(at, narrow)
        super().resizeEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace):
            self._card.cancel_selected()
        else:
            super().keyPressEvent(event)


class RequestsCard(WatchedCard):
    """Asks the host while somebody looks."""

    def __init__(self, link: HostLink, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(tr("Requests"), POLL_MS, parent)
        self._link = link
        self._is_asking = False
        self._counts = label("", "small")
        self.head.insertWidget(1, self._counts)
        self._cancel = push_button(tr("Cancel the selected"), self.cancel_selected)
        self.head.addWidget(self._cancel)
        self._none = label(tr("No request yet. What programs and this window ask shows up here."), "muted", wrap=True)
        self.column.addWidget(self._none)
        self.model = RequestModel(self)
        self.sorted = QSortFilterProxyModel(self)
        self.sorted.setSourceModel(self.model)
        self.sorted.setSortRole(SORT_ROLE)
        self.sorted.setDynamicSortFilter(True)
        self.table = RequestTable(self)
        self.table.setModel(self.sorted)
        self.table.setProperty("kind", "live")
        self.table.setAccessibleName(tr("Requests"))
        self.table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.table.setShowGrid(False)
        self.table.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.table.setWordWrap(False)
        self.table.setSortingEnabled(True)
        self.table.setTabKeyNavigation(False)
        self.table.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.table.verticalHeader().hide()
        self.table.verticalHeader().setDefaultSectionSize(Size.CONTROL_H)
        names = [column.name for column in columns()]
        self.table.setItemDelegateForColumn(names.index("cancel"), _CancelDelegate(appearance, self))
        header = self.table.horizontalHeader()
        header.setHighlightSections(False)
        header.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        for at, column in enumerate(columns()):
            if column.name in STRETCHED:
                header.setSectionResizeMode(at, QHeaderView.ResizeMode.Stretch)
            else:
                width = Size.CONTROL_H if column.name == "cancel" else Size.FIELD_SMALL_W
                self.table.setColumnWidth(at, Size.NUMBER_W + Space.XL if column.name == "state" else width)
        self.table.sortByColumn(names.index("state"), Qt.SortOrder.AscendingOrder)
        self.table.clicked.connect(self._on_click)
        self.table.selectionModel().selectionChanged.connect(lambda _new, _old: self._show_cancel())
        self._cancel_column = names.index("cancel")
        self.column.addWidget(self.table)
        self._show(())

    def look(self) -> None:
        """Ask for the requests, once the answer to the last look is there."""
        if not self._is_asking and self._link.is_connected:
            self._is_asking = True
            self._link.list_requests(self._answered, failed=lambda _failure: self._answered(None))

    def _answered(self, requests: tuple[RequestInfo, ...] | None) -> None:
        self._is_asking = False
        if requests is not None and self.is_watched:
            self._show(requests)

    def _show(self, requests: tuple[RequestInfo, ...]) -> None:
        names = {model.id: model.name for model in self._link.installed}
        self.model.show_requests(requests, names)
        n_rows = self.model.rowCount()
        running = sum(one.state in RUNNING for one in requests)
        self._counts.setText(tr("{n} running").format(n=running) if running else "")
        self._none.setVisible(not n_rows)
        self.table.setVisible(bool(n_rows))
        shown = min(max(n_rows, 1), MAX_VISIBLE_ROWS)
        height = self.table.horizontalHeader().sizeHint().height() + shown * Size.CONTROL_H + 2 * Size.LINE
        if self.table.height() != height:
            self.table.setFixedHeight(height)
        self._show_cancel()

    def selected_ids(self) -> tuple[str, ...]:
        """The running requests that are selected."""
        rows = self.table.selectionModel().selectedRows()
        return tuple(str(row.data(ID_ROLE)) for row in rows if row.data(IS_RUNNING_ROLE))

    def cancel_selected(self) -> None:
        """Cancel them."""
        for request_id in self.selected_ids():
            self._link.cancel_request(request_id)
        self.look()

    def _on_click(self, index: QModelIndex) -> None:
        if index.column() == self._cancel_column and index.data(IS_RUNNING_ROLE):
            self._link.cancel_request(str(index.data(ID_ROLE)))
            self.look()

    def _show_cancel(self) -> None:
        self._cancel.setVisible(self.model.rowCount() > 0)
        self._cancel.setEnabled(bool(self.selected_ids()))
