from hypothesis import given
from hypothesis import strategies as st

from runtime.scheduler.prefix import PrefixTree, common_prefix

Runs = st.lists(st.integers(0, 2), max_size=8)


@given(Runs, Runs)
def test_when_two_runs_are_compared_then_the_length_is_that_of_their_common_beginning(
    left: list[int], right: list[int]
) -> None:
    length = common_prefix(left, right)
    assert left[:length] == right[:length]
    assert length == min(len(left), len(right)) or left[length] != right[length]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("extend"), st.integers(0, 3), Runs),
            st.tuples(st.just("remove"), st.integers(0, 3), st.just([])),
            st.tuples(st.just("truncate"), st.integers(0, 3), st.lists(st.just(0), max_size=12)),
        ),
        max_size=24,
    ),
    Runs,
)
def test_when_sequences_grow_shrink_and_go_then_the_tree_agrees_with_plain_lists(
    steps: list[tuple[str, int, list[int]]], prompt: list[int]
) -> None:
    tree, plain = PrefixTree(), {seq_id: list[int]() for seq_id in range(4)}
    for verb, seq_id, tokens in steps:
        if verb == "extend":
            tree.extend(seq_id, tokens)
            plain[seq_id] += tokens
        elif verb == "remove":
            tree.remove(seq_id)
            plain[seq_id].clear()
        elif plain[seq_id]:
            tree.truncate(seq_id, len(tokens))
            del plain[seq_id][len(tokens) :]
    assert {seq_id: tree.tokens(seq_id) for seq_id in plain} == plain
    assert tree.n_tokens == len({tuple(held[:end]) for held in plain.values() for end in range(1, len(held) + 1)})
    match = tree.match(prompt, len(prompt))
    lengths = {seq_id: common_prefix(prompt, held) for seq_id, held in plain.items()}
    assert match.length == max(lengths.values())
    if match.length:
        assert match.holders == {seq_id for seq_id, length in lengths.items() if length == match.length}


def test_when_a_limit_is_given_then_no_more_than_it_matches() -> None:
    tree = PrefixTree()
    tree.extend(0, [1, 2, 3, 4])
    assert tree.match([1, 2, 3, 4], 3).length == 3
