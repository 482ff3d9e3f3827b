"""Drafts: taken as far as they are right, tried only where they pay, and never more than there is room for."""

from collections.abc import Sequence

import pytest

from runtime.options import SamplingOptions
from runtime.scheduler.speculation import TRY_EVERY, Rate, Speculation, StepCosts, Wish
from runtime.scheduler.unit import Unit
from tests.fakes.fake_backend import FakeMemory
from tests.fakes.scheduler_rig import EOG, N_VOCAB, Rig, ScriptedDrafter, alone

PROMPT = (5, 6, 7)
RIGHT = [(4, ())]
WRONG = [(0, (1, 2, 1, 2))]


def run(script: Sequence[tuple[int, tuple[int, ...]]], **options: object) -> Rig:
    rig = Rig(drafter=ScriptedDrafter(script), **options)  # type: ignore[arg-type]
    rig.submit("a", PROMPT, max_tokens=40)
    rig.run()
    return rig


def test_when_all_guesses_are_right_then_the_text_is_the_same_in_fewer_steps() -> None:
    plain = Rig()
    plain.submit("a", PROMPT, max_tokens=40)
    plain.run()
    drafted = run(RIGHT)
    assert drafted.texts == plain.texts
    assert drafted.counted == plain.counted
    assert drafted.backend.n_decodes < 0.4 * plain.backend.n_decodes
    timings = drafted.done("a").timings
    assert 0 < timings.draft_accepted == timings.draft_tokens


def test_when_all_guesses_are_wrong_then_the_text_is_the_same_and_fewer_are_made() -> None:
    rig = run(WRONG, n_ctx=200, decode_s=0.5)
    assert rig.texts["a", 0] == alone(PROMPT, 40)
    assert rig.done("a").timings.draft_accepted == 0


def test_when_a_guess_is_right_for_a_while_then_it_counts_so_far_and_the_rest_is_forgotten() -> None:
    rig = run([(2, (1, 2))])
    assert rig.texts["a", 0] == alone(PROMPT, 40)
    timings = rig.done("a").timings
    assert 0 < timings.draft_accepted < timings.draft_tokens


@pytest.mark.parametrize("rest", [(EOG, 5), (-1,), (N_VOCAB,), (N_VOCAB - 1,) * 50])
def test_when_guesses_hold_what_no_guess_may_then_they_end_before_it(rest: tuple[int, ...]) -> None:
    rig = run([(1, rest)])
    assert rig.texts["a", 0] == alone(PROMPT, 40)


def test_when_memory_cannot_forget_a_wrong_guess_then_the_prompt_is_read_again() -> None:
    rig = Rig(kind=FakeMemory(refuses_cuts=True), drafter=ScriptedDrafter([(1, (1, 2))]))
    rig.submit("a", PROMPT, max_tokens=12)
    rig.run()
    assert rig.texts["a", 0] == alone(PROMPT, 12)


def test_when_an_answer_ends_within_a_right_guess_then_its_sequence_holds_only_the_answer() -> None:
    rig = Rig(drafter=ScriptedDrafter(RIGHT))
    text = alone(PROMPT, 40)
    rig.submit("a", PROMPT, max_tokens=40, stop=(text[2:4],))
    rig.run()  # checks the books against the memory
    assert rig.texts["a", 0] == text[:2]
    assert rig.done("a").stop_strings == (text[2:4],)


def test_when_the_most_tokens_or_the_context_end_the_answer_then_nothing_is_drafted_beyond() -> None:
    for options in ({"max_tokens": 3}, {"max_tokens": 40}):
        rig = Rig(drafter=ScriptedDrafter(RIGHT), n_ctx=12)
        rig.submit("a", PROMPT, **options)
        rig.run()
        assert rig.texts["a", 0] == alone(PROMPT, options["max_tokens"], n_ctx=12)
        assert rig.done("a").usage.completion_tokens == min(options["max_tokens"], 9)


def test_when_there_is_no_room_for_a_draft_then_it_is_decoded_without_and_nothing_is_evicted() -> None:
    rig = Rig(drafter=ScriptedDrafter(RIGHT))
    rig.submit("idle", (9, 9, 9), max_tokens=1)
    rig.run()
    rig.submit("a", PROMPT, max_tokens=40)
    rig.step()
    rig.step()
    rig.backend.codes = [1]
    plan = rig.plan()
    assert plan is not None
    assert plan.n_drafted
    rig.finish_step(plan)
    again = rig.plan()
    assert again is not None
    assert not again.n_drafted
    assert rig.scheduler.placement.n_idle == 1
    rig.finish_step(again)
    rig.run()
    assert rig.texts["a", 0] == alone(PROMPT, 40)


def test_when_a_seed_asks_for_the_same_text_then_nothing_is_drafted() -> None:
    rig = Rig(drafter=ScriptedDrafter(RIGHT))
    rig.submit("a", PROMPT, max_tokens=20, sampling=SamplingOptions(seed=1))
    rig.run()
    assert rig.done("a").timings.draft_tokens == 0


def test_when_many_generate_then_rows_stay_within_what_the_context_was_made_for() -> None:
    rig = Rig(drafter=ScriptedDrafter(RIGHT), n_draft_rows=5, n_draft_max=4)  # the backend checks
    for name in "abcd":
        rig.submit(name, (*PROMPT, ord(name) % 50), max_tokens=30)
    rig.run()
    for name in "abcd":
        assert rig.texts[name, 0] == alone((*PROMPT, ord(name) % 50), 30)


