"""The GPU of an Apple processor, from the I/O registry (`ioreg`). Needs no package and no rights.

Load and memory come from the `PerformanceStatistics` of the class `AGXAccelerator`. Temperature and power are only
in private frameworks, so they stay `None`, with a note.
"""

import plistlib
import subprocess
from collections.abc import Callable, Collection, Mapping

import psutil

from runtime.messages.hardware import GpuSample

NOTE = "macOS tells temperatures and power only to administrators, so both are not available."

_COMMAND = ("/usr/sbin/ioreg", "-r", "-d", "1", "-w", "0", "-c", "AGXAccelerator", "-a")
_TIMEOUT_S = 3.0


def ask_ioreg() -> bytes:
    """The registry's answer, a property list; empty when there is none."""
    try:
        return subprocess.run(_COMMAND, capture_output=True, timeout=_TIMEOUT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return b""


class AppleReader:
    """The GPU of an Apple processor. Home thread of `read`: its lane."""

    def __init__(self, cpu_name: str, ask: Callable[[], bytes] = ask_ioreg) -> None:
        self._cpu_name = cpu_name
        self._ask = ask

    def read(self) -> tuple[GpuSample, ...]:
        """One reading; empty on a machine without such a GPU."""
        try:
            entries = plistlib.loads(self._ask())
        except Exception:  # noqa: BLE001 - the parsers under it raise whatever a damaged list leads to
            return ()
        if not isinstance(entries, Collection) or isinstance(entries, Mapping | str | bytes):
            return ()
        found = [entry for entry in entries if isinstance(entry, Mapping)]
        return tuple(self._sample(index, entry) for index, entry in enumerate(found))

    def _sample(self, index: int, entry: Mapping[str, object]) -> GpuSample:
        raw = entry.get("PerformanceStatistics")
        statistics: Mapping[str, object] = raw if isinstance(raw, Mapping) else {}
        memory = psutil.virtual_memory()
        cores = _number(entry, "gpu-core-count")
        name = f"{self._cpu_name or 'Apple'} GPU"
        return GpuSample(
            index=index,
            name=f"{name}, {cores} cores" if cores else name,
            vendor="apple",
            unified_memory=True,
            memory_total_bytes=memory.total,
            memory_used_bytes=memory.total - memory.available,
            utilisation_percent=_number(statistics, "Device Utilization %"),
            driver="Metal",
        )


def _number(values: Mapping[str, object], key: str) -> int | None:
    value = values.get(key)
    return value if isinstance(value, int) else None
