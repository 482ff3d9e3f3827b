"""What a list shows instead of rows: an empty state, a wait, a message with the one button that helps."""

from collections.abc import Callable

from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QProgressBar, QVBoxLayout, QWidget

from app.ui.appearance import Appearance
from app.ui.controls.buttons import push_button
from app.ui.controls.labels import label
from app.ui.theme import Size, Space
from runtime.errors import Failure

PATIENCE_MS = 150
"""A shorter wait is not shown: a flash would only unsettle."""


def failure_text(failure: Failure) -> str:
    """What happened and what to do, in one line of text."""
    return f"{failure.message} {failure.hint}".strip()


class EmptyState(QWidget):
    """An icon, a title, a sentence and at most one button, in the middle."""

    def __init__(self, appearance: Appearance, icon: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self._icon_name = icon
        self._action: Callable[[], object] | None = None
        column = QVBoxLayout(self)
        column.setContentsMargins(Space.L, Space.XL, Space.L, Space.XL)
        column.setSpacing(Space.XS)
        self._icon = QLabel()
        self._icon.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        column.addWidget(self._icon)
        self._title = label("", "heading", wrap=True)
        self._title.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        column.addWidget(self._title)
        self._text = label("", "muted", wrap=True)
        self._text.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self._text.setMaximumWidth(Size.EMPTY_MAX_W)
        self._text.setMinimumWidth(min(Size.EMPTY_MAX_W, Size.CARD_MIN_W))
        row = QHBoxLayout()
        row.addStretch(1)
        row.addWidget(self._text, 1000)
        row.addStretch(1)
        column.addLayout(row)
        self._button = push_button(self.tr("Try again"), self._act, kind="primary")
        column.addSpacing(Space.XS)
        column.addWidget(self._button, 0, Qt.AlignmentFlag.AlignHCenter)
        appearance.changed.connect(self._tint)
        self._tint()
        self.hide()

    @property
    def text(self) -> str:
        """Title and sentence."""
        return f"{self._title.text()} {self._text.text()}".strip()

    def say(self, title: str, text: str, action_label: str = "", on_action: Callable[[], object] | None = None) -> None:
        """Show a title with a sentence."""
        self._title.setText(title)
        self._title.setVisible(bool(title))
        self._text.setText(text)
        self._action = on_action
        self._button.setText(action_label)
        self._button.setVisible(on_action is not None)
        self.setAccessibleName(self.text)
        self.show()

    def _act(self) -> None:
        if self._action is not None:
            self._action()

    def _tint(self) -> None:
        self._icon.setPixmap(self._appearance.icon(self._icon_name).pixmap(Size.ICON_XL, Size.ICON_XL))


class Waiting(QWidget):
    """A sentence over a moving bar; shown once a wait is long enough to be noticed."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, Space.S, 0, Space.S)
        column.setSpacing(Space.XS)
        self._label = label("", "muted", wrap=True)
        column.addWidget(self._label)
        self._bar = QProgressBar()
        self._bar.setRange(0, 0)
        self._bar.setTextVisible(False)
        column.addWidget(self._bar)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(PATIENCE_MS)
        self._timer.timeout.connect(self.show)
        self.hide()

    def start(self, text: str) -> None:
        """Wait for something."""
        self._label.setText(text)
        self._bar.setAccessibleName(text)
        if self.isHidden() and not self._timer.isActive():
            self._timer.start()

    def stop(self) -> None:
        """It came."""
        self._timer.stop()
        self.hide()


class Message(QFrame):
    """A framed sentence that stays while it holds, with the one button that helps."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._action: Callable[[], object] | None = None
        row = QHBoxLayout(self)
        row.setContentsMargins(Space.M, Space.S, Space.S, Space.S)
        row.setSpacing(Space.M)
        self._label = label("", wrap=True)
        self._label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        row.addWidget(self._label, 1)
        self._button = push_button(self.tr("Try again"), self._act)
        row.addWidget(self._button, 0, Qt.AlignmentFlag.AlignVCenter)
        self.hide()

    @property
    def text(self) -> str:
        """What it says; empty while it is not shown."""
        return "" if self.isHidden() else self._label.text()

    def say(self, role: str, text: str, action_label: str = "", on_action: Callable[[], object] | None = None) -> None:
        """Show a sentence. `role` is "note", "warning" or "error"."""
        if self.property("role") != role:
            self.setProperty("role", role)
            for widget in (self, self._label, self._button):
                widget.style().unpolish(widget)
                widget.style().polish(widget)
        self._label.setText(text)
        self._action = on_action
        self._button.setText(action_label)
        self._button.setVisible(on_action is not None)
        self.setAccessibleName(text)
        self.show()

    def say_failure(
        self, failure: Failure, action_label: str = "", on_action: Callable[[], object] | None = None
    ) -> None:
        """Show why something failed."""
        self.say("error", failure_text(failure), action_label, on_action)

    def _act(self) -> None:
        if self._action is not None:
            self._action()
