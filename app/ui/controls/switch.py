"""An on/off switch: a check box drawn as a sliding knob."""

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QSizePolicy, QWidget

from app.ui.appearance import Appearance
from app.ui.theme import Size


class Switch(QAbstractButton):
    """Checked is on. `busy` draws the knob in the middle while the change is on its way."""

    def __init__(
        self, appearance: Appearance, name: str, parent: QWidget | None = None, *, large: bool = False
    ) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self._size = QSize(Size.SWITCH_BIG_W, Size.SWITCH_BIG_H) if large else QSize(Size.SWITCH_W, Size.SWITCH_H)
        self._busy = False
        self.setCheckable(True)
        self.setAccessibleName(name)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        appearance.changed.connect(self.update)

    def set_busy(self, busy: bool) -> None:
        """Whether a change is on its way."""
        self._busy = busy
        self.update()

    def sizeHint(self) -> QSize:
        return self._size + QSize(2 * Size.FOCUS, 2 * Size.FOCUS)

    def paintEvent(self, event: QPaintEvent) -> None:
        del event
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        colors = self._appearance
        track = QRectF(Size.FOCUS, Size.FOCUS, self._size.width(), self._size.height())
        on = self.isChecked()
        token = "accent" if on else "line_strong"
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(colors.color(token if self.isEnabled() else "line"))
        painter.drawRoundedRect(track, track.height() / 2, track.height() / 2)
        radius = track.height() / 2 - Size.FOCUS
        share = 0.5 if self._busy else (1.0 if on else 0.0)
        x = track.left() + track.height() / 2 + share * (track.width() - track.height())
        painter.setBrush(colors.color("on_accent" if on or not colors.tokens.dark else "text_muted"))
        painter.drawEllipse(QPointF(x, track.center().y()), radius, radius)
        if self.hasFocus():
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QPen(colors.color("text"), Size.LINE))
            ring = track.adjusted(-1.5, -1.5, 1.5, 1.5)
            painter.drawRoundedRect(ring, ring.height() / 2, ring.height() / 2)
