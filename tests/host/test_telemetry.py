"""Readings of the machine, whatever the sampler does."""

import asyncio
import logging
import threading

import pytest

from runtime.host.telemetry import Telemetry
from runtime.messages.api import HardwareChanged, HostEvent
from runtime.messages.hardware import CpuSample, HardwareSample, MemorySample


class OddSampler:
    """Fails first, then reads."""

    def __init__(self) -> None:
        self.n_calls = 0
        self.closed = threading.Event()

    def sample(self) -> HardwareSample:
        self.n_calls += 1
        if self.n_calls == 1:
            raise OSError("the GPU is lost")
        return HardwareSample(float(self.n_calls), CpuSample(), MemorySample())

    def close(self) -> None:
        self.closed.set()


def test_when_a_reading_fails_then_the_next_one_comes(caplog: pytest.LogCaptureFixture) -> None:
    sampler = OddSampler()
    events: list[HostEvent] = []

    async def run() -> HardwareSample | None:
        telemetry = Telemetry(lambda: sampler, events.append)
        assert telemetry.latest is None
        telemetry.start()
        sample = await telemetry.sample()
        telemetry.close()
        return sample

    with caplog.at_level(logging.CRITICAL, "runtime.host.telemetry"):
        sample = asyncio.run(run())
    assert sample is not None
    assert sample.at_s == 2.0
    assert events == [HardwareChanged(sample)]
    assert sampler.closed.wait(5)


def test_when_nothing_comes_in_time_then_none() -> None:
    released = threading.Event()

    class Slow(OddSampler):
        def sample(self) -> HardwareSample:
            released.wait(10)
            raise OSError

    async def run() -> HardwareSample | None:
        telemetry = Telemetry(Slow, lambda _event: None)
        telemetry.start()
        sample = await telemetry.sample(patience_s=0.05)
        telemetry.close()
        return sample

    assert asyncio.run(run()) is None
    released.set()
