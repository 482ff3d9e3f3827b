import functools
from collections.abc import Callable

import pytest

from runtime.probe.turns import CacheBurst, Run, Threads, Timed, mend, take_turns


class Cores:
    """Knows how many threads are set, as a backend does."""

    def __init__(self) -> None:
        self.n = 2

    def set(self, n_threads: int) -> None:
        self.n = n_threads

    def work(self, alone_s: float, disturbed_s: float = 0.0) -> Callable[[], float]:
        """Takes so long with one thread, and half with two unless disturbed."""
        return lambda: alone_s if self.n == 1 else alone_s / 2 + disturbed_s


def run(*runs: Callable[[], float], threads: Cores, kind: Threads = "both") -> list[Timed]:
    timed = [Timed(each, kind) for each in runs]
    take_turns(timed, 0.0, threads.set, 2)
    return timed


def test_when_runs_differ_then_the_shortest_counts() -> None:
    times = iter([3.0, 1.0, 2.0])
    timed = Timed(lambda: next(times))
    for _ in range(3):
        timed.repeat(1)
    assert timed.best_s == 1.0


def test_when_time_is_over_then_everything_had_one_turn() -> None:
    threads = Cores()
    timed = run(*(threads.work(0.001) for _ in range(5)), threads=threads)
    assert all(entry.was_run for entry in timed)
    assert threads.n == 2


def test_when_there_is_time_then_turns_go_on() -> None:
    counts = [0, 0]

    def count(index: int) -> float:
        counts[index] += 1
        return 0.001

    take_turns([Timed(lambda: count(0)), Timed(lambda: count(1))], 0.01, lambda _n: None, 2)
    assert min(counts) > 3


def test_when_nothing_disturbed_then_nothing_is_mended() -> None:
    threads = Cores()
    timed = run(*(threads.work(alone) for alone in (0.001, 0.002, 0.003, 0.004)), threads=threads)
    assert mend(timed, 2) == 0
    assert [entry.best_s for entry in timed] == [0.0005, 0.001, 0.0015, 0.002]


def test_when_some_were_disturbed_then_the_single_thread_stands_in() -> None:
    threads = Cores()
    clean = [threads.work(alone) for alone in (0.001, 0.002, 0.003, 0.004)]
    timed = run(*clean, threads.work(0.004, disturbed_s=0.05), threads=threads)
    assert mend(timed, 2) == 1
    assert timed[-1].best_s == pytest.approx(0.002)


def test_when_all_were_disturbed_then_threads_are_taken_to_gain_what_is_usual() -> None:
    threads = Cores()
    timed = run(*(threads.work(0.004, disturbed_s=0.05) for _ in range(4)), threads=threads)
    assert mend(timed, 2) == 4
    assert all(0.002 <= entry.best_s < 0.003 for entry in timed)


def test_when_work_is_not_shared_then_it_is_never_run_alone() -> None:
    threads = Cores()
    timed = run(threads.work(0.004, disturbed_s=0.05), threads=threads, kind="all")
    assert mend(timed, 2) == 0
    assert timed[0].alone_s == float("inf")


class Cache:
    """Keeps the pieces read last."""

    def __init__(self, n_pieces: int) -> None:
        self.n_pieces = n_pieces
        self.held: list[int] = []

    def pieces(self, n_pieces: int) -> list[Run]:
        return [functools.partial(self.read, piece) for piece in range(n_pieces)]

    def read(self, piece: int) -> float:
        near, far = self.held[-1:] == [piece], piece not in self.held
        self.held = [*(kept for kept in self.held if kept != piece), piece][-self.n_pieces :]
        return 1.0 if near else 4.0 if far else 2.0


@pytest.mark.parametrize(("n_pieces", "share"), [(4, 2 / 3), (10, 2 / 3), (11, 0.0), (40, 0.0)])
def test_when_two_passes_are_timed_then_they_tell_what_the_cache_holds(n_pieces: int, share: float) -> None:
    burst = CacheBurst(Cache(10).pieces(n_pieces), 1)
    assert burst.share is None
    burst.run()
    assert burst.share == pytest.approx(share)


def test_when_there_are_no_caches_then_nothing_is_held() -> None:
    burst = CacheBurst([lambda: 1.0] * 4, 1)
    for _ in range(100):
        burst.run()
    assert burst.share == 0.0
    assert len(burst._shares) == CacheBurst.MAX_BURSTS
