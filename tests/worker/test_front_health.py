import queue
import threading
import time

import pytest

from runtime.messages.ipc import Health
from runtime.scheduler.types import EngineFigures
from runtime.worker.health import HealthReporter
from runtime.worker.outbox import Outbox


def test_figures_when_read_then_the_share_is_that_of_the_last_work_done() -> None:
    figures = EngineFigures(active=2, waiting=1, kv_used=10, kv_total=100, step_limit_s=31.0)
    reporter = HealthReporter(figures, Outbox())
    assert reporter.read().decode_share == 0.0
    figures.busy_s, figures.decode_s, figures.last_step_at = 10.0, 9.8, time.monotonic() - 3
    health = reporter.read()
    assert health.decode_share == pytest.approx(0.98)
    assert 3 <= health.step_age_s < 10
    assert (health.active, health.waiting, health.kv_used, health.kv_total) == (2, 1, 10, 100)
    assert health.step_limit_s == 31.0
    assert health.resident_bytes > 1_000_000
    assert reporter.read().decode_share == pytest.approx(0.98)
    figures.busy_s, figures.decode_s = 11.0, 10.3
    assert reporter.read().decode_share == pytest.approx(0.5)


def test_engine_that_never_stepped_when_read_then_has_no_age() -> None:
    assert HealthReporter(EngineFigures(), Outbox()).read().step_age_s == 0.0


def test_reporter_when_started_then_speaks_at_once_and_again_until_stopped() -> None:
    outbox = Outbox()
    reporter = HealthReporter(EngineFigures(), outbox)
    seen: queue.Queue[Health] = queue.Queue()

    def write() -> None:
        while (items := outbox.take()) is not None:
            for item in items:
                assert isinstance(item, Health)
                seen.put(item)

    writer = threading.Thread(target=write)
    writer.start()
    reporter.start()
    seen.get(timeout=10)
    seen.get(timeout=10)
    reporter.stop(10)
    outbox.close()
    writer.join(10)
    assert not writer.is_alive()
