"""What a host in a test stands on: models that are only names, readings that are made up, the fake worker."""

import sys
from collections.abc import Callable
from pathlib import Path

import runtime
from runtime.errors import ModelNotFound
from runtime.messages.api import InstalledModel
from runtime.messages.hardware import CpuSample, GpuSample, HardwareSample, MemorySample

FAKE_WORKER = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))
PYTHONPATH = str(Path(runtime.__file__).parents[1])


class FakeCatalogue:
    """Models by name; the files need not exist for the fake worker."""

    def __init__(self, folder: Path, *names: str) -> None:
        self._models = tuple(
            InstalledModel(id=name, name=name, path=str(folder / f"{name}.gguf"), size_bytes=1000, created_s=1.0)
            for name in names
        )

    def installed(self) -> tuple[InstalledModel, ...]:
        return self._models

    def resolve(self, name: str) -> InstalledModel:
        for model in self._models:
            if name in (model.id, model.path):
                return model
        raise ModelNotFound(f"No model named {name!r} is on disk.", model=name)


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
