"""Runs of the fuzzing of all parsers: what is a finding, and where it is kept."""

import random
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from tests.fuzz.target import Target
from tests.fuzz.targets import targets

SLOW_S = 8.0
"""Over the longest that a parser allows itself (five seconds for a template)."""
HANG_S = 60
MAX_FINDINGS = 50


class TooLongError(Exception):
    """An input did not come to an end."""


class Run:
    """Inputs one after the other, each for the next target; the same seed makes the same ones."""

    def __init__(self, seed: int, findings: Path, only: str = "") -> None:
        self._seed = seed
        self._findings = findings
        self._targets: tuple[Target, ...] = tuple(one for one in targets() if only in one.name)
        self._n = 0
        self.inputs: Counter[str] = Counter()
        self.accepted: Counter[str] = Counter()
        self.found: dict[str, str] = {}

    def step(self) -> None:
        """One input for one target."""
        target = self._targets[self._n % len(self._targets)]
        draw = random.Random(f"{self._seed} {self._n}")
        self._n += 1
        self.inputs[target.name] += 1
        given = target.make(draw)
        began_s = time.process_time()
        try:
            target.check(given, draw)
            self.accepted[target.name] += 1
        except target.promised:
            pass
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            self._keep(target, given, error)
        took_s = time.process_time() - began_s
        if took_s > SLOW_S:
            self._keep(target, given, TooLongError(f"took {took_s:.1f} s"))

    def _keep(self, target: Target, given: Any, error: Exception) -> None:
        """One finding for each place in the code."""
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else "slow"
        key = f"{target.name}: {type(error).__name__} at {place}"
        if key in self.found or len(self.found) >= MAX_FINDINGS:
            return
        self.found[key] = str(error)[:300]
        self._findings.mkdir(parents=True, exist_ok=True)
        name = "".join(letter if letter.isalnum() else "-" for letter in key)
        text = f"{key}\n{error}\n\n{given!r}\n\n{''.join(traceback.format_exception(error))}"
        (self._findings / f"{name}.txt").write_text(text, encoding="utf-8", errors="backslashreplace")


def run_for(seconds: float, seed: int, findings: Path, only: str = "") -> Run:
    """Fuzz for so long; an input that does not come to an end is ended and kept."""
    run = Run(seed, findings, only)
    until_s = time.monotonic() + seconds
    told_s = time.monotonic()

    def hung(*_: object) -> None:
        raise TooLongError(f"did not end within {HANG_S} s of the processor")

    if sys.platform != "win32":
        signal.signal(signal.SIGPROF, hung)
    while time.monotonic() < until_s:
        if sys.platform != "win32":
            signal.setitimer(signal.ITIMER_PROF, HANG_S)
        run.step()
        if time.monotonic() - told_s > 60:
            told_s = time.monotonic()
            print(f"{sum(run.inputs.values()):,} inputs, {len(run.found)} findings", file=sys.stderr, flush=True)
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_PROF, 0)
    return run
