"""TOML with a bound on its nesting."""

import pytest

from runtime.toml_text import MAX_DEPTH, read_toml


def test_when_it_is_a_table_then_it_is_read() -> None:
    assert read_toml('a = 1\n[b]\nc = [[1], {d = "e"}]\n') == {"a": 1, "b": {"c": [[1], {"d": "e"}]}}


@pytest.mark.parametrize("depth", [MAX_DEPTH, 300, 100_000])
def test_when_nested_too_deeply_then_it_is_refused_as_other_nonsense_is(depth: int) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        read_toml(f"a = {'[' * depth}{']' * depth}")


@pytest.mark.parametrize("text", ["a", "a = 9" + "9" * 5000, "a = 1\na = 2"])
def test_when_it_is_no_toml_then_it_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read_toml(text)
