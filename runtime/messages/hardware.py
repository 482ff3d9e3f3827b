"""One reading of the machine. Everything a device does not tell is `None`, shown as "not available".

Sampled once a second by `runtime.hardware`, in the host, and shown by all. Units are in the names.
"""

from typing import Literal

import msgspec

Vendor = Literal["nvidia", "amd", "intel", "apple", "other"]


class CpuSample(msgspec.Struct, frozen=True, omit_defaults=True):
    """The processor. `utilisation_percent` is over all cores, 0..100."""

    name: str = ""
    cores_physical: int | None = None
    cores_logical: int | None = None
    utilisation_percent: float | None = None
    frequency_mhz: float | None = None
    temperature_c: float | None = None


class MemorySample(msgspec.Struct, frozen=True, omit_defaults=True):
    """System memory. `ours_bytes` is the resident memory of Deskside's own processes."""

    total_bytes: int | None = None
    available_bytes: int | None = None
    ours_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_used_bytes: int | None = None


class MigSample(msgspec.Struct, frozen=True, omit_defaults=True):
    """One slice of a GPU that is split by MIG. The driver tells no load for a slice, only its memory."""

    name: str
    uuid: str = ""
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None


class GpuSample(msgspec.Struct, frozen=True, omit_defaults=True):
    """One graphics processor. `index` counts over all vendors; for NVIDIA it is the driver's own.

    `throttle_reasons` are sentences for a person, empty when the GPU runs free, `None` when it does not tell.
    `throttled` is true only for limits that cost speed (heat, power), not for being idle. `problem` is a
    sentence when the device cannot be read (lost, driver mismatch).

    `unified_memory` is true where the GPU works in the system's memory: its memory figures are then those of the
    system. `memory_ours_bytes` is what Deskside's processes hold, `memory_others_bytes` the rest of the used.
    """

    index: int
    name: str
    vendor: Vendor
    uuid: str = ""
    pci_bus_id: str = ""
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_ours_bytes: int | None = None
    memory_others_bytes: int | None = None
    utilisation_percent: float | None = None
    memory_utilisation_percent: float | None = None
    temperature_c: float | None = None
    temperature_limit_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    clock_mhz: float | None = None
    clock_max_mhz: float | None = None
    memory_clock_mhz: float | None = None
    memory_clock_max_mhz: float | None = None
    memory_temperature_c: float | None = None
    fan_percent: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    throttled: bool = False
    problem: str = ""
    unified_memory: bool = False
    mig: tuple[MigSample, ...] = ()
    driver: str = ""


class HardwareSample(msgspec.Struct, frozen=True, omit_defaults=True):
    """The whole machine at one time. `at_s` is the wall clock, `notes` say why something is missing."""

    at_s: float
    cpu: CpuSample
    memory: MemorySample
    gpus: tuple[GpuSample, ...] = ()
    notes: tuple[str, ...] = ()