def test_when_a_prompt_is_read_then_nobody_drafts() -> None:
    rig = Rig(drafter=ScriptedDrafter(RIGHT))
    rig.submit("a", PROMPT, max_tokens=60)
    drafted = []
    for _ in range(4):
        plan = rig.plan()
        assert plan is not None
        drafted.append(bool(plan.n_drafted))
        rig.finish_step(plan)
    assert drafted == [False, False, True, True]
    rig.submit("b", tuple(range(1, 90)), max_tokens=1)
    plan = rig.plan()
    assert plan is not None
    assert plan.n_drafted == 0
    rig.finish_step(plan)
    rig.run()


# --- whether a draft pays ---------------------------------------------------------------------------------


class _Guesser:
    """Always has a guess, of one kind."""

    def __init__(self, token_s: float = 0.0) -> None:
        self.token_s = token_s

    def look(self, _unit: Unit) -> int:
        return 0

    def draft(self, wishes: Sequence[Wish]) -> None:
        for wish in wishes:
            wish.tokens = [1] * wish.n_max


def generating(n: int = 1) -> list[Unit]:
    rig = Rig(n_parallel=max(n, 4), n_seq_max=max(n, 6))
    for index in range(n):
        rig.submit(str(index), (1, 2, 3 + index), max_tokens=100)
    units: list[Unit] = []
    while len(units) < n:
        plan = rig.plan()
        assert plan is not None
        units = [unit for unit, _rows in plan.chunks[: plan.n_generating]]
        rig.finish_step(plan)
    return units


def decisions(step_s: dict[int, float], *, right: float, token_s: float = 0.0, n_steps: int = 400) -> list[int]:
    """Lengths of the drafts for one unit, where steps take so long and so many of ten tokens are right."""
    guesser = _Guesser(token_s)
    speculation = Speculation(guesser, n_draft_max=4, n_vocab=10, eog_ids=frozenset())
    (unit,) = generating()
    lengths = []
    wheel = 0
    for _ in range(n_steps):
        drafts = speculation.drafts([unit], 1000, 8)
        length = len(drafts[0]) if drafts is not None else 0
        lengths.append(length)
        n_accepted = 0
        while n_accepted < length:
            wheel += 1
            if wheel * right % 1 >= right:
                break
            n_accepted += 1
        speculation.measure(1 + length, step_s[1 + length])
        if length:
            speculation.note(unit, length, n_accepted)
    return lengths


FLAT = dict.fromkeys(range(1, 6), 0.01)
STEEP = {rows: 0.01 * rows for rows in range(1, 6)}


def test_when_more_rows_cost_nothing_then_drafts_are_long() -> None:
    assert decisions(FLAT, right=0.8)[-1] == 4


def test_when_each_row_costs_a_step_then_drafting_stops_but_for_a_rare_try() -> None:
    lengths = decisions(STEEP, right=0.8)
    assert lengths[0] == 0  # a step without a draft is measured first
    assert sum(1 for length in lengths[20:] if length) <= len(lengths[20:]) // TRY_EVERY + 1
    assert any(lengths[20:])


def test_when_guesses_are_wrong_then_drafting_stops_even_where_it_is_cheap() -> None:
    cheap = {rows: 0.01 + 0.001 * (rows - 1) for rows in range(1, 6)}
    lengths = decisions(cheap, right=0.01)
    assert sum(1 for length in lengths[-2 * TRY_EVERY :] if length) <= 3


def test_when_guessing_itself_takes_long_then_it_stops() -> None:
    assert sum(1 for length in decisions(FLAT, right=0.8, token_s=0.02)[20:] if length) <= 400 // TRY_EVERY + 1


def test_when_one_guess_is_better_than_another_then_it_gets_the_rows() -> None:
    speculation = Speculation(_Guesser(), n_draft_max=4, n_vocab=10, eog_ids=frozenset())
    speculation.measure(2, 0.01)
    good, bad = generating(2)
    for _ in range(30):
        speculation.note(good, 4, 4)
        speculation.note(bad, 4, 0)
    drafts = speculation.drafts([bad, good], 1000, 4)
    assert drafts is not None
    assert [len(draft) for draft in drafts] == [0, 4]


def test_when_step_times_are_noisy_then_the_quick_ones_are_believed() -> None:
    costs = StepCosts()
    for step_s in (0.01, 0.05, 0.011, 0.08, 0.0105, 0.01):
        costs.add(1, step_s)
    assert costs.of(1) < 0.02


def test_when_a_number_of_rows_was_never_measured_then_its_neighbours_tell() -> None:
    costs = StepCosts()
    assert costs.of(3) == 0
    costs.add(1, 0.01)
    assert costs.of(1) < costs.of(5) < 0.05
    costs.add(5, 0.03)
    assert costs.of(3) == pytest.approx(0.02)
    assert costs.of(9) == pytest.approx(0.05)


def test_when_drafts_go_wrong_then_the_rate_falls_and_rises_again() -> None:
    rate = Rate()
    for _ in range(20):
        rate.add(4, 0, 0.8)
    assert rate.value < 0.1
    for _ in range(20):
        rate.add(4, 4, 0.8)
    assert rate.value > 0.9
    assert rate.trials < 30
