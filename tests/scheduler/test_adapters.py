"""Requests with different adapters: never in one decode, never out of one prefix, and each has its turns."""

from collections import Counter
from dataclasses import dataclass

import pytest

from runtime.scheduler.adapters import TURN_STEPS, AdapterSet, AdapterTurns, adapter_set
from tests.fakes.fake_backend import FakeMemory
from tests.fakes.scheduler_rig import Rig, alone

ONE = AdapterSet((1.0, 0.0), 11)
TWO = AdapterSet((0.0, 1.0), 13)
PROMPT = tuple(range(1, 41))


@dataclass
class One:
    """A unit, as far as turns go."""

    adapters: AdapterSet | None


def units(*sets: AdapterSet | None) -> list[One]:
    return [One(adapters) for adapters in sets]


def run(rig: Rig) -> Counter[AdapterSet | None]:
    """Step to the end; how many decodes each set had. Checks each decode."""
    decodes: Counter[AdapterSet | None] = Counter()
    while (plan := rig.plan()) is not None:
        assert {unit.job.request.adapters for unit, _rows in plan.chunks} == {plan.adapters}
        assert max(plan.tokens) < 2**31
        decodes[plan.adapters] += 1
        rig.finish_step(plan)
    return decodes


def test_when_sets_differ_then_they_are_never_in_one_decode_and_texts_are_as_alone() -> None:
    rig = Rig(n_parallel=6, n_seq_max=8)
    for index, adapters in enumerate((None, ONE, TWO, None, ONE, TWO)):
        rig.submit(f"r{index}", (*PROMPT, index + 1), adapters=adapters, max_tokens=30)
    decodes = run(rig)
    assert set(decodes) == {None, ONE, TWO}
    for index in range(6):
        assert rig.texts[f"r{index}", 0] == alone((*PROMPT, index + 1), 30)


def test_when_many_share_one_set_then_another_has_its_turn_within_a_few_steps() -> None:
    turns = AdapterTurns()
    present = units(*[ONE] * 20, TWO, None)
    chosen = [turns.choose(present) for _ in range(TURN_STEPS * 9)]
    assert Counter(chosen) == {ONE: TURN_STEPS * 3, TWO: TURN_STEPS * 3, None: TURN_STEPS * 3}
    assert chosen[:TURN_STEPS] == [ONE] * TURN_STEPS


def test_when_a_set_comes_anew_then_it_goes_before_those_that_were_served() -> None:
    turns = AdapterTurns()
    for _ in range(TURN_STEPS):
        turns.choose(units(ONE))
    assert turns.choose(units(ONE, TWO)) == TWO
    assert [turns.choose(units(ONE)) for _ in range(2)] == [ONE, ONE]


@pytest.mark.parametrize("kind", ["shared", "sequence", "points"])
def test_when_the_set_is_another_then_nothing_is_reused(kind: str) -> None:
    rig = Rig(kind=FakeMemory(kind=kind), host_cache_bytes=10_000)  # type: ignore[arg-type]
    cached = {}
    for name, adapters in (("a", ONE), ("b", TWO), ("c", None), ("d", ONE), ("e", None)):
        rig.submit(name, PROMPT, adapters=adapters, max_tokens=1, save_points=(len(PROMPT) - 1,))
        run(rig)
        (done,) = rig.ends[name]
        cached[name] = done.usage.cached_tokens  # type: ignore[union-attr]
    assert (cached["a"], cached["b"], cached["c"]) == (0, 0, 0)
    assert cached["d"] >= len(PROMPT) - 1
    assert cached["e"] >= len(PROMPT) - 1


def test_when_choices_are_forked_then_they_have_the_set_of_their_request() -> None:
    rig = Rig(n_parallel=4)
    rig.submit("a", PROMPT, adapters=ONE, n=2, max_tokens=6)
    rig.submit("b", PROMPT, n=2, max_tokens=6)
    run(rig)
    for name in ("a", "b"):
        assert [rig.texts[name, choice] for choice in range(2)] == [alone(PROMPT, 6, choice) for choice in range(2)]


def test_when_sets_are_made_then_equal_ones_are_equal_and_zero_is_none() -> None:
    assert adapter_set(["k", "l"], [0.0, 0.0]) is None
    assert adapter_set([], []) is None
    first, again = adapter_set(["k", "l"], [0.5, 0.0]), adapter_set(["k", "l"], [0.5, 0.0])
    assert first == again
    others = [adapter_set(["k", "l"], [0.0, 0.5]), adapter_set(["m", "l"], [0.5, 0.0]), adapter_set(["k"], [0.25])]
    assert first is not None
    assert len({first.salt, *(one.salt for one in others if one is not None)}) == 4
    assert 2**31 < first.salted(7) < 2**62
    assert first.salted(7) != first.salted(8)
