"""Tokens a second, with a clock of its own."""

import pytest
from pytestqt.qtbot import QtBot

from app.speed import HISTORY_S, WINDOW_S, SlidingRate, Speed
from tests.app.conftest import WAIT_MS


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_when_tokens_come_evenly_then_the_rate_is_theirs() -> None:
    rate = SlidingRate()
    for step in range(300):
        rate.add(step * 0.03, 3)
    assert rate.rate(299 * 0.03) == pytest.approx(100.0)


def test_when_only_one_batch_came_then_there_is_no_rate_yet() -> None:
    rate = SlidingRate()
    rate.add(0.0, 5)
    assert rate.rate(0.5) is None


def test_when_nothing_comes_any_more_then_the_rate_falls_and_goes() -> None:
    rate = SlidingRate()
    rate.add(0.0, 10)
    rate.add(1.0, 10)
    assert rate.rate(1.0) == pytest.approx(10.0)
    assert rate.rate(1.9) == pytest.approx(10 / 1.9)
    assert rate.rate(1.1 + WINDOW_S) is None


def test_when_seconds_pass_then_the_history_has_one_value_each_and_a_bound(qtbot: QtBot) -> None:  # noqa: ARG001
    clock = Clock()
    speed = Speed(clock=clock)
    for second in range(200):
        clock.now_s = 1000.0 + second
        speed.add(2)
        clock.now_s += 0.5
        speed.add(second)
    clock.now_s += 0.6
    history = speed.view.history_tps
    assert len(history) == HISTORY_S
    assert history[-1] == 201.0
    assert history[0] == 201.0 - HISTORY_S + 1
    clock.now_s += 10
    assert speed.view.history_tps[-9:] == (0.0,) * 9
    assert speed.view.now_tps is None


def test_when_idle_for_long_then_the_ticking_ends(qtbot: QtBot) -> None:
    clock = Clock()
    speed = Speed(clock=clock)
    with qtbot.waitSignal(speed.changed, timeout=WAIT_MS):
        speed.add(5)
    clock.now_s += 2 * HISTORY_S
    with qtbot.waitSignal(speed.changed, timeout=WAIT_MS) as last:
        pass
    assert last.args[0].history_tps == ()
    assert not speed._timer.isActive()
