"""Paragraphs and headings: one small `QTextDocument` each, selections and inline code drawn here."""

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import (
    QAbstractTextDocumentLayout,
    QFont,
    QFontMetricsF,
    QPainter,
    QPalette,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
    QTextImageFormat,
)

from app.ui.markdown.blocks import Run, TextBlock
from app.ui.theme import Size, Type
from app.ui.transcript.item import Item, Look

TEX_PROPERTY = int(QTextFormat.Property.UserProperty) + 1
CODE_PROPERTY = int(QTextFormat.Property.UserProperty) + 2

_OBJECT = "\ufffc"


def heading_size(level: int) -> int:
    """The type size of a heading level."""
    return {0: Type.READ, 1: Type.TITLE, 2: Type.TITLE - 2, 3: Type.READ + 1}.get(level, Type.READ)


def write_runs(
    cursor: QTextCursor, runs: tuple[Run, ...], look: Look, base: QTextCharFormat
) -> tuple[bool, list[tuple[int, int]]]:
    """Insert runs at a cursor.

    Returns:
        Whether a formula among them is not ready yet and stands there as its source, and the ranges of inline code.
    """
    waits = False
    code_ranges: list[tuple[int, int]] = []
    size = base.font().pixelSize()
    for run in runs:
        begin = cursor.position()
        form = QTextCharFormat(base)
        if run.bold:
            form.setFontWeight(QFont.Weight.DemiBold)
        if run.italic:
            form.setFontItalic(True)
        if run.strike:
            form.setFontStrikeOut(True)
        if run.code:
            code_font = look.appearance.font(size - 1, code=True)
            form.setFont(code_font, QTextCharFormat.FontPropertiesInheritanceBehavior.FontPropertiesSpecifiedOnly)
            form.setProperty(CODE_PROPERTY, True)
        if run.href:
            form.setAnchor(True)
            form.setAnchorHref(run.href)
            form.setForeground(look.color("link"))
            form.setFontUnderline(True)
        if run.tex and not _write_formula(cursor, run, look, form, size):
            waits = waits or look.formulas.get(run.tex, size, display=False) is None
            form.setFont(look.appearance.font(size - 1, code=True))
            cursor.insertText(run.text, form)
        elif not run.tex:
            cursor.insertText(run.text, form)
        if run.code:
            code_ranges.append((begin, cursor.position()))
    return waits, code_ranges


def _write_formula(cursor: QTextCursor, run: Run, look: Look, form: QTextCharFormat, size: int) -> bool:
    formula = look.formulas.get(run.tex, size, display=False)
    if formula is None or not formula.svg:
        return False
    # Qt centres a "middle" image half an x-height above the baseline: pad the shorter side so that ours fits there.
    middle = QFontMetricsF(form.font()).xHeight() / 2
    above, below = formula.ascent - middle, formula.descent + middle
    half = max(above, below)
    scale = look.appearance.pixel_ratio
    source = formula.image(getattr(look.appearance.tokens, look.ink), scale)
    padded = source.copy(0, round(-(half - above) * scale), source.width(), round(2 * half * scale))
    padded.setDevicePixelRatio(scale)
    image = QTextImageFormat()
    image.merge(form)
    image.setVerticalAlignment(QTextCharFormat.VerticalAlignment.AlignMiddle)
    image.setWidth(formula.width)
    image.setHeight(2 * half)
    name = f"tex:{size}:{run.tex}"
    cursor.document().addResource(QTextDocument.ResourceType.ImageResource.value, name, padded)
    image.setName(name)
    image.setProperty(TEX_PROPERTY, run.text)
    cursor.insertImage(image)
    return True


def new_document(look: Look, size: int) -> QTextDocument:
    """An empty document without margins and undo."""
    document = QTextDocument()
    document.setUndoRedoEnabled(False)
    document.setDocumentMargin(0)
    document.setDefaultFont(look.appearance.font(size))
    return document


def word_in(document: QTextDocument, position: int) -> tuple[int, int]:
    """Where the word at a position begins and ends."""
    cursor = QTextCursor(document)
    cursor.setPosition(position)
    cursor.select(QTextCursor.SelectionType.WordUnderCursor)
    return cursor.selectionStart(), cursor.selectionEnd()


def document_text(document: QTextDocument, start: int, end: int) -> str:
    """Plain text of a range; formulas give their TeX source."""
    cursor = QTextCursor(document)
    cursor.setPosition(start)
    cursor.setPosition(min(end, document.characterCount() - 1), QTextCursor.MoveMode.KeepAnchor)
    text = cursor.selectedText().replace("\u2029", "\n").replace("\u2028", "\n")
    if _OBJECT not in text:
        return text
    parts = text.split(_OBJECT)
    out = [parts[0]]
    at = start + len(parts[0])
    for part in parts[1:]:
        cursor.setPosition(at + 1)
        out.append(f"${cursor.charFormat().property(TEX_PROPERTY) or ''}$")
        out.append(part)
        at += 1 + len(part)
    return "".join(out)


