"""The machine's readings, once a second, to whoever listens.

The sampler blocks (drivers may take their time), so it has a thread of its own; a slow reading delays the next one
and nothing else.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from runtime.messages.api import HardwareChanged, HostEvent
from runtime.messages.hardware import HardwareSample

log = logging.getLogger(__name__)

PERIOD_S = 1.0
_MAX_LOGGED_FAILURES = 10


class Sampler(Protocol):
    """What `runtime.hardware` gives; blocking, used from one thread."""

    def sample(self) -> HardwareSample:
        """One reading."""
        ...

    def close(self) -> None:
        """Let the drivers go."""
        ...


class Telemetry:
    """Keeps the newest reading and sends each as an event. Home: the event loop; the sampler: its thread."""

    def __init__(self, make_sampler: Callable[[], Sampler], send: Callable[[HostEvent], None]) -> None:
        self._make_sampler = make_sampler
        self._send = send
        self._stop = threading.Event()
        self._first = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.latest: HardwareSample | None = None

    def start(self) -> None:
        """Begin to sample."""
        self._loop = asyncio.get_running_loop()
        # A daemon: a reading that hangs in a driver must not keep the process from ending.
        threading.Thread(target=self._run, name="telemetry", daemon=True).start()

    async def sample(self, patience_s: float = 5.0) -> HardwareSample | None:
        """The newest reading; waits for the first one, at most `patience_s`."""
        if self.latest is None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._first.wait(), patience_s)
        return self.latest

    def close(self) -> None:
        """Stop after the present reading."""
        self._stop.set()

    def _run(self) -> None:
        sampler: Sampler | None = None
        failures = 0
        while True:
            began_at = time.monotonic()
            try:
                if sampler is None:
                    sampler = self._make_sampler()
                self._hand_over(sampler.sample())
            except Exception:  # a reading must never end the thread
                failures += 1
                if failures <= _MAX_LOGGED_FAILURES:
                    log.exception("the machine could not be read")
            if self._stop.wait(max(0.05, PERIOD_S - (time.monotonic() - began_at))):
                break
        if sampler is not None:
            sampler.close()

    def _hand_over(self, sample: HardwareSample) -> None:
        if self._loop is not None and not self._stop.is_set():
            with contextlib.suppress(RuntimeError):  # the loop has just closed
                self._loop.call_soon_threadsafe(self._take, sample)

    def _take(self, sample: HardwareSample) -> None:
        self.latest = sample
        self._first.set()
        self._send(HardwareChanged(sample))
