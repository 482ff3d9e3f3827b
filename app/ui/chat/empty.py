"""What an empty chat shows: a greeting, what the model is doing, and questions to begin with."""

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QLabel, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from app.ui.appearance import Appearance
from app.ui.controls.labels import label
from app.ui.theme import Size, Space


class Suggestion(QPushButton):
    """A card with a title and the question it asks."""

    def __init__(self, appearance: Appearance, icon: str, title: str, question: str) -> None:
        super().__init__()
        self._appearance = appearance
        self._icon_name = icon
        self.setProperty("kind", "suggestion")
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setAccessibleName(f"{title}: {question}")
        row = QHBoxLayout(self)
        row.setContentsMargins(Space.M, Space.S, Space.M, Space.S)
        row.setSpacing(Space.S)
        self._icon = QLabel()
        row.addWidget(self._icon, 0, Qt.AlignmentFlag.AlignTop)
        words = QVBoxLayout()
        words.setSpacing(Size.FOCUS)
        words.addWidget(label(title, "strong"))
        words.addWidget(label(question, "muted", wrap=True))
        words.addStretch(1)
        row.addLayout(words, 1)
        for child in self.findChildren(QLabel):
            child.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setMinimumHeight(Size.ROW_TALL_H + Space.M)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self._tint()
        appearance.changed.connect(self._tint)

    def sizeHint(self) -> QSize:
        layout = self.layout()
        return super().sizeHint() if layout is None else layout.sizeHint()

    def _tint(self) -> None:
        self._icon.setPixmap(self._appearance.icon(self._icon_name, "accent").pixmap(Size.ICON_L, Size.ICON_L))


class EmptyChat(QWidget):
    """Shown while the conversation has no message."""

    chosen = Signal(str)

    def __init__(self, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        column = QVBoxLayout(self)
        column.setContentsMargins(Space.L, Space.L, Space.L, Space.L)
        column.addStretch(2)
        self._title = label(self.tr("What can I help with?"), "display", wrap=True)
        self._title.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self._state = label("", "muted", wrap=True)
        self._state.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        column.addWidget(self._title)
        column.addWidget(self._state)
        column.addSpacing(Space.L)
        grid = QWidget()
        grid.setMaximumWidth(Size.TRANSCRIPT_MAX_W)
        self._grid = QGridLayout(grid)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setSpacing(Space.S)
        suggestions = (
            ("spark", self.tr("Explain a thing simply"), self.tr("Explain how a rainbow forms, in simple words.")),
            ("code", self.tr("Write some code"), self.tr("Write a Python function that counts the words in a text.")),
            ("edit", self.tr("Improve a text"), self.tr("Rewrite this more politely: Send me the report today.")),
            ("list", self.tr("Make a plan"), self.tr("Make a packing list for a weekend of hiking.")),
        )
        for at, (icon, title, question) in enumerate(suggestions):
            button = Suggestion(appearance, icon, title, question)
            button.clicked.connect(lambda _checked=False, text=question: self.chosen.emit(text))
            self._grid.addWidget(button, at // 2, at % 2)
        self._grid.setColumnStretch(0, 1)
        self._grid.setColumnStretch(1, 1)
        row = QHBoxLayout()
        row.addStretch(1)
        row.addWidget(grid, 1000)
        row.addStretch(1)
        column.addLayout(row)
        column.addStretch(3)

    def show_state(self, text: str) -> None:
        """One line about the model: everything stays on this machine, or what is being waited for."""
        self._state.setText(text)
