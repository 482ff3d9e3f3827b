"""What every drawn block has in common: layout for a width, painting, hit testing, and text for selection and copy."""

from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter

from app.ui.appearance import Appearance
from app.ui.markdown.blocks import Gap, Place
from app.ui.theme import Size, Space, Type
from app.ui.transcript.formulas import Formulas
from app.ui.transcript.lexers import Lexers

GAPS: dict[Gap, float] = {"none": Space.NONE, "tight": Space.HAIR, "block": Space.S, "heading": Space.L}


@dataclass(frozen=True, slots=True)
class Look:
    """What items need to draw: appearance, formulas, and the tokens that differ for muted text (reasoning)."""

    appearance: Appearance
    formulas: Formulas
    lexers: Lexers
    ink: str = "text"
    size: int = Type.READ

    def color(self, name: str) -> QColor:
        """A token as colour."""
        return self.appearance.color(name)

    @property
    def text_color(self) -> QColor:
        """The colour of running text."""
        return self.appearance.color(self.ink)


class Item:
    """One block of a turn. `y` is its top within the turn's body, `height` excludes the gap before it."""

    def __init__(self, look: Look, place: Place) -> None:
        self.look = look
        self.place = place
        self.y = 0.0
        self.height = 0.0
        self.width = 0.0
        self.waits_for_formula = False
        self.joins_quote = False
        """Whether the block above stands in the same quote, so that its bar goes on."""
        self.content_width = 0.0
        self.scroll_x = 0.0

    @property
    def gap(self) -> float:
        """Space before the block."""
        return GAPS[self.place.gap]

    @property
    def indent(self) -> float:
        """Where the content begins, from the left edge of the body."""
        return len(self.place.path) * Size.INDENT

    def layout(self, width: float) -> None:
        """Lay out for the body's width; sets `width` and `height`."""
        self.width = width
        self.height = self._layout_content(max(width - self.indent, Size.TRANSCRIPT_MIN_W / 2))

    def paint(self, painter: QPainter, clip: QRectF, selection: tuple[int, int] | None) -> None:
        """Paint with the body's left edge and the item's top at the painter's origin; `clip` in these coordinates."""
        for depth, kind in enumerate(self.place.path):
            if kind == "q":
                bar = QRectF(depth * Size.INDENT, -self.gap if self.joins_quote else 0, Size.QUOTE_BAR, 0)
                bar.setBottom(self.height)
                painter.fillRect(bar, self.look.color("line_strong"))
        if self.place.marker:
            self._paint_marker(painter)
        painter.save()
        painter.translate(self.indent, 0)
        self._paint_content(painter, clip.translated(-self.indent, 0), selection)
        painter.restore()

    def hit(self, point: QPointF) -> int:
        """The text position nearest to a point (body coordinates, item's top at 0)."""
        return self._hit_content(QPointF(point.x() - self.indent, point.y()))

    def link_at(self, point: QPointF) -> str:
        """The address under a point, or empty."""
        return self._link_content(QPointF(point.x() - self.indent, point.y()))

    @property
    def view_width(self) -> float:
        """Width of the part that is seen."""
        return self.width - self.indent

    def scroll_to(self, x: float) -> bool:
        """Scroll sideways, if the content is wider than its place. Returns whether anything moved."""
        wanted = min(max(0.0, x), max(0.0, self.content_width - self.view_width))
        moved = wanted != self.scroll_x
        self.scroll_x = wanted
        return moved

    def scroll_thumb(self) -> QRectF:
        """The thumb of the sideways scroll bar (content coordinates), empty when all is seen."""
        if self.content_width <= self.view_width or self.view_width <= 0:
            return QRectF()
        share = self.view_width / self.content_width
        room = self.view_width - 2 * Space.HAIR
        width = max(room * share, Size.SCROLLBAR_THUMB_MIN)
        at = self.scroll_x / (self.content_width - self.view_width)
        height = Size.SCROLLBAR - Space.HAIR
        return QRectF(Space.HAIR + at * (room - width), self.height - height - Size.FOCUS, width, height)

    def _paint_thumb(self, painter: QPainter) -> None:
        thumb = self.scroll_thumb()
        if thumb.isEmpty():
            return
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self.look.color("line_strong"))
        painter.drawRoundedRect(thumb, thumb.height() / 2, thumb.height() / 2)

    def action_at(self, point: QPointF) -> str:
        """What a click at a point does beside selecting ("copy"), or empty."""
        del point
        return ""

    @property
    def has_work(self) -> bool:
        """Whether `work` has something to do."""
        return False

    def work(self, deadline_s: float) -> None:
        """Do idle work (highlighting) until the monotonic deadline."""
        del deadline_s

    # --- for subclasses

    def _layout_content(self, width: float) -> float:
        raise NotImplementedError

    def _paint_content(self, painter: QPainter, clip: QRectF, selection: tuple[int, int] | None) -> None:
        raise NotImplementedError

    def _hit_content(self, point: QPointF) -> int:
        del point
        return 0

    def _link_content(self, point: QPointF) -> str:
        del point
        return ""

    def first_baseline(self) -> float:
        """Distance from the top to the first line's baseline, for list markers."""
        return float(self.look.size)

    @property
    def length(self) -> int:
        """Number of text positions."""
        return 0

    def text(self, start: int, end: int) -> str:
        """Plain text of a range."""
        del start, end
        return ""

    def word_at(self, position: int) -> tuple[int, int]:
        """The range of the word at a position."""
        return position, position

    def _paint_marker(self, painter: QPainter) -> None:
        marker = self.place.marker
        right = self.indent - Space.XS
        baseline = self.first_baseline()
        if marker.startswith("["):
            side = float(self.look.size - 2)
            box = QRectF(right - side, baseline - side + Size.LINE, side, side)
            self._paint_box(painter, box, checked=marker != "[ ]")
            return
        painter.setFont(self.look.appearance.font(self.look.size))
        painter.setPen(self.look.color("text_muted"))
        width = painter.fontMetrics().horizontalAdvance(marker)
        painter.drawText(QPointF(right - width, baseline), marker)

    def _paint_box(self, painter: QPainter, box: QRectF, *, checked: bool) -> None:
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(self.look.color("accent" if checked else "text_disabled"))
        painter.setBrush(self.look.color("accent") if checked else Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(box.adjusted(0.5, 0.5, -0.5, -0.5), Size.RADIUS_S - 1, Size.RADIUS_S - 1)
        if checked:
            pen = painter.pen()
            pen.setColor(self.look.color("on_accent"))
            pen.setWidthF(Size.FOCUS)
            painter.setPen(pen)
            side = box.width()
            painter.drawPolyline(
                [
                    QPointF(box.left() + side * 0.25, box.top() + side * 0.52),
                    QPointF(box.left() + side * 0.43, box.top() + side * 0.70),
                    QPointF(box.left() + side * 0.76, box.top() + side * 0.32),
                ]
            )
        painter.restore()


class RuleItem(Item):
    """A thematic break."""

    def _layout_content(self, width: float) -> float:
        del width
        return float(Space.M)

    def _paint_content(self, painter: QPainter, clip: QRectF, selection: tuple[int, int] | None) -> None:
        del clip, selection
        painter.fillRect(QRectF(0, Space.XS, self.width - self.indent, Size.LINE), self.look.color("line_strong"))
