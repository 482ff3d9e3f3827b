"""A page that opens over the tabs of Models: a way back, a title, and a scrolled column."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.context import AppContext
from app.models_link import ModelsLink
from app.ui.appearance import Appearance
from app.ui.controls.buttons import IconButton
from app.ui.controls.labels import ElidedLabel
from app.ui.models.words import tr
from app.ui.pages.base import ScrolledColumn, centred
from app.ui.theme import Size, Space


class SubPage(QWidget):
    """Esc goes back too."""

    back_wanted = Signal()

    def __init__(self, context: AppContext, appearance: Appearance, title: str, text: str = "") -> None:
        super().__init__()
        self.context = context
        self.link = context.link
        self.models = ModelsLink(context.link, self)
        self.appearance = appearance
        self.setProperty("role", "surface")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        self.head = QHBoxLayout()
        self.head.setContentsMargins(0, Space.M, 0, Space.HAIR)
        self.head.setSpacing(Space.XS)
        self.back = IconButton(appearance, "chevron-left", tr("Back (Esc)"), size=Size.ICON_L)
        self.back.clicked.connect(lambda _checked=False: self.back_wanted.emit())
        self.head.addWidget(self.back)
        self.title = ElidedLabel(title, "title")
        self.head.addWidget(self.title, 1)
        outer.addLayout(centred(self.head))
        self.area = ScrolledColumn()
        self.column = self.area.column
        outer.addWidget(self.area, 1)
        self.intro = ElidedLabel(text, "muted")
        self.intro.setVisible(bool(text))
        self.column.addWidget(self.intro)

    def leave(self) -> None:
        """The page goes: drop what is on its way."""
