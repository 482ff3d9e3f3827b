"""NVIDIA GPUs: what is read of each, and what happens when one or all of them stop answering.

Each GPU is read in a lane of its own, and the library is started in another. A GPU that is lost keeps its place in
the readings with a `problem`; the library is then started anew, at growing distances, until it answers again.
"""

import logging
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import psutil

from runtime.hardware.lane import Lane, ask_all
from runtime.hardware.nvml import DriverMissing, GpuProcess, GpuTrouble, Nvml
from runtime.hardware.sysfs import has_display_adapter
from runtime.messages.hardware import GpuSample, MigSample

_log = logging.getLogger(__name__)

_PCI_VENDOR = 0x10DE
_LAST_RETRY_S = 60.0
_NO_LIBRARY_RETRY_S = 300.0
_MAX_GPUS = 64
SILENT_LIMIT_S = 5.0
"""A lane that has not answered for so long is told as a problem; until then its last reading stands."""

# Bits of the clock event reasons (NVML API reference, nvmlClocksEventReasons).
_IDLE = 0x1
_HW_SLOWDOWN = 0x8
_HW_THERMAL = 0x40
_HW_POWER_BRAKE = 0x80
_REASONS: tuple[tuple[int, str, bool], ...] = (
    (_IDLE, "Idle: the clocks are low because nothing runs.", False),
    (0x2, "Held at clocks that were set by hand.", False),
    (0x4, "Slowed down to stay within its power limit.", True),
    (_HW_SLOWDOWN, "Slowed down by the hardware, for heat or for power.", True),
    (0x10, "Held at the clocks of the other GPUs in its group.", False),
    (0x20, "Slowed down by the driver because it is hot.", True),
    (_HW_THERMAL, "Slowed down hard by the hardware because it is too hot.", True),
    (_HW_POWER_BRAKE, "Slowed down by the power supply's brake signal.", True),
    (0x100, "Held at the clocks that a display needs.", False),
)


def throttle_reasons(mask: int | None) -> tuple[tuple[str, ...] | None, bool]:
    """Sentences for the bits of a clock event mask, and whether any of them costs speed."""
    if mask is None:
        return None, False
    if mask & (_HW_THERMAL | _HW_POWER_BRAKE):
        mask &= ~_HW_SLOWDOWN  # the general bit says nothing more than these two
    told = [(text, slows) for bit, text, slows in _REASONS if mask & bit]
    return tuple(text for text, _ in told), any(slows for _, slows in told)


@dataclass(frozen=True, slots=True)
class _Identity:
    """What does not change while the library runs."""

    index: int
    name: str
    uuid: str
    pci_bus_id: str
    driver: str


