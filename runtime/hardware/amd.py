"""AMD GPUs on Linux, from the files of the kernel driver (amdgpu). Needs no package and no rights.

Files and units: kernel documentation, "GPU Power/Thermal Controls and Monitoring". The layout of `gpu_metrics` and
the bits of its vendor-neutral throttle field: kernel, kgd_pp_interface.h (`gpu_metrics_v1_3`) and amdgpu_smu.h.
"""

import struct
from collections.abc import Callable, Collection
from pathlib import Path

from runtime.hardware.sysfs import (
    PCI_DATABASES,
    Card,
    cards,
    fdinfo_memory_bytes,
    hwmon,
    labelled_sensor,
    pci_name,
    read_bytes,
    read_int,
    read_scaled,
    read_text,
)
from runtime.messages.hardware import GpuSample

PCI_VENDOR = 0x1002

_METRICS_HEADER = struct.Struct("<HBB")  # size in bytes, format revision, content revision
_DISCRETE_FORMAT = 1  # 2 and 3 are processors with graphics inside
_THROTTLE_SINCE = 3  # content revision of format 1 that first has the vendor-neutral field
_THROTTLE_NOT_IN = 4  # the data-centre layouts from here on have no such field
_THROTTLE = struct.Struct("<Q")
_THROTTLE_OFFSET = 112
_UNKNOWN_U64 = 2**64 - 1  # how the driver writes "not known"
_PWM_MAX = 255

_REASONS: tuple[tuple[int, str], ...] = (
    (0x0000_0000_0000_FFFF, "Slowed down to stay within its power limit."),
    (0x0000_0000_FFFF_0000, "Slowed down to stay within its current limit."),
    (0x0000_FFFF_0000_0000, "Slowed down because it is hot."),
    (0xFFFF_0000_0000_0000, "Slowed down by another limit of its firmware."),
)


def throttle_reasons(metrics: bytes) -> tuple[str, ...] | None:
    """Sentences from the driver's `gpu_metrics` table; `None` where its layout does not tell."""
    if len(metrics) < _METRICS_HEADER.size:
        return None
    size_bytes, layout, revision = _METRICS_HEADER.unpack_from(metrics)
    if layout != _DISCRETE_FORMAT or not _THROTTLE_SINCE <= revision < _THROTTLE_NOT_IN:
        return None
    if min(size_bytes, len(metrics)) < _THROTTLE_OFFSET + _THROTTLE.size:
        return None
    (mask,) = _THROTTLE.unpack_from(metrics, _THROTTLE_OFFSET)
    return None if mask == _UNKNOWN_U64 else tuple(text for bits, text in _REASONS if mask & bits)


def current_clock_mhz(table: str | None) -> tuple[float | None, float | None]:
    """The marked and the highest clock of a `pp_dpm_*` table, whose lines read `1: 1800Mhz *`."""
    current: float | None = None
    steps = []
    for line in (table or "").splitlines():
        _, _, rest = line.partition(":")
        digits = rest.strip().lower().partition("mhz")[0].strip()
        if not digits.isdigit():
            continue
        steps.append(float(digits))
        if rest.rstrip().endswith("*"):
            current = float(digits)
    return current, max(steps, default=None)


