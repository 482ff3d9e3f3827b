"""Speculation: for whom tokens are drafted, how many, and what drafts were worth.

A draft is a guess at how a unit goes on. Its tokens are decoded behind the unit's last one in the same step, and each
row is then sampled as ever; the draft holds as far as the samples equal it, so the text is the one without it. A draft
pays only where a decode of a few rows takes little longer than one of a single row, and where guesses are right often
enough: on a card nearly always, on a processor seldom. Both are measured here while requests run, and nothing is
drafted where it does not pay.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from runtime.scheduler.unit import Unit

GAIN = 1.03
"""A draft must promise at least so many times the tokens of a second without it."""
TRY_EVERY = 64
"""Of the guesses that do not seem to pay, one in so many is tried, so that a change is noticed."""
_PRIOR_RATE = 0.6
_PRIOR_TRIALS = 3.0
"""How much the rate of all requests counts beside that of one, in tokens tried."""
_KEPT_OF_UNIT = 0.8
_KEPT_OF_ALL = 0.97
"""Share of the older counts that each new draft leaves."""
_UP, _DOWN = 0.1, 0.5
"""A slower step may be another program's doing, a faster one cannot."""
_GUESSED_SLOPE = 0.15
"""Of a step with one more row, before any was measured."""


@dataclass(slots=True)
class Wish:
    """A draft that is asked for.

    Attributes:
        unit: whose.
        n_max: most tokens of it.
        tokens: the guess, filled in by the drafter; may stay empty.
    """

    unit: Unit
    n_max: int
    tokens: list[int] = field(default_factory=list)


class Drafter(Protocol):
    """Who guesses. Home thread: the scheduler's. `Unit.draft_state` is its own to use."""

    @property
    def token_s(self) -> float:
        """What it takes to guess one token, in seconds."""
        ...

    def look(self, unit: Unit) -> int:
        """How good a guess can be made: a small number, the same for guesses that are right equally often; -1: none."""
        ...

    def draft(self, wishes: Sequence[Wish]) -> None:
        """Fill in the tokens of the wishes."""
        ...


@dataclass(slots=True)
class Rate:
    """How often drafted tokens were right; older ones count less and less."""

    hits: float = _PRIOR_RATE * _PRIOR_TRIALS
    trials: float = _PRIOR_TRIALS

    @property
    def value(self) -> float:
        """Between 0 and 1."""
        return self.hits / self.trials

    def add(self, n_drafted: int, n_accepted: int, kept: float) -> None:
        """A draft of so many tokens held for so many; the one after those was wrong, the rest say nothing."""
        self.hits = self.hits * kept + n_accepted
        self.trials = self.trials * kept + n_accepted + (n_accepted < n_drafted)


class StepCosts:
    """Seconds of a step by its rows, of steps that only generate. Bound: one entry for each number of rows."""

    def __init__(self) -> None:
        self._known: dict[int, float] = {}
        self._measured_at: dict[int, int] = {}
        self._rows: list[int] = []
        self._n_steps = 0

    def is_fresh(self, n_rows: int) -> bool:
        """Whether a step of exactly so many rows was among the last ones."""
        at = self._measured_at.get(n_rows)
        return at is not None and self._n_steps - at < TRY_EVERY

    def add(self, n_rows: int, step_s: float) -> None:
        """A step was measured."""
        self._n_steps += 1
        self._measured_at[n_rows] = self._n_steps
        known = self._known.get(n_rows)
        if known is None:
            self._known[n_rows] = step_s
            self._rows = sorted(self._known)
        else:
            self._known[n_rows] = known + (_DOWN if step_s < known else _UP) * (step_s - known)

    def of(self, n_rows: int) -> float:
        """What a step of so many rows takes: as measured, or between or beyond what was measured; 0 if nothing was."""
        exact = self._known.get(n_rows)
        if exact is not None:
            return exact
        rows, known = self._rows, self._known
        if not rows:
            return 0.0
        at = bisect_left(rows, n_rows)
        if not at:
            return known[rows[0]]
        low = rows[at - 1]
        if at < len(rows):
            high = rows[at]
            share = (n_rows - low) / (high - low)
            return known[low] + share * (known[high] - known[low])
        if at == 1:
            return known[low] * (1 + _GUESSED_SLOPE * (n_rows - low) / low)
        first = rows[0]
        slope = max(0.0, (known[low] - known[first]) / (low - first))
        return known[low] + slope * (n_rows - low)


