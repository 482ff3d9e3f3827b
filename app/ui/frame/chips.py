"""Small readings of the machine for the status bar."""

from dataclasses import dataclass

from PySide6.QtCore import QCoreApplication, QSize, Qt
from PySide6.QtWidgets import QToolButton, QWidget

from app.ui.appearance import Appearance
from app.ui.theme import Size
from runtime.messages.hardware import GpuSample, HardwareSample
from runtime.units import format_bytes


def tr(text: str) -> str:
    """Translate in this module's context."""
    return QCoreApplication.translate("Chips", text)


@dataclass(frozen=True, slots=True)
class Fact:
    """One reading: icon, short text, the sentence for its tooltip, and whether it warns."""

    icon: str
    text: str
    tip: str
    warns: bool = False


def temperature_text(value_c: float | None) -> str:
    """Degrees, or that they are not available."""
    return tr("not available") if value_c is None else f"{value_c:.0f} °C"


def pair_text(used_bytes: float | None, total_bytes: float | None) -> str:
    """`3.1 / 25.2 GB`, or that it is not available."""
    if used_bytes is None or total_bytes is None:
        return tr("not available")
    used, total = format_bytes(used_bytes), format_bytes(total_bytes)
    if used.split(" ")[-1] == total.split(" ")[-1]:
        used = used.split(" ")[0]
    return f"{used} / {total}"


def _gpu_facts(gpu: GpuSample, *, many: bool) -> list[Fact]:
    prefix = f"{gpu.index}: " if many else ""
    warns = gpu.throttled
    if gpu.problem:
        return [Fact("warning", f"{prefix}GPU", f"{gpu.name}: {gpu.problem}", warns=True)]
    why = ""
    if warns:
        reasons = "; ".join(gpu.throttle_reasons or ()) or tr("the driver gives no reason")
        why = "\n" + tr("Slowed down: {reasons}").format(reasons=reasons)
    memory = pair_text(gpu.memory_used_bytes, gpu.memory_total_bytes)
    power = tr("not available") if gpu.power_w is None else f"{gpu.power_w:.0f} W"
    if gpu.power_w is not None and gpu.power_limit_w is not None:
        power = f"{gpu.power_w:.0f} / {gpu.power_limit_w:.0f} W"
    return [
        Fact(
            "temperature",
            f"{prefix}{temperature_text(gpu.temperature_c)}",
            f"{gpu.name}: {tr('temperature')} {temperature_text(gpu.temperature_c)}{why}",
            warns,
        ),
        Fact("memory", f"{prefix}{memory}", f"{gpu.name}: {tr('memory in use')} {memory}"),
        Fact("power", f"{prefix}{power}", f"{gpu.name}: {tr('power')} {power}{why}", warns),
    ]


def chips_of(sample: HardwareSample) -> list[Fact]:
    """The readings of GPUs, or of processor and memory where there is no GPU."""
    if sample.gpus:
        return [fact for gpu in sample.gpus for fact in _gpu_facts(gpu, many=len(sample.gpus) > 1)]
    cpu, memory = sample.cpu, sample.memory
    used = (
        memory.total_bytes - memory.available_bytes
        if memory.total_bytes is not None and memory.available_bytes is not None
        else None
    )
    load = tr("not available") if cpu.utilisation_percent is None else f"{cpu.utilisation_percent:.0f} %"
    heat = tr("CPU temperature") + " " + temperature_text(cpu.temperature_c)
    return [
        Fact("hardware", tr("CPU {load}").format(load=load), f"{cpu.name}: {tr('in use')} {load}"),
        Fact("temperature", temperature_text(cpu.temperature_c) if cpu.temperature_c is not None else tr("n/a"), heat),
        Fact(
            "memory",
            pair_text(used, memory.total_bytes),
            f"{tr('Memory in use')} {pair_text(used, memory.total_bytes)}",
        ),
    ]


class Chip(QToolButton):
    """An icon with a short text."""

    def __init__(self, appearance: Appearance, icon: str, text: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self._icon_name = icon
        self._tone = ""
        self.setProperty("kind", "chip")
        self.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.setIconSize(QSize(Size.ICON - Size.FOCUS, Size.ICON - Size.FOCUS))
        self.setFixedHeight(Size.CONTROL_SMALL_H)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.set_text(text)
        self._tint()
        appearance.changed.connect(self._tint)

    def set_text(self, text: str) -> None:
        """Show a text."""
        if text != self.text():
            self.setText(text)
            self.setAccessibleName(text)

    def set_tone(self, tone: str) -> None:
        """`amber` warns, `red` is a failure, empty is neither."""
        if tone == self._tone:
            return
        self._tone = tone
        self.setProperty("tone", tone)
        self.style().unpolish(self)
        self.style().polish(self)
        self._tint()

    def show_fact(self, fact: Fact) -> None:
        """Show a reading."""
        if fact.icon != self._icon_name:
            self._icon_name = fact.icon
            self._tint()
        self.set_text(fact.text)
        self.setToolTip(fact.tip)
        self.setAccessibleName(fact.tip)
        self.set_tone("amber" if fact.warns else "")

    def _tint(self) -> None:
        ink = {"amber": "on_amber_soft", "red": "on_red_soft"}.get(self._tone, "text_muted")
        self.setIcon(self._appearance.icon(self._icon_name, ink))
