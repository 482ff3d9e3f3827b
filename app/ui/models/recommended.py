"""The one version a person should take, with its reason and its button."""

import msgspec
from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QVBoxLayout

from app.ui.appearance import Appearance
from app.ui.controls.buttons import push_button
from app.ui.controls.labels import label
from app.ui.models.words import quality_words, speed_line, tr
from app.ui.theme import Size, Space
from runtime.messages.library import HubFile, QuantVerdict
from runtime.units import format_bytes


class RecommendedCard(QFrame):
    """Stands above all rows."""

    download_wanted = Signal(str)
    chat_wanted = Signal(str)
    downloads_wanted = Signal()

    def __init__(self, appearance: Appearance) -> None:
        super().__init__()
        self._appearance = appearance
        self._file: HubFile | None = None
        self._is_coming = False
        self.setProperty("role", "note")
        row = QHBoxLayout(self)
        row.setContentsMargins(Space.M, Space.M, Space.M, Space.M)
        row.setSpacing(Space.S)
        self._star = QLabel()
        row.addWidget(self._star, 0, Qt.AlignmentFlag.AlignTop)
        words = QVBoxLayout()
        words.setSpacing(Space.HAIR)
        self.title = label("", "heading", wrap=True)
        self.text = label("", "", wrap=True)
        self.reason = label("", "", wrap=True)
        words.addWidget(self.title)
        words.addWidget(self.text)
        words.addWidget(self.reason)
        row.addLayout(words, 1)
        self.button = push_button(tr("Download"), self._press, kind="primary")
        row.addWidget(self.button, 0, Qt.AlignmentFlag.AlignVCenter)
        appearance.changed.connect(self._tint)
        self._tint()
        self.hide()

    def show_choice(self, file: HubFile, verdict: QuantVerdict, rule: str) -> None:
        """Show the recommended version."""
        self._file = file
        quality, _ = quality_words(file.quality)
        self.title.setText(tr("Best for this computer: {name}").format(name=file.quantization or file.name))
        parts = [
            tr("Quality: {quality}").format(quality=quality.lower()) if file.quality != "unknown" else "",
            verdict.plan.sentence,
            speed_line(verdict.plan.speed),
        ]
        self.text.setText("  ·  ".join(part for part in parts if part))
        self.reason.setText(verdict.reason or rule)
        self.reason.setToolTip(rule)
        self.setAccessibleName(f"{self.title.text()}. {self.text.text()}. {self.reason.text()}")
        self._show_button()
        self.show()

    def show_state(self, installed_id: str, *, is_coming: bool) -> None:
        """Whether it is on disk, or on its way."""
        if self._file is not None:
            self._file = msgspec.structs.replace(self._file, installed_id=installed_id)
            self._is_coming = is_coming
            self._show_button()

    def _show_button(self) -> None:
        if self._file is None:
            return
        if self._file.installed_id:
            text = tr("Chat")
        elif self._is_coming:
            text = tr("Show download")
        else:
            text = tr("Download {size}").format(size=format_bytes(self._file.size_bytes))
        self.button.setText(text)
        self.button.setAccessibleName(f"{text}: {self._file.quantization}")

    def _press(self) -> None:
        if self._file is None:
            return
        if self._file.installed_id:
            self.chat_wanted.emit(self._file.installed_id)
        elif self._is_coming:
            self.downloads_wanted.emit()
        else:
            self.download_wanted.emit(self._file.name)

    def _tint(self) -> None:
        self._star.setPixmap(self._appearance.icon("star-filled", "on_accent_soft").pixmap(Size.ICON_L, Size.ICON_L))
