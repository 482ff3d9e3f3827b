"""Rows that are kept, given up, and counted."""

import numpy as np
import pytest

from runtime.errors import Busy
from runtime.worker.media_cache import MediaCache
from runtime.worker.media_rows import ReadMedia


def medium_of(name: str, n_rows: int) -> ReadMedia:
    return ReadMedia(name.encode(), "image", (), rows=(np.zeros((n_rows, 64), dtype=np.float32),))


ROW = 64 * 4


def test_when_the_bound_is_reached_then_the_longest_unused_goes() -> None:
    cache = MediaCache(max_bytes=30 * ROW)
    for name in "abc":
        cache.put(medium_of(name, 10))
    assert cache.get(b"a") is not None
    cache.put(medium_of("d", 10))
    assert [cache.get(name.encode()) is not None for name in "abcd"] == [True, False, True, True]
    assert cache.size_bytes == 30 * ROW


def test_when_one_alone_is_over_the_bound_then_it_is_not_kept_but_counted_while_used() -> None:
    cache = MediaCache(max_bytes=30 * ROW)
    large = medium_of("large", 100)
    cache.put(large)
    assert cache.get(b"large") is None
    assert (cache.size_bytes, cache.live_bytes) == (0, 100 * ROW)
    large.rows = None
    assert cache.live_bytes == 0


def test_when_requests_hold_too_many_rows_then_more_are_refused_until_they_end() -> None:
    cache = MediaCache(max_bytes=20 * ROW, max_live_bytes=50 * ROW)
    waiting = [medium_of(str(number), 20) for number in range(2)]
    for one in waiting:
        cache.put(one)
    with pytest.raises(Busy):
        cache.check_room(20 * ROW)
    del one
    waiting.clear()
    cache.check_room(20 * ROW)
    assert cache.live_bytes <= 20 * ROW


def test_when_room_is_needed_then_what_is_only_kept_gives_way() -> None:
    cache = MediaCache(max_bytes=50 * ROW, max_live_bytes=50 * ROW)
    for name in "abcd":
        cache.put(medium_of(name, 10))
    cache.check_room(25 * ROW)
    assert cache.size_bytes <= 25 * ROW
    assert cache.get(b"d") is not None
