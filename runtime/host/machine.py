"""What can be planned with at this moment: devices, what is free on them, and how fast they are.

Which devices there are is asked of llama.cpp in a process of its own, which takes a moment to start; what is free on
them changes all the time and comes with each answer. For sliders, which ask many times a second, the devices of a
little while ago serve, with the free memory that the telemetry read last.
"""

import asyncio
import contextlib
import hashlib
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import psutil

from runtime.atomic_files import write_atomically
from runtime.errors import Busy, RuntimeFault
from runtime.messages.fit import Machine, MachineSpeed
from runtime.messages.hardware import HardwareSample
from runtime.messages.load import ComputeDevice
from runtime.probe.report import EngineReport
from runtime.units import now
from runtime.unreadable import UNREADABLE

log = logging.getLogger(__name__)

FRESH_S = 15.0
"""Devices older than this are asked for anew, in the background while an older list serves a slider."""
STALE_S = 300.0
"""Devices older than this serve nobody."""

CALM_S = 5.0
"""Nothing is measured by itself before no model has worked for so long: both would be slower."""
CALM_CHECK_S = 0.25
MAX_TRIES = 5
MOST_BUSY = 0.3
"""A measurement is repeated when other programs used more than this share of the processor meanwhile."""

MeasureSpeed = Callable[[EngineReport], Awaitable[MachineSpeed]]
"""The quick measurement; takes some seconds of all cores."""


class Devices(Protocol):
    """Asks llama.cpp; `runtime.host.prober.Prober` does."""

    async def devices(self, nodes: Sequence[str] = ()) -> EngineReport:
        """The engine's devices, those of these nodes included."""
        ...


class MachineView:
    """Home: the event loop."""

    def __init__(
        self,
        devices: Devices,
        *,
        nodes: Callable[[], tuple[str, ...]],
        telemetry: Callable[[], HardwareSample | None],
        speed_file: Path,
        measure: MeasureSpeed | None,
        is_busy: Callable[[], bool],
    ) -> None:
        """Ask nothing yet.

        Args:
            devices: asks llama.cpp.
            nodes: addresses of the nodes that can be used now.
            telemetry: the newest reading.
            speed_file: where the measurement is kept.
            measure: the measurement; None where speeds are not to be measured.
            is_busy: whether a model works: then nothing is measured by itself.
        """
        self._is_busy = is_busy
        self._devices = devices
        self._nodes = nodes
        self._telemetry = telemetry
        self._speed_file = speed_file
        self._measure = measure
        self._report: EngineReport | None = None
        self._asked_at = float("-inf")
        self._asking: asyncio.Task[EngineReport] | None = None
        self._asked_nodes: tuple[str, ...] = ()
        self._speed: MachineSpeed | None = None
        self._measuring: asyncio.Task[None] | None = None
        self._unmeasurable = ""
        """Devices whose measurement failed: not tried again by itself."""

    def forget(self) -> None:
        """What is free has changed: a model was loaded or unloaded, or nodes came and went."""
        self._asked_at = min(self._asked_at, time.monotonic() - FRESH_S)

    async def now(self, *, exact: bool = True) -> Machine:
        """The machine at this moment: `exact` asks llama.cpp, else what it said a little while ago serves."""
        nodes, problem = self._nodes(), ""
        try:
            report = await self._current(nodes, exact=exact)
        except RuntimeFault as error:
            log.warning("the devices cannot be listed: %s", error.message)
            report, problem = None, f"{error.message} {error.hint}".strip()
        memory = psutil.virtual_memory()
        sample = None if exact else self._telemetry()
        known = report.compute if report is not None else ()
        devices = [with_free_memory(device, sample) for device in known if device.kind != "cpu"]
        cpu = next((device for device in known if device.kind == "cpu"), None)
        if cpu is None:
            cpu = ComputeDevice("CPU", "Processor", "cpu", memory.total, memory.available)
        devices.append(msgspec.structs.replace(cpu, total_bytes=memory.total, free_bytes=memory.available))
        if report is not None and not problem:
            problem = " ".join(report.problems.values())
        return Machine(
            devices=tuple(devices),
            n_cores=psutil.cpu_count(logical=False) or psutil.cpu_count() or 1,
            ram_total_bytes=memory.total,
            ram_free_bytes=memory.available,
            unified=is_unified(devices),
            speed=self._speed_for(report) if report is not None else None,
            problem=problem,
        )

    @property
    def speed(self) -> MachineSpeed | None:
        """What was measured, if anything was."""
        return self._speed

    async def measure_anew(self) -> Machine:
        """Measure the speed now, and wait for it.

        Raises:
            RuntimeFault: it cannot be measured.
        """
        report = await self._current(self._nodes(), exact=True)
        self._unmeasurable = ""
        if self._measure is not None:
            self._speed = await self._measured(self._measure, report)
        return await self.now(exact=False)

    async def close(self) -> None:
        """Stop what runs in the background."""
        for task in (self._asking, self._measuring):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})

    # --- devices ------------------------------------------------------------------------------------------

    async def _current(self, nodes: tuple[str, ...], *, exact: bool) -> EngineReport:
        age_s = time.monotonic() - self._asked_at
        if not exact and self._report is not None and age_s < STALE_S and nodes == self._asked_nodes:
            if age_s > FRESH_S:
                self._ask(nodes)
            return self._report
        while self._asking is not None and not self._asking.done() and self._asked_nodes != nodes:
            with contextlib.suppress(RuntimeFault):
                await asyncio.shield(self._asking)
        return await asyncio.shield(self._ask(nodes))

    def _ask(self, nodes: tuple[str, ...]) -> "asyncio.Task[EngineReport]":
        if self._asking is None or self._asking.done():
            self._asked_nodes = nodes
            self._asking = asyncio.create_task(self._ask_now(nodes), name="list devices")
            self._asking.add_done_callback(_look_at_error)
        return self._asking

    async def _ask_now(self, nodes: tuple[str, ...]) -> EngineReport:
        report = await self._devices.devices(nodes)
        self._report = report
        self._asked_at = time.monotonic()
        return report

    # --- speed --------------------------------------------------------------------------------------------

    def _speed_for(self, report: EngineReport) -> MachineSpeed | None:
        """What was measured for these devices; where nothing was, that begins in the background."""
        key = speed_key(report)
        if self._speed is None:
            self._speed = _read_speed(self._speed_file)
        known = self._speed if self._speed is not None and self._speed.key == key else None
        if known is not None and known.busy <= MOST_BUSY and _covers(known, report):
            return known
        is_measuring = self._measuring is not None and not self._measuring.done()
        if self._measure is not None and not is_measuring and self._unmeasurable != _wanted(report):
            self._measuring = asyncio.create_task(self._measure_in_calm(self._measure, report), name="measure speed")
        return known

    async def _measure_in_calm(self, measure: MeasureSpeed, report: EngineReport) -> None:
        """Measure once no model works; one that begins to in the middle breaks it off."""
        for _ in range(MAX_TRIES):
            await self._calm()
            measuring = asyncio.create_task(self._measured(measure, report), name="measure speed now")
            try:
                while not measuring.done() and not self._is_busy():
                    await asyncio.wait({measuring}, timeout=CALM_CHECK_S)
                if measuring.done():
                    self._speed = measuring.result()
                    if self._speed.busy <= MOST_BUSY:
                        return
            except Busy as error:
                log.info("%s", error.message)
            except RuntimeFault as error:
                log.warning("the speed could not be measured: %s", error.message)
                break
            finally:
                measuring.cancel()
                await asyncio.wait({measuring})
        self._unmeasurable = _wanted(report)

    async def _calm(self) -> None:
        calm_s = 0.0
        while calm_s < CALM_S:
            await asyncio.sleep(CALM_CHECK_S)
            calm_s = 0.0 if self._is_busy() else calm_s + CALM_CHECK_S

    async def _measured(self, measure: MeasureSpeed, report: EngineReport) -> MachineSpeed:
        speed = msgspec.structs.replace(await measure(report), key=speed_key(report), measured_s=now())
        content = msgspec.json.format(msgspec.json.encode(speed), indent=1)
        try:
            await asyncio.to_thread(write_atomically, self._speed_file, content)
        except OSError as error:
            log.warning("the measured speed could not be kept: %s", error)
        return speed


