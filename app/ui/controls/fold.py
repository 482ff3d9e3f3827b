"""A section that folds."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QSizePolicy, QVBoxLayout, QWidget

from app.ui.appearance import Appearance
from app.ui.controls.buttons import IconButton
from app.ui.theme import Size, Space


class Fold(QWidget):
    """A heading that shows or hides what stands below it."""

    def __init__(
        self, appearance: Appearance, title: str, *, opened: bool = True, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._title = title
        self.is_open: bool = opened
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(Space.HAIR)
        self.head = IconButton(appearance, "chevron-down", title, show_text=True, size=Size.ICON - Size.FOCUS)
        self.head.setProperty("kind", "row")
        self.head.setFont(appearance.font(bold=True))
        self.head.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.head.setCursor(Qt.CursorShape.PointingHandCursor)
        self.head.clicked.connect(lambda _checked=False: self.set_open(not self.is_open))
        column.addWidget(self.head)
        self.body = QWidget()
        self.content = QVBoxLayout(self.body)
        self.content.setContentsMargins(Space.XS, 0, Space.XS, Space.S)
        self.content.setSpacing(Space.XS)
        column.addWidget(self.body)
        self.set_open(opened)

    def set_open(self, opened: bool) -> None:
        """Show or hide the content."""
        self.is_open = opened
        self.body.setVisible(opened)
        self.head.set_icon_name("chevron-down" if opened else "chevron-right")
        state = self.tr("open") if opened else self.tr("closed")
        self.head.setAccessibleName(f"{self._title}, {state}")
