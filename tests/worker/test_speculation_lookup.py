"""Prompt lookup: what followed the same words before, quickly and in bounded memory."""

import random

from runtime.scheduler.speculation import Wish
from runtime.scheduler.types import EngineRequest
from runtime.scheduler.unit import Job, Unit
from runtime.worker import speculation_lookup
from runtime.worker.speculation_lookup import MAX_INDEXED, N_GRAM, LookupDrafter


def unit_of(tokens: list[int]) -> Unit:
    return Job(EngineRequest("a", tuple(tokens)), (None,), 0.0, 10**6).units[0]


def guess(unit: Unit, n_max: int = 6) -> tuple[int, list[int]]:
    drafter = LookupDrafter()
    kind = drafter.look(unit)
    wish = Wish(unit, n_max)
    drafter.draft([wish])
    return kind, wish.tokens


def test_when_the_end_was_said_before_then_the_guess_is_what_followed() -> None:
    assert guess(unit_of([1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4]))[1] == [5, 6, 7, 8, 9, 2]


def test_when_it_was_said_several_times_then_the_last_one_counts() -> None:
    assert guess(unit_of([1, 2, 3, 4, 9, 1, 2, 3, 5, 9, 1, 2, 3]), 2)[1] == [5, 9]


def test_when_the_end_repeats_itself_then_the_guess_goes_on_repeating() -> None:
    assert guess(unit_of([9, 1, 2, 3, 1, 2, 3]), 7)[1] == [1, 2, 3, 1, 2, 3, 1]
    assert guess(unit_of([5, 5, 5, 5]), 3)[1] == [5, 5, 5]


def test_when_nothing_was_said_before_then_there_is_no_guess() -> None:
    assert guess(unit_of(list(range(50)))) == (-1, [])
    for size in range(1, N_GRAM + 1):
        assert guess(unit_of([1] * size)) == (-1, [])


def test_when_the_passage_is_longer_then_the_guess_is_of_a_better_kind() -> None:
    kinds = []
    for length in (3, 5, 8, 12, 25):
        passage = list(range(100, 100 + length))
        kinds.append(guess(unit_of([1, *passage, 2, 3, *passage]))[0])
    assert kinds == [0, 1, 2, 3, 4]


def test_when_the_text_grows_then_guesses_are_those_of_a_fresh_look() -> None:
    chance = random.Random(3)
    unit = unit_of([chance.randrange(4) for _ in range(20)])
    drafter = LookupDrafter()
    for _ in range(300):
        kind = drafter.look(unit)
        wish = Wish(unit, 5)
        drafter.draft([wish])
        assert (kind, wish.tokens) == guess(unit_of(unit.tokens), 5)
        unit.tokens += [chance.randrange(4) for _ in range(chance.randrange(1, 4))]


def test_when_there_are_placeholders_of_pictures_then_they_are_looked_at_like_tokens() -> None:
    assert guess(unit_of([-1, -2, -3, 7, 8, -1, -2, -3]), 2)[1] == [7, 8]


def test_when_a_conversation_is_very_long_then_its_index_stays_bounded() -> None:
    chance = random.Random(1)
    unit = unit_of([chance.randrange(100_000) for _ in range(3 * MAX_INDEXED)])
    drafter = LookupDrafter()
    drafter.look(unit)
    for _ in range(3):
        unit.tokens += [chance.randrange(100_000) for _ in range(MAX_INDEXED // 2)]
        drafter.look(unit)
        index = unit.draft_state
        assert isinstance(index, speculation_lookup._Index)
        assert len(index.places) <= MAX_INDEXED
    unit.tokens += unit.tokens[-40:-20]
    assert drafter.look(unit) >= 0
