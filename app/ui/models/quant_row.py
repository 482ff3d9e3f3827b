"""One quantization of a model: how good, whether it fits, how fast, and the button that fetches it."""

import msgspec
from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QMouseEvent, QPainter, QPainterPath, QPaintEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QProgressBar, QVBoxLayout, QWidget

from app.ui.appearance import Appearance
from app.ui.controls.buttons import IconButton, push_button
from app.ui.controls.labels import ElidedLabel, label, set_tone
from app.ui.models.bars import PlanBars
from app.ui.models.words import can_load, quality_words, speed_line, tr, verdict_look
from app.ui.theme import Size, Space
from runtime.messages.fit import MemoryPlan
from runtime.messages.library import Download, HubFile, QuantVerdict
from runtime.units import format_bytes

STEPS = 5


class QualityMeter(QWidget):
    """Five small steps, filled from the left."""

    def __init__(self, appearance: Appearance, steps: int) -> None:
        super().__init__()
        self._appearance = appearance
        self._steps = steps
        self.setFixedSize(STEPS * (Size.METER_STEP_W + Size.FOCUS), Size.METER_H)
        appearance.changed.connect(self.update)

    def paintEvent(self, event: QPaintEvent) -> None:
        del event
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for at in range(STEPS):
            path = QPainterPath()
            left = at * (Size.METER_STEP_W + Size.FOCUS)
            path.addRoundedRect(QRectF(left, 0, Size.METER_STEP_W, Size.METER_H), Size.FOCUS, Size.FOCUS)
            painter.fillPath(path, self._appearance.color("accent" if at < self._steps else "line_strong"))


