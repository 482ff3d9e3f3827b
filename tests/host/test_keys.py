"""API keys."""

from runtime.host.keys import KEY_PREFIX, hash_key, matches_any, new_key


def test_when_made_then_keys_differ_and_are_long() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(key.startswith(KEY_PREFIX) and len(key) >= 47 for key in keys)


def test_when_checked_then_only_known_keys_match() -> None:
    known = [hash_key("one"), hash_key("two")]
    assert matches_any("one", known)
    assert matches_any("two", known)
    assert not matches_any("three", known)
    assert not matches_any("", known)
    assert not matches_any("one", [])
    assert not matches_any("\udc80", known)