def paint_document(
    painter: QPainter, document: QTextDocument, look: Look, clip: QRectF, selection: tuple[int, int] | None
) -> None:
    """Draw a document with its selection."""
    context = QAbstractTextDocumentLayout.PaintContext()
    palette = context.palette
    palette.setColor(QPalette.ColorRole.Text, look.text_color)
    context.palette = palette
    context.clip = clip
    if selection is not None:
        chosen = QAbstractTextDocumentLayout.Selection()
        cursor = QTextCursor(document)
        cursor.setPosition(selection[0])
        cursor.setPosition(min(selection[1], document.characterCount() - 1), QTextCursor.MoveMode.KeepAnchor)
        form = QTextCharFormat()
        form.setBackground(look.color("selection"))
        form.setForeground(look.color("on_selection"))
        chosen.cursor = cursor
        chosen.format = form
        context.selections = [chosen]
    document.documentLayout().draw(painter, context)


class TextItem(Item):
    """A paragraph or a heading."""

    def __init__(self, look: Look, block: TextBlock) -> None:
        super().__init__(look, block.place)
        self._block = block
        self._size = heading_size(block.level) if look.size == Type.READ else look.size
        self._document = new_document(look, self._size)
        self._code_ranges: list[tuple[int, int]] = []
        self._drop = 0.0
        self._write()

    def _write(self) -> None:
        cursor = QTextCursor(self._document)
        form = QTextBlockFormat()
        form.setLineHeight(float(Type.LINE_READ_PERCENT), QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        cursor.setBlockFormat(form)
        base = QTextCharFormat()
        base.setFont(self.look.appearance.font(self._size, bold=self._block.level > 0))
        self.waits_for_formula, self._code_ranges = write_runs(cursor, self._block.runs, self.look, base)

    def _layout_content(self, width: float) -> float:
        self._document.setTextWidth(width)
        # Qt puts the extra of a proportional line height below the text: lower it by half of that.
        line = QFontMetricsF(self.look.appearance.font(self._size)).height()
        self._drop = line * (Type.LINE_READ_PERCENT - 100) / 200
        return self._document.size().height()

    def natural_width(self) -> float:
        """Width of the longest line."""
        return self._document.idealWidth() + 1

    def first_baseline(self) -> float:
        """Baseline of the first line."""
        layout = self._document.firstBlock().layout()
        if layout.lineCount() == 0:
            return float(self._size)
        line = layout.lineAt(0)
        return layout.position().y() + line.y() + line.ascent() + self._drop

    def _paint_content(self, painter: QPainter, clip: QRectF, selection: tuple[int, int] | None) -> None:
        painter.translate(0, self._drop)
        clip = clip.translated(0, -self._drop)
        if self._code_ranges:
            self._paint_code_grounds(painter)
        paint_document(painter, self._document, self.look, clip, selection)

    def _paint_code_grounds(self, painter: QPainter) -> None:
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self.look.color("inline_code"))
        metrics = QFontMetricsF(self.look.appearance.font(self._size - 1, code=True))
        block = self._document.firstBlock()
        while block.isValid():
            layout = block.layout()
            for begin, end in self._code_ranges:
                start, stop = begin - block.position(), end - block.position()
                for at in range(layout.lineCount()):
                    line = layout.lineAt(at)
                    low = max(start, line.textStart())
                    high = min(stop, line.textStart() + line.textLength())
                    if low >= high:
                        continue
                    left, right = float(line.cursorToX(low)[0]), float(line.cursorToX(high)[0])  # type: ignore[index]
                    baseline = layout.position().y() + line.y() + line.ascent()
                    ground = QRectF(left - 2, baseline - metrics.ascent(), right - left + 4, metrics.height())
                    painter.drawRoundedRect(ground, Size.RADIUS_S, Size.RADIUS_S)
            block = block.next()
        painter.restore()

    def _hit_content(self, point: QPointF) -> int:
        at = self._document.documentLayout().hitTest(
            QPointF(point.x(), point.y() - self._drop), Qt.HitTestAccuracy.FuzzyHit
        )
        return max(at, 0)

    def _link_content(self, point: QPointF) -> str:
        return self._document.documentLayout().anchorAt(QPointF(point.x(), point.y() - self._drop))

    @property
    def length(self) -> int:
        """Characters."""
        return self._document.characterCount() - 1

    def text(self, start: int, end: int) -> str:
        """Plain text of a range."""
        return document_text(self._document, start, end)

    def word_at(self, position: int) -> tuple[int, int]:
        """The word at a position."""
        return word_in(self._document, min(position, self.length))
