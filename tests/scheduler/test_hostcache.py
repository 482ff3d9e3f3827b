from runtime.scheduler.hostcache import MAX_ENTRIES, HostCache


def state(size: int) -> memoryview:
    return memoryview(bytes(size))


def test_when_bytes_run_over_the_bound_then_the_least_recently_used_go() -> None:
    cache = HostCache(100)
    cache.put((1, 1), state(40), replace_prefixes=True)
    cache.put((2, 2), state(40), replace_prefixes=True)
    assert cache.find((1, 1, 5), 2, whole=False) is not None
    cache.put((3, 3), state(40), replace_prefixes=True)
    assert cache.holds((1, 1))
    assert not cache.holds((2, 2))
    assert cache.size_bytes == 80


def test_when_a_state_alone_is_over_the_bound_then_nothing_changes() -> None:
    cache = HostCache(100)
    cache.put((1,), state(60), replace_prefixes=True)
    cache.put((2,), state(101), replace_prefixes=True)
    assert cache.holds((1,))
    assert len(cache) == 1


def test_when_a_longer_state_comes_then_the_one_it_continues_is_dropped_only_if_asked() -> None:
    cache = HostCache(100)
    cache.put((1, 2), state(10), replace_prefixes=False)
    cache.put((1, 2, 3), state(10), replace_prefixes=False)
    assert len(cache) == 2
    cache.put((1, 2, 3, 4), state(10), replace_prefixes=True)
    assert len(cache) == 1


def test_when_memory_cannot_be_cut_then_only_whole_prefixes_are_found() -> None:
    cache = HostCache(100)
    cache.put((1, 2, 3, 9), state(10), replace_prefixes=False)
    cache.put((1, 2), state(10), replace_prefixes=False)
    found = cache.find((1, 2, 3, 4), 3, whole=True)
    assert found is not None
    assert found[0].tokens == (1, 2)
    found = cache.find((1, 2, 3, 4), 3, whole=False)
    assert found is not None
    assert (found[0].tokens, found[1]) == ((1, 2, 3, 9), 3)


def test_when_there_are_too_many_entries_then_the_oldest_go() -> None:
    cache = HostCache(10**6)
    for token in range(MAX_ENTRIES + 5):
        cache.put((token,), state(1), replace_prefixes=True)
    assert len(cache) == MAX_ENTRIES
    assert not cache.holds((4,))
    cache.clear()
    assert (len(cache), cache.size_bytes) == (0, 0)
