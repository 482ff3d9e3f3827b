"""One turn: a message with its items and, near the view, its controls; knows its own geometry."""

import time
from dataclasses import dataclass, replace

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QWidget

from app.transcript import BUSY_STATES, MessageView
from app.ui.attachments.tile import FileTile
from app.ui.theme import Size, Space, Type
from app.ui.transcript.feed import Feed
from app.ui.transcript.item import Item, Look
from app.ui.transcript.parts import TurnParts, picture_box
from app.ui.transcript.text_item import TextItem

FOOTER_H = Size.CONTROL_SMALL_H + Space.HAIR
CHARS_A_LINE = 84
"""For the guess of a turn's height before it was laid out."""


@dataclass(slots=True)
class Zone:
    """A column of items within a turn: the reasoning or the content. Offsets are from the turn's top left."""

    feed: Feed
    left: float = 0.0
    top: float = 0.0
    width: float = 0.0
    height: float = 0.0

    def layout(self, width: float) -> None:
        """Lay out the items that changed."""
        items = self.feed.items
        fresh = width != self.width
        self.width = width
        start = 0 if fresh else min(self.feed.laid_out, len(items))
        y = items[start - 1].y + items[start - 1].height if start else 0.0
        for at in range(start, len(items)):
            item = items[at]
            item.layout(width)
            item.y = y + (item.gap if at else 0.0)
            item.joins_quote = at > 0 and items[at - 1].place.path[:1] == "q"
            y = item.y + item.height
        self.feed.laid_out = len(items)
        self.height = y if items else 0.0

    def natural_width(self) -> float:
        """Width of the widest text line, for a bubble that hugs short messages."""
        widest = 0.0
        for item in self.feed.items:
            if not isinstance(item, TextItem):
                return self.width
            widest = max(widest, item.natural_width())
        return min(self.width, widest)

    def item_at(self, y: float) -> int:
        """Index of the item at a height within the zone (the nearest one)."""
        items = self.feed.items
        low, high = 0, len(items) - 1
        while low < high:
            middle = (low + high) // 2
            if items[middle].y + items[middle].height < y:
                low = middle + 1
            else:
                high = middle
        return max(low, 0)


def _lines_of(tiles: list[FileTile], room: int) -> list[list[FileTile]]:
    """Tiles in lines no wider than `room`; one that is wider has a line of its own."""
    lines: list[list[FileTile]] = []
    width = 0
    for tile in tiles:
        if not lines or width + tile.width() > room:
            lines.append([])
            width = 0
        lines[-1].append(tile)
        width += tile.width() + Space.XS
    return lines


