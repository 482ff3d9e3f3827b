"""Bounds of numbers hold exactly, digit by digit."""

import random
from decimal import Decimal

from runtime.grammar.gbnf import read_gbnf
from runtime.grammar.matcher import Matcher
from runtime.grammar.numbers import integer_between, number_between


class Language:
    def __init__(self, expression: str) -> None:
        self._matcher = Matcher(read_gbnf("root ::= " + expression), fuel=10**7)

    def has(self, text: str) -> bool:
        return self._matcher.may_end(self._matcher.read(self._matcher.start, text.encode()))


def test_when_whole_numbers_are_bounded_then_exactly_those_inside_can_be_written() -> None:
    draw = random.Random(1)
    for _ in range(120):
        low = draw.choice([None, draw.randint(-1200, 1200), 0])
        high = draw.choice([None, draw.randint(-1200, 1200), 0, (low or 0) + draw.randint(0, 20)])
        expression = integer_between(low, high)
        if not expression:
            assert low is not None
            assert high is not None
            assert low > high
            continue
        language = Language(expression)
        near = [edge + step for edge in (low or 0, high or 0) for step in (-1, 0, 1)]
        for value in [*range(-30, 30), *near, *(draw.randint(-20_000, 20_000) for _ in range(30))]:
            inside = (low is None or value >= low) and (high is None or value <= high)
            assert language.has(str(value)) == inside, (low, high, value)


def test_when_decimal_numbers_are_bounded_then_none_outside_can_be_written_and_few_inside_cannot() -> None:
    draw = random.Random(2)
    n_inside = n_missed = 0
    for _ in range(150):
        low, high = (draw.choice([None, _decimal(draw)]) for _ in range(2))
        above, below = draw.random() < 0.4, draw.random() < 0.4

        def inside(
            value: Decimal,
            low: Decimal | None = low,
            high: Decimal | None = high,
            above: bool = above,
            below: bool = below,
        ) -> bool:
            return (low is None or value > low or (value == low and not above)) and (
                high is None or value < high or (value == high and not below)
            )

        expression = number_between(low, high, above=above, below=below)
        if not expression:
            assert low is not None
            assert high is not None
            assert low > high or (low == high and (above or below))
            continue
        language = Language(expression)
        for _ in range(80):
            text = f"{draw.choice([draw.uniform(-3, 3), draw.uniform(-40, 40)]):.{draw.randint(0, 4)}f}"
            is_inside = inside(Decimal(text))
            assert is_inside or not language.has(text), (low, high, above, below, text)
            n_inside += is_inside
            n_missed += is_inside and not language.has(text)
    # What ends in a needless zero may be missing.
    assert n_missed < n_inside * 0.05


def _decimal(draw: random.Random) -> Decimal:
    return Decimal(
        draw.choice(
            [str(draw.randint(-30, 30)), f"{draw.uniform(-3, 3):.1f}", f"{draw.uniform(-30, 30):.3f}", "0", "1"]
        )
    )
