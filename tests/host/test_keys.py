"""API keys."""

from runtime.host.keys import KEY_PREFIX, find_key, hash_key, new_key


def test_when_made_then_keys_differ_and_are_long() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(key.startswith(KEY_PREFIX) and len(key) >= 47 for key in keys)


def test_when_checked_then_only_known_keys_match() -> None:
    known = {hash_key("one"): "first", hash_key("two"): "second"}
    assert find_key("one", known) == "first"
    assert find_key("two", known) == "second"
    assert find_key("three", known) is None
    assert find_key("", known) is None
    assert find_key("one", {}) is None
    assert find_key("\udc80", known) is None
