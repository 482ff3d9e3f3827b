"""The one door to NVIDIA's management library: every foreign call goes through `call`.

Readings a card or driver does not give come back as `None`; a card in trouble raises `GpuTrouble`; a driver that is
not there raises `DriverMissing`. Nothing else leaves this module, so no reader needs to know pynvml's errors.
Calls and constants: NVML API reference and pynvml 13.615 (package nvidia-ml-py).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_log = logging.getLogger(__name__)

_NVML_TEMPERATURE_GPU = 0
_MAX_FANS = 8
_MAX_MIG = 64  # the library reports at most 8 today; a bound against nonsense from a broken driver


class DriverMissing(Exception):
    """No usable driver. The message is a sentence for a person; `quiet` when there may just be no NVIDIA card."""

    def __init__(self, message: str, *, quiet: bool = False) -> None:
        super().__init__(message)
        self.quiet = quiet


class GpuTrouble(Exception):
    """This GPU does not answer any more; the library must be started again. The message is for a person."""


@dataclass(frozen=True, slots=True)
class MemoryFigures:
    """Bytes. `used` is without what the driver reserves for itself where the driver tells them apart."""

    total_bytes: int
    used_bytes: int


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds GPU memory; `None` bytes where the system hides them (Windows WDDM, often WSL)."""

    pid: int
    memory_bytes: int | None


_TROUBLE = {
    "NVML_ERROR_GPU_IS_LOST": "The GPU has fallen off the bus or was reset; the driver cannot reach it.",
    "NVML_ERROR_RESET_REQUIRED": "The GPU needs a reset before it can be used again; restart the machine.",
    "NVML_ERROR_UNKNOWN": "The driver reports an unknown error for this GPU.",
    "NVML_ERROR_GPU_NOT_FOUND": "The driver no longer lists this GPU.",
    "NVML_ERROR_IRQ_ISSUE": "The driver gets no interrupts from this GPU; check its seat and the BIOS settings.",
    "NVML_ERROR_INSUFFICIENT_POWER": "The GPU's extra power cables are not plugged in properly.",
    "NVML_ERROR_UNINITIALIZED": "The driver library lost its session.",
    "NVML_ERROR_TIMEOUT": "The driver gave no answer for this GPU in time.",
}
_MISSING = {
    "NVML_ERROR_DRIVER_NOT_LOADED": "The NVIDIA driver is installed but not running; load it or restart the machine.",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": (
        "The NVIDIA driver was updated while running, so its two halves do not match; restart the machine."
    ),
    "NVML_ERROR_NO_PERMISSION": "This account may not use the NVIDIA driver.",
}
_NO_LIBRARY = "No NVIDIA driver library was found, so there are no readings of NVIDIA GPUs."


