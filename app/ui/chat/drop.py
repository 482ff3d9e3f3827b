"""Drag feedback: says what happens when files are let go, and takes them."""

from PySide6.QtCore import QMimeData, QRectF, Qt, Signal
from PySide6.QtGui import QDragEnterEvent, QDragLeaveEvent, QDropEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from app.ui.appearance import Appearance
from app.ui.attachments.intake import has_files
from app.ui.icons import paint_icon
from app.ui.theme import Size, Space, Type

GROUND_ALPHA = 235


class DropArea(QWidget):
    """Lies over the chat while files are dragged over it."""

    dropped = Signal(QMimeData)

    def __init__(self, appearance: Appearance, over: QWidget) -> None:
        super().__init__(over)
        self._appearance = appearance
        self._over = over
        self.setAcceptDrops(True)
        self.hide()

    def begin(self, event: QDragEnterEvent) -> None:
        """Something is dragged over what this covers."""
        if has_files(event.mimeData()):
            self.setGeometry(self._over.rect())
            self.show()
            self.raise_()
            event.acceptProposedAction()

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if has_files(event.mimeData()):
            event.acceptProposedAction()

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:
        self.hide()
        super().dragLeaveEvent(event)

    def dropEvent(self, event: QDropEvent) -> None:
        self.hide()
        event.acceptProposedAction()
        self.dropped.emit(event.mimeData())

    def paintEvent(self, event: QPaintEvent) -> None:
        del event
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        ground = self._appearance.color("surface")
        ground.setAlpha(GROUND_ALPHA)
        painter.fillRect(self.rect(), ground)
        pen = QPen(self._appearance.color("accent"), Size.FOCUS, Qt.PenStyle.DashLine)
        painter.setPen(pen)
        box = QRectF(self.rect()).adjusted(Space.M, Space.M, -Space.M, -Space.M)
        painter.drawRoundedRect(box, Size.RADIUS_L, Size.RADIUS_L)
        spot = QRectF(0, 0, Size.ICON_XL, Size.ICON_XL)
        spot.moveCenter(box.center())
        spot.translate(0, -Space.XL)
        paint_icon(painter, "picture", self._appearance.tokens.accent, spot)
        painter.setFont(self._appearance.font(Type.READ, bold=True))
        painter.setPen(self._appearance.color("text"))
        words = box.adjusted(0, Space.XL * 2, 0, Space.XL)
        painter.drawText(words, Qt.AlignmentFlag.AlignCenter, self.tr("Drop pictures, sounds and text files here"))
