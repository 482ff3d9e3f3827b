"""The rail at the left: one button a page."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QFontMetrics
from PySide6.QtWidgets import QButtonGroup, QSizePolicy, QToolButton, QVBoxLayout, QWidget

from app.ui.appearance import Appearance
from app.ui.theme import Size, Space, Type


@dataclass(frozen=True, slots=True)
class PageEntry:
    """A page of the rail; `at_end` puts it at the bottom."""

    name: str
    title: str
    icon: str
    at_end: bool = False


class Rail(QWidget):
    """Icon and label for every page."""

    chosen = Signal(str)

    def __init__(self, appearance: Appearance, pages: Sequence[PageEntry], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self.setProperty("role", "rail")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        column = QVBoxLayout(self)
        column.setContentsMargins(Space.HAIR, Space.XS, Space.HAIR, Space.XS)
        column.setSpacing(Space.HAIR)
        self._group = QButtonGroup(self)
        self._group.setExclusive(True)
        self._buttons: dict[str, tuple[QToolButton, str]] = {}
        stretched = False
        for number, page in enumerate(pages, 1):
            if page.at_end and not stretched:
                column.addStretch(1)
                stretched = True
            button = QToolButton(self)
            button.setProperty("kind", "rail")
            button.setCheckable(True)
            button.setText(page.title)
            button.setAccessibleName(page.title)
            button.setToolTip(f"{page.title} (Ctrl+{number})")
            button.setIconSize(QSize(Size.ICON_L + Size.FOCUS, Size.ICON_L + Size.FOCUS))
            button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextUnderIcon)
            button.setFixedHeight(Size.RAIL_ITEM_H)
            button.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
            button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
            button.clicked.connect(lambda _checked=False, name=page.name: self.chosen.emit(name))
            self._group.addButton(button)
            self._buttons[page.name] = (button, page.icon)
            column.addWidget(button)
        if not stretched:
            column.addStretch(1)
        widest = max(
            QFontMetrics(appearance.font(Type.SMALL, bold=True)).horizontalAdvance(page.title) for page in pages
        )
        self.setFixedWidth(max(Size.RAIL_W, widest + 2 * Space.S))
        self._tint()
        appearance.changed.connect(self._tint)

    def show_page(self, name: str) -> None:
        """Mark a page as the one shown."""
        if name in self._buttons:
            self._buttons[name][0].setChecked(True)

    def _tint(self) -> None:
        for button, icon in self._buttons.values():
            button.setIcon(self._appearance.icon(icon, "text_muted", "accent"))
