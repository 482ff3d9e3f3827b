"""Rows of the conversation list: a Qt model with group headings, and the delegate that draws and renames them."""

from PySide6.QtCore import (
    QAbstractItemModel,
    QAbstractListModel,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QPointF,
    QRect,
    QRectF,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QLineEdit, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from app.conversations import ConversationRow
from app.ui.appearance import Appearance
from app.ui.icons import paint_icon
from app.ui.theme import Size, Space, Type

Index = QModelIndex | QPersistentModelIndex
ROW_ROLE = int(Qt.ItemDataRole.UserRole) + 1


class ConversationModel(QAbstractListModel):
    """Headings (`str`) and conversations in display order."""

    renamed = Signal(str, str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._entries: list[str | ConversationRow] = []

    def set_rows(self, rows: tuple[ConversationRow, ...]) -> None:
        """Show these rows, a heading before each group."""
        entries: list[str | ConversationRow] = []
        group = ""
        for row in rows:
            if row.group_title != group:
                group = row.group_title
                entries.append(group)
            entries.append(row)
        same = [each.id if isinstance(each, ConversationRow) else each for each in entries] == [
            each.id if isinstance(each, ConversationRow) else each for each in self._entries
        ]
        if same:
            self._entries = entries
            if entries:
                self.dataChanged.emit(self.index(0), self.index(len(entries) - 1))
            return
        self.beginResetModel()
        self._entries = entries
        self.endResetModel()

    def entry(self, index: Index) -> str | ConversationRow | None:
        """What stands at an index."""
        return self._entries[index.row()] if 0 <= index.row() < len(self._entries) else None

    def index_of(self, conversation_id: str) -> QModelIndex:
        """Where a conversation stands; an invalid index if nowhere."""
        for at, entry in enumerate(self._entries):
            if isinstance(entry, ConversationRow) and entry.id == conversation_id:
                return self.index(at)
        return QModelIndex()

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 - Qt's own signature
        return 0 if parent.isValid() else len(self._entries)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        entry = self.entry(index)
        if role == ROW_ROLE:
            return entry
        if isinstance(entry, ConversationRow):
            if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.EditRole):
                return entry.title
            if role == Qt.ItemDataRole.ToolTipRole:
                return entry.title
        elif role == Qt.ItemDataRole.DisplayRole:
            return entry
        return None

    def setData(self, index: Index, value: object, role: int = Qt.ItemDataRole.EditRole) -> bool:
        entry = self.entry(index)
        if role != Qt.ItemDataRole.EditRole or not isinstance(entry, ConversationRow):
            return False
        self.renamed.emit(entry.id, str(value))
        return True

    def flags(self, index: Index) -> Qt.ItemFlag:
        if isinstance(self.entry(index), ConversationRow):
            return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable | Qt.ItemFlag.ItemIsEditable
        return Qt.ItemFlag.NoItemFlags


class ConversationDelegate(QStyledItemDelegate):
    """Draws headings and rows."""

    def __init__(self, appearance: Appearance, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self.open_id = ""
        self.searching = False

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        del option
        entry = index.data(ROW_ROLE)
        if not isinstance(entry, ConversationRow):
            return QSize(0, Size.CONTROL_H)
        return QSize(0, Size.ROW_TALL_H if self.searching and entry.snippet else Size.ROW_H - Space.HAIR)

    def more_rect(self, rect: QRect) -> QRect:
        """Where the "more" dots of a row are."""
        side = Size.CONTROL_SMALL_H
        return QRect(rect.right() - side - Space.XS, rect.center().y() - side // 2, side, side)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        entry = index.data(ROW_ROLE)
        colors = self._appearance
        rect = QRect(option.rect)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if isinstance(entry, ConversationRow):
            self._paint_row(painter, option, rect, entry)
        else:
            painter.setFont(colors.font(Type.SMALL, bold=True))
            painter.setPen(colors.color("text_muted"))
            place = rect.adjusted(Space.M, Space.XS, -Space.XS, 0)
            painter.drawText(place, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, str(entry))
        painter.restore()

    def _paint_row(self, painter: QPainter, option: QStyleOptionViewItem, rect: QRect, row: ConversationRow) -> None:
        colors = self._appearance
        state = option.state
        hot = bool(state & QStyle.StateFlag.State_MouseOver)
        chosen = bool(state & QStyle.StateFlag.State_Selected)
        focused = bool(state & QStyle.StateFlag.State_HasFocus)
        box = QRectF(rect).adjusted(Space.XS, 1, -Space.HAIR, -1)
        is_open = row.id == self.open_id
        if is_open or hot or chosen:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(colors.color("selected" if is_open else "hover"))
            painter.drawRoundedRect(box, Size.RADIUS, Size.RADIUS)
        if focused:
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(colors.color("accent"))
            painter.drawRoundedRect(box.adjusted(0.5, 0.5, -0.5, -0.5), Size.RADIUS, Size.RADIUS)
        right = rect.right() - Space.S
        if hot:
            right = self.more_rect(rect).left()
            paint_icon(painter, "more", colors.tokens.text_muted, QRectF(self.more_rect(rect)).adjusted(4, 4, -4, -4))
        elif row.busy:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(colors.color("accent"))
            painter.drawEllipse(QPointF(right - Size.DOT / 2, rect.center().y() + 0.5), Size.DOT / 2, Size.DOT / 2)
            right -= Space.M
        elif row.pinned:
            icon = QRectF(right - Space.S, rect.center().y() - Space.XS + 2, Space.S + 2, Space.S + 2)
            paint_icon(painter, "pin-filled", colors.tokens.text_muted, icon)
            right -= Space.M + Space.HAIR
        left = rect.left() + Space.M
        tall = self.searching and bool(row.snippet)
        title = QRect(left, rect.top(), right - left - Space.HAIR, rect.height() // (2 if tall else 1))
        painter.setFont(colors.font(Type.BODY, bold=is_open))
        painter.setPen(colors.color("text"))
        align = Qt.AlignmentFlag.AlignLeft | (Qt.AlignmentFlag.AlignBottom if tall else Qt.AlignmentFlag.AlignVCenter)
        shown = painter.fontMetrics().elidedText(row.title, Qt.TextElideMode.ElideRight, title.width())
        painter.drawText(title, align, shown)
        if tall:
            painter.setFont(colors.font(Type.SMALL))
            painter.setPen(colors.color("text_muted"))
            place = QRect(left, rect.center().y() + 2, right - left - Space.HAIR, rect.height() // 2 - Space.HAIR)
            snippet = painter.fontMetrics().elidedText(row.snippet, Qt.TextElideMode.ElideRight, place.width())
            painter.drawText(place, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop, snippet)

    def createEditor(self, parent: QWidget, option: QStyleOptionViewItem, index: Index) -> QWidget:
        del option, index
        field = QLineEdit(parent)
        field.setAccessibleName(self.tr("Title of the chat"))
        return field

    def updateEditorGeometry(self, editor: QWidget, option: QStyleOptionViewItem, index: Index) -> None:
        del index
        rect = QRect(option.rect)
        editor.setGeometry(rect.adjusted(Space.XS, 2, -Space.HAIR, -2))

    def setModelData(self, editor: QWidget, model: QAbstractItemModel, index: Index) -> None:
        if isinstance(editor, QLineEdit):
            model.setData(index, editor.text().strip(), Qt.ItemDataRole.EditRole)
