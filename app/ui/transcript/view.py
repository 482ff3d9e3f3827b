"""The transcript: a scrolled column of turns, of which only those near the view exist as items and controls.

Text that streams in is drawn in batches; the pause between two batches grows with what one costs, so that the window
stays quick whatever the answer looks like. Turns are built in slices of a few milliseconds.
"""

import time
from collections.abc import Iterable

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, QTimer, QUrl, Signal
from PySide6.QtGui import (
    QAccessible,
    QAccessibleAnnouncementEvent,
    QDesktopServices,
    QKeyEvent,
    QKeySequence,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import QAbstractScrollArea, QWidget

from app.tool_book import Found
from app.transcript import MessageView
from app.ui.appearance import Appearance
from app.ui.attachments.pictures import Pictures
from app.ui.controls.buttons import TintedButton
from app.ui.theme import Size, Space
from app.ui.transcript.code_item import CodeItem
from app.ui.transcript.controls import TurnControls
from app.ui.transcript.formulas import Formulas
from app.ui.transcript.item import Look
from app.ui.transcript.lexers import Lexers
from app.ui.transcript.pointer import Pointer
from app.ui.transcript.selection import Selection
from app.ui.transcript.turn import Turn

FLUSH_MS = 33
"""Shortest pause between two drawings of streaming text."""

COST_FACTOR = 4
"""A drawing that took 20 ms is followed by a pause of 80 ms."""

SLICE_S = 0.004
"""Longest piece of building turns between two events."""

NEAR_VIEWS = 1.0
"""Turns within so many views above and below exist as items."""

FAR_VIEWS = 4.0
"""Turns further away than this are dropped again; this bounds what a long conversation keeps in memory."""

END_SLACK = 24
ANNOUNCED_CHARS = 2_000
COPIED_MS = 1_500
MAX_SHOWN_RUNS = 40
"""Turns at the end whose running tools show their time."""


class TranscriptView(QAbstractScrollArea):
    """Shows messages; tells what a person wants done with them."""

    action = Signal(str, str)
    """Message id and what is wanted: regenerate, continue, edit, delete, previous, next, copy, new-chat,
    choose-vision, go-on, allow-once, allow-here, allow-always, deny."""

    file_wanted = Signal(str, str)
    """Message id and hash of the attachment a person wants to see."""

    copied = Signal(str)
    """Text the person asked to copy."""

    following_changed = Signal(bool)

    def __init__(
        self,
        appearance: Appearance,
        formulas: Formulas,
        lexers: Lexers,
        pictures: Pictures,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._pointer = Pointer(self, self)  # first: Qt sends viewport events from here on
        self._appearance = appearance
        self.look = Look(appearance, formulas, lexers)
        self.turns: list[Turn] = []
        self._by_id: dict[str, Turn] = {}
        self.selection = Selection()
        self._controls = TurnControls(
            appearance, pictures, self.viewport(), self, self._on_wanted, self.file_wanted.emit
        )
        self._following = True
        self._moving = False
        self._last_cost_s = 0.0
        self._loading = False
        self.setFrameShape(QAbstractScrollArea.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setAccessibleName(self.tr("Conversation"))
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.viewport().setMouseTracking(True)
        self.viewport().setAccessibleName(self.tr("Conversation"))
        self._flush_timer = self._timer(self._flush)
        self._build_timer = self._timer(self._build_slice, 0)
        self._clock = QTimer(self)
        self._clock.setInterval(500)
        self._clock.timeout.connect(self._tick)
        self._jump = TintedButton(appearance, "arrow-down", self.tr("Jump to latest"), kind="pill")
        self._jump.setParent(self)
        self._jump.hide()
        self._jump.clicked.connect(self.jump_to_end)
        self.verticalScrollBar().valueChanged.connect(self._on_scrolled)
        formulas.ready.connect(self._on_formulas)
        lexers.ready.connect(self._on_lexer)
        appearance.changed.connect(self._on_appearance)

    def _timer(self, slot: object, interval_ms: int = FLUSH_MS) -> QTimer:
        timer = QTimer(self)
        timer.setSingleShot(True)
        timer.setInterval(interval_ms)
        timer.timeout.connect(slot)
        return timer

    # --- what is shown

    def set_messages(self, views: Iterable[MessageView], *, keep_place: bool = False) -> None:
        """Show these messages; at the end, unless the place is kept."""
        old = self._by_id
        self.selection.clear()
        self.turns = []
        self._by_id = {}
        for view in views:
            turn = old.pop(view.id, None)
            if turn is None:
                turn = Turn(view, self.look)
            else:
                turn.set_view(view)
            self.turns.append(turn)
            self._by_id[view.id] = turn
        for turn in old.values():
            turn.drop()
        if not keep_place:
            self._following = True
        self._relayout()
        self._build_timer.start()

    def add_message(self, view: MessageView) -> None:
        """A message was added at the end; the view follows."""
        turn = Turn(view, self.look)
        self.turns.append(turn)
        self._by_id[view.id] = turn
        self._following = True
        self._build_slice()
        if turn.is_tool and view.state == "queued":
            self._say(self.tr("A tool asks for your permission"))

    def append_text(self, message_id: str, reasoning: str, content: str) -> None:
        """Text came; drawn with the next batch."""
        turn = self._by_id.get(message_id)
        if turn is None:
            return
        turn.append(reasoning, content)
        if not self._flush_timer.isActive():
            pause_ms = min(1_000, max(FLUSH_MS, round(self._last_cost_s * 1000 * COST_FACTOR)))
            self._flush_timer.start(pause_ms)

    def change_message(self, view: MessageView) -> None:
        """Anything but appended text changed."""
        turn = self._by_id.get(view.id)
        if turn is None:
            return
        was_busy = turn.is_busy
        if len(view.attachments) != len(turn.view.attachments):
            turn.drop_parts()  # a tool brought pictures
        turn.set_view(view)
        self._controls.show(turn)
        if was_busy and not turn.is_busy and not turn.is_tool:
            self._announce(view)
        self._build_timer.start()

    def remove_messages(self, ids: tuple[str, ...]) -> None:
        """These messages are no longer shown."""
        gone = set(ids)
        self.selection.clear()
        for turn in self.turns:
            if turn.view.id in gone:
                turn.drop()
                del self._by_id[turn.view.id]
        self.turns = [turn for turn in self.turns if turn.view.id not in gone]
        self._relayout()
        self._build_timer.start()

    def set_busy(self, busy: bool) -> None:
        """Whether an answer is in the making: some actions wait then."""
        self._controls.busy = busy
        (self._clock.start if busy else self._clock.stop)()
        for turn in self.turns:
            self._controls.show(turn)

    def set_model_names(self, names: dict[str, str]) -> None:
        """Names for people, by model id."""
        if names != self._controls.model_names:
            self._controls.model_names = names
            for turn in self.turns:
                self._controls.show(turn)

    def set_tools(self, tools: dict[str, Found]) -> None:
        """What is known of tools, by the names models call them."""
        if tools != self._controls.tools:
            self._controls.tools = tools
            for turn in self.turns:
                if turn.is_tool:
                    self._controls.show(turn)

    def set_waiting_for(self, text: str) -> None:
        """What a queued answer waits for ("the model is loading, 40 %"), or empty."""
        if text != self._controls.waiting_for:
            self._controls.waiting_for = text
            for turn in self.turns[-2:]:
                self._controls.show(turn)

    @property
    def is_following(self) -> bool:
        """Whether the view stays at the end while text comes."""
        return self._following

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to build, draw or highlight near the view."""
        near = self._near(NEAR_VIEWS)
        return (
            not self._flush_timer.isActive()
            and not self._build_timer.isActive()
            and all(turn.is_built and not any(item.has_work for item in turn.items()) for turn in near)
        )

    def last_code(self) -> str:
        """The code of the last code block, or empty."""
        for turn in reversed(self.turns):
            for item in reversed(turn.items()):
                if isinstance(item, CodeItem):
                    return item.code
        return ""

    # --- layout

    def _column(self) -> tuple[float, float]:
        """Width and left edge of the column."""
        # Centred in the whole view, scroll bar or not, so that the composer below is in line with it.
        room = self.width() - 2 * Space.L
        width = float(max(Size.TRANSCRIPT_MIN_W, min(Size.TRANSCRIPT_MAX_W, room)))
        return width, round((self.width() - width) / 2)

    def _near(self, views: float) -> list[Turn]:
        margin = self.viewport().height() * views
        top = self.verticalScrollBar().value() - margin
        bottom = self.verticalScrollBar().value() + self.viewport().height() + margin
        return [turn for turn in self.turns if turn.y + turn.height >= top and turn.y <= bottom]

    def _relayout(self, changed: Iterable[Turn] = ()) -> None:
        """Lay out `changed` turns, stack all, and keep the place (or the end) in view."""
        column, left = self._column()
        value = self.verticalScrollBar().value()
        anchor = next((turn for turn in self.turns if turn.y + turn.height > value), None)
        inside = value - anchor.y if anchor is not None else 0.0
        for turn in changed:
            turn.layout(column, left)
        y = float(Space.M)
        for turn in self.turns:
            if not turn.is_laid_out:
                turn.height = turn.guess_height(column)
            turn.y = y
            y += turn.height
        total = y + Space.L
        self._moving = True
        bar = self.verticalScrollBar()
        bar.setPageStep(self.viewport().height())
        bar.setSingleStep(Space.XL)
        bar.setRange(0, max(0, round(total - self.viewport().height())))
        if self._following:
            bar.setValue(bar.maximum())
        elif anchor is not None:
            bar.setValue(round(anchor.y + inside))
        self._moving = False
        self._place_parts()
        self._show_jump()
        self.viewport().update()

    def _place_parts(self) -> None:
        top = self.verticalScrollBar().value()
        for turn in self.turns:
            if turn.parts is not None:
                turn.place_parts(turn.y - top)

    def _show_jump(self) -> None:
        bar = self.verticalScrollBar()
        away = bar.maximum() - bar.value() > Space.XL * 3 and not self._following
        self._jump.setVisible(away)
        if away:
            self._jump.adjustSize()
            at_x = (self.viewport().width() - self._jump.width()) // 2
            self._jump.move(at_x, self.height() - self._jump.height() - Space.S)
            self._jump.raise_()

    # --- building in slices

    def _build_slice(self) -> None:
        """Build turns near the view for a few milliseconds; go on after other events."""
        deadline_s = time.monotonic() + SLICE_S
        near = self._near(NEAR_VIEWS)
        if self._following:
            near.reverse()
        changed: list[Turn] = []
        more = False
        for turn in near:
            fresh = turn.parts is None
            if fresh:
                self._controls.make(turn, self.turns)
            if turn.dirty or fresh or not turn.is_built:
                more = not turn.build(deadline_s) or more
                changed.append(turn)
            for item in turn.items():
                if item.has_work and time.monotonic() < deadline_s:
                    item.work(deadline_s)
                    self.viewport().update()
                more = more or item.has_work
            if time.monotonic() > deadline_s:
                more = True
                break
        self._drop_far()
        self._relayout(changed)
        if more or any(not turn.is_built for turn in self._near(NEAR_VIEWS)):
            self._build_timer.start()

    def _drop_far(self) -> None:
        near = {id(turn) for turn in self._near(FAR_VIEWS)}
        for turn in self.turns:
            if turn.parts is not None and id(turn) not in near and not turn.is_busy:
                turn.drop()

    def _flush(self) -> None:
        """Draw the text that came since the last time."""
        if not self.isVisible():
            self._flush_timer.start(COPIED_MS)  # a hidden page keeps the text and draws it rarely
            return
        began_s = time.monotonic()
        changed = [turn for turn in self.turns[-2:] if turn.is_busy or not turn.is_built]
        for turn in changed:
            if turn.parts is None:
                self._controls.make(turn, self.turns)
            if not turn.build(began_s + SLICE_S):
                self._build_timer.start()
            self._controls.show(turn)
        self._relayout(changed)
        self._last_cost_s = time.monotonic() - began_s

    def _tick(self) -> None:
        for turn in self.turns[-1:]:
            self._controls.show(turn)
        for turn in self.turns[-MAX_SHOWN_RUNS:-1]:
            if turn.view.started_s is not None:
                self._controls.show(turn)

    def _on_formulas(self) -> None:
        changed = [turn for turn in self.turns if any(item.waits_for_formula for item in turn.items())]
        for turn in changed:
            turn.remake()
        if changed:
            self._build_timer.start()

    def _on_lexer(self, language: str) -> None:
        for turn in self.turns:
            for item in turn.items():
                if isinstance(item, CodeItem) and item.on_lexer_ready(language):
                    self._build_timer.start()

    def _on_appearance(self) -> None:
        for turn in self.turns:
            turn.remake()
        self._build_timer.start()
        self.viewport().update()

    # --- events

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self.viewport())
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
        area = QRectF(event.rect())
        painter.fillRect(area, self._appearance.color("surface"))
        top = self.verticalScrollBar().value()
        for index, turn in enumerate(self.turns):
            y = turn.y - top
            if y + turn.height < area.top() or y > area.bottom() or turn.content is None:
                continue
            painter.save()
            painter.translate(0, y)
            turn.paint(painter, area.translated(0, -y), self.selection.of_turn(index, turn))
            painter.restore()
        painter.end()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        for turn in self.turns:
            if turn.content is None:
                turn.is_laid_out = False
        self._relayout([turn for turn in self.turns if turn.content is not None])
        self._build_timer.start()

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        del dx, dy
        self._place_parts()
        self.viewport().update()

    def _on_scrolled(self) -> None:
        if self._moving:
            return
        bar = self.verticalScrollBar()
        following = bar.value() >= bar.maximum() - END_SLACK
        if following != self._following:
            self._following = following
            self.following_changed.emit(following)
        self._show_jump()
        self._build_timer.start()

    def jump_to_end(self) -> None:
        """Show the newest text and follow it."""
        self._following = True
        self._relayout()
        self._build_timer.start()
        self.following_changed.emit(True)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        bar = self.verticalScrollBar()
        if event.key() == Qt.Key.Key_Home:
            bar.setValue(0)
        elif event.key() == Qt.Key.Key_End:
            self.jump_to_end()
        elif event.matches(QKeySequence.StandardKey.Copy):
            self.copy_selection()
        elif event.matches(QKeySequence.StandardKey.SelectAll):
            self.select_all()
        else:
            super().keyPressEvent(event)

    def wheelEvent(self, event: QWheelEvent) -> None:
        if not self._pointer.wheel(event):
            super().wheelEvent(event)

    def viewportEvent(self, event: QEvent) -> bool:
        if self._pointer.handle(event):
            return True
        return super().viewportEvent(event)

    def sizeHint(self) -> QSize:
        return QSize(Size.TRANSCRIPT_MAX_W, Size.WINDOW_MIN_H)

    # --- finding and selecting

    def turn_at(self, y: float) -> tuple[int, Turn] | None:
        """Index and turn at a height in the viewport (the nearest one)."""
        if not self.turns:
            return None
        wanted = y + self.verticalScrollBar().value()
        for index, turn in enumerate(self.turns):
            if wanted < turn.y + turn.height:
                return index, turn
        return len(self.turns) - 1, self.turns[-1]

    def in_turn(self, turn: Turn, point: QPointF) -> QPointF:
        """A point of the viewport in the turn's coordinates."""
        return QPointF(point.x(), point.y() + self.verticalScrollBar().value() - turn.y)

    def light(self, index: int | None) -> None:
        """Draw the actions of the question under the pointer."""
        for at, turn in enumerate(self.turns):
            if turn.parts is not None and turn.is_user:
                turn.parts.footer.set_lit(at == index)

    def selected_text(self) -> str:
        """The selected text."""
        return self.selection.text(self.turns)

    def copy_text(self, text: str) -> None:
        """Copy a text."""
        self.copied.emit(text)

    def copy_selection(self) -> None:
        """Copy what is selected."""
        text = self.selected_text()
        if text:
            self.copied.emit(text)

    def select_all(self) -> None:
        """Select the whole conversation."""
        self.selection.select_all(self.turns)
        self.viewport().update()

    def copy_code(self, item: CodeItem) -> None:
        """Copy a code block and show that on its button."""
        self.copied.emit(item.code)
        item.copied = True
        self.viewport().update()

        def back() -> None:
            item.copied = False
            self.viewport().update()

        QTimer.singleShot(COPIED_MS, self, back)

    def open_link(self, href: str) -> None:
        """A person clicked a link: the web browser opens it; other kinds of addresses are not followed."""
        url = QUrl(href)
        if url.scheme() in ("http", "https", "mailto"):
            QDesktopServices.openUrl(url)

    def _on_wanted(self, message_id: str, action: str) -> None:
        turn = self._by_id.get(message_id)
        if turn is None:
            return
        if action == "fold":
            self.toggle_fold(message_id)
        elif action == "relayout":
            self._following = self._following and turn is self.turns[-1]
            self._relayout([turn])
        elif action == "copy":
            self.copied.emit(turn.view.text)
            if turn.parts is not None:
                footer = turn.parts.footer
                footer.flash_copied(True)
                QTimer.singleShot(COPIED_MS, footer, lambda: footer.flash_copied(False))
        else:
            self.action.emit(message_id, action)

    def toggle_fold(self, message_id: str) -> None:
        """Show or hide the reasoning of an answer."""
        turn = self._by_id.get(message_id)
        if turn is None:
            return
        turn.fold_open = not turn.fold_open
        self._following = self._following and turn is self.turns[-1]
        self._controls.show(turn)
        turn.build(time.monotonic() + SLICE_S)
        self._relayout([turn])
        self._build_timer.start()

    def _announce(self, view: MessageView) -> None:
        """Tell a screen reader the finished answer."""
        self._say(view.error.message if view.error is not None else view.text[:ANNOUNCED_CHARS])

    def _say(self, text: str) -> None:
        self.viewport().setAccessibleDescription(text)
        QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self.viewport(), text))
