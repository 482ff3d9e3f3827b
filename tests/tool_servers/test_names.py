"""Names that every model can write."""

import re

from hypothesis import given
from hypothesis import strategies as st

from runtime.tool_servers.names import MAX_NAME_CHARS, call_names


@given(st.lists(st.tuples(st.text(max_size=60), st.text(max_size=200)), unique=True, max_size=30))
def test_when_names_are_anything_then_those_for_models_are_legal_unique_and_stable(
    pairs: list[tuple[str, str]],
) -> None:
    names = call_names(pairs)
    assert len(set(names)) == len(pairs)
    assert all(re.fullmatch(rf"[A-Za-z0-9_-]{{1,{MAX_NAME_CHARS}}}", name) for name in names)
    assert call_names(pairs[:5]) == names[:5]


def test_when_two_names_become_the_same_then_the_later_one_gets_a_piece_of_a_hash() -> None:
    first, second = call_names([("a b", "x"), ("a_b", "x")])
    assert first == "a_b__x"
    assert re.fullmatch(r"a_b__x_[0-9a-f]{6}", second)