class Turn:
    """A message as drawn. `y` and `height` are set by the transcript's layout."""

    def __init__(self, view: MessageView, look: Look) -> None:
        self.view = view
        self.y = 0.0
        self.height = 0.0
        self.is_laid_out = False
        self._guessed_for = (-1, 0.0)
        self._guess = 0.0
        self.dirty = True
        """Whether something changed since the last layout."""
        self.parts: TurnParts | None = None
        self.fold_open = False
        self.thinking_since_s: float | None = None
        self._look = look
        self._quiet_look = replace(look, ink="text_muted", size=Type.BODY)
        self.content: Zone | None = None
        self.reasoning: Zone | None = None
        self._bubble = QRectF()
        self._column = 0.0

    @property
    def is_user(self) -> bool:
        """Whether the person wrote it."""
        return self.view.role == "user"

    @property
    def is_json(self) -> bool:
        """Whether it is an answer that had to be JSON: drawn as highlighted code."""
        return self.view.stats is not None and self.view.stats.form in ("json", "schema")

    @property
    def _shown_text(self) -> str:
        if self.is_tool:
            return ""
        # No line of JSON can begin with a fence, since strings have no line breaks.
        return f"```json\n{self.view.text}" if self.is_json and self.view.text else self.view.text

    @property
    def is_tool(self) -> bool:
        """Whether it is the result of a tool: a card, without drawn text."""
        return self.view.role == "tool"

    @property
    def is_busy(self) -> bool:
        """Whether the answer is in the making."""
        return self.view.state in BUSY_STATES

    @property
    def zones(self) -> list[Zone]:
        """The zones shown, from top to bottom."""
        return [zone for zone in (self.reasoning if self.fold_open else None, self.content) if zone is not None]

    @property
    def is_built(self) -> bool:
        """Whether all items exist."""
        return self.content is not None and all(zone.feed.is_built for zone in self.zones)

    # --- content

    def set_view(self, view: MessageView) -> None:
        """The message changed."""
        was_json = self.is_json
        self.view = view
        self.dirty = True
        if was_json != self.is_json:
            self.content = None  # drawn as something else from now on
        if self.content is not None:
            self.content.feed.set_text(self._shown_text)
        if self.reasoning is not None:
            self.reasoning.feed.set_text(view.reasoning)

    def append(self, reasoning: str, content: str) -> None:
        """Text came."""
        if reasoning and self.thinking_since_s is None:
            self.thinking_since_s = time.monotonic()
        is_first = not self.view.text
        self.view = replace(self.view, text=self.view.text + content, reasoning=self.view.reasoning + reasoning)
        if self.content is not None and content:
            self.content.feed.append(self._shown_text if is_first else content)
        if self.reasoning is not None and reasoning:
            self.reasoning.feed.append(reasoning)

    def build(self, deadline_s: float) -> bool:
        """Make items until the deadline; returns whether all is made."""
        if self.content is None:
            self.content = Zone(Feed(self._look, plain=self.is_user))
            self.content.feed.set_text(self._shown_text)
        if self.fold_open and self.reasoning is None:
            self.reasoning = Zone(Feed(self._quiet_look))
            self.reasoning.feed.set_text(self.view.reasoning)
        complete = not self.is_busy
        return all(zone.feed.build(deadline_s, complete=complete) for zone in self.zones)

    def drop(self) -> None:
        """Forget items and controls; the height stays."""
        self.content = None
        self.reasoning = None
        self.drop_parts()

    def drop_parts(self) -> None:
        """Forget the controls."""
        if self.parts is not None:
            self.parts.drop()
            self.parts = None

    def remake(self) -> None:
        """Colours or formulas changed: make the items again when next shown."""
        self.dirty = True
        for zone in (self.content, self.reasoning):
            if zone is not None:
                zone.feed.remake()
                zone.width = 0.0

    def items(self) -> list[Item]:
        """All items of the shown zones."""
        return [item for zone in self.zones for item in zone.feed.items]

    # --- geometry

    def guess_height(self, column: float) -> float:
        """Height before it is laid out; asked for again at each relayout, so it is counted once a text and width."""
        if self.is_tool:
            files = len(self.view.attachments)
            return float(Size.CONTROL_H + Space.M + (picture_box(files).height() if files else 0))
        key = (len(self.view.text), column)
        if key != self._guessed_for:
            wrapped = key[0] / CHARS_A_LINE * Size.TRANSCRIPT_MAX_W / max(column, 1.0)
            self._guessed_for = key
            self._guess = Space.XL + Size.CONTROL_H + Space.L * (self.view.text.count("\n") + wrapped + 1)
            if self.view.attachments:
                self._guess += picture_box(len(self.view.attachments)).height()
        return self._guess

    def layout(self, column: float, left: float) -> None:
        """Lay out for a column of this width that begins at `left` in the viewport."""
        self._column = column
        self.is_laid_out = True
        self.dirty = not self.is_built
        if self.is_tool:
            self.height = self._layout_tool(column, left)
            return
        y = self._layout_bubble(column, left) if self.is_user else self._layout_answer(column, left)
        if self.parts is not None:
            footer = self.parts.footer
            shown = not self.is_busy
            footer.setVisible(shown)
            y += Space.HAIR
            if shown:
                footer.resize(int(column) + (Space.HAIR if self.is_user else Space.XS), FOOTER_H)
                self._move(footer, left - (0 if self.is_user else Space.HAIR), y)
            y += FOOTER_H
        else:
            y += Space.HAIR + FOOTER_H
        self.height = y + (Space.NONE if self.is_user else Space.S)

    def _layout_bubble(self, column: float, left: float) -> float:
        inner_max = column * Size.BUBBLE_MAX_PERCENT / 100 - 2 * Space.M
        zone = self.content
        top = self._layout_files(column, left, float(Space.S))
        if zone is None:
            return top
        if not self.view.text:
            self._bubble = QRectF()
            zone.left, zone.top, zone.height = left, top, 0.0
            return top
        zone.layout(inner_max)
        width = zone.natural_width()
        self._bubble = QRectF(
            left + column - width - 2 * Space.M, top, width + 2 * Space.M, zone.height + 2 * (Space.S - Size.FOCUS)
        )
        zone.left = self._bubble.left() + Space.M
        zone.top = top + Space.S - Size.FOCUS
        return self._bubble.bottom()

    def _layout_files(self, column: float, left: float, top: float) -> float:
        """Files of a question stand above it, at the right; returns where what follows begins."""
        tiles = self.parts.files if self.parts is not None else []
        if not tiles:
            return top
        y = top
        for line in _lines_of(tiles, round(column * Size.BUBBLE_MAX_PERCENT / 100)):
            width = sum(tile.width() for tile in line) + Space.XS * (len(line) - 1)
            y = self._place_line(line, left + column - width, y)
        return y

    def _place_line(self, line: list[FileTile], x: float, y: float) -> float:
        """Tiles side by side on one ground line; returns where what follows begins."""
        height = max(tile.height() for tile in line)
        for tile in line:
            tile.setVisible(True)
            self._move(tile, x, y + height - tile.height())
            x += tile.width() + Space.XS
        return y + height + Space.XS

    def _layout_tool(self, column: float, left: float) -> float:
        """A card with the pictures of the result at its foot, and what helps where it is the last thing said."""
        parts = self.parts
        if parts is None or parts.tool is None:
            return float(Size.CONTROL_H + Space.M)
        card = parts.tool
        lines = _lines_of(parts.files, round(column) - 2 * Space.S)
        foot = sum(max(tile.height() for tile in line) + Space.XS for line in lines)
        card.set_foot(foot)
        y = float(Space.HAIR)
        height = card.heightForWidth(int(column)) if card.hasHeightForWidth() else card.sizeHint().height()
        card.resize(int(column), height)
        card.setVisible(True)
        self._move(card, left, y)
        place = y + height - foot
        for line in lines:
            place = self._place_line(line, left + Space.S, place)
            for tile in line:
                tile.raise_()
        y += height + Space.XS
        parts.go_on.setVisible(parts.wants_go_on)
        if parts.wants_go_on:
            parts.go_on.resize(parts.go_on.sizeHint())
            self._move(parts.go_on, left, y)
            y += parts.go_on.height() + Space.XS
        return y

    def _layout_answer(self, column: float, left: float) -> float:
        y = float(Space.XS)
        parts = self.parts
        if self.view.reasoning or self.reasoning is not None:
            if parts is not None:
                parts.fold.setVisible(True)
                parts.fold.resize(parts.fold.sizeHint())
                self._move(parts.fold, left - Space.S, y)
            y += Size.CONTROL_H + Space.HAIR
            if self.fold_open and self.reasoning is not None:
                self.reasoning.left, self.reasoning.top = left + Space.M, y
                self.reasoning.layout(column - Space.M)
                y += self.reasoning.height + Space.M
        elif parts is not None:
            parts.fold.hide()
        if self.content is not None:
            self.content.left, self.content.top = left, y
            self.content.layout(column)
            y += self.content.height
        if parts is None:
            return y
        for widget, shown in (
            (parts.notice, bool(self.view.notice)),
            (parts.status, self.is_busy and not self.view.text and not self.view.reasoning),
            (parts.error, self.view.error is not None or self.view.state == "interrupted"),
            (parts.go_on, parts.wants_go_on),
        ):
            widget.setVisible(shown)
            if shown:
                height = (
                    widget.heightForWidth(int(column)) if widget.hasHeightForWidth() else widget.sizeHint().height()
                )
                y += Space.XS
                widget.resize(widget.sizeHint().width() if widget is parts.go_on else int(column), height)
                self._move(widget, left, y)
                y += height
        return y

    @staticmethod
    def _move(widget: QWidget, x: float, y: float) -> None:
        widget.setProperty("at", (round(x), round(y)))

    def place_parts(self, offset: float) -> None:
        """Move the controls; `offset` is the turn's top in viewport coordinates."""
        if self.parts is None:
            return
        for widget in self.parts.widgets():
            at = widget.property("at")
            if at is not None:
                widget.move(int(at[0]), int(at[1] + offset))

    # --- painting

    def paint(
        self, painter: QPainter, clip: QRectF, selection: "dict[tuple[int, int], tuple[int, int]] | None"
    ) -> None:
        """Paint with the turn's top at the painter's origin; `selection` is by (zone, item) index."""
        if self.is_user and not self._bubble.isEmpty():
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self._look.color("bubble"))
            painter.drawRoundedRect(self._bubble, Size.RADIUS_L, Size.RADIUS_L)
        for z, zone in enumerate(self.zones):
            if zone is self.reasoning:
                bar = QRectF(zone.left - Space.M, zone.top, Size.FOCUS, zone.height)
                painter.fillRect(bar, self._look.color("line_strong"))
            items = zone.feed.items
            if not items:
                continue
            first = zone.item_at(clip.top() - zone.top)
            for at in range(first, len(items)):
                item = items[at]
                if zone.top + item.y > clip.bottom():
                    break
                painter.save()
                painter.translate(zone.left, zone.top + item.y)
                here = clip.translated(-zone.left, -zone.top - item.y)
                item.paint(painter, here, None if selection is None else selection.get((z, at)))
                painter.restore()

    # --- finding

    def locate(self, point: QPointF) -> tuple[int, int, int] | None:
        """(zone, item, text position) nearest to a point in turn coordinates."""
        zones = self.zones
        if not zones:
            return None
        z = len(zones) - 1
        for at, zone in enumerate(zones):
            if point.y() < zone.top + zone.height:
                z = at
                break
        zone = zones[z]
        items = zone.feed.items
        if not items:
            return None
        index = zone.item_at(point.y() - zone.top)
        item = items[index]
        inside = QPointF(point.x() - zone.left, point.y() - zone.top - item.y)
        if inside.y() < 0:
            return z, index, 0
        if inside.y() > item.height:
            return z, index, item.length
        return z, index, item.hit(inside)

    def item_under(self, point: QPointF) -> tuple[Item, QPointF] | None:
        """The item exactly under a point in turn coordinates, and the point within it."""
        for zone in self.zones:
            x, y = point.x() - zone.left, point.y() - zone.top
            if not (0 <= y <= zone.height and 0 <= x <= zone.width):
                continue
            items = zone.feed.items
            if not items:
                continue
            item = items[zone.item_at(y)]
            if item.y <= y <= item.y + item.height:
                return item, QPointF(x, y - item.y)
        return None
