"""Cuts streaming Markdown into top-level segments, each parsed once; only the last one is still open.

The cut is made line by line and does not depend on how the text was chunked, so a finished answer opened later gives
the same segments. A segment that would grow without end (a list, a table, one long paragraph) is cut at a place where
the joint does not show; this bounds the work of drawing the open end.
"""

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["text", "fence", "list", "table", "math", "quote"]

MAX_SEGMENT_CHARS = 1_500
"""Longest paragraph, list or quote parsed in one piece."""

MAX_TABLE_ROWS = 20
"""Most table rows parsed in one piece."""

MAX_MATH_CHARS = 4_000
"""A display formula longer than this is taken for text."""

_FENCE = re.compile(r"^( {0,3})(`{3,}|~{3,})\s*([^`]*)$")
_INNER_FENCE = re.compile(r"^\s+(`{3,}|~{3,})")
_HEADING = re.compile(r"^ {0,3}#{1,6}(\s|$)")
_ITEM = re.compile(r"^(\s*)([-*+]|\d{1,9}[.)])(\s+|$)")
_RULE = re.compile(r"^ {0,3}([-*_])(\s*\1){2,}\s*$")
_TABLE_LINE = re.compile(r"^ {0,3}\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$")
_INDENTED = re.compile(r"^(\t| {2,})")


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of Markdown that stands by itself.

    Attributes:
        kind: what it is.
        text: its source.
        info: the info string of a fence.
        header: the header and delimiter line of the table that this piece goes on with.
        continues: the piece goes on where the last one was cut, without a gap.
        closed: whether a fence has its end marker.
    """

    kind: Kind
    text: str
    info: str = ""
    header: str = ""
    continues: bool = False
    closed: bool = True


class Segmenter:
    """Feed text as it comes; take the segments that are complete, and look at the open one."""

    def __init__(self) -> None:
        self._partial = ""
        self._lines: list[str] = []
        self._chars = 0
        self._kind: Kind = "text"
        self._blank = False
        self._fence = ""
        self._info = ""
        self._inner_fence = ""
        self._header = ""
        self._rows = 0
        self._math_end = ""
        self._continues = False
        self._done: list[Segment] = []

    def feed(self, text: str) -> list[Segment]:
        """Add text; returns the segments that became complete."""
        self._partial += text
        if "\n" in text:
            *lines, self._partial = self._partial.split("\n")
            for line in lines:
                self._line(line.removesuffix("\r"))
        self._cut_partial()
        done, self._done = self._done, []
        return done

    def open(self) -> Segment | None:
        """The segment that may still grow, partial line included; `None` when there is no text in it."""
        if self._partial and self._lines and self._blank and not self._holds(self._partial):
            return None
        return self._make(closed=False, partial=self._partial)

    def finish(self) -> list[Segment]:
        """The text is complete: returns what was still open."""
        partial, self._partial = self._partial, ""
        if partial:
            self._line(partial)
        self._close()
        done, self._done = self._done, []
        return done

    def pending(self) -> list[Segment]:
        """What is open, as it would be drawn now: a new paragraph after a blank line makes two segments."""
        if self._partial and self._lines and self._blank and not self._holds(self._partial):
            before = self._make(closed=True, partial="")
            after = Segment("text", self._partial)
            return [segment for segment in (before, after) if segment is not None]
        now = self.open()
        return [] if now is None else [now]

    def _holds(self, line: str) -> bool:
        """Whether a line after a blank one still belongs to the open segment."""
        if self._kind in ("fence", "math") or self._inner_fence:
            return True
        return self._kind == "list" and bool(_INDENTED.match(line) or _ITEM.match(line))

    def _make(self, *, closed: bool, partial: str) -> Segment | None:
        lines = [*self._lines, partial] if partial else self._lines
        text = "\n".join(lines)
        if not text.strip() and self._kind != "fence":
            return None
        return Segment(self._kind, text, self._info, self._header, self._continues, closed)

    def _close(self, *, continues: bool = False, closed: bool = True) -> None:
        segment = self._make(closed=closed, partial="")
        if segment is not None:
            self._done.append(segment)
        self._lines = []
        self._chars = 0
        self._kind = "text"
        self._blank = False
        self._info = ""
        self._inner_fence = ""
        self._header = ""
        self._rows = 0
        self._continues = continues and segment is not None

    def _add(self, line: str) -> None:
        self._lines.append(line)
        self._chars += len(line) + 1

    def _line(self, line: str) -> None:
        if self._kind == "fence":
            self._fence_line(line)
        elif self._kind == "math":
            self._math_line(line)
        elif not line.strip():
            if self._lines:
                self._blank = True
                self._add(line)
        else:
            self._text_line(line)

    def _fence_line(self, line: str) -> None:
        bare = line.strip()
        if bare.startswith(self._fence) and not bare.strip(self._fence[0]):
            self._close()
        else:
            self._add(line)

    def _math_line(self, line: str) -> None:
        self._add(line)
        if self._math_end in line:
            self._close()
        elif self._chars > MAX_MATH_CHARS:
            self._kind = "text"
            self._close(continues=True)

    def _text_line(self, line: str) -> None:
        if self._lines and self._blank and not self._holds(line):
            self._close()
        if self._inner_fence:
            if line.strip().startswith(self._inner_fence):
                self._inner_fence = ""
            self._blank = False
            self._add(line)
            return
        if self._starts_own(line):
            return
        self._blank = False
        self._start_kind(line)
        self._cut_before(line)
        self._add(line)
        if self._kind == "list" and (inner := _INNER_FENCE.match(line)):
            self._inner_fence = inner.group(1)
        if self._kind == "table":
            self._rows += 1

    def _starts_own(self, line: str) -> bool:
        """Lines that end whatever was open and form a segment of their own."""
        fence = _FENCE.match(line)
        if fence and not (self._kind == "list" and self._lines and len(fence.group(1)) > 1):
            self._close()
            self._kind, self._fence, self._info = "fence", fence.group(2), fence.group(3).strip()
            return True
        bare = line.strip()
        in_list = self._kind == "list" and bool(self._lines) and line[0] == " "
        for opening, closing in (("$$", "$$"), ("\\[", "\\]")):
            if bare.startswith(opening) and not in_list:
                rest = bare[len(opening) :]
                if closing in rest and not rest.endswith(closing):
                    continue  # a formula inside a sentence
                self._close()
                self._kind, self._math_end = "math", closing
                self._add(line)
                if closing in rest:
                    self._close()
                return True
        if _HEADING.match(line) or (_RULE.match(line) and not (self._lines and bare.startswith("-"))):
            self._close()
            self._add(line)
            self._close()
            return True
        return False

    def _start_kind(self, line: str) -> None:
        if not self._lines or self._kind == "text":
            self._start_from_text(line)
        elif self._kind == "table" and "|" not in line:
            self._close()
            self._start_from_text(line)

    def _start_from_text(self, line: str) -> None:
        item = _ITEM.match(line)
        starts_list = item is not None and (
            not self._lines or not item.group(2)[0].isdigit() or item.group(2)[:-1] == "1"
        )
        if starts_list and not _RULE.match(line):
            self._begin("list")
        elif line.lstrip().startswith(">"):
            self._begin("quote")
        elif self._lines and "|" in self._lines[-1] and "|" in line and _TABLE_LINE.match(line):
            head = self._lines.pop()
            self._begin("table")
            self._add(head)
            self._rows = -1

    def _begin(self, kind: Kind) -> None:
        if self._lines:
            self._close()
        self._kind = kind

    def _cut_before(self, line: str) -> None:
        """Cut a segment that grew long, before this line, where the joint does not show."""
        if self._kind == "table":
            if self._rows >= MAX_TABLE_ROWS:
                header = self._header or "\n".join(self._lines[:2])
                self._close(continues=True)
                self._kind, self._header = "table", header
            return
        if self._chars < MAX_SEGMENT_CHARS:
            return
        if self._kind == "list":
            item = _ITEM.match(line)
            if (item and not item.group(1)) or self._chars > 2 * MAX_SEGMENT_CHARS:
                self._close(continues=True)
                self._kind = "list" if item else "text"
        else:
            kind = self._kind
            self._close(continues=True)
            self._kind = kind

    def _cut_partial(self) -> None:
        """One line without end: cut it after a sentence, or at least between words."""
        if self._kind in ("fence", "math", "table"):
            return
        while len(self._partial) + self._chars > 2 * MAX_SEGMENT_CHARS and len(self._partial) > MAX_SEGMENT_CHARS:
            window = self._partial[:MAX_SEGMENT_CHARS]
            at = max(window.rfind(end) for end in (". ", "! ", "? ", "。"))
            at = at + 2 if at > 0 else window.rfind(" ") + 1
            at = at or MAX_SEGMENT_CHARS
            self._start_kind(self._partial) if not self._lines else None
            kind = self._kind
            self._add(self._partial[:at])
            self._partial = self._partial[at:]
            self._close(continues=True)
            self._kind = "text" if kind == "list" else kind
