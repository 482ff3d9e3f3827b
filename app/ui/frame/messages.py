"""What the program says: toasts that go by themselves, and one banner for what lasts."""

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, QPoint, Qt, QTimer
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent, QGuiApplication
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.notices import Level
from app.ui.appearance import Appearance
from app.ui.controls.buttons import IconButton, push_button
from app.ui.controls.labels import breakable, label
from app.ui.icons import paint_icon
from app.ui.theme import Size, Space

SHOWN_MS = {"info": 5_000, "warning": 9_000, "error": 15_000}
WITH_ACTION_MS = 10_000
"""A toast that offers something (undo) stays at least this long."""

MAX_TOASTS = 4
"""Toasts at once; the oldest of those that pass by themselves goes first."""


class _LevelIcon(QWidget):
    def __init__(self, appearance: Appearance, level: Level, parent: QWidget) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self._level = level
        self.setFixedSize(Size.ICON, Size.ICON)

    def paintEvent(self, event: QEvent) -> None:
        del event
        from PySide6.QtCore import QRectF
        from PySide6.QtGui import QPainter

        names = {"info": "info", "warning": "warning", "error": "error"}
        paint_icon(QPainter(self), names[self._level], self._appearance.tokens.on_tooltip, QRectF(self.rect()))


class Toast(QFrame):
    """One sentence, with at most one button; stays while the pointer is over it, or until it is withdrawn."""

    def __init__(
        self,
        appearance: Appearance,
        level: Level,
        text: str,
        action_label: str,
        on_action: Callable[[], None] | None,
        on_gone: "Callable[[Toast], None]",
        parent: QWidget,
        *,
        lasts: bool,
    ) -> None:
        super().__init__(parent)
        self.setProperty("role", "toast")
        self.setAccessibleName(text)
        self._on_gone = on_gone
        self.lasts = lasts
        row = QHBoxLayout(self)
        row.setContentsMargins(Space.M, Space.S, Space.S, Space.S)
        row.setSpacing(Space.S)
        row.addWidget(_LevelIcon(appearance, level, self), 0, Qt.AlignmentFlag.AlignVCenter)
        words = label(breakable(text), wrap=True, parent=self)
        row.addWidget(words, 1)
        if on_action is not None and action_label:
            button = push_button(action_label, lambda: self._act(on_action), parent=self)
            row.addWidget(button)
        close = IconButton(appearance, "close", self.tr("Dismiss"), self, ink="on_tooltip")
        close.clicked.connect(lambda _checked=False: self.go())
        row.addWidget(close)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        shown_ms = SHOWN_MS[level]
        self._timer.setInterval(max(shown_ms, WITH_ACTION_MS) if on_action is not None else shown_ms)
        self._timer.timeout.connect(self.go)
        self._wait()

    def _wait(self) -> None:
        if not self.lasts:
            self._timer.start()

    def _act(self, on_action: Callable[[], None]) -> None:
        self.go()
        on_action()

    def go(self) -> None:
        """Take it down."""
        self._timer.stop()
        self.hide()
        self._on_gone(self)
        self.deleteLater()

    def enterEvent(self, event: QEvent) -> None:
        self._timer.stop()
        super().enterEvent(event)  # type: ignore[arg-type]

    def leaveEvent(self, event: QEvent) -> None:
        self._wait()
        super().leaveEvent(event)


class Toasts(QObject):
    """Stacks toasts at the bottom of a widget."""

    def __init__(self, appearance: Appearance, over: QWidget) -> None:
        super().__init__(over)
        self._appearance = appearance
        self._over = over
        self._clear: QWidget | None = None
        self._toasts: dict[int, Toast] = {}
        self._next_key = -1
        over.installEventFilter(self)

    def keep_clear_of(self, widget: QWidget) -> None:
        """Stand above this widget while it is shown: where a person writes, nothing is covered."""
        self._clear = widget
        widget.installEventFilter(self)

    @property
    def texts(self) -> tuple[str, ...]:
        """What is shown now, oldest first."""
        return tuple(toast.accessibleName() for toast in self._toasts.values())

    def show(
        self,
        level: Level,
        text: str,
        action_label: str = "",
        on_action: Callable[[], None] | None = None,
        key: int | None = None,
        *,
        lasts: bool = False,
    ) -> None:
        """Say a sentence; `key` lets `withdraw` take it back, until when one that `lasts` stays."""
        if key is None:
            key, self._next_key = self._next_key, self._next_key - 1
        while len(self._toasts) >= MAX_TOASTS:
            passing = (each for each, toast in self._toasts.items() if not toast.lasts)
            self._toasts.pop(next(passing, next(iter(self._toasts)))).deleteLater()
        toast = Toast(self._appearance, level, text, action_label, on_action, self._forget, self._over, lasts=lasts)
        self._toasts[key] = toast
        toast.show()
        toast.raise_()
        self._stack()
        if QGuiApplication.applicationState() == Qt.ApplicationState.ApplicationActive:
            QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self._over, text))

    def withdraw(self, key: int) -> None:
        """Take a toast down."""
        toast = self._toasts.get(key)
        if toast is not None:
            toast.go()

    def withdraw_text(self, text: str) -> None:
        """Take down the toasts that say this."""
        for toast in [each for each in self._toasts.values() if each.accessibleName() == text]:
            toast.go()

    def _forget(self, toast: Toast) -> None:
        self._toasts = {key: each for key, each in self._toasts.items() if each is not toast}
        self._stack()

    def _stack(self) -> None:
        bottom, centre = self._over.height() - Space.L, self._over.width() // 2
        if self._clear is not None and self._clear.isVisible():
            place = self._clear.mapTo(self._over, QPoint(self._clear.width() // 2, 0))
            bottom, centre = place.y() - Space.XS, place.x()
        for toast in reversed(self._toasts.values()):
            width = min(Size.TOAST_W, self._over.width() - 2 * Space.M)
            toast.setFixedWidth(width)
            height = max(toast.heightForWidth(width), toast.minimumSizeHint().height())
            toast.resize(width, height)
            toast.move(centre - width // 2, bottom - height)
            bottom -= height + Space.XS

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:  # noqa: ARG002 - Qt's signature
        if event.type() in (QEvent.Type.Resize, QEvent.Type.Move, QEvent.Type.Show, QEvent.Type.Hide):
            self._stack()
        return False


class Banner(QFrame):
    """A strip above the page for what lasts: the engine ended and is started again."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("role", "banner")
        self._action: Callable[[], None] | None = None
        row = QHBoxLayout(self)
        row.setContentsMargins(Space.M, Space.XS, Space.M, Space.XS)
        row.setSpacing(Space.M)
        words = QVBoxLayout()
        words.setContentsMargins(0, 0, 0, 0)
        self._label = label("", wrap=True, parent=self)
        words.addWidget(self._label)
        row.addLayout(words, 1)
        self._button = push_button(self.tr("Start again"), self._act, parent=self)
        row.addWidget(self._button)
        self.hide()

    @property
    def text(self) -> str:
        """What it says; empty while it is not shown."""
        return self._label.text() if not self.isHidden() else ""

    def say(self, text: str, action_label: str = "", on_action: Callable[[], None] | None = None) -> None:
        """Show a sentence."""
        self._label.setText(text)
        self.setAccessibleName(text)
        self._action = on_action
        self._button.setText(action_label)
        self._button.setVisible(on_action is not None)
        self.show()

    def _act(self) -> None:
        if self._action is not None:
            self._action()
