"""Painted meters: a ring for a share, a sparkline, and a chart with a limit line."""

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPainterPath, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.ui.appearance import Appearance
from app.ui.theme import Size, Space, Type

FULL = 0.9
"""Share from which a ring warns."""


class Ring(QWidget):
    """A ring filled by a share 0..1; amber from 90 % on."""

    def __init__(self, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self._share: float | None = None
        self.setFixedSize(Size.RING, Size.RING)
        appearance.changed.connect(self.update)

    def set_share(self, share: float | None) -> None:
        """Show a share; `None` is an empty ring."""
        if share != self._share:
            self._share = share
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        del event
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        width = Size.QUOTE_BAR
        box = QRectF(self.rect()).adjusted(width, width, -width, -width)
        pen = QPen(self._appearance.color("line_strong"), width)
        painter.setPen(pen)
        painter.drawEllipse(box)
        if self._share:
            pen.setColor(self._appearance.color("amber" if self._share >= FULL else "accent"))
            pen.setCapStyle(Qt.PenCapStyle.RoundCap)
            painter.setPen(pen)
            painter.drawArc(box, 90 * 16, -round(min(1.0, self._share) * 360 * 16))


class Sparkline(QWidget):
    """A small line without axes; the newest value is at the right."""

    def __init__(self, appearance: Appearance, slots: int, parent: QWidget | None = None) -> None:
        """`slots` is the number of values the whole width stands for."""
        super().__init__(parent)
        self._appearance = appearance
        self._slots = max(2, slots)
        self._values: tuple[float, ...] = ()
        self.setFixedSize(Size.SPARK_W, Size.SPARK_H)
        appearance.changed.connect(self.update)

    @property
    def values(self) -> tuple[float, ...]:
        """What is drawn."""
        return self._values

    def set_values(self, values: Sequence[float]) -> None:
        """Show these values, oldest first."""
        self._values = tuple(values)[-self._slots :]
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        del event
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        width, height = self.width(), self.height() - Size.FOCUS
        painter.setPen(QPen(self._appearance.color("line_strong"), Size.LINE))
        painter.drawLine(QPointF(0, height + 0.5), QPointF(width, height + 0.5))
        top = max(self._values, default=0.0)
        if top <= 0:
            return
        step = width / (self._slots - 1)
        left = width - step * (len(self._values) - 1)
        points = [
            QPointF(left + at * step, height - value / top * (height - 2)) for at, value in enumerate(self._values)
        ]
        _fill(painter, self._appearance, points, height, "accent")


def _fill(painter: QPainter, appearance: Appearance, points: list[QPointF], height: float, ink: str) -> None:
    path = QPainterPath(QPointF(points[0].x(), height))
    for point in points:
        path.lineTo(point)
    path.lineTo(points[-1].x(), height)
    ground = appearance.color(ink)
    ground.setAlphaF(0.18)
    painter.fillPath(path, ground)
    painter.setPen(QPen(appearance.color(ink), Size.LINE * 1.5))
    painter.drawPolyline(QPolygonF(points))


class Chart(QWidget):
    """A line over the last minutes with its limit drawn; gaps where a value was not available."""

    def __init__(
        self, appearance: Appearance, slots: int, *, ink: str = "series_a", parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self._slots = max(2, slots)
        self._ink = ink
        self._values: tuple[float | None, ...] = ()
        self._limit: float | None = None
        self._top: float | None = None
        self.setMinimumHeight(Size.CHART_H)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        appearance.changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(Size.CARD_MIN_W, Size.CHART_H)

    def set_values(
        self, values: Sequence[float | None], *, top: float | None = None, limit: float | None = None
    ) -> None:
        """Show values, oldest first. `top` is the full scale (else the largest value), `limit` a dashed line."""
        self._values = tuple(values)[-self._slots :]
        self._top, self._limit = top, limit
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        del event
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        box = QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5)
        ground = QPainterPath()
        ground.addRoundedRect(box, Size.RADIUS_S, Size.RADIUS_S)
        painter.fillPath(ground, self._appearance.color("panel"))
        known = [value for value in self._values if value is not None]
        if not known:
            painter.setFont(self._appearance.font(Type.SMALL))
            painter.setPen(self._appearance.color("text_muted"))
            painter.drawText(box, Qt.AlignmentFlag.AlignCenter, self.tr("not available"))
            return
        top = max(self._top or max(known) * 1.15, self._limit or 0.0, *known) or 1.0
        self._paint_grid(painter, box, top)
        painter.setClipPath(ground)
        step = box.width() / (self._slots - 1)
        left = box.right() - step * (len(self._values) - 1)
        run: list[QPointF] = []
        for at, value in enumerate((*self._values, None)):
            if value is not None:
                run.append(QPointF(left + at * step, box.bottom() - value / top * (box.height() - Space.HAIR)))
            elif run:
                if len(run) == 1:
                    run.append(run[0] + QPointF(step, 0))
                _fill(painter, self._appearance, run, box.bottom(), self._ink)
                run = []

    def _paint_grid(self, painter: QPainter, box: QRectF, top: float) -> None:
        painter.setPen(QPen(self._appearance.color("line"), Size.LINE))
        for part in (0.25, 0.5, 0.75):
            y = box.bottom() - part * box.height()
            painter.drawLine(QPointF(box.left(), y), QPointF(box.right(), y))
        if self._limit:
            painter.setPen(QPen(self._appearance.color("amber"), Size.LINE, Qt.PenStyle.DashLine))
            y = box.bottom() - self._limit / top * (box.height() - Space.HAIR)
            painter.drawLine(QPointF(box.left(), y), QPointF(box.right(), y))
