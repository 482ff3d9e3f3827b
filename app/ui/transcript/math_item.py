"""A formula on lines of its own, drawn as vectors; its source while it is not ready or when it is broken."""

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QFontMetricsF, QPainter
from PySide6.QtSvg import QSvgRenderer

from app.ui.markdown.blocks import MathBlock
from app.ui.theme import Space, Type
from app.ui.transcript.item import Item, Look


class MathItem(Item):
    """A display formula, centred and shrunk to the width when it is wider."""

    def __init__(self, look: Look, block: MathBlock) -> None:
        super().__init__(look, block.place)
        self._tex = block.tex
        self._formula = look.formulas.get(block.tex, Type.READ + 2, display=True)
        self.waits_for_formula = self._formula is None
        self._renderer: QSvgRenderer | None = None
        self._box = QRectF()

    @property
    def _drawn(self) -> bool:
        return self._formula is not None and bool(self._formula.svg)

    def _layout_content(self, width: float) -> float:
        formula = self._formula
        if formula is None or not formula.svg:
            lines = self._tex.count("\n") + 1
            return QFontMetricsF(self.look.appearance.font(Type.BODY, code=True)).lineSpacing() * lines
        scale = min(1.0, width / formula.width)
        self._box = QRectF(
            (width - formula.width * scale) / 2, Space.HAIR, formula.width * scale, formula.height * scale
        )
        return self._box.height() + 2 * Space.HAIR

    def _paint_content(self, painter: QPainter, clip: QRectF, selection: tuple[int, int] | None) -> None:
        del clip
        if selection is not None:
            painter.fillRect(QRectF(0, 0, self.width - self.indent, self.height), self.look.color("selection"))
        formula = self._formula
        if formula is None or not formula.svg:
            font = self.look.appearance.font(Type.BODY, code=True)
            painter.setFont(font)
            painter.setPen(self.look.color("text_muted"))
            metrics = QFontMetricsF(font)
            for at, line in enumerate(self._tex.split("\n")):
                painter.drawText(QPointF(0, metrics.ascent() + at * metrics.lineSpacing()), line)
            return
        if self._renderer is None:
            self._renderer = formula.renderer(getattr(self.look.appearance.tokens, self.look.ink))
        self._renderer.render(painter, self._box)

    @property
    def length(self) -> int:
        """The formula is selected as a whole."""
        return 1

    def _hit_content(self, point: QPointF) -> int:
        return 0 if point.y() < self.height / 2 else 1

    def text(self, start: int, end: int) -> str:
        """The TeX source."""
        return f"$${self._tex}$$" if end > start else ""

    def word_at(self, position: int) -> tuple[int, int]:
        """All of it."""
        del position
        return 0, 1
