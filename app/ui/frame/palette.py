"""The command palette: every action and conversation by a few letters of its name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QModelIndex, QObject, QPersistentModelIndex, QRect, QSize, Qt
from PySide6.QtGui import QKeyEvent, QPainter
from PySide6.QtWidgets import (
    QFrame,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)

from app.ui.appearance import Appearance
from app.ui.controls.labels import separator
from app.ui.theme import Size, Space, Type

HINT_ROLE = int(Qt.ItemDataRole.UserRole) + 1
MAX_RESULTS = 60
"""Rows shown at most."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing to do. `hint` is its shortcut or kind, shown at the right."""

    title: str
    run: Callable[[], object]
    hint: str = ""
    icon: str = "command"


def fuzzy_score(wanted: str, text: str) -> float | None:
    """How well the letters of `wanted` appear in order in `text`; higher is better, `None` is not at all.

    Beginnings of words and runs of letters count more; short texts win over long ones.
    """
    needle, hay = wanted.casefold().replace(" ", ""), text.casefold()
    if not needle:
        return 0.0
    score, at, run = 0.0, -1, 0
    for letter in needle:
        found = hay.find(letter, at + 1)
        start = next(
            (i for i in range(at + 1, len(hay)) if hay[i] == letter and (i == 0 or not hay[i - 1].isalnum())), -1
        )
        if found != at + 1 and start >= 0:
            found = start
        if found < 0:
            return None
        run = run + 1 if found == at + 1 else 0
        score += 1 + run * 2 + (4 if found == 0 or not hay[found - 1].isalnum() else 0)
        at = found
    return score - len(hay) / 100


class _HintDelegate(QStyledItemDelegate):
    """Draws the shortcut or kind at the right of a row."""

    def __init__(self, appearance: Appearance, parent: QObject) -> None:
        super().__init__(parent)
        self._appearance = appearance

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        super().paint(painter, option, index)
        hint = str(index.data(HINT_ROLE) or "")
        if hint:
            rect = QRect(option.rect).adjusted(0, 0, -Space.S, 0)
            painter.setFont(self._appearance.font(Type.SMALL))
            painter.setPen(self._appearance.color("text_muted"))
            painter.drawText(rect, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, hint)


class CommandPalette(QFrame):
    """Opens over the window; type, choose with the arrows, Enter runs, Esc closes."""

    def __init__(self, appearance: Appearance, over: QWidget) -> None:
        super().__init__(over)
        self._appearance = appearance
        self._over = over
        self._entries: list[Entry] = []
        self._back: QWidget | None = None
        self.setProperty("role", "popup")
        column = QVBoxLayout(self)
        column.setContentsMargins(Space.XS, Space.XS, Space.XS, Space.XS)
        column.setSpacing(Space.HAIR)
        self._field = QLineEdit()
        self._field.setProperty("kind", "palette")
        self._field.setPlaceholderText(self.tr("Type a command or the name of a chat"))
        self._field.setAccessibleName(self.tr("Command"))
        self._field.textChanged.connect(self._filter)
        self._field.installEventFilter(self)
        self._list = QListWidget()
        self._list.setProperty("kind", "palette")
        self._list.setAccessibleName(self.tr("Matching commands"))
        self._list.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._list.setItemDelegate(_HintDelegate(appearance, self))
        self._list.setIconSize(QSize(Size.ICON, Size.ICON))
        self._list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._list.itemClicked.connect(lambda _item: self._run())
        column.addWidget(self._field)
        column.addWidget(separator())
        column.addWidget(self._list, 1)
        over.installEventFilter(self)
        self.hide()

    def open(self, entries: Sequence[Entry]) -> None:
        """Show these entries."""
        self._entries = list(entries)
        self._back = self._over.focusWidget()
        self._field.clear()
        self._filter("")
        self._place()
        self.show()
        self.raise_()
        self._field.setFocus(Qt.FocusReason.PopupFocusReason)

    @property
    def titles(self) -> tuple[str, ...]:
        """The titles shown, best first."""
        return tuple(self._list.item(row).text() for row in range(self._list.count()))

    def _filter(self, text: str) -> None:
        scored = [(fuzzy_score(text, entry.title), at) for at, entry in enumerate(self._entries)]
        found = sorted(((-score, at) for score, at in scored if score is not None))[:MAX_RESULTS]
        self._list.clear()
        for _, at in found:
            entry = self._entries[at]
            item = QListWidgetItem(self._appearance.icon(entry.icon), entry.title)
            item.setData(Qt.ItemDataRole.UserRole, at)
            item.setData(HINT_ROLE, entry.hint)
            item.setSizeHint(QSize(0, Size.CONTROL_H))
            self._list.addItem(item)
        if self._list.count():
            self._list.setCurrentRow(0)
        else:
            nothing = QListWidgetItem(self.tr("Nothing by that name"))
            nothing.setFlags(Qt.ItemFlag.NoItemFlags)
            self._list.addItem(nothing)

    def _run(self) -> None:
        at = self._list.currentIndex().data(Qt.ItemDataRole.UserRole)
        self.close_palette()
        if at is not None:
            self._entries[at].run()

    def close_palette(self) -> None:
        """Close and give the focus back."""
        self.hide()
        if self._back is not None:
            self._back.setFocus(Qt.FocusReason.PopupFocusReason)

    def _place(self) -> None:
        width = min(Size.PALETTE_W, self._over.width() - 2 * Space.L)
        height = min(Size.PALETTE_H, self._over.height() - 4 * Space.L)
        self.setGeometry((self._over.width() - width) // 2, Space.XL * 2, width, height)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self._over and event.type() == QEvent.Type.Resize and not self.isHidden():
            self._place()
        if watched is not self._field:
            return False
        if event.type() == QEvent.Type.FocusOut and not self.isHidden():
            self.hide()
        if event.type() == QEvent.Type.KeyPress and isinstance(event, QKeyEvent):
            return self._key(event)
        return False

    def _key(self, event: QKeyEvent) -> bool:
        step = {Qt.Key.Key_Down: 1, Qt.Key.Key_Up: -1, Qt.Key.Key_PageDown: 8, Qt.Key.Key_PageUp: -8}.get(
            Qt.Key(event.key()), 0
        )
        if step:
            row = self._list.currentRow() + step
            self._list.setCurrentRow(max(0, min(self._list.count() - 1, row)))
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._run()
        elif event.key() == Qt.Key.Key_Escape:
            self.close_palette()
        else:
            return False
        return True