class Speculation:
    """Decides about drafts and remembers how they went. Home thread: the scheduler's.

    Args:
        drafter: who guesses.
        n_draft_max: most tokens of a draft.
        n_vocab: tokens of the model; what lies outside is cut off a guess.
        eog_ids: tokens that end a generation; a guess ends before them.
    """

    def __init__(self, drafter: Drafter, *, n_draft_max: int, n_vocab: int, eog_ids: frozenset[int]) -> None:
        self.n_draft_max = n_draft_max
        self.is_paused = False
        """The memory had no room for the last draft: none until a step went through without."""
        self.costs = StepCosts()
        self._drafter = drafter
        self._n_vocab = n_vocab
        self._eog_ids = eog_ids
        self._rates: dict[int, Rate] = {}
        self._passed: dict[int, int] = {}

    def drafts(self, units: Sequence[Unit], n_ctx: int, room: int) -> list[list[int]] | None:
        """A guess for each unit, maybe an empty one; None when there is none at all.

        Args:
            units: those that generate in this step, one row each.
            n_ctx: most tokens of one conversation.
            room: rows that may be added, over all of them.
        """
        if room <= 0 or self.is_paused or not self.costs.is_fresh(len(units)):
            return None  # what a step takes without drafts has to be known to judge them
        wishes = self._wishes(units, n_ctx, room)
        if not wishes:
            return None
        self._drafter.draft(wishes)
        found = {id(wish.unit): self._cut(wish) for wish in wishes}
        drafts = [found.get(id(unit), []) for unit in units]
        return drafts if any(drafts) else None

    def _cut(self, wish: Wish) -> list[int]:
        tokens = wish.tokens[: wish.n_max]
        for at, token in enumerate(tokens):
            if not 0 <= token < self._n_vocab or token in self._eog_ids:
                return tokens[:at]
        return tokens

    def _wishes(self, units: Sequence[Unit], n_ctx: int, room: int) -> list[Wish]:
        """Whom to draft for, likeliest first, as long as each adds to the tokens of a second."""
        found: list[tuple[float, int, Unit]] = []
        for unit in units:
            if unit.may_draft and self._longest(unit, n_ctx) > 0 and (kind := self._drafter.look(unit)) >= 0:
                unit.draft_kind = kind
                found.append((self._rate(unit), len(found), unit))
        if len(found) > 1:
            found.sort(reverse=True)
        n_rows = n_tokens = float(len(units))
        before_s = self.costs.of(len(units))
        wishes = []
        for rate, _order, unit in found:
            longest = min(self._longest(unit, n_ctx), room)
            if longest <= 0:
                break
            length, n_gained, step_s = self._best(rate, longest, int(n_rows), n_tokens, before_s)
            if not length:
                if not self._is_due(unit.draft_kind):
                    continue
                length, n_gained = 1, rate
                step_s = self.costs.of(int(n_rows) + 1)
            wishes.append(Wish(unit, length))
            n_rows += length
            n_tokens += n_gained
            before_s = step_s
            room -= length
        return wishes

    def _longest(self, unit: Unit, n_ctx: int) -> int:
        """The token that is sampled behind the draft needs a place too."""
        left = unit.job.max_tokens - unit.n_generated
        return min(self.n_draft_max, left - 1, n_ctx - len(unit.tokens) - 1)

    def _best(
        self, rate: float, longest: int, n_rows: int, n_tokens: float, before_s: float
    ) -> tuple[int, float, float]:
        """Length of the best draft, the tokens it is likely to bring, and the seconds of the step with it."""
        best = (0, 0.0, before_s)
        least = n_tokens * GAIN
        gained, power = 0.0, 1.0
        for length in range(1, longest + 1):
            power *= rate
            gained += power
            step_s = self.costs.of(n_rows + length) + length * self._drafter.token_s
            if (n_tokens + gained) * before_s > least * step_s:  # more tokens a second
                best = (length, gained, step_s)
                least = (n_tokens + gained) * before_s / step_s
        return best

    def _is_due(self, kind: int) -> bool:
        passed = self._passed.get(kind, 0) + 1
        self._passed[kind] = passed % TRY_EVERY
        return passed == TRY_EVERY

    def _rate(self, unit: Unit) -> float:
        common = self._rates.get(unit.draft_kind)
        value = common.value if common is not None else _PRIOR_RATE
        return (unit.draft_hits + _PRIOR_TRIALS * value) / (unit.draft_trials + _PRIOR_TRIALS)

    def measure(self, n_rows: int, step_s: float) -> None:
        """A step of so many rows, all of units that generate, took so long in llama.cpp."""
        self.costs.add(n_rows, step_s)

    def note(self, unit: Unit, n_drafted: int, n_accepted: int) -> None:
        """A draft was compared with what came."""
        unit.draft_hits = unit.draft_hits * _KEPT_OF_UNIT + n_accepted
        unit.draft_trials = unit.draft_trials * _KEPT_OF_UNIT + n_accepted + (n_accepted < n_drafted)
        self._rates.setdefault(unit.draft_kind, Rate()).add(n_drafted, n_accepted, _KEPT_OF_ALL)
        unit.job.n_drafted += n_drafted
        unit.job.n_draft_accepted += n_accepted
