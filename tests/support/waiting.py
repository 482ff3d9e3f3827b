"""Waiting for another thread in tests, without a fixed pause."""

import threading
import time
from collections.abc import Callable

WAIT_S = 20.0
_LOOK_EVERY_S = 0.005


def wait_until(holds: Callable[[], bool]) -> None:
    """Return once the condition holds; fail after `WAIT_S`."""
    until_s = time.monotonic() + WAIT_S
    pause = threading.Event()
    while not holds():
        assert time.monotonic() < until_s, "it never came true"
        pause.wait(_LOOK_EVERY_S)
