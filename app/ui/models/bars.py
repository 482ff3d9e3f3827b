"""The load plan drawn: one stacked bar a device, with every part named and counted below it."""

from dataclasses import dataclass
from typing import Literal

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QBrush, QColor, QPainter, QPainterPath, QPaintEvent, QPen
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSizePolicy, QVBoxLayout, QWidget

from app.ui.appearance import Appearance
from app.ui.controls.flow import FlowLayout
from app.ui.controls.labels import ElidedLabel, label, set_tone
from app.ui.models.words import pair_bytes, tr
from app.ui.pages.base import clear_layout
from app.ui.theme import Size, Space
from runtime.messages.fit import DeviceBudget, MemoryPlan
from runtime.messages.load import ComputeDevice
from runtime.units import format_bytes


def device_names(device: ComputeDevice) -> tuple[str, str]:
    """What people call a device, and what llama.cpp does."""
    if device.kind == "cpu":
        return tr("System memory"), device.description
    if device.kind == "node":
        return tr("Memory of {address}").format(address=device.node or device.description), device.name
    return device.description or device.name, device.name if device.description else ""


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a bar. Only `solid` pieces are the model's; `text` is the sentence of the tooltip."""

    name: str
    size_bytes: int
    ink: str
    text: str
    fill: Literal["solid", "hatched", "dotted"] = "solid"


def budget_parts(budget: DeviceBudget) -> tuple[Part, ...]:
    """The pieces of a device's bar that take any room, in the order they are drawn."""
    memory = budget.memory
    parts = (
        Part(tr("Model"), memory.weight_bytes, "series_a", tr("The weights: the file itself.")),
        Part(
            tr("Conversation"),
            memory.context_bytes,
            "series_b",
            tr("What is remembered of the conversation (KV cache); grows with the context length."),
        ),
        Part(
            tr("Working memory"),
            memory.compute_bytes + memory.output_bytes,
            "series_c",
            tr("Room for the computation and its results."),
        ),
        Part(tr("Pictures"), memory.projector_bytes, "series_d", tr("The part that reads pictures or sound.")),
        Part(tr("Draft model"), memory.draft_bytes, "series_e", tr("The small model that guesses ahead.")),
        Part(
            tr("Other programs"),
            budget.others_bytes,
            "text_disabled",
            tr("In use at this moment by other programs and other loaded models."),
            fill="hatched",
        ),
        Part(
            tr("Kept free"),
            budget.margin_bytes,
            "text_disabled",
            tr("Left alone on purpose, so that other programs do not run out of memory."),
            fill="dotted",
        ),
    )
    return tuple(part for part in parts if part.size_bytes > 0)


def fill_part(painter: QPainter, path: QPainterPath, part: Part, appearance: Appearance) -> None:
    """Fill a shape as the part is drawn in bar and legend."""
    colour = appearance.color(part.ink)
    if part.fill == "solid":
        painter.fillPath(path, colour)
        return
    soft = QColor(colour)
    soft.setAlphaF(0.4 if part.fill == "hatched" else 0.12)
    painter.fillPath(path, soft)
    pattern = Qt.BrushStyle.BDiagPattern if part.fill == "hatched" else Qt.BrushStyle.Dense6Pattern
    painter.fillPath(path, QBrush(colour, pattern))


class StackedBar(QWidget):
    """Pieces side by side to scale; what goes beyond the device is drawn past a line at its end."""

    def __init__(self, appearance: Appearance) -> None:
        super().__init__()
        self._appearance = appearance
        self._parts: tuple[Part, ...] = ()
        self._total = 1
        self.setFixedHeight(Size.STACK_H + 2 * Size.FOCUS)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        appearance.changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(Size.CARD_MIN_W, Size.STACK_H + 2 * Size.FOCUS)

    def show_parts(self, parts: tuple[Part, ...], total_bytes: int) -> None:
        """Draw these pieces of a device with so much memory."""
        if (parts, total_bytes) != (self._parts, self._total):
            self._parts, self._total = parts, max(1, total_bytes)
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        del event
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        box = QRectF(0, Size.FOCUS, self.width(), Size.STACK_H)
        taken = sum(part.size_bytes for part in self._parts)
        scale = box.width() / max(self._total, taken)
        ground = QPainterPath()
        ground.addRoundedRect(box, Size.RADIUS_S, Size.RADIUS_S)
        painter.fillPath(ground, self._appearance.color("pressed"))
        painter.setClipPath(ground)
        x = box.left()
        for part in self._parts:
            width = part.size_bytes * scale
            piece = QRectF(x, box.top(), width, box.height())
            self._paint_piece(painter, part, piece)
            x += width
            painter.setPen(QPen(self._appearance.color("raised"), Size.LINE))
            painter.drawLine(QPointF(x, box.top()), QPointF(x, box.bottom()))
        painter.setClipping(False)
        if taken > self._total:
            self._paint_end(painter, box, box.left() + self._total * scale)

    def _paint_piece(self, painter: QPainter, part: Part, piece: QRectF) -> None:
        path = QPainterPath()
        path.addRect(piece)
        fill_part(painter, path, part, self._appearance)

    def _paint_end(self, painter: QPainter, box: QRectF, x: float) -> None:
        beyond = self._appearance.color("red")
        beyond.setAlphaF(0.45)
        painter.fillRect(QRectF(x, box.top(), box.right() - x, box.height()), beyond)
        painter.setPen(QPen(self._appearance.color("red"), 2 * Size.FOCUS))
        painter.drawLine(QPointF(x, box.top() - Size.FOCUS), QPointF(x, box.bottom() + Size.FOCUS))


