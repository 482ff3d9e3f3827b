"""Whatever comes in whatever order: every request ends once, with the text it would get alone, and no rule breaks."""

from typing import Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.scheduler.types import Done
from tests.fakes.fake_backend import FakeMemory
from tests.fakes.scheduler_rig import EOG, N_VOCAB, Rig, ScriptedDrafter, alone

Kinds = st.sampled_from(["shared", "sequence", "points"])
# Few tokens and common beginnings, so that prefixes are shared often.
Prompts = st.tuples(st.integers(0, 3), st.lists(st.integers(1, 3), min_size=1, max_size=12)).map(
    lambda drawn: (*((drawn[0],) * 9 if drawn[0] else ()), *drawn[1])
)

# So many tokens as the model will write, and then any, or none, also such as end an answer or do not exist.
Guesses = st.tuples(
    st.integers(0, 6), st.lists(st.sampled_from([1, 2, EOG, -1, N_VOCAB, N_VOCAB - 1]), max_size=3).map(tuple)
)


@settings(max_examples=150, deadline=None)
@given(
    kind=Kinds,
    refuses_and_reads_all_cells=st.tuples(st.booleans(), st.booleans()),
    requests=st.lists(
        st.tuples(Prompts, st.integers(0, 14), st.integers(1, 3), st.integers(0, 3), st.booleans()),
        min_size=1,
        max_size=10,
    ),
    cancels=st.dictionaries(st.integers(0, 9), st.integers(0, 12), max_size=3),
    n_parallel=st.integers(1, 3),
    n_cells=st.integers(60, 120),
    host_cache_bytes=st.sampled_from([0, 300, 100_000]),
    codes_and_guesses=st.tuples(st.lists(st.sampled_from([0, 0, 0, 2]), max_size=12), st.lists(Guesses, max_size=6)),
)
def test_when_anything_comes_in_any_order_then_each_request_ends_once_and_right(
    kind: Literal["shared", "sequence", "points"],
    refuses_and_reads_all_cells: tuple[bool, bool],
    requests: list[tuple[tuple[int, ...], int, int, int, bool]],
    cancels: dict[int, int],
    n_parallel: int,
    n_cells: int,
    host_cache_bytes: int,
    codes_and_guesses: tuple[list[int], list[tuple[int, tuple[int, ...]]]],
) -> None:
    codes, script = codes_and_guesses
    refuses, reads_all_cells = refuses_and_reads_all_cells
    rig = Rig(
        kind=FakeMemory(kind=kind, refuses_cuts=refuses, n_rollback=4),
        drafter=ScriptedDrafter(script) if script else None,
        n_ctx=40,
        n_cells=n_cells,
        n_parallel=n_parallel,
        n_seq_max=n_parallel + (0 if kind == "points" else 2),
        n_batch=16,
        n_ubatch=4,
        host_cache_bytes=host_cache_bytes,
        reads_all_cells=reads_all_cells,
    )
    rig.backend.codes = list(codes)
    due = {f"r{index}": cancels[index] for index in range(len(requests)) if index in cancels}
    for index, (prompt, max_tokens, n, gap, from_window) in enumerate(requests):
        rig.submit(f"r{index}", prompt, max_tokens=max_tokens, n=n, from_window=from_window)
        for _ in range(gap):
            rig.step()
        for name in [name for name in due if due[name] <= rig.backend.n_decodes]:
            rig.cancel(name)
            del due[name]
    for name in due:
        rig.cancel(name)
    rig.run(5_000)
    for index, (prompt, max_tokens, n, _gap, _window) in enumerate(requests):
        (end,) = rig.ends[f"r{index}"]
        assert isinstance(end, Done)
        for choice in range(n):
            expected = alone(prompt, max_tokens, choice, n_ctx=40)
            got = rig.texts[f"r{index}", choice]
            if end.reasons[choice] == "cancelled":
                assert expected.startswith(got)
            else:
                assert got == expected
    assert rig.scheduler.n_active == rig.scheduler.n_waiting == 0
    assert rig.scheduler.placement.host.size_bytes <= host_cache_bytes
