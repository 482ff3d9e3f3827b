"""Hardware: a card a device with its readings and their course over the last minutes."""

from collections import deque
from dataclasses import dataclass, field

from PySide6.QtCore import QCoreApplication
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QVBoxLayout, QWidget

from app.context import AppContext
from app.ui.appearance import Appearance
from app.ui.controls.labels import ElidedLabel, label, set_tone
from app.ui.controls.meters import Chart
from app.ui.frame.chips import pair_text
from app.ui.pages.base import Card, Page, clear_layout
from app.ui.pages.nodes import NodesCard
from app.ui.theme import Size, Space
from runtime.messages.hardware import CpuSample, GpuSample, HardwareSample, MemorySample
from runtime.units import format_bytes

HISTORY = 180
"""Readings kept for the charts: three minutes at one a second."""


def tr(text: str) -> str:
    """Translate in this page's context."""
    return QCoreApplication.translate("HardwarePage", text)


@dataclass(frozen=True, slots=True)
class Reading:
    """One measured value as shown: `text` for people, `value` for the chart, with full scale and limit."""

    title: str
    text: str
    value: float | None
    top: float | None = None
    limit: float | None = None


def _unit(value: float | None, unit: str, limit: float | None = None) -> str:
    if value is None:
        return tr("not available")
    return f"{value:.0f} {unit}" if limit is None else f"{value:.0f} / {limit:.0f} {unit}"


def cpu_readings(cpu: CpuSample) -> list[Reading]:
    """What is shown of a processor."""
    return [
        Reading(tr("In use"), _unit(cpu.utilisation_percent, "%"), cpu.utilisation_percent, 100),
        Reading(tr("Temperature"), _unit(cpu.temperature_c, "°C"), cpu.temperature_c, 100),
        Reading(tr("Clock"), _unit(cpu.frequency_mhz, "MHz"), cpu.frequency_mhz),
    ]


def memory_readings(memory: MemorySample) -> list[Reading]:
    """What is shown of the system memory."""
    total, free = memory.total_bytes, memory.available_bytes
    used = total - free if total is not None and free is not None else None
    has_swap = bool(memory.swap_total_bytes)
    swap = pair_text(memory.swap_used_bytes, memory.swap_total_bytes) if has_swap else tr("not available")
    return [
        Reading(tr("In use"), pair_text(used, total), used, total),
        Reading(tr("Deskside"), format_bytes(memory.ours_bytes), memory.ours_bytes, total),
        Reading(tr("Swap"), swap, memory.swap_used_bytes if has_swap else None, memory.swap_total_bytes or None),
    ]


def gpu_readings(gpu: GpuSample) -> list[Reading]:
    """What is shown of a graphics processor."""
    memory = pair_text(gpu.memory_used_bytes, gpu.memory_total_bytes)
    return [
        Reading(tr("Temperature"), _unit(gpu.temperature_c, "°C"), gpu.temperature_c, 100, gpu.temperature_limit_c),
        Reading(tr("Memory"), memory, gpu.memory_used_bytes, gpu.memory_total_bytes),
        Reading(tr("Power"), _unit(gpu.power_w, "W", gpu.power_limit_w), gpu.power_w, None, gpu.power_limit_w),
        Reading(tr("In use"), _unit(gpu.utilisation_percent, "%"), gpu.utilisation_percent, 100),
        Reading(tr("Clock"), _unit(gpu.clock_mhz, "MHz", gpu.clock_max_mhz), gpu.clock_mhz, gpu.clock_max_mhz),
        Reading(tr("Fan"), _unit(gpu.fan_percent, "%"), gpu.fan_percent, 100),
    ]


@dataclass(slots=True)
class _Tile:
    value: ElidedLabel
    chart: Chart
    history: deque[float | None] = field(default_factory=lambda: deque(maxlen=HISTORY))


