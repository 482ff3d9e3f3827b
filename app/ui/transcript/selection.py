"""What is selected in a transcript: a range from one text position to another, over items and turns."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.ui.transcript.turn import Turn

Position = tuple[int, int, int, int]
"""(turn, zone, item, text position); tuples compare in reading order."""


@dataclass(slots=True)
class Selection:
    """Anchor and moving end; empty when both are the same."""

    anchor: Position | None = None
    head: Position | None = None

    def clear(self) -> None:
        """Select nothing."""
        self.anchor = self.head = None

    def select_all(self, turns: Sequence[Turn]) -> None:
        """Select all of these turns."""
        if not turns:
            return
        last = turns[-1]
        items = last.zones[-1].feed.items if last.zones else []
        end = (len(items) - 1, items[-1].length) if items else (0, 0)
        self.anchor = (0, 0, 0, 0)
        self.head = (len(turns) - 1, max(0, len(last.zones) - 1), *end)

    @property
    def span(self) -> tuple[Position, Position] | None:
        """Start and end in reading order; `None` when nothing is selected."""
        if self.anchor is None or self.head is None or self.anchor == self.head:
            return None
        return min(self.anchor, self.head), max(self.anchor, self.head)

    def of_turn(self, index: int, turn: Turn) -> dict[tuple[int, int], tuple[int, int]] | None:
        """Selected range of each (zone, item) of a turn; `None` when there is none."""
        span = self.span
        if span is None or not span[0][0] <= index <= span[1][0]:
            return None
        start, end = span
        out: dict[tuple[int, int], tuple[int, int]] = {}
        for z, zone in enumerate(turn.zones):
            for at, item in enumerate(zone.feed.items):
                here = (index, z, at)
                if here < start[:3] or here > end[:3]:
                    continue
                low = start[3] if here == start[:3] else 0
                high = end[3] if here == end[:3] else item.length
                if low < high:
                    out[z, at] = (low, high)
        return out

    def text(self, turns: Sequence[Turn]) -> str:
        """The selected text, blocks apart by blank lines."""
        span = self.span
        if span is None:
            return ""
        parts: list[str] = []
        for index in range(span[0][0], min(span[1][0], len(turns) - 1) + 1):
            turn = turns[index]
            if turn.content is None:
                parts.append(turn.view.text)
                continue
            ranges = self.of_turn(index, turn) or {}
            for (z, at), (low, high) in ranges.items():
                item = turn.zones[z].feed.items[at]
                marker = f"{item.place.marker} " if item.place.marker and low == 0 else ""
                glue = "" if not parts else ("\n" if item.place.gap == "tight" else "\n\n")
                parts.append(f"{glue}{marker}{item.text(low, high)}")
        return "".join(parts)
