"""Planned against actual: what llama.cpp allocated at the last load beside what the plan had said."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QWidget

from app.ui.appearance import Appearance
from app.ui.controls.labels import label
from app.ui.models.bars import device_names
from app.ui.models.words import ago_words, tr
from app.ui.pages.base import Card, clear_layout
from app.ui.theme import Space
from runtime.messages.fit import LoadRecord
from runtime.messages.load import DeviceMemory
from runtime.units import format_bytes, format_speed


def part_names() -> dict[str, str]:
    """The parts by the name of their field."""
    return {
        "weight_bytes": tr("Model"),
        "context_bytes": tr("Conversation"),
        "compute_bytes": tr("Working memory"),
        "output_bytes": tr("Results"),
        "projector_bytes": tr("Pictures"),
        "draft_bytes": tr("Draft model"),
    }


def difference(planned_bytes: int, actual_bytes: int) -> str:
    """`+0.2 %`; `exact` for the same number of bytes."""
    if planned_bytes == actual_bytes:
        return tr("exact")
    if planned_bytes == 0:
        return tr("not planned")
    share = (actual_bytes - planned_bytes) / planned_bytes
    return f"{share:+.2%}".replace("%", " %")


class ActualCard(Card):
    """A small table, one row a device and part."""

    def __init__(self, appearance: Appearance) -> None:
        super().__init__(tr("Planned against actual"))
        del appearance
        self._record: LoadRecord | None = None
        self._when = label("", "muted")
        self.head.addWidget(self._when)
        self._holder = QWidget()
        self._grid = QGridLayout(self._holder)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(Space.L)
        self._grid.setVerticalSpacing(Space.HAIR)
        self.column.addWidget(self._holder)
        self._speed = label("", "small", wrap=True)
        self.column.addWidget(self._speed)
        self.hide()

    def show_record(self, record: LoadRecord | None) -> None:
        """Show the last load; nothing when there was none."""
        self.setVisible(record is not None and record.plan is not None)
        if record is None or record.plan is None or record == self._record:
            return
        self._record = record
        self._when.setText(ago_words(record.at_s))
        clear_layout(self._grid)
        for at, title in enumerate((tr("Device"), tr("Part"), tr("Planned"), tr("Actual"), tr("Difference"))):
            self._put(0, at, title, "group")
        planned = {budget.memory.device: budget.memory for budget in record.plan.budgets}
        line = 1
        names = {budget.memory.device: device_names(budget.device)[0] for budget in record.plan.budgets}
        for actual in record.actual:
            name = names.get(actual.device, actual.device)
            line = self._put_device(line, name, planned.get(actual.device, DeviceMemory(actual.device)), actual)
        self._grid.setColumnStretch(1, 1)
        self._show_speed(record)

    def _put_device(self, line: int, name: str, planned: DeviceMemory, actual: DeviceMemory) -> int:
        self._put_row(line, (name, tr("All together")), planned.total_bytes, actual.total_bytes, "strong")
        line += 1
        for field, part in part_names().items():
            one, other = getattr(planned, field), getattr(actual, field)
            if one or other:
                self._put_row(line, ("", part), one, other, "muted")
                line += 1
        return line

    def _put_row(self, line: int, names: tuple[str, str], planned_bytes: int, actual_bytes: int, tone: str) -> None:
        texts = (
            *names,
            format_bytes(planned_bytes),
            format_bytes(actual_bytes),
            difference(planned_bytes, actual_bytes),
        )
        for at, text in enumerate(texts):
            self._put(line, at, text, tone)

    def _put(self, line: int, at: int, text: str, tone: str) -> None:
        cell = label(text, tone)
        if at >= 2:  # noqa: PLR2004 - figures stand at the right
            cell.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self._grid.addWidget(cell, line, at)

    def _show_speed(self, record: LoadRecord) -> None:
        predicted = record.plan.speed if record.plan is not None else None
        if record.generation_tps > 0 and predicted is not None:
            text = tr("Speed: predicted {predicted} ({low} to {high}), measured {measured}.")
            self._speed.setText(
                text.format(
                    predicted=format_speed(predicted.generation_tps),
                    low=f"{predicted.generation_low_tps:.0f}",
                    high=f"{predicted.generation_high_tps:.0f}",
                    measured=format_speed(record.generation_tps),
                )
            )
        self._speed.setVisible(record.generation_tps > 0 and predicted is not None)