class AmdReader:
    """All AMD GPUs. Home thread of `read`: its lane."""

    def __init__(
        self,
        our_pids: Callable[[], Collection[int]],
        sys_root: Path = Path("/sys"),
        proc_root: Path = Path("/proc"),
        pci_databases: Collection[Path] = PCI_DATABASES,
    ) -> None:
        self._our_pids = our_pids
        self._sys_root = sys_root
        self._proc_root = proc_root
        self._pci_databases = pci_databases
        self._names: dict[int, str] = {}  # by PCI device id

    def read(self) -> tuple[GpuSample, ...]:
        """One reading of each; what the driver does not tell is `None`."""
        return tuple(self._sample(index, card) for index, card in enumerate(cards(self._sys_root, PCI_VENDOR)))

    def _name(self, card: Card) -> str:
        name = self._names.get(card.device_id)
        if name is None:
            name = read_text(card.device / "product_name") or pci_name(PCI_VENDOR, card.device_id, self._pci_databases)
            self._names[card.device_id] = name = name or f"AMD GPU {card.device_id:#06x}"
        return name

    def _sample(self, index: int, card: Card) -> GpuSample:
        device, sensors = card.device, hwmon(card.device)
        metrics = read_bytes(device / "gpu_metrics")
        inside_cpu = len(metrics) >= _METRICS_HEADER.size and _METRICS_HEADER.unpack_from(metrics)[1] in {2, 3}
        total, used = self._memory(device, inside_cpu=inside_cpu)
        ours = fdinfo_memory_bytes(self._proc_root, self._our_pids(), card.pci_bus_id, ("drm-memory-vram",))
        if ours is None and used is not None:
            ours = 0  # none of our processes has the card open
        reasons = throttle_reasons(metrics)
        clock, clock_max = current_clock_mhz(read_text(device / "pp_dpm_sclk"))
        memory_clock, memory_clock_max = current_clock_mhz(read_text(device / "pp_dpm_mclk"))
        unique_id = read_text(device / "unique_id")
        return GpuSample(
            index=index,
            name=self._name(card),
            vendor="amd",
            uuid=f"GPU-{unique_id}" if unique_id else "",
            pci_bus_id=card.pci_bus_id,
            driver=card.driver,
            memory_total_bytes=total,
            memory_used_bytes=used,
            memory_ours_bytes=ours,
            memory_others_bytes=None if used is None or ours is None else max(0, used - ours),
            unified_memory=inside_cpu,
            utilisation_percent=read_scaled(device / "gpu_busy_percent", 1),
            memory_utilisation_percent=read_scaled(device / "mem_busy_percent", 1),
            temperature_c=_temperature_c(sensors, ("edge", "junction")),
            temperature_limit_c=_limit_c(sensors),
            memory_temperature_c=_temperature_c(sensors, ("mem",)),
            power_w=_first(sensors, ("power1_average", "power1_input"), 1e6),
            power_limit_w=_first(sensors, ("power1_cap",), 1e6),
            clock_mhz=_first(sensors, ("freq1_input",), 1e6) or clock,
            clock_max_mhz=clock_max,
            memory_clock_mhz=memory_clock,
            memory_clock_max_mhz=memory_clock_max,
            fan_percent=_first(sensors, ("pwm1",), _PWM_MAX / 100),
            throttle_reasons=reasons,
            throttled=bool(reasons),
        )

    @staticmethod
    def _memory(device: Path, *, inside_cpu: bool) -> tuple[int | None, int | None]:
        total = read_int(device / "mem_info_vram_total")
        used = read_int(device / "mem_info_vram_used")
        if inside_cpu and total is not None and used is not None:
            # The part cut out of system memory is small there; what the driver may map beside it counts as well.
            total += read_int(device / "mem_info_gtt_total") or 0
            used += read_int(device / "mem_info_gtt_used") or 0
        return total, used


def _temperature_c(sensors: Path | None, labels: Collection[str]) -> float | None:
    if sensors is None:
        return None
    path = labelled_sensor(sensors, "temp", labels)
    if path is None and "edge" in labels:
        path = sensors / "temp1_input"  # kernels before 4.20 have no labels, and only this sensor
    return read_scaled(path, 1000) if path is not None else None


def _limit_c(sensors: Path | None) -> float | None:
    path = labelled_sensor(sensors, "temp", ("edge", "junction")) if sensors is not None else None
    return read_scaled(path.with_name(path.name.replace("_input", "_crit")), 1000) if path is not None else None


def _first(sensors: Path | None, names: Collection[str], divisor: float) -> float | None:
    if sensors is None:
        return None
    return next((value for name in names if (value := read_scaled(sensors / name, divisor)) is not None), None)
