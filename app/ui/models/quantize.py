"""Make a smaller file of a full-precision model: the result's size, quality and verdict before anything is written."""

from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QButtonGroup, QFrame, QHBoxLayout, QLabel, QRadioButton, QVBoxLayout

from app.context import AppContext
from app.ui.appearance import Appearance
from app.ui.controls.buttons import push_button
from app.ui.controls.labels import ElidedLabel, label
from app.ui.controls.states import Message
from app.ui.models.sub_page import SubPage
from app.ui.models.words import speed_line, tr, verdict_look
from app.ui.pages.base import Card
from app.ui.theme import Size, Space
from runtime.errors import Failure
from runtime.messages.api import InstalledModel
from runtime.messages.library import Job, QuantizePreview, QuantizeRequest
from runtime.units import format_bytes

OFFERED = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "IQ4_XS", "Q3_K_M", "Q2_K")
"""From the closest to the original to the smallest; those that make sense without an importance matrix."""

SUGGESTED = "Q4_K_M"


class QuantizeRow(QFrame):
    """One type with what it would give."""

    def __init__(self, quantization: str, appearance: Appearance) -> None:
        super().__init__()
        self.quantization = quantization
        self.preview: QuantizePreview | None = None
        self._appearance = appearance
        self.setProperty("role", "row")
        row = QHBoxLayout(self)
        row.setContentsMargins(0, Space.XS, 0, Space.XS)
        row.setSpacing(Space.S)
        self.choice = QRadioButton(quantization)
        self.choice.setFixedWidth(Size.NUMBER_W)
        row.addWidget(self.choice)
        self._size = label("", "muted")
        self._size.setFixedWidth(Size.QUANT_W)
        row.addWidget(self._size)
        words = QVBoxLayout()
        words.setSpacing(Size.FOCUS)
        self._note = ElidedLabel("")
        words.addWidget(self._note)
        fit = QHBoxLayout()
        fit.setSpacing(Space.HAIR)
        self._icon = QLabel()
        fit.addWidget(self._icon)
        self._verdict = ElidedLabel("", "small")
        fit.addWidget(self._verdict, 1)
        words.addLayout(fit)
        row.addLayout(words, 1)
        appearance.changed.connect(self._tint)
        self._note.setText(tr("Working it out…"))

    def show_preview(self, preview: QuantizePreview) -> None:
        """Show what the result would be."""
        self.preview = preview
        bits = tr("{bits} bits").format(bits=f"{preview.bits_per_weight:.1f}")
        self._size.setText(f"{format_bytes(preview.size_bytes)}  ·  {bits}")
        self._note.setText(preview.note)
        plan = preview.plan
        if plan is not None:
            parts = (plan.sentence, speed_line(plan.speed))
            self._verdict.setText("  ·  ".join(part for part in parts if part))
        self.choice.setAccessibleDescription(f"{self._size.text()}. {preview.note} {self._verdict.text()}")
        self._tint()

    def show_failure(self, text: str) -> None:
        """Say why it cannot be made."""
        self._note.setText(text)
        self.choice.setEnabled(False)

    def _tint(self) -> None:
        plan = self.preview.plan if self.preview is not None else None
        if plan is not None:
            look = verdict_look(plan.verdict)
            self._icon.setPixmap(self._appearance.icon(look.icon, look.ink).pixmap(Size.ICON, Size.ICON))


class QuantizePage(SubPage):
    """Opened from the menu of a card."""

    started = Signal()

    def __init__(self, context: AppContext, appearance: Appearance, model: InstalledModel) -> None:
        super().__init__(context, appearance, tr("Make a smaller file of {name}").format(name=model.name))
        self._model = model
        self.make = push_button(tr("Make it"), self._start, kind="primary")
        self.make.setEnabled(False)
        self.head.addWidget(self.make)
        self.message = Message()
        self.column.addWidget(self.message)
        self.column.addWidget(
            label(
                tr(
                    "The numbers of the model are stored with fewer bits. The file gets smaller and answers come "
                    "faster; the original ({size}) stays as it is."
                ).format(size=format_bytes(model.size_bytes)),
                "muted",
                wrap=True,
            )
        )
        card = Card(tr("How small?"))
        self._group = QButtonGroup(self)
        self.rows: dict[str, QuantizeRow] = {}
        rows = QVBoxLayout()
        rows.setSpacing(0)
        for quantization in OFFERED:
            row = QuantizeRow(quantization, appearance)
            self._group.addButton(row.choice)
            row.choice.toggled.connect(lambda _on: self._show_choice())
            self.rows[quantization] = row
            rows.addWidget(row)
        card.column.addLayout(rows)
        self.column.addWidget(card)
        self._result = label("", "muted", wrap=True)
        self.column.addWidget(self._result)
        self.column.addStretch(1)
        self.rows[SUGGESTED].choice.setChecked(True)
        self._waiting = list(OFFERED)
        self._next()

    def _next(self) -> None:
        """One preview after another, so that a slow disk is not asked seven times at once."""
        if self._waiting:
            quantization = self._waiting.pop(0)
            self.models.preview_quantize(
                QuantizeRequest(self._model.id, quantization),
                partial(self._show_preview, quantization),
                failed=partial(self._no_preview, quantization),
            )

    def leave(self) -> None:
        self._waiting = []

    def _show_preview(self, quantization: str, preview: QuantizePreview) -> None:
        self.rows[quantization].show_preview(preview)
        self._show_choice()
        self._next()

    def _no_preview(self, quantization: str, failure: Failure) -> None:
        self.rows[quantization].show_failure(failure.message)
        if not any(row.preview is not None for row in self.rows.values()) and not self._waiting:
            self.message.say_failure(failure)
        self._next()

    @property
    def chosen(self) -> QuantizeRow | None:
        """The row that is ticked."""
        return next((row for row in self.rows.values() if row.choice.isChecked()), None)

    def _show_choice(self) -> None:
        row = self.chosen
        preview = row.preview if row is not None else None
        self.make.setEnabled(False)
        if preview is None:
            self._result.setText("")
            return
        fits = preview.size_bytes < preview.free_bytes
        self.make.setEnabled(fits)
        text = tr("Writes {path}; {free} are free.") if fits else tr("There is not enough room: {free} are free.")
        self._result.setText(text.format(path=preview.path, free=format_bytes(preview.free_bytes)))

    def _start(self) -> None:
        row = self.chosen
        if row is not None:
            self.make.setEnabled(False)
            request = QuantizeRequest(self._model.id, row.quantization)
            self.models.quantize(request, self._started, failed=self._not_started)

    def _started(self, job: Job) -> None:
        del job  # it is shown under Downloads
        self.started.emit()

    def _not_started(self, failure: Failure) -> None:
        self.make.setEnabled(True)
        self.message.say_failure(failure)
