"""What the pages beside the chat share: a title, a scrolled column of bounded width, cards, and empty states."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLayout, QScrollArea, QVBoxLayout, QWidget

from app.ui.controls.labels import label
from app.ui.theme import Size, Space


def centred(content: QWidget | QLayout) -> QHBoxLayout:
    """What is as wide as a page's column, in the middle of what is wide."""
    holder = content if isinstance(content, QWidget) else QWidget()
    if isinstance(content, QLayout):
        holder.setLayout(content)
    holder.setMaximumWidth(Size.PAGE_MAX_W)
    row = QHBoxLayout()
    row.setContentsMargins(Space.XL, 0, Space.XL, 0)
    row.addStretch(1)
    row.addWidget(holder, 1000)
    row.addStretch(1)
    return row


class ScrolledColumn(QScrollArea):
    """A scrolled column of bounded width, in the middle of what is wide."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        inside = QWidget()
        inside.setProperty("role", "scrolled")
        self.column = QVBoxLayout()
        self.column.setContentsMargins(0, Space.L, 0, Space.XL)
        self._row = centred(self.column)
        inside.setLayout(self._row)
        self.column.setSpacing(Space.M)
        self.setWidget(inside)
        self.verticalScrollBar().rangeChanged.connect(self._balance)

    def _balance(self, low: int, high: int) -> None:
        """Keep the column where it is without a scroll bar, in line with what stands above it."""
        margins = self._row.contentsMargins()
        right = Space.XL - (self.verticalScrollBar().sizeHint().width() if high > low else 0)
        if margins.right() != right:
            margins.setRight(right)
            self._row.setContentsMargins(margins)


class Page(QWidget):
    """A page with a title, a sentence, and a scrolled column."""

    def __init__(self, title: str, text: str = "", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("role", "surface")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        self.area = ScrolledColumn()
        outer.addWidget(self.area)
        self.column = self.area.column
        self.head = QHBoxLayout()
        self.head.setSpacing(Space.S)
        words = QVBoxLayout()
        words.setSpacing(Space.HAIR)
        words.addWidget(label(title, "title"))
        self.intro = label(text, "muted", wrap=True)
        if not text:
            self.intro.hide()
        words.addWidget(self.intro)
        self.head.addLayout(words, 1)
        self.column.addLayout(self.head)


class Card(QFrame):
    """A framed group with a heading."""

    def __init__(self, title: str = "", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("role", "card")
        self.column = QVBoxLayout(self)
        self.column.setContentsMargins(Space.M, Space.M, Space.M, Space.M)
        self.column.setSpacing(Space.S)
        self.head = QHBoxLayout()
        self.head.setSpacing(Space.S)
        if title:
            self.head.addWidget(label(title, "strong"))
            self.head.addStretch(1)
            self.column.addLayout(self.head)


class SettingRow(QWidget):
    """A title with a sentence at the left, one control at the right."""

    def __init__(self, title: str, text: str, control: QWidget, *, tone: str = "") -> None:
        """`tone` is that of the title."""
        super().__init__()
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(Space.M)
        words = QVBoxLayout()
        words.setSpacing(Size.FOCUS)
        name = label(title, tone)
        name.setBuddy(control)
        words.addWidget(name)
        self.text = label(text, "small", wrap=True)
        if not text:
            self.text.hide()
        words.addWidget(self.text)
        row.addLayout(words, 1)
        row.addWidget(control, 0, Qt.AlignmentFlag.AlignVCenter)
        if not control.accessibleName():
            control.setAccessibleName(title)
        if not control.accessibleDescription():
            control.setAccessibleDescription(text)


def clear_layout(layout: QLayout) -> None:
    """Delete all widgets of a layout."""
    while layout.count():
        item = layout.takeAt(0)
        widget = item.widget() if item is not None else None
        if widget is not None:
            widget.hide()
            widget.deleteLater()