class _Gpu:
    """One GPU of the running library. Home thread of `read`: its lane."""

    def __init__(self, nvml: Nvml, index: int, driver: str, our_pids: Callable[[], Collection[int]]) -> None:
        self._nvml = nvml
        self._our_pids = our_pids
        self._handle: object | None = None
        self.identity = _Identity(index, f"NVIDIA GPU {index}", "", "", driver)
        self.lane: Lane[GpuSample] = Lane(f"nvidia-{index}", self.read)

    def read(self) -> GpuSample:
        """One reading.

        Raises:
            GpuTrouble: if the GPU cannot be reached.
        """
        nvml = self._nvml
        if self._handle is None:
            self._identify()
        handle = self._handle
        utilisation, memory_utilisation = nvml.utilisation_percent(handle)
        temperature_c = nvml.temperature_c(handle)
        reasons, throttled = throttle_reasons(nvml.clock_event_reasons(handle))
        sample = GpuSample(
            index=self.identity.index,
            name=self.identity.name,
            vendor="nvidia",
            uuid=self.identity.uuid,
            pci_bus_id=self.identity.pci_bus_id,
            driver=self.identity.driver,
            utilisation_percent=utilisation,
            memory_utilisation_percent=memory_utilisation,
            temperature_c=temperature_c,
            temperature_limit_c=nvml.temperature_limit_c(handle, temperature_c),
            memory_temperature_c=nvml.memory_temperature_c(handle),
            power_w=nvml.watts("nvmlDeviceGetPowerUsage", handle),
            power_limit_w=nvml.watts("nvmlDeviceGetEnforcedPowerLimit", handle),
            clock_mhz=nvml.number("nvmlDeviceGetClockInfo", handle, 0),
            clock_max_mhz=nvml.number("nvmlDeviceGetMaxClockInfo", handle, 0),
            memory_clock_mhz=nvml.number("nvmlDeviceGetClockInfo", handle, 2),
            memory_clock_max_mhz=nvml.number("nvmlDeviceGetMaxClockInfo", handle, 2),
            fan_percent=nvml.fan_percent(handle),
            throttle_reasons=reasons,
            throttled=throttled,
            mig=tuple(self._mig_sample(one) for one in nvml.mig_handles(handle)),
        )
        return self._with_memory(sample)

    def _identify(self) -> None:
        nvml, index = self._nvml, self.identity.index
        handle = nvml.handle(index)
        if handle is None:
            raise GpuTrouble("The driver lists this GPU but does not let it be opened.")
        self.identity = replace(
            self.identity,
            name=nvml.text("nvmlDeviceGetName", handle) or self.identity.name,
            uuid=nvml.text("nvmlDeviceGetUUID", handle),
            pci_bus_id=nvml.pci_bus_id(handle),
        )
        self._handle = handle

    def _with_memory(self, sample: GpuSample) -> GpuSample:
        figures = self._nvml.memory(self._handle)
        if figures is not None:
            total, used, unified = figures.total_bytes, figures.used_bytes, False
        else:  # the GPU shares the system's memory (GB10, Jetson) and has no figures of its own
            memory = psutil.virtual_memory()
            total, used, unified = memory.total, memory.total - memory.available, True
        ours = ours_of(self._nvml.processes(self._handle), self._our_pids())
        return msgspec.structs.replace(
            sample,
            memory_total_bytes=total,
            memory_used_bytes=used,
            memory_ours_bytes=ours,
            memory_others_bytes=None if ours is None else max(0, used - ours),
            unified_memory=unified,
        )

    def _mig_sample(self, handle: object) -> MigSample:
        figures = self._nvml.memory(handle)
        return MigSample(
            name=self._nvml.text("nvmlDeviceGetName", handle) or "MIG slice",
            uuid=self._nvml.text("nvmlDeviceGetUUID", handle),
            memory_total_bytes=figures.total_bytes if figures else None,
            memory_used_bytes=figures.used_bytes if figures else None,
        )


def ours_of(processes: Collection[GpuProcess] | None, our_pids: Collection[int]) -> int | None:
    """Bytes that our processes hold; `None` when the list cannot tell.

    It cannot where the system hides sizes (Windows WDDM), and in a container, where the driver lists the pids of the
    outer system: then not one of them is known here.
    """
    if processes is None:
        return None
    ours = [process for process in processes if process.pid in our_pids]
    if any(process.memory_bytes is None for process in ours):
        return None
    if not ours and processes and not any(psutil.pid_exists(process.pid) for process in processes):
        return None
    if not ours and any(process.memory_bytes is None for process in processes):
        return None
    return sum(process.memory_bytes or 0 for process in ours)


