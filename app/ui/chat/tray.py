"""The files that go with the next question: small, each with a button that takes it out; and what is in their way."""

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.store.records import Attachment
from app.ui.appearance import Appearance
from app.ui.attachments.pictures import Pictures
from app.ui.attachments.tile import FileTile, spoken_name
from app.ui.controls.buttons import IconButton, push_button
from app.ui.controls.flow import FlowLayout
from app.ui.controls.labels import label
from app.ui.theme import Size, Space

TILE = QSize(Size.TRAY_TILE_W, Size.ROW_TALL_H)


class _Entry(QWidget):
    """A tile and its button."""

    def __init__(self, tray: "Tray", appearance: Appearance, pictures: Pictures, one: Attachment) -> None:
        super().__init__(tray)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        self.tile = FileTile(appearance, pictures, one, TILE, self)
        self.tile.clicked.connect(lambda _checked=False: tray.open_wanted.emit(one.sha256))
        row.addWidget(self.tile)
        remove = IconButton(
            appearance, "close", self.tr("Remove {name}").format(name=one.name or spoken_name(one)), self
        )
        remove.setIconSize(QSize(Size.ICON - Space.HAIR, Size.ICON - Space.HAIR))
        remove.clicked.connect(lambda _checked=False: tray.remove_wanted.emit(one.sha256))
        row.addWidget(remove, 0, Qt.AlignmentFlag.AlignTop)


class Tray(QWidget):
    """Hidden while there is nothing in it."""

    open_wanted = Signal(str)
    """Hash of the file to show large."""

    remove_wanted = Signal(str)
    """Hash of the file to take out."""

    help_wanted = Signal()
    """The button beside the obstacle was pressed."""

    def __init__(self, appearance: Appearance, pictures: Pictures, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self._pictures = pictures
        self._files: tuple[Attachment, ...] = ()
        self._entries: dict[str, _Entry] = {}
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, Space.HAIR, Space.HAIR)
        column.setSpacing(Space.XS)
        self._tiles = QWidget()
        self._flow = FlowLayout(self._tiles, gap=Space.XS, line_gap=Space.XS)
        column.addWidget(self._tiles)
        self._reading = label("", "small")
        column.addWidget(self._reading)
        self._obstacle = QFrame()
        self._obstacle.setProperty("role", "warning")
        row = QHBoxLayout(self._obstacle)
        row.setContentsMargins(Space.S, Space.XS, Space.XS, Space.XS)
        row.setSpacing(Space.S)
        self._why = label("", wrap=True)
        row.addWidget(self._why, 1)
        self._help = push_button(self.tr("Choose a model"), self.help_wanted.emit)
        row.addWidget(self._help, 0, Qt.AlignmentFlag.AlignVCenter)
        column.addWidget(self._obstacle)
        self.hide()  # before its parts: a shown widget without a place would be a window
        for part in (self._tiles, self._reading, self._obstacle):
            part.hide()

    @property
    def files(self) -> tuple[Attachment, ...]:
        """What is shown."""
        return self._files

    @property
    def obstacle(self) -> str:
        """What stands in the way of sending them; empty for nothing."""
        return self._why.text()

    def show_files(self, files: tuple[Attachment, ...]) -> None:
        """Show these."""
        self._files = files
        wanted = {one.sha256 for one in files}
        for sha256 in [key for key in self._entries if key not in wanted]:
            gone = self._entries.pop(sha256)
            self._flow.removeWidget(gone)
            gone.hide()
            gone.deleteLater()
        for one in files:
            if one.sha256 not in self._entries:
                entry = _Entry(self, self._appearance, self._pictures, one)
                self._entries[one.sha256] = entry
                self._flow.addWidget(entry)
                entry.show()
        self._tiles.setVisible(bool(files))
        self._fit()

    def show_waiting(self, count: int) -> None:
        """Files are being read."""
        self._reading.setText(
            self.tr("Reading {count} files…").format(count=count) if count > 1 else self.tr("Reading the file…")
        )
        self._reading.setVisible(count > 0)
        self._fit()

    def show_obstacle(self, why: str, help_text: str) -> None:
        """Say what stands in the way, with the button that helps."""
        self._why.setText(why)
        if help_text:
            self._help.setText(help_text)
        self._obstacle.setVisible(bool(why))
        self._fit()

    def _fit(self) -> None:
        self.setVisible(bool(self._files) or self._reading.isVisibleTo(self) or self._obstacle.isVisibleTo(self))
        self._tiles.updateGeometry()
        self.updateGeometry()
