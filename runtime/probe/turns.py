"""Timing on a machine that others use too: short runs that take turns, and what was spoilt found out.

What else a machine does only ever makes a run longer, so the shortest run counts. That is not enough for work that
several threads share: they wait for each other at every operation, and where another program holds one core all the
time, no run of a millisecond is undisturbed. One thread alone gets its undisturbed moments even then. So such work is
also timed with one thread, and where all threads together are far slower than the other measurements let expect, the
single thread's time stands in, divided by what threads were seen to gain.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

RUNS_IN_A_ROUND = 3
LONG_RUN_S = 0.1
"""What takes longer is run once a round."""
LONGEST_S = 12.0
"""The first round ends here; what had no turn by then is left out."""
SPOILT = 0.5
"""Threads that gain less than this share of what they gain elsewhere were disturbed."""
LEAST_GAIN = 0.4
USUAL_GAIN = 0.85
"""Share of a full core that each thread adds. Where the measurements show less than `LEAST_GAIN`, all were disturbed,
and the usual one is taken."""

Run = Callable[[], float]


Threads = Literal["all", "both"]


@dataclass(slots=True)
class Timed:
    """A measurement with its shortest run so far, by all threads and, where asked for, by one."""

    run: Run
    threads: Threads = "all"
    best_s: float = float("inf")
    alone_s: float = float("inf")

    @property
    def was_run(self) -> bool:
        """Whether it had its turn."""
        return self.best_s < float("inf")

    def repeat(self, n_runs: int) -> None:
        """Run it again with the threads that are set."""
        self.best_s = min(self.best_s, _shortest(self.run, n_runs))

    def repeat_alone(self, n_runs: int) -> None:
        """Run it again while one thread is set."""
        self.alone_s = min(self.alone_s, _shortest(self.run, n_runs))


class CacheBurst:
    """Two passes over some weights, piece by piece, and the last piece again and again.

    The first pass finds most of them in memory, the repetitions find theirs in the nearest cache, and where the second
    pass lies between the two says how much the caches held. All three are of one moment, so a machine that is slow
    just then is equally slow for each.
    """

    MAX_BURSTS = 64
    REPETITIONS = 3
    LEAST_GAIN = 0.9
    """Caches that do not even make the last piece so much faster are none."""

    def __init__(self, pieces: Sequence[Run], piece_bytes: int) -> None:
        self._pieces = pieces
        self.n_bytes = len(pieces) * piece_bytes
        self._shares: list[float] = []

    def run(self) -> float:
        """One burst; its seconds."""
        first = [run() for run in self._pieces]
        second = [run() for run in self._pieces]
        near = [self._pieces[-1]() for _ in range(self.REPETITIONS)]
        cold_s, warm_s, hot_s = _low(first), _low(second), min(near)
        share = (cold_s - warm_s) / (cold_s - hot_s) if hot_s < self.LEAST_GAIN * cold_s else 0.0
        self._shares = [*self._shares[1 - self.MAX_BURSTS :], min(1.0, max(0.0, share))]
        return sum(first) + sum(second) + sum(near)

    @property
    def share(self) -> float | None:
        """The median of all bursts; None before the first."""
        return statistics.median(self._shares) if self._shares else None


def _low(times: Sequence[float]) -> float:
    """The lower quartile: pieces that another program disturbed do not count."""
    return sorted(times)[len(times) // 4]


def take_turns(
    measurements: Sequence[Timed], budget_s: float, set_threads: Callable[[int], None], n_threads: int
) -> None:
    """Run them round by round.

    Args:
        measurements: in the order of their turns.
        budget_s: seconds to go on after the first round.
        set_threads: sets the number of threads the next runs use.
        n_threads: for all but the runs with one.
    """
    started = time.perf_counter()
    for timed in measurements:
        _turn(timed, 1, set_threads, n_threads)
        if time.perf_counter() - started > LONGEST_S:
            return
    until = time.perf_counter() + budget_s
    while time.perf_counter() < until:
        for timed in measurements:
            _turn(timed, RUNS_IN_A_ROUND, set_threads, n_threads)
            if time.perf_counter() > until:
                break


def mend(measurements: Sequence[Timed], n_threads: int) -> int:
    """Put the single thread's figure where all threads were disturbed; the answer says how often."""
    if n_threads == 1:
        return 0
    shared = [timed for timed in measurements if timed.threads == "both" and timed.was_run]
    gains = {id(timed): timed.alone_s / (timed.best_s * n_threads) for timed in shared}
    usual = statistics.quantiles(gains.values(), n=4)[2] if len(gains) > 1 else USUAL_GAIN
    if usual < LEAST_GAIN:
        usual = USUAL_GAIN
    good = [gain for gain in gains.values() if gain >= SPOILT * usual]
    gain = min(statistics.median(good), 1.0) if good else USUAL_GAIN
    mended = 0
    for timed in shared:
        if gains[id(timed)] < SPOILT * usual:
            timed.best_s = timed.alone_s / (gain * n_threads)
            mended += 1
    return mended


def _turn(timed: Timed, n_runs: int, set_threads: Callable[[int], None], n_threads: int) -> None:
    timed.repeat(n_runs)
    if timed.threads == "both" and n_threads > 1:
        set_threads(1)
        timed.repeat_alone(max(1, n_runs - 1))
        set_threads(n_threads)


def _shortest(run: Run, n_runs: int) -> float:
    best = float("inf")
    for _ in range(n_runs):
        took_s = run()
        best = min(best, took_s)
        if took_s > LONG_RUN_S:
            break
    return best
