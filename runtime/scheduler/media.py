"""Pictures and sounds among the tokens of a prompt.

The rows of an encoded picture take places in a sequence like tokens do. In every list of tokens (prompts, the prefix
tree, saved states) such a place holds a *placeholder*: a negative number made of the picture's content and of the
row's number in it. So equal numbers mean equal rows, and what compares, cuts and keeps lists of tokens needs to know
nothing else. What must know:

* a placeholder is no token: never give it to llama.cpp, to a sampler or to a tokenizer;
* a sequence is never cut inside of a picture (`Layout.floor`): rows of one picture may see each other, and where
  positions are two-dimensional they share one;
* positions are not indices: behind a picture they may lag (`Layout.position`).

Placeholders fit in a signed 64-bit number and stay the same in another process, so they can be stored.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

_INDEX_BITS = 20
_HASH_BITS = 43
MAX_SPAN_ROWS = 1 << _INDEX_BITS
"""Most rows of one picture or piece of sound; those in use have a few thousand."""


def placeholders(content: bytes, n_rows: int) -> tuple[int, ...]:
    """The placeholders of a picture's rows, all negative.

    Args:
        content: a digest of all that decides about the rows; pictures with different ones never get equal rows of
            placeholders, as each carries bits of the digest of its own.
        n_rows: how many, at most `MAX_SPAN_ROWS`.
    """
    width = 6
    stream = hashlib.shake_128(content).digest(width * n_rows)
    mask = (1 << _HASH_BITS) - 1
    return tuple(
        -(((int.from_bytes(stream[width * row : width * row + width], "little") & mask) << _INDEX_BITS) | row) - 1
        for row in range(n_rows)
    )


def row_of(placeholder: int) -> int:
    """The number of the row in its picture, from 0."""
    return (-placeholder - 1) & (MAX_SPAN_ROWS - 1)


@dataclass(frozen=True, slots=True)
class MediaSpan:
    """Rows of one picture, or of one piece of it or of a sound, in a prompt.

    Attributes:
        start: index of the first row in the prompt.
        n_rows: places it takes, each a cell of the memory.
        n_pos: positions it takes; fewer than rows where positions are two-dimensional.
        is_causal: a row sees only those before it. Otherwise all rows are decoded together, in one micro-batch.
        rows: the encoded rows; what they are is the worker's business.
    """

    start: int
    n_rows: int
    n_pos: int
    is_causal: bool
    rows: object

    @property
    def end(self) -> int:
        """Index behind the last row."""
        return self.start + self.n_rows


@dataclass(frozen=True, slots=True)
class MediaSlice:
    """The rows of a span that one decode takes.

    Attributes:
        span: of which.
        first: number of the first row in the span.
        n_rows: how many.
        position: where the span's first row stands in the sequence.
    """

    span: MediaSpan
    first: int
    n_rows: int
    position: int


class Layout:
    """Where the places of one prompt stand. Behind the prompt every place is a token."""

    __slots__ = ("_shifts", "_spans", "_starts", "shift")

    def __init__(self, spans: Sequence[MediaSpan] = ()) -> None:
        """`spans` in order, not overlapping."""
        self._spans = tuple(spans)
        self._starts = [span.start for span in self._spans]
        self._shifts: list[int] = []
        self.shift = 0
        """How far positions lag behind indices after the prompt."""
        for span in self._spans:
            self._shifts.append(self.shift)
            self.shift += span.n_rows - span.n_pos

    def __bool__(self) -> bool:
        return bool(self._spans)

    def span_at(self, index: int) -> MediaSpan | None:
        """The span whose row stands at `index`."""
        at = bisect_right(self._starts, index) - 1
        return self._spans[at] if at >= 0 and index < self._spans[at].end else None

    def text_rows(self, index: int, most: int) -> int:
        """How many of the `most` places from `index` on are tokens, up to the next picture."""
        if self.span_at(index) is not None:
            return 0
        at = bisect_right(self._starts, index)
        return most if at == len(self._starts) else min(most, self._starts[at] - index)

    def position(self, index: int) -> int:
        """Position of the place at `index`; inside a span that of its first row, if its rows share one."""
        at = bisect_right(self._starts, index) - 1
        if at < 0:
            return index
        span, shift = self._spans[at], self._shifts[at]
        if index >= span.end:
            return index - shift - span.n_rows + span.n_pos
        return index - shift if span.n_pos == span.n_rows else span.start - shift

    def floor(self, length: int) -> int:
        """The most places, up to `length`, that can be kept without cutting a picture."""
        span = self.span_at(length)
        return length if span is None else span.start

    def held(self, last_position: int, at_least: int) -> int:
        """Places held by a sequence whose last position is this one; `at_least` are known to be.

        Of a picture whose rows share a position, as many as are certain.
        """
        found = last_position + 1
        for span, shift in zip(self._spans, self._shifts, strict=True):
            base = span.start - shift
            if last_position < base:
                break
            if span.n_pos == span.n_rows:
                found = last_position + 1 + shift
            elif last_position < base + span.n_pos:
                found = span.start
                break
            else:
                found = last_position + 1 + shift + span.n_rows - span.n_pos
        return max(found, at_least)


PLAIN = Layout()
"""Of a prompt of tokens alone: positions are indices."""
