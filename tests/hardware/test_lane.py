import threading
import time

from runtime.hardware.lane import Lane, ask_all


def test_when_asked_then_the_reading_is_kept() -> None:
    lane = Lane("test", lambda: 7)
    lane.ask()
    assert lane.wait(time.monotonic() + 5)
    assert lane.latest == 7
    assert lane.error is None
    lane.close()
    assert lane.join(time.monotonic() + 5)


def test_when_one_lane_hangs_then_its_neighbour_is_answered_and_time_is_bounded() -> None:
    released = threading.Event()
    stuck = Lane("stuck", lambda: released.wait(30))
    free = Lane("free", lambda: True)
    began = time.monotonic()
    ask_all([stuck, free], within_s=0.2)
    assert time.monotonic() - began < 2
    assert free.latest is True
    assert stuck.busy
    assert stuck.silent_s > 0
    released.set()
    assert stuck.wait(time.monotonic() + 5)
    assert stuck.silent_s == 0


def test_when_a_reading_is_under_way_then_asking_again_starts_no_second() -> None:
    released = threading.Event()
    begun = []

    def read() -> int:
        begun.append(1)
        released.wait(30)
        return len(begun)

    lane = Lane("test", read)
    lane.ask()
    lane.ask()
    released.set()
    assert lane.wait(time.monotonic() + 5)
    assert lane.latest == 1


def test_when_a_reading_fails_then_the_error_is_told_and_the_last_reading_stays() -> None:
    answers = iter([1])
    lane = Lane("test", lambda: next(answers, None) or 1 // 0)
    lane.ask()
    lane.wait(time.monotonic() + 5)
    lane.ask()
    lane.wait(time.monotonic() + 5)
    assert lane.latest == 1
    assert isinstance(lane.error, ZeroDivisionError)


def test_when_closed_then_asking_starts_nothing() -> None:
    lane = Lane("test", lambda: 7)
    lane.close()
    lane.ask()
    assert lane.latest is None
    assert not lane.busy
