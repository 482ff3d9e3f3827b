import pytest

from runtime.library.downloads.rate import BUCKET_S, STALLED_AFTER_S, WINDOW_S, Rate


class Clock:
    def __init__(self) -> None:
        self.at_s = 100.0

    def __call__(self) -> float:
        return self.at_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def feed(rate: Rate, clock: Clock, *, seconds: float, bytes_a_step: int, step_s: float = 0.1) -> None:
    for _ in range(round(seconds / step_s)):
        clock.at_s += step_s
        rate.add(bytes_a_step)


def test_steady_stream_when_measured_then_speed_and_time_left_are_right(clock: Clock) -> None:
    rate = Rate(clock)
    feed(rate, clock, seconds=5, bytes_a_step=1000)
    assert rate.speed_bps() == pytest.approx(10_000, rel=0.05)
    assert rate.left_s(100_000) == pytest.approx(10, rel=0.05)
    assert rate.stalled_s() == 0


def test_first_moment_when_asked_then_no_time_is_guessed(clock: Clock) -> None:
    rate = Rate(clock)
    feed(rate, clock, seconds=0.5, bytes_a_step=1000)
    assert rate.left_s(100_000) is None


def test_silence_when_it_lasts_then_there_is_no_speed_and_no_time_left(clock: Clock) -> None:
    rate = Rate(clock)
    feed(rate, clock, seconds=5, bytes_a_step=1000)
    clock.at_s += STALLED_AFTER_S
    assert rate.speed_bps() == 0
    assert rate.left_s(1) is None
    assert rate.stalled_s() == pytest.approx(STALLED_AFTER_S)
    feed(rate, clock, seconds=0.1, bytes_a_step=1000)
    assert rate.stalled_s() == 0
    assert rate.speed_bps() > 0


def test_speed_that_changes_when_the_window_has_passed_then_the_old_one_is_forgotten(clock: Clock) -> None:
    rate = Rate(clock)
    feed(rate, clock, seconds=10, bytes_a_step=100_000)
    feed(rate, clock, seconds=WINDOW_S + 2 * BUCKET_S, bytes_a_step=100)
    assert rate.speed_bps() == pytest.approx(1000, rel=0.1)


def test_a_byte_a_second_when_measured_then_it_is_a_byte_a_second(clock: Clock) -> None:
    rate = Rate(clock)
    feed(rate, clock, seconds=20, bytes_a_step=1, step_s=1.0)
    assert rate.speed_bps() == pytest.approx(1, rel=0.2)
    assert rate.left_s(3600) == pytest.approx(3600, rel=0.2)


def test_pause_when_begun_anew_then_what_came_before_does_not_count(clock: Clock) -> None:
    rate = Rate(clock)
    feed(rate, clock, seconds=5, bytes_a_step=100_000)
    rate.restart()
    assert rate.speed_bps() == 0
    assert rate.left_s(10) is None


def test_long_transfer_when_measured_then_what_is_kept_is_bounded(clock: Clock) -> None:
    rate = Rate(clock)
    feed(rate, clock, seconds=1000, bytes_a_step=1, step_s=0.3)
    assert len(rate._buckets) <= WINDOW_S / BUCKET_S + 1
