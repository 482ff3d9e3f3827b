"""Buttons that keep their icon in the colours of the appearance in use."""

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QButtonGroup, QPushButton, QToolButton, QWidget

from app.ui.appearance import Appearance
from app.ui.theme import Size, Space


class IconButton(QToolButton):
    """A flat button with an icon; `text` is its accessible name and tooltip unless it is shown beside the icon."""

    def __init__(
        self,
        appearance: Appearance,
        icon: str,
        text: str,
        parent: QWidget | None = None,
        *,
        size: int = Size.ICON,
        ink: str = "text_muted",
        show_text: bool = False,
    ) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self._icon_name = icon
        self._ink = ink
        self._quiet = False
        self.setAutoRaise(True)
        self.setIconSize(QSize(size, size))
        self.setAccessibleName(text)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        if show_text:
            self.setText(text)
            self.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        else:
            self.setToolTip(text)
        self._tint()
        appearance.changed.connect(self._tint)

    def set_icon_name(self, icon: str) -> None:
        """Show another icon."""
        if icon != self._icon_name:
            self._icon_name = icon
            self._tint()

    def rename(self, text: str) -> None:
        """Another text for the same button."""
        self.setAccessibleName(text)
        if self.toolButtonStyle() == Qt.ToolButtonStyle.ToolButtonIconOnly:
            self.setToolTip(text)
        else:
            self.setText(text)

    def set_quiet(self, quiet: bool) -> None:
        """A quiet button is there for keyboard and screen reader, and drawn once it has the focus."""
        if quiet != self._quiet:
            self._quiet = quiet
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        if not self._quiet or self.hasFocus():
            super().paintEvent(event)

    def _tint(self) -> None:
        self.setIcon(self._appearance.icon(self._icon_name, self._ink, "accent" if self.isCheckable() else None))


def push_button(
    text: str, on_click: Callable[[], object] | None = None, *, kind: str = "", parent: QWidget | None = None
) -> QPushButton:
    """A push button of a kind of the stylesheet ("primary", "quiet", "")."""
    button = QPushButton(text, parent)
    if kind:
        button.setProperty("kind", kind)
    button.setCursor(Qt.CursorShape.PointingHandCursor)
    button.setMinimumHeight(Size.CONTROL_H)
    if on_click is not None:
        button.clicked.connect(lambda _checked=False: on_click())
    return button


def tab_buttons(titles: dict[str, str], show: Callable[[str], None], group: QButtonGroup) -> dict[str, QPushButton]:
    """A quiet button for each tab, by the tab's name; `show` is told the name. One of the group is pressed."""
    buttons: dict[str, QPushButton] = {}
    for name, title in titles.items():
        button = push_button(title, partial(show, name), kind="quiet")
        button.setCheckable(True)
        group.addButton(button)
        buttons[name] = button
    return buttons


class TintedButton(QPushButton):
    """A push button with an icon in a token's colour."""

    def __init__(
        self, appearance: Appearance, icon: str, text: str, *, kind: str = "", ink: str = "text", name: str = ""
    ) -> None:
        super().__init__(text)
        self._appearance = appearance
        self._icon_name = icon
        self._ink = ink
        if kind:
            self.setProperty("kind", kind)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setMinimumHeight(Size.CONTROL_H)
        self.setIconSize(QSize(Size.ICON, Size.ICON))
        if name:
            self.setAccessibleName(name)
            self.setToolTip(name)
        self._tint()
        appearance.changed.connect(self._tint)

    def set_icon_name(self, icon: str) -> None:
        """Show another icon."""
        if icon != self._icon_name:
            self._icon_name = icon
            self._tint()

    def sizeHint(self) -> QSize:
        hint = super().sizeHint()
        return QSize(hint.width() + (Space.HAIR if self.text() else 0), hint.height())

    def _tint(self) -> None:
        self.setIcon(self._appearance.icon(self._icon_name, self._ink))
