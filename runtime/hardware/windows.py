"""Graphics cards that Windows lists, from the registry: names and memory sizes. Needs no package and no rights.

NVIDIA cards are left to `nvidia`. The size is `HardwareInformation.qwMemorySize` of the display class, 64 bits wide
(the better known WMI figure wraps at 4 GB). Load and temperature are not in the registry; a note says so.
"""

import contextlib
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass

from runtime.messages.hardware import GpuSample, Vendor

NOTE = "Windows tells the load and temperature of this graphics card only through its maker's program."

_DISPLAY_CLASS = r"SYSTEM\CurrentControlSet\Control\Class\{4d36e968-e325-11ce-bfc1-08002be10318}"
_MEMORY_SIZE = "HardwareInformation.qwMemorySize"
_VALUES = (_MEMORY_SIZE, "DriverDesc", "MatchingDeviceId", "DriverVersion")
_MAX_ADAPTERS = 64
_VENDORS: tuple[tuple[str, Vendor], ...] = (("ven_1002", "amd"), ("ven_8086", "intel"), ("ven_10de", "nvidia"))
_SOFTWARE = "root\\"  # matching ids of drivers without hardware, such as the basic render driver


@dataclass(frozen=True, slots=True)
class Adapter:
    """One entry of the display class."""

    name: str
    matching_id: str
    memory_bytes: int | None
    driver_version: str


def registry_adapters() -> tuple[Adapter, ...]:
    """The entries of the display class; none on other systems."""
    found: list[Adapter] = []
    if sys.platform == "win32":
        import winreg

        for number in range(_MAX_ADAPTERS):
            values: dict[str, object] = {}
            try:
                with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, rf"{_DISPLAY_CLASS}\{number:04d}") as key:
                    for name in _VALUES:
                        with contextlib.suppress(OSError):
                            values[name] = winreg.QueryValueEx(key, name)[0]
            except OSError:
                continue
            size = values.get(_MEMORY_SIZE)
            found.append(
                Adapter(
                    name=str(values.get("DriverDesc", "")),
                    matching_id=str(values.get("MatchingDeviceId", "")),
                    memory_bytes=size if isinstance(size, int) else None,
                    driver_version=str(values.get("DriverVersion", "")),
                )
            )
    return tuple(found)


class WindowsReader:
    """Cards of other makers than NVIDIA, listed once: another list needs a restart or a new driver.

    Home thread of `read`: its lane.
    """

    def __init__(self, adapters: Callable[[], Collection[Adapter]] = registry_adapters) -> None:
        self._adapters = adapters
        self._samples: tuple[GpuSample, ...] | None = None

    def read(self) -> tuple[GpuSample, ...]:
        """Name, maker and memory size of each card."""
        if self._samples is None:
            listed = (self._sample(adapter) for adapter in self._adapters())
            kept = [sample for sample in listed if sample is not None]
            self._samples = tuple(kept)
        return self._samples

    @staticmethod
    def _sample(adapter: Adapter) -> GpuSample | None:
        matching_id = adapter.matching_id.lower()
        vendor: Vendor = next((vendor for mark, vendor in _VENDORS if mark in matching_id), "other")
        if vendor == "nvidia" or not adapter.name or matching_id.startswith(_SOFTWARE):
            return None
        return GpuSample(
            index=0,
            name=adapter.name,
            vendor=vendor,
            memory_total_bytes=adapter.memory_bytes,
            driver=adapter.driver_version,
        )