class _Swatch(QWidget):
    """The colour of a part in the legend."""

    def __init__(self, appearance: Appearance, part: Part) -> None:
        super().__init__()
        self._appearance, self._part = appearance, part
        self.setFixedSize(Size.SWATCH, Size.SWATCH)
        appearance.changed.connect(self.update)

    def paintEvent(self, event: QPaintEvent) -> None:
        del event
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        path = QPainterPath()
        path.addRoundedRect(QRectF(self.rect()), Size.FOCUS, Size.FOCUS)
        fill_part(painter, path, self._part, self._appearance)


class DeviceBar(QWidget):
    """One device: its name, how many layers it gets, the bar, and the legend."""

    def __init__(self, appearance: Appearance) -> None:
        super().__init__()
        self._appearance = appearance
        self._legend_key: tuple[str, ...] = ()
        self._values: list[QLabel] = []
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(Space.HAIR)
        head = QHBoxLayout()
        head.setSpacing(Space.XS)
        self._name = label("", "strong")
        self._what = ElidedLabel("", "small")
        self._layers = label("", "small")
        self._sum = label("", "")
        head.addWidget(self._name)
        head.addWidget(self._what, 1)
        head.addWidget(self._layers)
        head.addWidget(self._sum)
        column.addLayout(head)
        self._bar = StackedBar(appearance)
        column.addWidget(self._bar)
        holder = QWidget()
        self._legend = FlowLayout(holder, gap=Space.M)
        column.addWidget(holder)

    def show_budget(self, budget: DeviceBudget) -> None:
        """Show what the device would hold."""
        device = budget.device
        parts = budget_parts(budget)
        name, what = device_names(device)
        self._name.setText(name)
        self._what.setText(what)
        self._layers.setText(tr("{n} layers").format(n=budget.n_layers) if budget.n_layers else "")
        used = sum(part.size_bytes for part in parts)
        self._sum.setText(pair_bytes(used, device.total_bytes))
        set_tone(self._sum, "bad" if budget.free_bytes < 0 else "")
        self._bar.show_parts(parts, device.total_bytes)
        rest = (
            Part(tr("Free"), budget.free_bytes, "pressed", tr("Free after the load."))
            if budget.free_bytes >= 0
            else Part(tr("Missing"), -budget.free_bytes, "red", tr("So much is missing on this device."))
        )
        shown = (*parts, rest)
        self._show_legend(shown)
        words = ", ".join(f"{part.name} {format_bytes(part.size_bytes)}" for part in shown)
        self.setAccessibleName(f"{self._name.text()}: {self._sum.text()}")
        self.setAccessibleDescription(words)
        self._bar.setAccessibleName(self.accessibleName())
        self._bar.setAccessibleDescription(words)

    def _show_legend(self, parts: tuple[Part, ...]) -> None:
        key = tuple(part.name for part in parts)
        if key != self._legend_key:
            self._legend_key = key
            clear_layout(self._legend)
            self._values = []
            for part in parts:
                entry = QWidget()
                row = QHBoxLayout(entry)
                row.setContentsMargins(0, 0, 0, 0)
                row.setSpacing(Space.HAIR + Size.LINE)
                row.addWidget(_Swatch(self._appearance, part))
                value = label("", "small")
                row.addWidget(value)
                self._legend.addWidget(entry)
                self._values.append(value)
        for part, value in zip(parts, self._values, strict=True):
            value.setText(f"{part.name} {format_bytes(part.size_bytes)}")
            value.setToolTip(part.text)


class PlanBars(QWidget):
    """The bars of all devices of a plan; the same bars are kept while the devices are the same."""

    def __init__(self, appearance: Appearance) -> None:
        super().__init__()
        self._appearance = appearance
        self._bars: dict[str, DeviceBar] = {}
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(Space.S)

    def show_plan(self, plan: MemoryPlan) -> None:
        """Draw a plan."""
        names = [budget.device.name for budget in plan.budgets]
        if names != list(self._bars):
            clear_layout(self._column)
            self._bars = {}
            for name in names:
                bar = DeviceBar(self._appearance)
                self._bars[name] = bar
                self._column.addWidget(bar)
        for budget in plan.budgets:
            self._bars[budget.device.name].show_budget(budget)
