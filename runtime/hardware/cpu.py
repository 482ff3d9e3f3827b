"""Processor and system memory, through psutil; the same on every system."""

import platform
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import psutil

from runtime.messages.hardware import CpuSample, MemorySample


class SensorReading(Protocol):
    """One entry of psutil's `sensors_temperatures`."""

    label: str
    current: float


T = TypeVar("T")
ReadSensors = Callable[[], Mapping[str, Sequence[SensorReading]]]

_PACKAGE_LABELS = ("Package id 0", "Tctl", "Tdie", "CPU", "")
# Chips that measure the processor itself, best first: Intel, AMD, AMD with zenpower, Arm boards, Apple under Linux.
_CPU_CHIPS = (
    "coretemp",
    "k10temp",
    "zenpower",
    "cpu_thermal",
    "cpu-thermal",
    "soc_thermal",
    "macsmc_hwmon",
    "x86_pkg_temp",
)
_MIN_SPAN_S = 0.1  # processor seconds; the counters move in steps of 10 ms, so a shorter span says nothing
_MIN_PLAUSIBLE_C = -30.0
_MAX_PLAUSIBLE_C = 150.0


def _psutil_sensors() -> Mapping[str, Sequence[SensorReading]]:
    read = getattr(psutil, "sensors_temperatures", None)  # psutil has it on Linux and FreeBSD only
    return read() if read is not None else {}


def choose_temperature(sensors: Mapping[str, Sequence[SensorReading]]) -> float | None:
    """The processor's temperature in degrees Celsius: the package's own, else its hottest core."""
    for chip in _CPU_CHIPS:
        readings = [r for r in sensors.get(chip, ()) if _MIN_PLAUSIBLE_C < r.current < _MAX_PLAUSIBLE_C]
        if not readings:
            continue
        for label in _PACKAGE_LABELS:
            for reading in readings:
                if reading.label == label:
                    return float(reading.current)
        return float(max(reading.current for reading in readings))
    return None


def cpu_name(proc_root: Path = Path("/proc")) -> str:
    """The processor's name for people; may be empty."""
    if sys.platform == "linux":
        try:
            for line in (proc_root / "cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
                key, _, value = line.partition(":")
                if key.strip() in {"model name", "Model", "cpu model"} and value.strip():
                    return " ".join(value.split())
        except OSError:
            pass
    elif sys.platform == "darwin":
        try:
            answer = subprocess.run(
                ["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, timeout=2, check=True
            )
            return answer.stdout.strip()
        except (OSError, subprocess.SubprocessError):
            pass
    return platform.processor()


class CpuReader:
    """Reads the processor. Keeps the last counters, so that load is over the time since the last reading."""

    def __init__(self, read_sensors: ReadSensors = _psutil_sensors, proc_root: Path = Path("/proc")) -> None:
        self._read_sensors = read_sensors
        self._name = cpu_name(proc_root)
        self._cores_physical = _quietly(lambda: psutil.cpu_count(logical=False))
        self._cores_logical = _quietly(psutil.cpu_count)
        self._last = _quietly(_busy_and_total)

    def read(self) -> CpuSample:
        """One reading; what the system does not tell is `None`."""
        frequency = _quietly(psutil.cpu_freq)
        return CpuSample(
            name=self._name,
            cores_physical=self._cores_physical,
            cores_logical=self._cores_logical,
            utilisation_percent=self._utilisation_percent(),
            frequency_mhz=frequency.current if frequency is not None and frequency.current else None,
            temperature_c=_quietly(lambda: choose_temperature(self._read_sensors())),
        )

    def _utilisation_percent(self) -> float | None:
        now = _quietly(_busy_and_total)
        last = self._last
        if now is None or last is None:
            self._last = now
            return None
        if now[1] - last[1] < _MIN_SPAN_S:
            return None
        self._last = now
        return min(100.0, max(0.0, 100.0 * (now[0] - last[0]) / (now[1] - last[1])))


def _busy_and_total() -> tuple[float, float]:
    """Processor seconds since boot, over all cores: busy, and busy with idle."""
    times = psutil.cpu_times()
    # Linux counts guests within user and nice as well, so those two are left out of the sum.
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    idle = times.idle + getattr(times, "iowait", 0.0)
    return total - idle, total


class MemoryReader:
    """Reads system memory and what our own processes hold of it."""

    def __init__(self, our_pids: Callable[[], Collection[int]]) -> None:
        self._our_pids = our_pids

    def read(self) -> MemorySample:
        """One reading; what the system does not tell is `None`."""
        memory = _quietly(psutil.virtual_memory)
        swap = _quietly(psutil.swap_memory)
        return MemorySample(
            total_bytes=memory.total if memory is not None else None,
            available_bytes=memory.available if memory is not None else None,
            ours_bytes=self._ours_bytes(),
            swap_total_bytes=swap.total if swap is not None else None,
            swap_used_bytes=swap.used if swap is not None else None,
        )

    def _ours_bytes(self) -> int | None:
        sizes = (_quietly(partial(_resident_bytes, pid)) for pid in self._our_pids())
        known = [size for size in sizes if size is not None]
        return sum(known) if known else None


def _resident_bytes(pid: int) -> int:
    return psutil.Process(pid).memory_info().rss


def _quietly(read: Callable[[], T]) -> T | None:
    """The one wrapper around psutil: a reading that the system refuses is no reading."""
    try:
        return read()
    except (psutil.Error, OSError, RuntimeError, ValueError, AttributeError, NotImplementedError):
        # psutil raises these where a counter is absent, in containers above all (cpu_freq, swap_memory).
        return None
