"""What a host in a test stands on: models that are only names, readings that are made up, the fake worker."""

import sys
from collections.abc import Callable
from pathlib import Path

import runtime
from runtime.messages.hardware import CpuSample, GpuSample, HardwareSample, MemorySample

FAKE_WORKER = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))
PYTHONPATH = str(Path(runtime.__file__).parents[1])


class FakeSampler:
    """A machine with one warm GPU."""

    def __init__(self, our_pids: Callable[[], tuple[int, ...]]) -> None:
        self._our_pids = our_pids

    def sample(self) -> HardwareSample:
        gpu = GpuSample(0, "Fake GPU", "nvidia", temperature_c=61.0, power_w=120.5, memory_used_bytes=1000)
        memory = MemorySample(16_000, 8_000, len(self._our_pids()))
        return HardwareSample(1.0, CpuSample("Fake CPU", temperature_c=50.0), memory, (gpu,))

    def close(self) -> None:
        pass