class Nvml:
    """A session with the library. Not for more than one owner; calls on different handles may run in parallel."""

    def __init__(self) -> None:
        import pynvml  # late: 8,000 lines, and of no use on most machines

        self._lib: Any = pynvml
        self._trouble = {getattr(pynvml, name): text for name, text in _TROUBLE.items() if hasattr(pynvml, name)}
        self._missing = {getattr(pynvml, name): text for name, text in _MISSING.items() if hasattr(pynvml, name)}
        self._told: set[str] = set()  # one entry a function name, so bounded by this module

    # --- session ------------------------------------------------------------------------------------------

    def start(self) -> int:
        """Start the library and count the GPUs.

        Raises:
            DriverMissing: if there is no library, no driver, or the two do not match.
        """
        try:
            self._lib.nvmlInit()
        except self._lib.NVMLError as error:
            if error.value == self._lib.NVML_ERROR_LIBRARY_NOT_FOUND:
                raise DriverMissing(_NO_LIBRARY, quiet=True) from error
            sentence = self._missing.get(error.value, f"The NVIDIA driver could not be started: {error}.")
            raise DriverMissing(sentence) from error
        except (OSError, AttributeError) as error:
            raise DriverMissing(f"The NVIDIA driver library is damaged: {error}.") from error
        return self.call("nvmlDeviceGetCount") or 0

    def stop(self) -> None:
        """End the session; errors no longer matter."""
        try:
            self._lib.nvmlShutdown()
        except (self._lib.NVMLError, OSError, AttributeError) as error:
            _log.debug("Ending the NVIDIA library failed: %s", error)

    def call(self, function: str, *arguments: object) -> Any:  # noqa: ANN401 - each typed method below narrows it
        """Call a pynvml function by name; `None` when this card, driver or account does not give the reading.

        Raises:
            GpuTrouble: if the GPU cannot be reached any more.
        """
        called: Callable[..., Any] | None = getattr(self._lib, function, None)
        if called is None:
            return None
        try:
            return called(*arguments)
        except self._lib.NVMLError as error:
            if error.value in self._trouble and not self._answers_otherwise(error.value, arguments):
                raise GpuTrouble(self._trouble[error.value]) from error
            self._tell_once(function, error)
        except (self._lib.NVMLLibraryMismatchError, OSError, ValueError, TypeError, AttributeError) as error:
            # A structure newer or older than the driver's, or text that is not UTF-8.
            self._tell_once(function, error)
        return None

    def _answers_otherwise(self, code: int, arguments: tuple[object, ...]) -> bool:
        """Some cards answer "unknown error" to one sensor they lack and work well: then a plain call succeeds."""
        if code != self._lib.NVML_ERROR_UNKNOWN or not arguments:
            return False
        try:
            self._lib.nvmlDeviceGetMemoryInfo(arguments[0])
        except (self._lib.NVMLError, OSError, TypeError, ValueError):
            return False
        return True

    def _tell_once(self, function: str, error: Exception) -> None:
        if function not in self._told:
            self._told.add(function)
            _log.debug("%s gives no reading here: %s", function, error)

    # --- typed readings -----------------------------------------------------------------------------------

    def handle(self, index: int) -> object | None:
        """The handle of a GPU in PCI order (CUDA_VISIBLE_DEVICES does not count here)."""
        handle: object | None = self.call("nvmlDeviceGetHandleByIndex", index)
        return handle

    def text(self, function: str, *arguments: object) -> str:
        """A text reading; empty when there is none."""
        value = self.call(function, *arguments)
        if isinstance(value, bytes):
            value = value.decode("utf-8", errors="replace")
        return value if isinstance(value, str) else ""

    def number(self, function: str, *arguments: object) -> int | None:
        """A whole number, or `None`."""
        value = self.call(function, *arguments)
        return value if isinstance(value, int) else None

    def driver_version(self) -> str:
        """Such as `580.95.05`; empty when unknown."""
        return self.text("nvmlSystemGetDriverVersion")

    def pci_bus_id(self, handle: object) -> str:
        """In the kernel's (and llama.cpp's) form `0000:01:00.0`; NVML itself writes an 8-digit domain."""
        raw = getattr(self.call("nvmlDeviceGetPciInfo", handle), "busId", "")
        text = raw.decode("ascii", errors="replace") if isinstance(raw, bytes) else str(raw)
        domain, _, rest = text.lower().partition(":")
        return f"{domain[-4:]}:{rest}" if rest else ""

    def memory(self, handle: object) -> MemoryFigures | None:
        """By the second version of the call, which keeps the driver's reserve out of `used`; else by the first."""
        version = getattr(self._lib, "nvmlMemory_v2", None)
        info = self.call("nvmlDeviceGetMemoryInfo", handle, version) if version is not None else None
        if info is None or not info.total:
            info = self.call("nvmlDeviceGetMemoryInfo", handle)
        if info is None or not info.total:
            return None
        return MemoryFigures(total_bytes=int(info.total), used_bytes=int(info.used))

    def utilisation_percent(self, handle: object) -> tuple[float | None, float | None]:
        """Share of time that a kernel ran, and that the memory was busy."""
        rates = self.call("nvmlDeviceGetUtilizationRates", handle)
        return (None, None) if rates is None else (float(rates.gpu), float(rates.memory))

    def temperature_c(self, handle: object) -> float | None:
        """The die; the older call only where the newer one is missing."""
        value = self.number("nvmlDeviceGetTemperatureV", handle, _NVML_TEMPERATURE_GPU)
        if value is None:
            value = self.number("nvmlDeviceGetTemperature", handle, _NVML_TEMPERATURE_GPU)
        return None if value is None else float(value)

    def temperature_limit_c(self, handle: object, temperature_c: float | None) -> float | None:
        """Where the card starts to slow down.

        Ada and later tell only the distance to it, so there it is the temperature plus that distance.
        """
        for kind in ("NVML_TEMPERATURE_THRESHOLD_GPU_MAX", "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN"):
            limit = self.number("nvmlDeviceGetTemperatureThreshold", handle, getattr(self._lib, kind, 1))
            if limit:
                return float(limit)
        margin = self.number("nvmlDeviceGetMarginTemperature", handle)
        return None if margin is None or temperature_c is None else temperature_c + margin

    def memory_temperature_c(self, handle: object) -> float | None:
        """Only data-centre cards tell it."""
        field = getattr(self._lib, "NVML_FI_DEV_MEMORY_TEMP", None)
        values = self.call("nvmlDeviceGetFieldValues", handle, [field]) if field is not None else None
        if not values or values[0].nvmlReturn != 0:
            return None
        value = int(values[0].value.uiVal)
        return float(value) if value else None

    def watts(self, function: str, handle: object) -> float | None:
        """A power reading; NVML counts in milliwatts."""
        value = self.number(function, handle)
        return None if value is None else value / 1000

    def fan_percent(self, handle: object) -> float | None:
        """The fastest of the card's fans; `None` for a card without."""
        count = self.number("nvmlDeviceGetNumFans", handle)
        if count is None:  # a driver older than the count
            speeds = [self.number("nvmlDeviceGetFanSpeed", handle)]
        else:
            speeds = [self.number("nvmlDeviceGetFanSpeed_v2", handle, fan) for fan in range(min(count, _MAX_FANS))]
        known = [speed for speed in speeds if speed is not None]
        return float(max(known)) if known else None

    def clock_event_reasons(self, handle: object) -> int | None:
        """Bit mask of what holds the clocks down; the second name is the older driver's."""
        mask = self.number("nvmlDeviceGetCurrentClocksEventReasons", handle)
        return mask if mask is not None else self.number("nvmlDeviceGetCurrentClocksThrottleReasons", handle)

    def processes(self, handle: object) -> tuple[GpuProcess, ...] | None:
        """Compute and graphics processes, each once; `None` when the driver does not tell."""
        found: dict[int, int | None] = {}
        answered = False
        for kind in ("Compute", "Graphics"):
            listed = None
            for version in ("_v3", "_v2"):
                listed = self.call(f"nvmlDeviceGet{kind}RunningProcesses{version}", handle)
                if listed is not None:
                    break
            for entry in listed or ():
                answered = True
                known = found.get(entry.pid)
                # A process in both lists has the same memory in both.
                found[entry.pid] = entry.usedGpuMemory if known is None else max(known, entry.usedGpuMemory or 0)
            answered = answered or listed is not None
        return tuple(GpuProcess(pid, memory) for pid, memory in found.items()) if answered else None

    def mig_handles(self, handle: object) -> tuple[object, ...]:
        """Handles of the slices of a GPU in MIG mode; empty when it is not split."""
        mode = self.call("nvmlDeviceGetMigMode", handle)
        if not mode or not mode[0]:
            return ()
        count = min(self.number("nvmlDeviceGetMaxMigDeviceCount", handle) or 0, _MAX_MIG)
        slices = (self.call("nvmlDeviceGetMigDeviceHandleByIndex", handle, index) for index in range(count))
        return tuple(one for one in slices if one is not None)
