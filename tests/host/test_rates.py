"""Tokens a second over the last moments."""

import pytest

from runtime.host.rates import WINDOW_S, SlidingRate


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_when_tokens_come_evenly_then_the_rate_is_theirs() -> None:
    clock = Clock()
    rate = SlidingRate(clock)
    for _ in range(500):
        rate.add(1)
        clock.now += 0.02
    assert rate.per_second() == pytest.approx(50, rel=0.1)


def test_when_just_begun_then_it_is_divided_by_its_own_age() -> None:
    clock = Clock()
    rate = SlidingRate(clock)
    for _ in range(25):
        rate.add(1)
        clock.now += 0.02
    assert rate.per_second() == pytest.approx(50, rel=0.1)


def test_when_nothing_comes_any_more_then_it_is_zero_after_the_window() -> None:
    clock = Clock()
    rate = SlidingRate(clock)
    assert rate.per_second() == 0
    rate.add(10)
    clock.now += WINDOW_S + 0.01
    assert rate.per_second() == 0
    rate.add(5)
    clock.now += 0.1
    assert rate.per_second() == pytest.approx(50, rel=0.1)
