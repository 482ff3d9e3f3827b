"""Text in, drawn items out, incrementally: what is complete is made once, only the open end is made again."""

import time
from collections import deque

from app.ui.markdown.blocks import Block, CodeBlock, MathBlock, RuleBlock, TableBlock, TextBlock
from app.ui.markdown.segments import Segment, Segmenter
from app.ui.transcript.code_item import CodeItem
from app.ui.transcript.item import Item, Look, RuleItem
from app.ui.transcript.math_item import MathItem
from app.ui.transcript.table_item import TableItem
from app.ui.transcript.text_item import TextItem


def make_item(look: Look, block: Block, before: Item | None) -> Item:
    """The item that draws a block."""
    match block:
        case TextBlock():
            return TextItem(look, block)
        case CodeBlock():
            return CodeItem(look, block)
        case TableBlock():
            return TableItem(look, block, before if isinstance(before, TableItem) else None)
        case MathBlock():
            return MathItem(look, block)
        case RuleBlock():
            return RuleItem(look, block.place)


class Feed:
    """The items of one text. Set the text, or append to it; then `build`, or `flush` while it streams."""

    def __init__(self, look: Look, *, plain: bool = False) -> None:
        self._look = look
        self._plain = plain
        self._segmenter = Segmenter()
        self._text = ""
        self._fed = 0
        self._finished = False
        self._queue: deque[Segment] = deque()
        self._closed_items: list[Item] = []
        self._tail: list[Item] = []
        self._tail_segments: list[Segment] = []
        self.laid_out = 0
        """Items from the first on whose layout still holds; for the turn's use."""

    @property
    def items(self) -> list[Item]:
        """All items in order."""
        return [*self._closed_items, *self._tail] if self._tail else self._closed_items

    @property
    def text(self) -> str:
        """The text so far."""
        return self._text

    @property
    def is_built(self) -> bool:
        """Whether all text so far stands in items."""
        return not self._queue and self._fed == len(self._text)

    def set_text(self, text: str) -> None:
        """Grow to this text; if it is not a continuation, begin anew."""
        if not text.startswith(self._text) or (self._finished and text != self._text):
            self._restart()
        self._text = text

    def _restart(self) -> None:
        self._segmenter = Segmenter()
        self._text = ""
        self._fed = 0
        self._finished = False
        self._queue.clear()
        self._closed_items = []
        self._tail = []
        self._tail_segments = []
        self.laid_out = 0

    def append(self, text: str) -> None:
        """Add text."""
        self._text += text

    def build(self, deadline_s: float, *, complete: bool) -> bool:
        """Make items until the monotonic deadline; `complete` says that no more text will come.

        Returns:
            Whether all is made.
        """
        if self._fed < len(self._text):
            self._queue.extend(self._segmenter.feed(self._text[self._fed :]))
            self._fed = len(self._text)
        if complete and not self._finished:
            self._queue.extend(self._segmenter.finish())
            self._finished = True
        while self._queue:
            self._take(self._queue.popleft())
            if time.monotonic() > deadline_s and self._queue:
                return False
        self._draw_tail()
        return True

    def remake(self) -> None:
        """Make all items again from the text (colours or formulas changed)."""
        text = self._text
        self._restart()
        self._text = text

    def _blocks(self, segment: Segment) -> list[Block]:
        from app.ui.markdown.parse import parse_segment, plain_blocks  # late: the parser is not needed to start

        return plain_blocks(segment) if self._plain else parse_segment(segment)

    def _take(self, segment: Segment) -> None:
        tail, self._tail = self._tail, []
        self._tail_segments = []
        self.laid_out = min(self.laid_out, len(self._closed_items))
        first = tail[0] if tail else None
        if segment.kind == "fence" and isinstance(first, CodeItem) and segment.text.startswith(first.code[:-1]):
            first.update_code(CodeBlock(segment.text, first.language, closed=True))
            self._closed_items.append(first)
            return
        for block in self._blocks(segment):
            before = self._closed_items[-1] if self._closed_items else None
            self._closed_items.append(make_item(self._look, block, before))

    def _draw_tail(self) -> None:
        pending = self._segmenter.pending() if not self._finished else []
        if pending == self._tail_segments:
            return
        self.laid_out = min(self.laid_out, len(self._closed_items))
        same_fence = (
            len(pending) == len(self._tail_segments) == 1
            and pending[0].kind == "fence"
            and len(self._tail) == 1
            and isinstance(self._tail[0], CodeItem)
        )
        self._tail_segments = pending
        if same_fence and isinstance(self._tail[0], CodeItem):
            self._tail[0].update_code(CodeBlock(pending[0].text, self._tail[0].language, closed=False))
            return
        self._tail = []
        for segment in pending:
            for block in self._blocks(segment):
                before = self._tail[-1] if self._tail else (self._closed_items[-1] if self._closed_items else None)
                self._tail.append(make_item(self._look, block, before))
