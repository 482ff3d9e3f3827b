"""The controls of turns: made near the view, filled with what is known beside the messages, in the order of Tab."""

import time
from collections.abc import Callable, Sequence

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget

from app.tool_book import Found
from app.ui.appearance import Appearance
from app.ui.attachments.pictures import Pictures
from app.ui.transcript.parts import TurnParts
from app.ui.transcript.turn import Turn

Told = Callable[[str, str], None]


class TurnControls:
    """Home thread: main.

    Attributes:
        busy: whether an answer is in the making; some actions wait then.
        model_names: names for people, by model id.
        waiting_for: what a queued answer waits for, or empty.
        tools: what is known of tools, by the names models call them.
    """

    def __init__(
        self,
        appearance: Appearance,
        pictures: Pictures,
        viewport: QWidget,
        watcher: QObject,
        wanted: Told,
        file_wanted: Told,
    ) -> None:
        """`watcher` sees the controls' events; `wanted` and `file_wanted` hear message ids and what is wanted."""
        self.busy = False
        self.model_names: dict[str, str] = {}
        self.waiting_for = ""
        self.tools: dict[str, Found] = {}
        self._appearance = appearance
        self._pictures = pictures
        self._viewport = viewport
        self._watcher = watcher
        self._wanted = wanted
        self._file_wanted = file_wanted

    def make(self, turn: Turn, turns: Sequence[Turn]) -> None:
        """Make the controls of one of these turns."""
        turn.parts = TurnParts(self._appearance, turn.view, self._pictures, self._viewport)
        turn.parts.wanted.connect(self._wanted)
        turn.parts.file_wanted.connect(self._file_wanted)
        turn.parts.footer.set_lit(not turn.is_user)
        for widget in turn.parts.widgets():
            widget.installEventFilter(self._watcher)
        self.show(turn)
        self._order_tabs(turns)

    def show(self, turn: Turn) -> None:
        """Show the turn as it is now, where it has controls."""
        parts = turn.parts
        if parts is None:
            return
        view = turn.view
        model = self.model_names.get(view.stats.model, view.stats.model) if view.stats is not None else ""
        parts.show_go_on(view, busy=self.busy)
        if parts.tool is not None:
            parts.tool.show_view(view, self.tools.get(view.tool_name))
            return
        parts.footer.show_view(view, model, busy=self.busy)
        parts.status.show_view(view, self.waiting_for)
        parts.error.show_view(view, busy=self.busy)
        parts.notice.setText(view.notice)
        if view.reasoning:
            since = turn.thinking_since_s
            elapsed_s = time.monotonic() - since if since is not None else None
            parts.show_fold(view, opened=turn.fold_open, elapsed_s=elapsed_s)

    def _order_tabs(self, turns: Sequence[Turn]) -> None:
        last = self._viewport
        for turn in turns:
            if turn.parts is not None:
                for widget in turn.parts.widgets():
                    if widget is not last:
                        QWidget.setTabOrder(last, widget)
                    last = widget