class NvidiaReader:
    """All NVIDIA GPUs. Home thread of `read` and `close`: the sampling thread.

    Args:
        our_pids: the process ids of Deskside's own processes.
        sys_root: where Linux's sysfs is mounted.
        first_retry_s: wait before the library is first started anew; it doubles up to a minute.
        silent_limit_s: a GPU that has not answered for so long has a problem; until then its last reading stands.
    """

    def __init__(
        self,
        our_pids: Callable[[], Collection[int]],
        sys_root: Path = Path("/sys"),
        first_retry_s: float = 2.0,
        silent_limit_s: float = SILENT_LIMIT_S,
    ) -> None:
        self._our_pids = our_pids
        self._first_retry_s = first_retry_s
        self._silent_limit_s = silent_limit_s
        self._sys_root = sys_root
        self._nvml: Nvml | None = None
        self._gpus: dict[int, _Gpu] = {}
        self._last: dict[int, GpuSample] = {}  # also of GPUs that went missing; at most `_MAX_GPUS`
        self._trouble: dict[int, str] = {}
        self._note = ""
        self._driver = ""
        self._running = False
        self._starting = False
        self._stop_first = False
        self._retry_s = first_retry_s
        self._retry_at = 0.0
        self._starter: Lane[int] = Lane("nvidia-start", self._start)

    def read(self, within_s: float) -> tuple[tuple[GpuSample, ...], tuple[str, ...]]:
        """All GPUs and the sentences that say why something is missing; takes at most about `within_s`."""
        until = time.monotonic() + within_s
        self._restart_if_due(until)
        if self._running:
            ask_all([gpu.lane for gpu in self._gpus.values()], max(0.0, until - time.monotonic()))
            self._collect()
        indexes = sorted(set(self._last) | set(self._trouble))
        return tuple(self._shown(index) for index in indexes), (self._note,) if self._note else ()

    def close(self, until: float) -> None:
        """End the lanes and the session, by that monotonic time; a lane that hangs ends with the process."""
        lanes = [gpu.lane for gpu in self._gpus.values()]
        for lane in lanes:
            lane.close()
        self._starter.close()
        ended = [lane.join(until) for lane in lanes]
        if self._starter.join(until) and all(ended) and self._running and self._nvml is not None:
            self._nvml.stop()
        self._running = False

    # --- the session --------------------------------------------------------------------------------------

    def _start(self) -> int:
        """In the starter's lane: end what was, begin anew, count."""
        if self._nvml is None:
            self._nvml = Nvml()
        if self._stop_first:
            self._nvml.stop()
        count = self._nvml.start()
        self._driver = self._nvml.driver_version()
        return min(count, _MAX_GPUS)

    def _restart_if_due(self, until: float) -> None:
        if not self._starting:
            wanted = not self._running or self._trouble
            if not wanted or time.monotonic() < self._retry_at:
                return
            if any(gpu.lane.busy for gpu in self._gpus.values()):
                return  # the session must not end under a call that still runs
            for gpu in self._gpus.values():
                gpu.lane.close()
            self._gpus = {}
            self._stop_first, self._running = self._running, False
            self._starting = True
            self._starter.ask()
        if not self._starter.wait(until):
            return
        self._starting = False
        self._retry_at = time.monotonic() + self._retry_s
        self._retry_s = min(self._retry_s * 2, _LAST_RETRY_S)
        error = self._starter.error
        if error is not None:
            self._take_start_error(error)
            return
        self._running, self._note = True, ""
        nvml, count = self._nvml, self._starter.latest or 0
        if nvml is None:
            return
        for index in range(count):
            self._gpus[index] = _Gpu(nvml, index, self._driver, self._our_pids)
        for index in self._last:
            if index >= count:
                self._trouble[index] = "The driver no longer lists this GPU."

    def _take_start_error(self, error: Exception) -> None:
        if isinstance(error, DriverMissing) and error.quiet:
            self._retry_at = time.monotonic() + _NO_LIBRARY_RETRY_S
            card = sys.platform == "linux" and has_display_adapter(self._sys_root, _PCI_VENDOR)
            self._note = (
                "There is an NVIDIA graphics card, but no NVIDIA driver; install it to use and watch the card."
                if card
                else str(error)
            )
        else:
            self._note = str(error) or type(error).__name__
        for index in self._last:
            self._trouble[index] = self._note
        _log.info("%s", self._note)

    # --- the readings -------------------------------------------------------------------------------------

    def _collect(self) -> None:
        for index, gpu in self._gpus.items():
            lane = gpu.lane
            if lane.busy:
                if lane.silent_s > self._silent_limit_s:
                    self._set_trouble(index, f"The driver has not answered for {lane.silent_s:.0f} s.")
                    self._last.setdefault(index, _bare(gpu.identity))
                continue
            error = lane.error
            if error is not None:
                self._set_trouble(index, str(error) or type(error).__name__)
                self._last.setdefault(index, _bare(gpu.identity))
            elif lane.latest is not None:
                self._last[index] = lane.latest
                if self._trouble.pop(index, None) is not None:
                    _log.info("%s answers again.", lane.latest.name)
        if not self._trouble:
            self._retry_s = self._first_retry_s

    def _set_trouble(self, index: int, sentence: str) -> None:
        if index not in self._trouble:
            _log.warning("GPU %d: %s", index, sentence)
            self._retry_at = max(self._retry_at, time.monotonic() + self._retry_s)
        self._trouble[index] = sentence

    def _shown(self, index: int) -> GpuSample:
        last = self._last.get(index) or GpuSample(index=index, name=f"NVIDIA GPU {index}", vendor="nvidia")
        problem = self._trouble.get(index)
        if problem is None:
            return last
        return GpuSample(
            index=index,
            name=last.name,
            vendor="nvidia",
            uuid=last.uuid,
            pci_bus_id=last.pci_bus_id,
            memory_total_bytes=last.memory_total_bytes,
            driver=last.driver,
            problem=problem,
        )


def _bare(identity: _Identity) -> GpuSample:
    return GpuSample(
        index=identity.index,
        name=identity.name,
        vendor="nvidia",
        uuid=identity.uuid,
        pci_bus_id=identity.pci_bus_id,
        driver=identity.driver,
    )
