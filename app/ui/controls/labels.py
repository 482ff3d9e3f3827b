"""Labels by tone, and one that shortens what does not fit."""

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QFrame, QLabel, QWidget

from app.ui.theme import Space


def label(text: str = "", tone: str = "", *, wrap: bool = False, parent: QWidget | None = None) -> QLabel:
    """A label in a tone of the stylesheet; its text is never taken for HTML."""
    made = QLabel(text, parent)
    made.setTextFormat(Qt.TextFormat.PlainText)
    if tone:
        made.setProperty("tone", tone)
    made.setWordWrap(wrap)
    return made


LONG_WORD = 32
"""A longer word (a hash, a path) would not fit a narrow label, which only breaks between words."""


def breakable(text: str) -> str:
    """Text whose long words may break anywhere (by zero-width spaces)."""
    return " ".join(
        "\u200b".join(word[at : at + LONG_WORD // 4] for at in range(0, len(word), LONG_WORD // 4))
        if len(word) > LONG_WORD
        else word
        for word in text.split(" ")
    )


def set_tone(target: QLabel, tone: str) -> None:
    """Change a label's tone."""
    if target.property("tone") != tone:
        target.setProperty("tone", tone)
        target.style().unpolish(target)
        target.style().polish(target)


def separator() -> QFrame:
    """A hairline."""
    line = QFrame()
    line.setProperty("role", "separator")
    return line


class ElidedLabel(QLabel):
    """A one-line label that ends in … when there is no room; the whole text is its tooltip then."""

    def __init__(
        self,
        text: str = "",
        tone: str = "",
        *,
        mode: Qt.TextElideMode = Qt.TextElideMode.ElideRight,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(text, parent)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self._mode = mode
        if tone:
            self.setProperty("tone", tone)

    def minimumSizeHint(self) -> QSize:
        return QSize(Space.XL, super().minimumSizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        metrics = self.fontMetrics()
        shown = metrics.elidedText(self.text(), self._mode, self.contentsRect().width())
        if shown == self.text():
            self.setToolTip("")
            super().paintEvent(event)
            return
        self.setToolTip(self.text())
        painter = QPainter(self)
        painter.setPen(self.palette().color(self.foregroundRole()))
        painter.drawText(self.contentsRect(), int(self.alignment()), shown)
