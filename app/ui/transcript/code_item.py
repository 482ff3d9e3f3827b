"""Code: lines laid out only when they are seen, highlighted in idle time, scrolled sideways, with a copy button."""

import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator

from PySide6.QtCore import QCoreApplication, QPointF, QRectF, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QPainterPath, QTextCharFormat, QTextLayout, QTextOption

from app.ui.icons import paint_icon
from app.ui.markdown.blocks import CodeBlock
from app.ui.theme import Size, Space, Type
from app.ui.transcript.item import Item, Look
from app.ui.transcript.lexers import colour_of

MAX_LINE_CHARS = 1_000
"""A longer line is shown as several; copying gives it back whole."""

MAX_LAYOUTS = 160
"""Lines kept laid out."""

OPEN_LEX_LINES = 40
"""While code streams, at most so many of its last lines are lexed anew at a time."""

_CHECK_EVERY = 64

Spans = list[tuple[int, int, str]]


class CodeItem(Item):
    """A code block."""

    def __init__(self, look: Look, block: CodeBlock) -> None:
        super().__init__(look, block.place)
        self._font = look.appearance.font(Type.BODY, code=True)
        self._metrics = QFontMetricsF(self._font)
        self._line_height = round(self._metrics.height() * Type.LINE_CODE_PERCENT / 100 / 1.1)
        self._code = ""
        self._language = block.language
        self._closed = False
        self._lines: list[str] = []
        self._joined: set[int] = set()
        self._starts: list[int] = []
        self._spans: dict[int, Spans] = {}
        self._layouts: OrderedDict[int, QTextLayout] = OrderedDict()
        self._widest = 0.0
        self._lexing: Iterator[tuple[int, object, str]] | None = None
        self._lexed: dict[int, Spans] = {}
        self._needs_lexing = False
        self.hot = False
        self.copied = False
        self.update_code(block)

    @property
    def code(self) -> str:
        """The source as written."""
        return self._code

    @property
    def language(self) -> str:
        """The language written at the fence."""
        return self._language

    def update_code(self, block: CodeBlock) -> None:
        """Show grown (or other) code; only lines that changed are worked on."""
        code = block.code.replace("\t", "    ")
        if code.startswith(self._code) and self._lines:
            keep = len(self._lines) - 1
            while keep in self._joined:
                keep -= 1
            fresh = code[self._starts[keep] - sum(1 for line in self._joined if line <= keep) :]
        else:
            keep, fresh = 0, code
            self._spans.clear()
            self._joined.clear()
            self._widest = 0.0
        self._joined = {line for line in self._joined if line < keep}
        del self._lines[keep:], self._starts[keep:]
        for line in [line for line in self._layouts if line >= keep]:
            del self._layouts[line]
        for source in fresh.split("\n"):
            self._add_line(source)
        self._code = code
        self._language = block.language
        self._closed = block.closed
        self._start_lexing(keep)

    def _add_line(self, source: str) -> None:
        pieces = [source[at : at + MAX_LINE_CHARS] for at in range(0, len(source), MAX_LINE_CHARS)] or [""]
        for at, piece in enumerate(pieces):
            if at:
                self._joined.add(len(self._lines))
            self._starts.append(self._starts[-1] + len(self._lines[-1]) + 1 if self._lines else 0)
            self._lines.append(piece)
            width = (
                len(piece) * self._metrics.averageCharWidth()
                if piece.isascii()
                else self._metrics.horizontalAdvance(piece)
            )
            self._widest = max(self._widest, width)

    # --- highlighting

    def _start_lexing(self, from_line: int) -> None:
        lexer = self.look.lexers.get(self._language)
        if lexer is None:
            self._needs_lexing = bool(self._language)
            return
        self._needs_lexing = False
        if self._closed:
            self._lexed = {}
            self._lexing = lexer.get_tokens_unprocessed("\n".join(self._lines))
            return
        first = max(0, from_line - 1, len(self._lines) - OPEN_LEX_LINES)
        low = max(0, len(self._lines) - OPEN_LEX_LINES)
        while first > low and self._lines[first - 1].strip():
            first -= 1
        fresh: dict[int, Spans] = {}
        self._collect(lexer.get_tokens_unprocessed("\n".join(self._lines[first:])), first, fresh, None)
        for line in range(first, len(self._lines)):
            self._spans[line] = fresh.get(line, [])
            self._layouts.pop(line, None)

    def on_lexer_ready(self, language: str) -> bool:
        """The lexer of a language came; returns whether this item has work now."""
        if language != self._language or not self._needs_lexing:
            return False
        self._start_lexing(0)
        return True

    @property
    def has_work(self) -> bool:
        """Whether code is still to be highlighted."""
        return self._lexing is not None

    def work(self, deadline_s: float) -> None:
        """Highlight until the deadline."""
        if self._lexing is None:
            return
        if self._collect(self._lexing, 0, self._lexed, deadline_s):
            self._spans = self._lexed
            self._lexing = None
            self._layouts.clear()

    def _collect(
        self, tokens: Iterator[tuple[int, object, str]], first: int, out: dict[int, Spans], deadline_s: float | None
    ) -> bool:
        """Turn tokens into coloured spans by line; returns whether all were taken."""
        base = self._starts[first] if first < len(self._starts) else 0
        for count, (offset, kind, value) in enumerate(tokens):
            colour = colour_of(kind)
            if colour and value.strip():
                self._span(base + offset, value, colour, out)
            if deadline_s is not None and count % _CHECK_EVERY == 0 and time.monotonic() > deadline_s:
                return False
        return True

    def _span(self, offset: int, value: str, colour: str, out: dict[int, Spans]) -> None:
        line = bisect_right(self._starts, offset) - 1
        column = offset - self._starts[line]
        for at, part in enumerate(value.split("\n")):
            if part:
                out.setdefault(line + at, []).append((column if at == 0 else 0, len(part), colour))

    # --- drawing

    @property
    def _top(self) -> float:
        return Size.CODE_HEADER_H + Space.XS

    def _layout_content(self, width: float) -> float:
        del width
        self.content_width = self._widest + 2 * Space.M
        self.scroll_to(self.scroll_x)
        bar = Size.SCROLLBAR if self.content_width > self.view_width else Space.NONE
        return self._top + len(self._lines) * self._line_height + Space.XS + bar

    def first_baseline(self) -> float:
        """Baseline of the language label."""
        return Size.CODE_HEADER_H / 2 + Space.HAIR

    def _copy_rect(self) -> QRectF:
        side = Size.CODE_HEADER_H - Space.HAIR
        width = QFontMetricsF(self.look.appearance.font(Type.SMALL)).horizontalAdvance(self._copy_text()) + Space.XL + 2
        return QRectF(self.view_width - width - Size.FOCUS, Size.FOCUS, width, side)

    def _copy_text(self) -> str:
        return QCoreApplication.translate("CodeItem", "Copied" if self.copied else "Copy")

    def action_at(self, point: QPointF) -> str:
        """The copy button in the header."""
        return "copy" if self._copy_rect().contains(QPointF(point.x() - self.indent, point.y())) else ""

    def _paint_content(self, painter: QPainter, clip: QRectF, selection: tuple[int, int] | None) -> None:
        box = QRectF(0.5, 0.5, self.view_width - 1, self.height - 1)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        shape = QPainterPath()
        shape.addRoundedRect(box, Size.RADIUS, Size.RADIUS)
        painter.fillPath(shape, self.look.color("code"))
        painter.save()
        painter.setClipPath(shape, Qt.ClipOperation.IntersectClip)
        self._paint_header(painter)
        first = max(0, int((clip.top() - self._top) // self._line_height))
        last = min(len(self._lines), int((clip.bottom() - self._top) // self._line_height) + 1)
        painter.translate(Space.M - self.scroll_x, self._top)
        for line in range(first, last):
            self._paint_line(painter, line, selection)
        painter.restore()
        painter.setPen(self.look.color("line"))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawPath(shape)
        self._paint_thumb(painter)

    def _paint_header(self, painter: QPainter) -> None:
        look = self.look
        painter.fillRect(QRectF(0, 0, self.view_width, Size.CODE_HEADER_H), look.color("code_head"))
        painter.setFont(look.appearance.font(Type.SMALL))
        painter.setPen(look.color("text_muted"))
        label = QRectF(Space.M, 0, self.view_width, Size.CODE_HEADER_H)
        name = self._language or QCoreApplication.translate("CodeItem", "text")
        painter.drawText(label, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, name)
        button = self._copy_rect()
        if self.hot:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(look.color("hover"))
            painter.drawRoundedRect(button.adjusted(0, 2, 0, -2), Size.RADIUS_S, Size.RADIUS_S)
        ink = look.appearance.tokens.text if self.hot else look.appearance.tokens.text_muted
        icon = QRectF(button.left() + Space.HAIR + 2, 0, Size.ICON - 1, Size.ICON - 1)
        icon.moveCenter(QPointF(icon.center().x(), Size.CODE_HEADER_H / 2))
        paint_icon(painter, "check" if self.copied else "copy", ink, icon)
        painter.setPen(look.color("text" if self.hot else "text_muted"))
        words = QRectF(icon.right() + Space.HAIR, 0, button.width(), Size.CODE_HEADER_H)
        painter.drawText(words, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, self._copy_text())

    def _line_layout(self, line: int) -> QTextLayout:
        found = self._layouts.get(line)
        if found is not None:
            self._layouts.move_to_end(line)
            return found
        layout = QTextLayout(self._lines[line], self._font)
        option = QTextOption()
        option.setWrapMode(QTextOption.WrapMode.NoWrap)
        layout.setTextOption(option)
        ranges = []
        for start, length, colour in self._spans.get(line, ()):
            span = QTextLayout.FormatRange()
            span.start, span.length = start, length
            form = QTextCharFormat()
            form.setForeground(self.look.color(colour))
            span.format = form
            ranges.append(span)
        layout.setFormats(ranges)
        layout.beginLayout()
        made = layout.createLine()
        if made.isValid():
            made.setLineWidth(self._widest + 1)
        layout.endLayout()
        self._layouts[line] = layout
        while len(self._layouts) > MAX_LAYOUTS:
            self._layouts.popitem(last=False)
        return layout

    def _paint_line(self, painter: QPainter, line: int, selection: tuple[int, int] | None) -> None:
        layout = self._line_layout(line)
        painter.setPen(self.look.color("text"))
        drop = (self._line_height - self._metrics.height()) / 2
        at = QPointF(0, line * self._line_height + drop)
        if selection is None:
            layout.draw(painter, at)
            return
        start = max(0, selection[0] - self._starts[line])
        end = min(len(self._lines[line]), selection[1] - self._starts[line])
        if start >= end:
            layout.draw(painter, at)
            return
        chosen = QTextLayout.FormatRange()
        chosen.start, chosen.length = start, end - start
        form = QTextCharFormat()
        form.setBackground(self.look.color("selection"))
        form.setForeground(self.look.color("on_selection"))
        chosen.format = form
        layout.draw(painter, at, [chosen])

    # --- text

    def _hit_content(self, point: QPointF) -> int:
        line = int((point.y() - self._top) // self._line_height)
        if line < 0:
            return 0
        if line >= len(self._lines):
            return self.length
        column = self._line_layout(line).lineAt(0).xToCursor(point.x() - Space.M + self.scroll_x)
        return self._starts[line] + int(column)

    @property
    def length(self) -> int:
        """Characters, line ends included."""
        return self._starts[-1] + len(self._lines[-1]) if self._lines else 0

    def text(self, start: int, end: int) -> str:
        """The source of a range."""
        out: list[str] = []
        first = max(0, bisect_right(self._starts, start) - 1)
        for line in range(first, len(self._lines)):
            begin = self._starts[line]
            if begin >= end and line > first:
                break
            if line > first and line not in self._joined:
                out.append("\n")
            out.append(self._lines[line][max(0, start - begin) : max(0, end - begin)])
        return "".join(out)

    def word_at(self, position: int) -> tuple[int, int]:
        """The word at a position."""
        line = max(0, bisect_right(self._starts, position) - 1)
        text, base = self._lines[line], self._starts[line]
        left = right = min(position - base, len(text))
        while left > 0 and (text[left - 1].isalnum() or text[left - 1] == "_"):
            left -= 1
        while right < len(text) and (text[right].isalnum() or text[right] == "_"):
            right += 1
        return base + left, base + right
