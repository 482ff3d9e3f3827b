"""Once a second: how old the engine's last step is, and how full it is.

On a thread of its own, so that it also speaks when the engine is stuck.
"""

import faulthandler
import sys
import threading
import time
from collections.abc import Callable

import psutil

from runtime.messages.ipc import Health
from runtime.scheduler.types import EngineFigures
from runtime.worker.outbox import Outbox

PERIOD_S = 1.0
_LEAST_BUSY_S = 0.05
"""Less work than this in a period says nothing about the share of it."""


class HealthReporter:
    """Puts a `Health` into the outbox every period, and writes all stacks to the log once when the engine is stuck."""

    def __init__(self, figures: EngineFigures, outbox: Outbox, media_bytes: Callable[[], int] = lambda: 0) -> None:
        """`media_bytes` tells what encoded pictures hold, which counts as host cache."""
        self._figures = figures
        self._media_bytes = media_bytes
        self._outbox = outbox
        self._process = psutil.Process()
        self._stopped = threading.Event()
        self._decode_s = 0.0
        self._busy_s = 0.0
        self._decode_share = 0.0
        self._has_dumped = False
        self._thread = threading.Thread(target=self._run, name="health", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stopped.is_set():
            health = self.read()
            self._outbox.put_health(health)
            is_stuck = health.step_age_s > health.step_limit_s
            if is_stuck and not self._has_dumped:
                faulthandler.dump_traceback(sys.stderr, all_threads=True)
            self._has_dumped = is_stuck
            self._stopped.wait(PERIOD_S)

    def read(self) -> Health:
        """Read the figures now. `decode_share` is that of the time since the last reading in which work was done."""
        figures = self._figures
        busy_s, decode_s = figures.busy_s - self._busy_s, figures.decode_s - self._decode_s
        if busy_s >= _LEAST_BUSY_S:
            self._decode_share = min(max(decode_s / busy_s, 0.0), 1.0)
            self._busy_s, self._decode_s = figures.busy_s, figures.decode_s
        age_s = time.monotonic() - figures.last_step_at if figures.last_step_at else 0.0
        return Health(
            step_age_s=max(age_s, 0.0),
            step_limit_s=figures.step_limit_s,
            active=figures.active,
            waiting=figures.waiting,
            kv_used=figures.kv_used,
            kv_total=figures.kv_total,
            resident_bytes=self._process.memory_info().rss,
            host_cache_bytes=figures.host_cache_bytes + self._media_bytes(),
            decode_share=self._decode_share,
            generated_tokens=figures.generated_tokens,
            prompt_tokens=figures.prompt_tokens,
            draft_tokens=figures.draft_tokens,
            draft_accepted=figures.draft_accepted,
        )
