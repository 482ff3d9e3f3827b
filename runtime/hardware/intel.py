"""Intel GPUs on Linux, from the files of the kernel drivers i915 and xe. Needs no package and no rights.

Intel tells no load of the whole GPU without special rights, and no memory total in files; both stay `None`, with a
note. Files and units: kernel documentation, "sysfs-driver-intel-i915-hwmon" and "sysfs-driver-intel-xe-hwmon".
"""

import time
from collections.abc import Callable, Collection
from pathlib import Path

import psutil

from runtime.hardware.sysfs import (
    PCI_DATABASES,
    Card,
    cards,
    fdinfo_memory_bytes,
    hwmon,
    labelled_sensor,
    pci_name,
    read_int,
    read_scaled,
)
from runtime.messages.hardware import GpuSample

PCI_VENDOR = 0x8086
NOTE = "Intel GPUs tell their load and their free memory only to administrators, so both are not available."

_MIN_SPAN_S = 0.2  # a shorter span makes the power figure jump with the counter's steps
_RESIDENT_KEYS = ("drm-resident-vram0", "drm-total-vram0", "drm-resident-local0", "drm-total-local0")


class IntelReader:
    """All Intel GPUs. Keeps the last energy counter of each, since power is its change over time.

    Home thread of `read`: its lane.
    """

    def __init__(
        self,
        our_pids: Callable[[], Collection[int]],
        sys_root: Path = Path("/sys"),
        proc_root: Path = Path("/proc"),
        pci_databases: Collection[Path] = PCI_DATABASES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._our_pids = our_pids
        self._sys_root = sys_root
        self._proc_root = proc_root
        self._pci_databases = pci_databases
        self._clock = clock
        self._names: dict[int, str] = {}  # by PCI device id
        self._energy: dict[str, tuple[float, int]] = {}  # by bus id: monotonic seconds, microjoules

    def read(self) -> tuple[GpuSample, ...]:
        """One reading of each; what the driver does not tell is `None`."""
        return tuple(self._sample(index, card) for index, card in enumerate(cards(self._sys_root, PCI_VENDOR)))

    def _sample(self, index: int, card: Card) -> GpuSample:
        sensors = hwmon(card.device)
        # Graphics inside the processor sits on the first bus and works in the system's memory.
        inside_cpu = card.pci_bus_id.split(":")[1:2] == ["00"]
        ours = fdinfo_memory_bytes(self._proc_root, self._our_pids(), card.pci_bus_id, _RESIDENT_KEYS)
        memory = psutil.virtual_memory() if inside_cpu else None
        return GpuSample(
            index=index,
            name=self._name(card),
            vendor="intel",
            pci_bus_id=card.pci_bus_id,
            driver=card.driver,
            memory_total_bytes=memory.total if memory is not None else None,
            memory_used_bytes=memory.total - memory.available if memory is not None else None,
            memory_ours_bytes=ours,
            unified_memory=inside_cpu,
            temperature_c=_temperature_c(sensors),
            power_w=self._power_w(card, sensors),
            power_limit_w=read_scaled(sensors / "power1_max", 1e6) if sensors is not None else None,
            clock_mhz=_first_mhz(card, ("gt_act_freq_mhz",), ("act_freq",)),
            clock_max_mhz=_first_mhz(card, ("gt_max_freq_mhz",), ("max_freq",)),
        )

    def _name(self, card: Card) -> str:
        name = self._names.get(card.device_id)
        if name is None:
            name = pci_name(PCI_VENDOR, card.device_id, self._pci_databases) or f"Intel GPU {card.device_id:#06x}"
            self._names[card.device_id] = name
        return name

    def _power_w(self, card: Card, sensors: Path | None) -> float | None:
        if sensors is None:
            return None
        energy_uj = read_int(sensors / "energy1_input")
        if energy_uj is None:
            energy_uj = read_int(sensors / "energy2_input")  # xe: the package, where the card is not told
        if energy_uj is None:
            return None
        now_s = self._clock()
        before = self._energy.get(card.pci_bus_id)
        if before is not None and now_s - before[0] < _MIN_SPAN_S:
            return None
        self._energy[card.pci_bus_id] = (now_s, energy_uj)
        if before is None or energy_uj < before[1]:  # the first reading, or the counter began anew
            return None
        return (energy_uj - before[1]) / 1e6 / (now_s - before[0])


def _temperature_c(sensors: Path | None) -> float | None:
    if sensors is None:
        return None
    labelled = labelled_sensor(sensors, "temp", ("pkg", "package"))
    return read_scaled(labelled if labelled is not None else sensors / "temp1_input", 1000)


def _first_mhz(card: Card, i915_names: Collection[str], xe_names: Collection[str]) -> float | None:
    paths = [card.path / name for name in i915_names]
    paths += [card.device / "tile0" / "gt0" / "freq0" / name for name in xe_names]
    return next((value for path in paths if (value := read_scaled(path, 1)) is not None), None)