class DeviceCard(Card):
    """One device."""

    def __init__(self, appearance: Appearance, title: str, readings: list[Reading]) -> None:
        super().__init__()
        self._appearance = appearance
        self.head.addWidget(label(title, "strong"))
        self.name = ElidedLabel("", "muted")
        self.head.addWidget(self.name, 1)
        self.state = label("", "tag")
        self.state.hide()
        self.head.addWidget(self.state)
        self.column.addLayout(self.head)
        grid = QGridLayout()
        grid.setSpacing(Space.M)
        self._tiles: list[_Tile] = []
        inks = ("series_a", "series_b", "series_c", "series_d", "series_a", "series_b")
        for at, reading in enumerate(readings):
            tile = QWidget()
            column = QVBoxLayout(tile)
            column.setContentsMargins(0, 0, 0, 0)
            column.setSpacing(Space.HAIR)
            top = QHBoxLayout()
            top.addWidget(label(reading.title, "small"))
            value = ElidedLabel("", "strong")
            top.addStretch(1)
            top.addWidget(value)
            column.addLayout(top)
            chart = Chart(appearance, HISTORY, ink=inks[at % len(inks)])
            chart.setAccessibleName(f"{title}: {reading.title}")
            column.addWidget(chart)
            grid.addWidget(tile, at // 3, at % 3)
            grid.setColumnStretch(at % 3, 1)
            self._tiles.append(_Tile(value, chart))
        self.column.addLayout(grid)
        self.detail = label("", "small", wrap=True)
        self.detail.hide()
        self.column.addWidget(self.detail)

    def show_readings(self, readings: list[Reading]) -> None:
        """Show new values."""
        for tile, reading in zip(self._tiles, readings, strict=True):
            tile.history.append(reading.value)
            if tile.value.text() != reading.text:
                tile.value.setText(reading.text)
            tile.chart.set_values(tuple(tile.history), top=reading.top, limit=reading.limit)

    def show_detail(self, text: str, *, tone: str = "small") -> None:
        """A sentence below the charts."""
        self.detail.setText(text)
        set_tone(self.detail, tone)
        self.detail.setVisible(bool(text))


class HardwarePage(Page):
    """Shows every reading the host sends; draws only while it is seen."""

    def __init__(self, context: AppContext, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(tr("Hardware"), tr("Measured once a second, over the last three minutes."), parent)
        self._appearance = appearance
        self._cpu = DeviceCard(appearance, tr("Processor"), cpu_readings(CpuSample()))
        self._memory = DeviceCard(appearance, tr("Memory"), memory_readings(MemorySample()))
        self._gpus = QVBoxLayout()
        self._gpus.setSpacing(Space.M)
        self._gpu_cards: dict[str, DeviceCard] = {}
        self._no_gpu = label("", "muted", wrap=True)
        self._notes = label("", "small", wrap=True)
        self.column.addLayout(self._gpus)
        self.column.addWidget(self._no_gpu)
        self.column.addWidget(self._cpu)
        self.column.addWidget(self._memory)
        self.column.addWidget(self._notes)
        self.column.addWidget(NodesCard(context, appearance))
        self.column.addStretch(1)
        self.setMinimumWidth(Size.TRANSCRIPT_MIN_W)
        context.link.hardware_changed.connect(self._show_sample)
        if context.link.hardware is not None:
            self._show_sample(context.link.hardware)
        else:
            self._no_gpu.setText(tr("The first reading is on its way."))

    def _show_sample(self, sample: HardwareSample) -> None:
        self._show_gpus(sample.gpus)
        cores = sample.cpu.cores_physical
        threads = sample.cpu.cores_logical
        parts = [sample.cpu.name]
        if cores and threads:
            parts.append(tr("{cores} cores, {threads} threads").format(cores=cores, threads=threads))
        self._cpu.name.setText("  ·  ".join(part for part in parts if part))
        self._cpu.show_readings(cpu_readings(sample.cpu))
        self._memory.name.setText(format_bytes(sample.memory.total_bytes))
        self._memory.show_readings(memory_readings(sample.memory))
        self._notes.setText("\n".join(sample.notes))
        self._notes.setVisible(bool(sample.notes))

    def _show_gpus(self, gpus: tuple[GpuSample, ...]) -> None:
        keys = [gpu.uuid or f"{gpu.index}:{gpu.name}" for gpu in gpus]
        if keys != list(self._gpu_cards):
            clear_layout(self._gpus)
            self._gpu_cards = {}
            for key, gpu in zip(keys, gpus, strict=True):
                card = DeviceCard(self._appearance, tr("GPU {n}").format(n=gpu.index), gpu_readings(gpu))
                self._gpu_cards[key] = card
                self._gpus.addWidget(card)
        self._no_gpu.setText("" if gpus else tr("No graphics processor was found; models run on the processor."))
        self._no_gpu.setVisible(not gpus)
        for card, gpu in zip(self._gpu_cards.values(), gpus, strict=True):
            card.name.setText(f"{gpu.name}  ·  {gpu.vendor}")
            card.show_readings(gpu_readings(gpu))
            self._show_state(card, gpu)

    @staticmethod
    def _show_state(card: DeviceCard, gpu: GpuSample) -> None:
        card.state.show()
        if gpu.problem:
            card.state.setText(tr("Not readable"))
            set_tone(card.state, "tag-amber")
            card.show_detail(gpu.problem, tone="bad")
            return
        reasons = "; ".join(gpu.throttle_reasons or ())
        card.state.setText(tr("Slowed down") if gpu.throttled else tr("Running free"))
        set_tone(card.state, "tag-amber" if gpu.throttled else "tag")
        others = gpu.memory_others_bytes
        parts = [reasons] if reasons else []
        if gpu.throttle_reasons is None:
            card.state.setText(tr("Throttling: not available"))
        if gpu.memory_ours_bytes is not None or others is not None:
            parts.append(
                tr("Memory of Deskside: {ours}, of other programs: {others}").format(
                    ours=format_bytes(gpu.memory_ours_bytes), others=format_bytes(others)
                )
            )
        card.show_detail(". ".join(parts))
