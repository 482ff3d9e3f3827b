"""One reading of the whole machine, made of what each source has to say.

`HardwareSampler.sample` is called about once a second from one thread. Sources run in lanes (`runtime.hardware.lane`):
a source that stalls costs a reading at most `ANSWER_WITHIN_S`, and shows its last figures meanwhile.
"""

import logging
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

import msgspec

from runtime.hardware.cpu import CpuReader, MemoryReader, cpu_name
from runtime.hardware.lane import Lane, ask_all
from runtime.hardware.nvidia import SILENT_LIMIT_S, NvidiaReader
from runtime.messages.hardware import CpuSample, GpuSample, HardwareSample, MemorySample
from runtime.units import now

_log = logging.getLogger(__name__)

ANSWER_WITHIN_S = 0.5
"""Longest wait for the sources of one reading; a healthy machine answers in a few milliseconds."""

FIRST_ANSWER_WITHIN_S = 3.0
"""The first reading also starts the drivers' libraries, which takes up to seconds."""

_CLOSE_WITHIN_S = 2.0

GpuReading = tuple[GpuSample, ...]


class _Closable(Protocol):
    def close(self) -> None: ...

    def join(self, until: float) -> bool: ...


class HardwareSampler:
    """Reads processor, memory and all graphics processors.

    `sample` and `close` belong to one thread (the host's sampling thread); neither raises.

    Args:
        our_pids: the process ids of Deskside's own processes, asked at each reading.
        sys_root: where Linux's sysfs is mounted.
        proc_root: where Linux's procfs is mounted.
    """

    def __init__(
        self,
        our_pids: Callable[[], Collection[int]],
        sys_root: Path = Path("/sys"),
        proc_root: Path = Path("/proc"),
    ) -> None:
        self._our_pids = our_pids
        self._first = True
        cpu = CpuReader(proc_root=proc_root)
        memory = MemoryReader(self._pids)
        self._cpu: Lane[CpuSample] = Lane("cpu", cpu.read)
        self._memory: Lane[MemorySample] = Lane("memory", memory.read)
        self._nvidia = NvidiaReader(self._pids, sys_root) if sys.platform != "darwin" else None
        self._others = list(_readers_of_this_system(self._pids, sys_root, proc_root))

    def sample(self) -> HardwareSample:
        """One reading. Blocks for a few milliseconds, at worst for about `ANSWER_WITHIN_S`."""
        within_s = FIRST_ANSWER_WITHIN_S if self._first else ANSWER_WITHIN_S
        self._first = False
        until = time.monotonic() + within_s
        for lane in (self._cpu, self._memory):
            lane.ask()
        for _, other, _ in self._others:
            other.ask()
        gpus: list[GpuSample] = []
        notes: list[str] = []
        if self._nvidia is not None:
            nvidia_gpus, nvidia_notes = self._nvidia.read(within_s)
            gpus += nvidia_gpus
            notes += nvidia_notes
        ask_all([lane for _, lane, _ in self._others], until - time.monotonic())
        for vendor, gpu_lane, note in self._others:
            found = gpu_lane.latest or ()
            first = max((gpu.index for gpu in gpus), default=-1) + 1
            gpus += [msgspec.structs.replace(gpu, index=first + number) for number, gpu in enumerate(found)]
            if found and note:
                notes.append(note)
            if gpu_lane.silent_s > SILENT_LIMIT_S:
                notes.append(f"The {vendor} driver has not answered for {gpu_lane.silent_s:.0f} s.")
            elif gpu_lane.error is not None:
                notes.append(f"Reading {vendor} GPUs failed: {gpu_lane.error}.")
        self._cpu.wait(until)
        self._memory.wait(until)
        cpu = self._cpu.latest or CpuSample()
        notes += system_notes(cpu)
        return HardwareSample(
            at_s=now(),
            cpu=cpu,
            memory=self._memory.latest or MemorySample(),
            gpus=tuple(gpus),
            notes=tuple(notes),
        )

    def close(self) -> None:
        """End the threads and the drivers' sessions; takes at most `_CLOSE_WITHIN_S`."""
        until = time.monotonic() + _CLOSE_WITHIN_S
        lanes: list[_Closable] = [self._cpu, self._memory, *(lane for _, lane, _ in self._others)]
        for lane in lanes:
            lane.close()
        if self._nvidia is not None:
            self._nvidia.close(until)
        for lane in lanes:
            lane.join(until)

    def _pids(self) -> Collection[int]:
        try:
            return tuple(self._our_pids())
        except RuntimeError as error:  # a set that changed while it was read
            _log.debug("The list of our processes could not be read: %s", error)
            return ()


def system_notes(cpu: CpuSample, platform: str = sys.platform) -> tuple[str, ...]:
    """Why the processor's temperature is missing, where that is for the whole system."""
    if cpu.temperature_c is not None or platform != "win32":
        return ()  # macOS: told with the GPU's; Linux: a machine without the sensor, as virtual ones are
    return ("Windows tells the processor's temperature only to drivers with administrator rights.",)


def _readers_of_this_system(
    our_pids: Callable[[], Collection[int]], sys_root: Path, proc_root: Path
) -> tuple[tuple[str, Lane[GpuReading], str], ...]:
    """Beside NVIDIA: maker, lane, and the note that goes with its readings."""
    if sys.platform == "darwin":
        from runtime.hardware import apple

        return (("Apple", Lane("apple", apple.AppleReader(cpu_name()).read), apple.NOTE),)
    elif sys.platform == "win32":  # noqa: RET505 - a plain `if` would be unreachable code on the other systems
        from runtime.hardware import windows

        return (("display", Lane("windows", windows.WindowsReader().read), windows.NOTE),)
    else:
        from runtime.hardware import amd, intel

        return (
            ("AMD", Lane("amd", amd.AmdReader(our_pids, sys_root, proc_root).read), ""),
            ("Intel", Lane("intel", intel.IntelReader(our_pids, sys_root, proc_root).read), intel.NOTE),
        )
