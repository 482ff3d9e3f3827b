"""Mouse over a transcript: selecting text, links, copy buttons, sideways scrolling, context menu."""

import time
from typing import Protocol, cast

from PySide6.QtCore import QEvent, QPointF, Qt, QTimer
from PySide6.QtGui import QContextMenuEvent, QCursor, QMouseEvent, QWheelEvent
from PySide6.QtWidgets import QAbstractScrollArea, QApplication, QMenu

from app.ui.theme import Space
from app.ui.transcript.code_item import CodeItem
from app.ui.transcript.item import Item
from app.ui.transcript.selection import Position, Selection
from app.ui.transcript.turn import Turn

AUTOSCROLL_MS = 30


class Surface(Protocol):
    """What the pointer needs of the transcript."""

    turns: list[Turn]
    selection: Selection

    def turn_at(self, y: float) -> tuple[int, Turn] | None:
        """Index and turn at a height in the viewport."""
        ...

    def in_turn(self, turn: Turn, point: QPointF) -> QPointF:
        """A point of the viewport in the turn's coordinates."""
        ...

    def light(self, index: int | None) -> None:
        """Draw the actions of the question under the pointer."""
        ...

    def copy_selection(self) -> None:
        """Copy what is selected."""
        ...

    def copy_code(self, item: CodeItem) -> None:
        """Copy a code block."""
        ...

    def copy_text(self, text: str) -> None:
        """Copy a text."""
        ...

    def open_link(self, href: str) -> None:
        """Follow a link."""
        ...

    def select_all(self) -> None:
        """Select the whole conversation."""
        ...