class QuantRow(QFrame):
    """A line of the table; pressing it, or its arrow, opens the details with the bars."""

    download_wanted = Signal(str)
    """Name of the file."""

    chat_wanted = Signal(str)
    """Id of the installed model."""

    downloads_wanted = Signal()
    opened = Signal(str)

    def __init__(self, file: HubFile, appearance: Appearance) -> None:
        super().__init__()
        self.file = file
        self._appearance = appearance
        self._plan: MemoryPlan | None = None
        self._verdict: QuantVerdict | None = None
        self._looks: tuple[str, str] = ("", "")
        self._download: Download | None = None
        self.is_open = False
        self.setProperty("role", "row")
        self.setAccessibleName(file.quantization or file.name)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, Space.XS, 0, Space.XS)
        outer.setSpacing(Space.XS)
        row = QHBoxLayout()
        row.setSpacing(Space.S)
        self.arrow = IconButton(appearance, "chevron-right", tr("Details of {name}").format(name=self.title))
        self.arrow.clicked.connect(lambda _checked=False: self.set_open(not self.is_open))
        row.addWidget(self.arrow, 0, Qt.AlignmentFlag.AlignVCenter)
        row.addWidget(self._build_name())
        row.addWidget(self._build_quality())
        row.addWidget(self._build_verdict(), 1)
        self.button = push_button("", self._press)
        self.button.setFixedWidth(Size.BUTTON_W)
        row.addWidget(self.button, 0, Qt.AlignmentFlag.AlignVCenter)
        outer.addLayout(row)
        self._bar = QProgressBar()
        self._bar.setTextVisible(False)
        self._bar.setAccessibleName(tr("Progress of {name}").format(name=self.title))
        self._bar.hide()
        outer.addWidget(self._bar)
        self._detail: QWidget | None = None
        self._bars: PlanBars | None = None
        self._outer = outer
        appearance.changed.connect(self._tint)
        self._show_button()

    @property
    def _is_coming(self) -> bool:
        download = self._download
        return (
            not self.file.installed_id
            and download is not None
            and download.state in ("running", "queued", "paused", "verifying")
        )

    @property
    def title(self) -> str:
        """What the row is called."""
        return self.file.quantization or self.file.name.removesuffix(".gguf")

    def _build_name(self) -> QWidget:
        holder = QWidget()
        holder.setFixedWidth(Size.QUANT_W)
        column = QVBoxLayout(holder)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(Size.FOCUS)
        top = QHBoxLayout()
        top.setSpacing(Space.HAIR)
        top.addWidget(ElidedLabel(self.title, "strong"))
        self._star = QLabel()
        self._star.setToolTip(tr("Recommended for this computer"))
        self._star.hide()
        top.addWidget(self._star)
        top.addStretch(1)
        column.addLayout(top)
        bits = tr("{bits} bits").format(bits=f"{self.file.bits_per_weight:.1f}") if self.file.bits_per_weight else ""
        size = format_bytes(self.file.size_bytes)
        column.addWidget(ElidedLabel(f"{size}  ·  {bits}" if bits else size, "small"))
        return holder

    def _build_quality(self) -> QWidget:
        holder = QWidget()
        holder.setFixedWidth(Size.QUALITY_W - Size.LABEL_W // 3)
        column = QVBoxLayout(holder)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(Space.HAIR + Size.LINE)
        words, steps = quality_words(self.file.quality)
        column.addWidget(ElidedLabel(words))
        column.addWidget(QualityMeter(self._appearance, steps))
        holder.setToolTip(self.file.note)
        return holder

    def _build_verdict(self) -> QWidget:
        holder = QWidget()
        row = QHBoxLayout(holder)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(Space.XS)
        self._icon = QLabel()
        self._icon.setFixedSize(Size.ICON, Size.ICON)
        row.addWidget(self._icon, 0, Qt.AlignmentFlag.AlignVCenter)
        words = QVBoxLayout()
        words.setSpacing(Size.FOCUS)
        self._sentence = ElidedLabel("")
        self._speed = ElidedLabel("", "small")
        words.addWidget(self._sentence)
        words.addWidget(self._speed)
        row.addLayout(words, 1)
        return holder

    # --- what changes

    def show_verdict(self, verdict: QuantVerdict) -> None:
        """Show whether it fits and how fast it would be."""
        plan = verdict.plan
        if verdict == self._verdict:
            return
        self._verdict = verdict
        self._plan = plan
        look = verdict_look(plan.verdict)
        self._sentence.setText(plan.sentence)
        set_tone(self._sentence, look.tone if not can_load(plan) else "")
        speed = plan.speed if can_load(plan) else None
        self._speed.setText(speed_line(speed) if speed is not None else plan.problem or plan.reason)
        self._star.setVisible(verdict.recommended)
        self.setAccessibleDescription(f"{plan.sentence}. {self._speed.text()}. {verdict.reason}")
        if (look.icon, look.ink) != self._looks:
            self._looks = (look.icon, look.ink)
            self._tint()
        self._show_button()
        if self._bars is not None:
            self._bars.show_plan(plan)
            self._bars.show()

    def show_download(self, download: Download | None) -> None:
        """Show that it is being fetched."""
        self._download = download
        self._show_button()

    def show_installed(self, model_id: str) -> None:
        """Show that it is on disk already; empty when it is not."""
        if model_id != self.file.installed_id:
            self.file = msgspec.structs.replace(self.file, installed_id=model_id)
            self._show_button()

    def _show_button(self) -> None:
        download = self._download
        self.button.setEnabled(True)
        if self.file.installed_id:
            text = tr("Chat")
        elif download is not None and self._is_coming:
            share = download.done_bytes / download.size_bytes if download.size_bytes else 0.0
            self._bar.setValue(round(100 * share))
            text = tr("{percent} %").format(percent=round(100 * share))
            if download.state in ("paused", "queued"):
                text = tr("Paused") if download.state == "paused" else tr("Waiting")
        else:
            text = tr("Download")
            self.button.setEnabled(self._plan is None or self._plan.verdict != "unsupported")
        self._bar.setVisible(self._is_coming)
        kind = "" if self._plan is None or can_load(self._plan) or self._is_coming else "quiet"
        if (self.button.property("kind") or "") != kind:
            self.button.setProperty("kind", kind)
            self.button.style().unpolish(self.button)
            self.button.style().polish(self.button)
        self.button.setText(text)
        self.button.setAccessibleName(f"{text}: {self.title}")

    def _press(self) -> None:
        if self.file.installed_id:
            self.chat_wanted.emit(self.file.installed_id)
        elif self._is_coming:
            self.downloads_wanted.emit()
        else:
            self.download_wanted.emit(self.file.name)

    def _tint(self) -> None:
        self._star.setPixmap(self._appearance.icon("star-filled", "accent").pixmap(Size.ICON, Size.ICON))
        if self._plan is not None:
            look = verdict_look(self._plan.verdict)
            self._icon.setPixmap(self._appearance.icon(look.icon, look.ink).pixmap(Size.ICON, Size.ICON))

    # --- details

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        super().mouseReleaseEvent(event)
        if event.button() == Qt.MouseButton.LeftButton:
            self.set_open(not self.is_open)

    def set_open(self, opened: bool) -> None:
        """Show or hide the details."""
        self.is_open = opened
        self.arrow.set_icon_name("chevron-down" if opened else "chevron-right")
        if opened and self._detail is None:
            self._detail = self._build_detail()
            self._outer.addWidget(self._detail)
        if self._detail is not None:
            self._detail.setVisible(opened)
        self.setProperty("chosen", opened)
        self.style().unpolish(self)
        self.style().polish(self)
        if opened:
            self.opened.emit(self.file.name)

    def _build_detail(self) -> QWidget:
        file = self.file
        holder = QWidget()
        column = QVBoxLayout(holder)
        column.setContentsMargins(Space.XL + Space.HAIR, 0, Space.S, Space.XS)
        column.setSpacing(Space.XS)
        if file.note:
            column.addWidget(label(file.note, wrap=True))
        self._bars = PlanBars(self._appearance)
        if self._plan is not None:
            self._bars.show_plan(self._plan)
        else:
            self._bars.hide()
        column.addWidget(self._bars)
        for path, size, sha256 in zip(file.paths, file.sizes_bytes, file.sha256, strict=False):
            column.addWidget(
                ElidedLabel(f"{path}  ·  {format_bytes(size)}", "small", mode=Qt.TextElideMode.ElideMiddle)
            )
            if sha256:
                hash_line = ElidedLabel(f"SHA-256 {sha256}", "small", mode=Qt.TextElideMode.ElideMiddle)
                hash_line.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
                column.addWidget(hash_line)
        if file.projector:
            column.addWidget(label(tr("Reads pictures with {name}.").format(name=file.projector), "small", wrap=True))
        return holder

    def sizeHint(self) -> QSize:
        hint = super().sizeHint()
        return QSize(hint.width(), max(hint.height(), Size.ROW_TALL_H))
