"""The verdict on a plan in words: the sentence, why, how fast, and how sure that is."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QVBoxLayout

from app.ui.appearance import Appearance
from app.ui.controls.buttons import push_button
from app.ui.controls.labels import label, set_tone
from app.ui.models.words import can_load, speed_basis, speed_line, tr, verdict_look
from app.ui.theme import Size, Space
from runtime.messages.fit import MemoryPlan
from runtime.units import format_speed


class VerdictLine(QFrame):
    """Stands above the bars."""

    def __init__(self, appearance: Appearance) -> None:
        super().__init__()
        self._appearance = appearance
        self._plan: MemoryPlan | None = None
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(Space.S)
        self._icon = QLabel()
        row.addWidget(self._icon, 0, Qt.AlignmentFlag.AlignTop)
        words = QVBoxLayout()
        words.setSpacing(Space.HAIR)
        top = QHBoxLayout()
        top.setSpacing(Space.XS)
        self.sentence = label("", "heading")
        top.addWidget(self.sentence)
        self._method = label("", "tag")
        top.addWidget(self._method)
        top.addStretch(1)
        words.addLayout(top)
        self.reason = label("", "", wrap=True)
        words.addWidget(self.reason)
        self.speed = label("", "muted", wrap=True)
        words.addWidget(self.speed)
        row.addLayout(words, 1)
        self.measure = push_button(tr("Measure this computer"))
        self.measure.setToolTip(tr("Takes a few seconds; predictions get better"))
        self.measure.hide()
        row.addWidget(self.measure, 0, Qt.AlignmentFlag.AlignBottom)
        appearance.changed.connect(self._tint)
        self.hide()

    def show_plan(self, plan: MemoryPlan) -> None:
        """Show a verdict."""
        self._plan = plan
        self.sentence.setText(plan.sentence)
        set_tone(self.sentence, "heading")
        self.reason.setText(plan.reason if can_load(plan) else plan.problem or plan.reason)
        exact = plan.method == "dry_run"
        self._method.setText(tr("Exact") if exact else tr("Estimate"))
        self._method.setToolTip(
            tr("llama.cpp's own figures, from a load that allocates nothing.")
            if exact
            else tr("From a formula; the exact figures follow in a moment.")
        )
        self._show_speed(plan)
        self._tint()
        self.setAccessibleName(f"{plan.sentence}. {self.reason.text()}")
        self.show()

    def _show_speed(self, plan: MemoryPlan) -> None:
        speed = plan.speed
        self.measure.setVisible(speed is not None and speed.basis == "guess" and can_load(plan))
        if speed is None or not can_load(plan):
            self.speed.hide()
            return
        parts = [
            f"{speed_line(speed)}.",
            tr("Reads a prompt at {speed}.").format(speed=format_speed(speed.prompt_tps)),
            speed_basis(speed),
        ]
        self.speed.setText(" ".join(parts))
        self.speed.show()

    def set_measuring(self, measuring: bool) -> None:
        """A measurement runs."""
        self.measure.setEnabled(not measuring)
        self.measure.setText(tr("Measuring…") if measuring else tr("Measure this computer"))

    def set_busy(self, busy: bool) -> None:
        """The exact figures are still to come."""
        if busy:
            self._method.setText(tr("Working it out…"))
        elif self._plan is not None:
            self.show_plan(self._plan)

    def _tint(self) -> None:
        if self._plan is not None:
            look = verdict_look(self._plan.verdict)
            self._icon.setPixmap(self._appearance.icon(look.icon, look.ink).pixmap(Size.ICON_L, Size.ICON_L))
