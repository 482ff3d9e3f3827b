"""The machine as plans see it: fresh where it matters, at once where sliders ask, measured only in calm."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runtime.errors import Busy, ModelLoadFailed, WorldFault
from runtime.host import machine as machine_module
from runtime.host.machine import MachineView, is_unified, speed_key, with_free_memory
from runtime.messages.fit import MachineSpeed, Throughput
from runtime.messages.hardware import CpuSample, GpuSample, HardwareSample, MemorySample
from runtime.messages.load import ComputeDevice, DeviceKind
from runtime.probe.report import EngineReport

CPU = ComputeDevice("CPU", "a processor", "cpu", 1, 1)
CARD = ComputeDevice("CUDA0", "a card", "gpu", 16_000, 12_000, pci_bus_id="0000:01:00.0")


class FakeDevices:
    def __init__(self, *devices: ComputeDevice) -> None:
        self.devices_now = devices
        self.asked: list[tuple[str, ...]] = []
        self.error: ModelLoadFailed | None = None

    async def devices(self, nodes: Sequence[str] = ()) -> EngineReport:
        self.asked.append(tuple(nodes))
        if self.error is not None:
            raise self.error
        return EngineReport("1.0", (), (), can_offload=True, compute=self.devices_now)


class FakeMeasure:
    def __init__(self) -> None:
        self.n_begun = 0
        self.n_done = 0
        self.go = asyncio.Event()
        self.go.set()
        self.errors: list[Exception] = []

    async def __call__(self, report: EngineReport) -> MachineSpeed:
        self.n_begun += 1
        await self.go.wait()
        if self.errors:
            raise self.errors.pop()
        self.n_done += 1
        devices = [device.name for device in report.compute]
        return MachineSpeed("", 0.0, tuple(Throughput(name, "Q4_K", 1.0, 1.0, 0.0) for name in devices))


class Rig:
    """A view, with everything around it."""

    def __init__(self, tmp_path: Path) -> None:
        self.devices = FakeDevices(CARD, CPU)
        self.measure = FakeMeasure()
        self.busy = False
        self.nodes: tuple[str, ...] = ()
        self.sample: HardwareSample | None = None
        self.file = tmp_path / "machine.json"
        self.view = self.make()

    def make(self) -> MachineView:
        return MachineView(
            self.devices,
            nodes=lambda: self.nodes,
            telemetry=lambda: self.sample,
            speed_file=self.file,
            measure=self.measure,
            is_busy=lambda: self.busy,
        )


def run(tmp_path: Path, work: Callable[[Rig], Coroutine[Any, Any, None]]) -> None:
    async def with_rig() -> None:
        rig = Rig(tmp_path)
        try:
            async with asyncio.timeout(15):
                await work(rig)
        finally:
            await rig.view.close()

    asyncio.run(with_rig())


@pytest.fixture(autouse=True)
def short_calm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "CALM_S", 0.05)
    monkeypatch.setattr(machine_module, "CALM_CHECK_S", 0.01)


async def measured(rig: Rig, times: int) -> None:
    """So many measurements are done and taken in."""
    task = rig.view._measuring
    await until(lambda: rig.measure.n_done == times and (task is None or task.done()))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.005)


def test_when_asked_exactly_then_llama_is_asked_each_time_and_sliders_are_served_from_before(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        first = await rig.view.now(exact=False)
        assert [device.name for device in first.devices] == ["CUDA0", "CPU"]
        assert first.devices[1].total_bytes == first.ram_total_bytes > 1  # the system's, not what the probe said
        assert len(rig.devices.asked) == 1
        await rig.view.now(exact=False)
        assert len(rig.devices.asked) == 1
        await rig.view.now()
        assert len(rig.devices.asked) == 2
        rig.view.forget()  # a model was loaded: sliders are served at once, and a fresh list is fetched meanwhile
        await rig.view.now(exact=False)
        await until(lambda: len(rig.devices.asked) == 3)
        rig.nodes = ("10.0.0.5:50052",)
        await rig.view.now(exact=False)
        assert rig.devices.asked[-1] == ("10.0.0.5:50052",)

    run(tmp_path, work)


def test_when_many_ask_at_once_then_llama_is_asked_once(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        await asyncio.gather(*(rig.view.now() for _ in range(10)))
        assert len(rig.devices.asked) == 1

    run(tmp_path, work)


def test_when_llama_cannot_be_asked_then_the_processor_is_left_and_the_problem_told(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        rig.devices.error = ModelLoadFailed("The driver is broken.")
        found = await rig.view.now()
        assert [device.name for device in found.devices] == ["CPU"]
        assert "The driver is broken." in found.problem
        assert found.speed is None

    run(tmp_path, work)


def test_when_the_telemetry_knows_a_card_then_its_free_memory_is_the_newest() -> None:
    gpu = GpuSample(
        0, "card", "nvidia", pci_bus_id="00000000:01:00.0", memory_total_bytes=16_000, memory_used_bytes=9_000
    )
    sample = HardwareSample(1.0, CpuSample(), MemorySample(), (gpu,))
    assert with_free_memory(CARD, sample).free_bytes == 7_000
    assert with_free_memory(CARD, None).free_bytes == 12_000
    other = msgspec.structs.replace(CARD, pci_bus_id="0000:02:00.0")
    assert with_free_memory(other, sample).free_bytes == 12_000


@pytest.mark.parametrize(
    ("kinds", "expected"), [(("igpu", "cpu"), True), (("gpu", "igpu", "cpu"), False), (("cpu",), False)]
)
def test_when_every_gpu_works_in_system_memory_then_memory_is_unified(
    kinds: tuple[DeviceKind, ...], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.host.machine.sys.platform", "linux")
    assert is_unified([ComputeDevice(kind, kind, kind, 1, 1) for kind in kinds]) is expected


def test_when_nothing_was_measured_then_that_happens_in_calm_and_is_kept(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        rig.busy = True
        assert (await rig.view.now()).speed is None
        await asyncio.sleep(0.1)
        assert rig.measure.n_begun == 0  # a model works
        rig.busy = False
        await until(lambda: rig.view.speed is not None)
        found = await rig.view.now()
        assert found.speed is not None
        assert found.speed.key == speed_key(EngineReport("1.0", (), (), can_offload=True, compute=(CARD, CPU)))
        assert found.speed.measured_s > 0
        await rig.view.now()
        assert rig.measure.n_begun == 1
        again = rig.make()
        assert (await again.now()).speed == found.speed
        await again.close()
        assert rig.measure.n_begun == 1

    run(tmp_path, work)


def test_when_a_model_begins_to_work_then_the_measurement_is_broken_off_and_done_later(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        rig.measure.go.clear()
        await rig.view.now()
        await until(lambda: rig.measure.n_begun == 1)
        rig.busy = True
        await asyncio.sleep(0.05)
        rig.measure.go.set()
        await asyncio.sleep(0.05)
        assert rig.measure.n_done == 0
        rig.busy = False
        await until(lambda: rig.measure.n_done == 1)

    run(tmp_path, work)


def test_when_the_devices_are_others_then_they_are_measured_anew(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        await rig.view.now()
        await until(lambda: rig.view.speed is not None)
        rig.devices.devices_now = (ComputeDevice("CUDA0", "another card", "gpu", 1, 1), CPU)
        assert (await rig.view.now()).speed is None
        await measured(rig, 2)
        node = ComputeDevice("RPC0[n]", "a node", "node", 1, 1, node="n")
        rig.devices.devices_now = (*rig.devices.devices_now, node)
        assert (await rig.view.now()).speed is not None  # of the others; that of the new one is found out
        await measured(rig, 3)
        rig.devices.devices_now = rig.devices.devices_now[:2]
        assert (await rig.view.now()).speed is not None  # the node went: what was measured still holds
        await asyncio.sleep(0.1)
        assert rig.measure.n_begun == 3

    run(tmp_path, work)


def test_when_it_cannot_be_measured_then_it_is_not_tried_for_ever(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        rig.measure.errors = [WorldFault("No way.")]
        await rig.view.now()
        await until(lambda: rig.measure.n_begun == 1)
        await asyncio.sleep(0.1)
        await rig.view.now()
        await asyncio.sleep(0.1)
        assert rig.measure.n_begun == 1
        rig.measure.errors = [Busy("Too busy.")]
        with pytest.raises(Busy):
            await rig.view.measure_anew()
        found = await rig.view.measure_anew()
        assert found.speed is not None

    run(tmp_path, work)


def test_when_the_kept_file_is_damaged_then_it_is_measured_anew(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        rig.file.write_text("{")
        assert (await rig.view.now()).speed is None
        await until(lambda: rig.view.speed is not None)
        assert msgspec.json.decode(rig.file.read_bytes(), type=MachineSpeed) == rig.view.speed

    run(tmp_path, work)