class Pointer:
    """Handles the viewport's mouse events for its view."""

    def __init__(self, surface: Surface, area: QAbstractScrollArea) -> None:
        self._view = surface
        self._area = area
        self._pressed_at: QPointF | None = None
        self._selecting = False
        self._hot: CodeItem | None = None
        self._last_double_s = 0.0
        self._timer = QTimer(area)
        self._timer.setInterval(AUTOSCROLL_MS)
        self._timer.timeout.connect(self._autoscroll)

    def handle(self, event: QEvent) -> bool:
        """Handle an event of the viewport; returns whether it was one for us."""
        kind = event.type()
        if kind == QEvent.Type.MouseMove:
            self._move(cast("QMouseEvent", event))
        elif kind == QEvent.Type.MouseButtonPress:
            return self._press(cast("QMouseEvent", event))
        elif kind == QEvent.Type.MouseButtonRelease:
            return self._release(cast("QMouseEvent", event))
        elif kind == QEvent.Type.MouseButtonDblClick:
            return self._double(cast("QMouseEvent", event))
        elif kind == QEvent.Type.ContextMenu:
            self._menu(cast("QContextMenuEvent", event))
            return True
        elif kind == QEvent.Type.Leave:
            self._view.light(None)
            self._heat(None)
        return False

    def wheel(self, event: QWheelEvent) -> bool:
        """Scroll what is under the pointer sideways; returns whether it did."""
        dx = event.angleDelta().x()
        if not dx and event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            dx = event.angleDelta().y()
        if not dx or abs(event.angleDelta().y()) > abs(dx):
            return False
        found = self._item(event.position())
        if found is None or found[0].scroll_thumb().isEmpty():
            return False
        found[0].scroll_to(found[0].scroll_x - dx / 2)
        self._area.viewport().update()
        return True

    def _item(self, point: QPointF) -> tuple[Item, QPointF] | None:
        at = self._view.turn_at(point.y())
        return None if at is None else at[1].item_under(self._view.in_turn(at[1], point))

    def _position(self, point: QPointF) -> Position | None:
        at = self._view.turn_at(point.y())
        if at is None:
            return None
        found = at[1].locate(self._view.in_turn(at[1], point))
        return None if found is None else (at[0], *found)

    def _heat(self, item: CodeItem | None) -> None:
        if item is not self._hot:
            if self._hot is not None:
                self._hot.hot = False
            if item is not None:
                item.hot = True
            self._hot = item
            self._area.viewport().update()

    def _move(self, event: QMouseEvent) -> None:
        point = event.position()
        if self._selecting:
            self._extend(point)
            return
        at = self._view.turn_at(point.y())
        self._view.light(None if at is None else at[0])
        found = self._item(point)
        shape = Qt.CursorShape.ArrowCursor
        hot: CodeItem | None = None
        if found is not None:
            item, inside = found
            if item.action_at(inside):
                shape = Qt.CursorShape.PointingHandCursor
                hot = item if isinstance(item, CodeItem) else None
            elif href := item.link_at(inside):
                shape = Qt.CursorShape.PointingHandCursor
                self._area.viewport().setToolTip(href)
            else:
                shape = Qt.CursorShape.IBeamCursor
        if shape != Qt.CursorShape.PointingHandCursor:
            self._area.viewport().setToolTip("")
        self._heat(hot)
        self._area.viewport().setCursor(shape)

    def _press(self, event: QMouseEvent) -> bool:
        if event.button() != Qt.MouseButton.LeftButton:
            return False
        self._area.setFocus(Qt.FocusReason.MouseFocusReason)
        self._pressed_at = event.position()
        selection = self._view.selection
        position = self._position(event.position())
        if event.modifiers() & Qt.KeyboardModifier.ShiftModifier and selection.anchor is not None:
            selection.head = position
        else:
            selection.anchor = selection.head = position
        self._selecting = position is not None
        if time.monotonic() - self._last_double_s < QApplication.doubleClickInterval() / 1000:
            self._select_block(event.position())
        self._area.viewport().update()
        return True

    def _release(self, event: QMouseEvent) -> bool:
        if event.button() != Qt.MouseButton.LeftButton:
            return False
        self._timer.stop()
        self._selecting = False
        pressed, self._pressed_at = self._pressed_at, None
        if pressed is None or (event.position() - pressed).manhattanLength() > QApplication.startDragDistance():
            return True
        found = self._item(event.position())
        if found is not None:
            item, inside = found
            if isinstance(item, CodeItem) and item.action_at(inside) == "copy":
                self._view.copy_code(item)
            elif href := item.link_at(inside):
                self._view.open_link(href)
        return True

    def _double(self, event: QMouseEvent) -> bool:
        position = self._position(event.position())
        if position is None or event.button() != Qt.MouseButton.LeftButton:
            return False
        turn, zone, at, character = position
        item = self._view.turns[turn].zones[zone].feed.items[at]
        low, high = item.word_at(character)
        self._view.selection.anchor = (turn, zone, at, low)
        self._view.selection.head = (turn, zone, at, high)
        self._selecting = False
        self._last_double_s = time.monotonic()
        self._area.viewport().update()
        return True

    def _select_block(self, point: QPointF) -> None:
        position = self._position(point)
        if position is None:
            return
        turn, zone, at, _ = position
        item = self._view.turns[turn].zones[zone].feed.items[at]
        self._view.selection.anchor = (turn, zone, at, 0)
        self._view.selection.head = (turn, zone, at, item.length)
        self._selecting = False

    def _extend(self, point: QPointF) -> None:
        self._view.selection.head = self._position(point) or self._view.selection.head
        self._area.viewport().update()
        outside = point.y() < 0 or point.y() > self._area.viewport().height()
        if outside and not self._timer.isActive():
            self._timer.start()
        elif not outside:
            self._timer.stop()

    def _autoscroll(self) -> None:
        point = QPointF(self._area.viewport().mapFromGlobal(QCursor.pos()))
        bar = self._area.verticalScrollBar()
        bar.setValue(bar.value() + (-Space.L if point.y() < 0 else Space.L))
        self._view.selection.head = self._position(point) or self._view.selection.head
        self._area.viewport().update()

    def _menu(self, event: QContextMenuEvent) -> None:
        view = self._view
        menu = QMenu(self._area)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        copy = menu.addAction(self._area.tr("Copy"))
        copy.setEnabled(view.selection.span is not None)
        copy.triggered.connect(lambda _checked=False: view.copy_selection())
        found = self._item(QPointF(event.pos()))
        if found is not None:
            item, inside = found
            if isinstance(item, CodeItem):
                menu.addAction(self._area.tr("Copy code")).triggered.connect(
                    lambda _checked=False: view.copy_code(item)
                )
            href = item.link_at(inside)
            if href:
                menu.addAction(self._area.tr("Copy link")).triggered.connect(
                    lambda _checked=False: view.copy_text(href)
                )
        at = view.turn_at(event.pos().y())
        if at is not None:
            text = at[1].view.text
            menu.addAction(self._area.tr("Copy message as Markdown")).triggered.connect(
                lambda _checked=False: view.copy_text(text)
            )
        menu.addSeparator()
        menu.addAction(self._area.tr("Select all")).triggered.connect(lambda _checked=False: view.select_all())
        menu.popup(event.globalPos())
