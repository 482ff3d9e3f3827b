"""Tables: one document a piece; pieces of a long table share the column widths of its first piece."""

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import (
    QFontMetricsF,
    QPainter,
    QTextCharFormat,
    QTextCursor,
    QTextFrameFormat,
    QTextLength,
    QTextTable,
    QTextTableFormat,
)

from app.ui.markdown.blocks import Run, TableBlock, plain_text
from app.ui.theme import Size, Space, Type
from app.ui.transcript.item import Item, Look
from app.ui.transcript.text_item import document_text, new_document, paint_document, word_in, write_runs

_ALIGN = {
    "left": Qt.AlignmentFlag.AlignLeft,
    "center": Qt.AlignmentFlag.AlignHCenter,
    "right": Qt.AlignmentFlag.AlignRight,
}
MAX_COLUMNS = 40
"""Columns beyond these are left out."""


class TableItem(Item):
    """A table, or a piece of one."""

    def __init__(self, look: Look, block: TableBlock, above: "TableItem | None" = None) -> None:
        super().__init__(look, block.place)
        self._block = block
        self._first: TableItem | None = None
        if above is not None and block.continues:
            self._first = above._first or above  # noqa: SLF001 - the same class
        self._columns = min(MAX_COLUMNS, max(len(block.header), max((len(row) for row in block.rows), default=0), 1))
        self._document = new_document(look, Type.BODY)
        self._table: QTextTable | None = None
        self._natural = self._measure()
        self._widths: list[float] = []
        self._row_tops: list[float] = []
        self._write()

    def _rows(self) -> tuple[tuple[tuple[Run, ...], ...], ...]:
        return (self._block.header, *self._block.rows) if self._block.header else self._block.rows

    def _measure(self) -> list[float]:
        metrics = QFontMetricsF(self.look.appearance.font(Type.BODY, bold=True))
        widths = [float(Size.TABLE_COLUMN_MIN)] * self._columns
        for row in self._rows():
            for at, cell in enumerate(row[: self._columns]):
                width = metrics.horizontalAdvance(plain_text(cell)) + 2 * Space.S + Space.HAIR
                widths[at] = max(widths[at], width)
        return widths

    def _write(self) -> None:
        rows = self._rows()
        cursor = QTextCursor(self._document)
        form = QTextTableFormat()
        form.setBorder(0)
        form.setBorderStyle(QTextFrameFormat.BorderStyle.BorderStyle_None)
        form.setCellSpacing(0)
        form.setCellPadding(Size.TABLE_CELL)
        self._table = cursor.insertTable(max(1, len(rows)), self._columns, form)
        for r, row in enumerate(rows):
            for c, cell in enumerate(row[: self._columns]):
                inside = self._table.cellAt(r, c).firstCursorPosition()
                block = inside.blockFormat()
                block.setAlignment(_ALIGN[self._block.aligns[c] if c < len(self._block.aligns) else "left"])
                inside.setBlockFormat(block)
                base = QTextCharFormat()
                base.setFont(self.look.appearance.font(Type.BODY, bold=r == 0 and bool(self._block.header)))
                waits, _ = write_runs(inside, cell, self.look, base)
                self.waits_for_formula = self.waits_for_formula or waits

    def column_widths(self, width: float) -> list[float]:
        """Widths in a place of this width: natural if they fit, else wide columns give way first."""
        if self._first is not None:
            shared = self._first.column_widths(width)
            if len(shared) == self._columns:
                return shared
        total = sum(self._natural)
        if total <= width:
            return self._natural
        floor = float(Size.TABLE_COLUMN_MIN)
        fair = width / self._columns
        small = [min(natural, fair) for natural in self._natural]
        room = width - sum(small)
        wants = [natural - least for natural, least in zip(self._natural, small, strict=True)]
        wanted = sum(wants) or 1.0
        return [max(floor, least + room * want / wanted) for least, want in zip(small, wants, strict=True)]

    def _layout_content(self, width: float) -> float:
        if self._table is None:
            return 0.0
        self._widths = self.column_widths(width)
        form = self._table.format()
        form.setColumnWidthConstraints([QTextLength(QTextLength.Type.FixedLength, each) for each in self._widths])
        self._table.setFormat(form)
        self.content_width = sum(self._widths)
        self._document.setTextWidth(self.content_width)
        self.scroll_to(self.scroll_x)
        layout = self._document.documentLayout()
        self._row_tops = [
            layout.blockBoundingRect(self._table.cellAt(row, 0).firstCursorPosition().block()).top() - Size.TABLE_CELL
            for row in range(self._table.rows())
        ]
        bottom = layout.frameBoundingRect(self._table).bottom()
        bar = Size.SCROLLBAR if self.content_width > width + 1 else Space.NONE
        return bottom + bar

    def first_baseline(self) -> float:
        """Baseline of the header."""
        return Size.TABLE_CELL + Type.BODY

    def _paint_content(self, painter: QPainter, clip: QRectF, selection: tuple[int, int] | None) -> None:
        painter.save()
        wide = min(self.content_width, self.view_width)
        painter.setClipRect(QRectF(0, 0, wide, self.height), Qt.ClipOperation.IntersectClip)
        painter.translate(-self.scroll_x, 0)
        line = self.look.color("line")
        if self._block.header and len(self._row_tops) > 1:
            head = QRectF(0, 0, self.content_width, self._row_tops[1])
            painter.fillRect(head, self.look.color("code_head"))
        paint_document(painter, self._document, self.look, clip.translated(self.scroll_x, 0), selection)
        for top in self._row_tops[0 if self._block.continues else 1 :]:
            painter.fillRect(QRectF(0, top, self.content_width, Size.LINE), line)
        bottom = self._document.size().height() if not self._row_tops else self._bottom()
        painter.fillRect(QRectF(0, bottom - Size.LINE, self.content_width, Size.LINE), line)
        painter.restore()
        self._paint_thumb(painter)

    def _bottom(self) -> float:
        bar = Size.SCROLLBAR if self.content_width > self.view_width + 1 else Space.NONE
        return self.height - bar

    def _hit_content(self, point: QPointF) -> int:
        inside = QPointF(point.x() + self.scroll_x, point.y())
        return max(0, self._document.documentLayout().hitTest(inside, Qt.HitTestAccuracy.FuzzyHit))

    def _link_content(self, point: QPointF) -> str:
        return self._document.documentLayout().anchorAt(QPointF(point.x() + self.scroll_x, point.y()))

    @property
    def length(self) -> int:
        """Characters, cell ends included."""
        return self._document.characterCount() - 1

    def text(self, start: int, end: int) -> str:
        """The rows of a range, cells apart by tabs."""
        if start <= 0 and end >= self.length:
            return "\n".join("\t".join(plain_text(cell) for cell in row) for row in self._rows())
        return document_text(self._document, start, end)

    def word_at(self, position: int) -> tuple[int, int]:
        """The word at a position."""
        return word_in(self._document, min(position, self.length))