def with_free_memory(device: ComputeDevice, sample: HardwareSample | None) -> ComputeDevice:
    """The device with what the telemetry last saw free on it, where it is known by its bus address."""
    if sample is None or not device.pci_bus_id:
        return device
    for gpu in sample.gpus:
        is_same = _bus(gpu.pci_bus_id) == _bus(device.pci_bus_id)
        if is_same and gpu.memory_total_bytes is not None and gpu.memory_used_bytes is not None:
            free_bytes = max(0, gpu.memory_total_bytes - gpu.memory_used_bytes)
            return msgspec.structs.replace(device, free_bytes=min(free_bytes, device.total_bytes or free_bytes))
    return device


def _bus(address: str) -> str:
    """`00000000:01:00.0` of one driver is `0000:01:00.0` of another."""
    domain, _, rest = address.lower().partition(":")
    return f"{domain.lstrip('0')}:{rest}" if rest else address.lower()


def is_unified(devices: Sequence[ComputeDevice]) -> bool:
    """Whether every GPU works in system memory."""
    kinds = {device.kind for device in devices if device.kind in ("gpu", "igpu", "accelerator")}
    return kinds == {"igpu"} or ("gpu" in kinds and sys.platform == "darwin")


def speed_key(report: EngineReport) -> str:
    """What a measurement holds for: this engine on these devices (nodes left out, since they come and go)."""
    parts = [report.version, *report.features]
    parts += [f"{device.name} {device.description}" for device in report.compute if not device.node]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _covers(speed: MachineSpeed, report: EngineReport) -> bool:
    """Whether every device of the report was measured."""
    measured = {entry.device for entry in speed.throughput}
    return all(device.name in measured or device.kind == "accelerator" for device in report.compute)


def _wanted(report: EngineReport) -> str:
    return " ".join((speed_key(report), *(device.node for device in report.compute if device.node)))


def _read_speed(path: Path) -> MachineSpeed | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=MachineSpeed)
    except (OSError, *UNREADABLE):
        return None


def _look_at_error(task: "asyncio.Task[EngineReport]") -> None:
    """An error nobody waited for is no mystery in the log."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.info("devices: %s", error)
