"""Prompt lookup: a conversation that repeats itself goes on as it went on before.

The last tokens are looked up among all earlier ones; what followed there is the guess. It costs next to nothing, and
is right where text is quoted, edited or repeated (code, documents, tables). How long the repeated passage is tells how
good the guess is.
"""

from collections.abc import Sequence

from runtime.scheduler.speculation import Wish
from runtime.scheduler.unit import Unit

N_GRAM = 3
"""Tokens that must be the same; two are too often so by chance."""
MAX_INDEXED = 32_768
"""Places remembered for one conversation, about 4 MB; beyond it the older half is forgotten."""
_LENGTHS = (4, 6, 10, 18)
"""Where the kinds of guesses begin, in tokens of the repeated passage."""
_BITS = 21  # more than any vocabulary


class _Index:
    """Where each run of `N_GRAM` tokens was seen last. Kept beside its unit, whose tokens only grow."""

    __slots__ = ("at", "length", "n_seen", "places")

    def __init__(self) -> None:
        self.places: dict[int, int] = {}
        self.n_seen = N_GRAM - 1
        """Runs that end before this one are known; the one at the very end is what is looked up."""
        self.at = -1
        """Behind the passage found last, and its length."""
        self.length = 0

    def find(self, tokens: list[int]) -> None:
        """Find the passage that ends like these tokens."""
        size = len(tokens)
        self.at = -1
        if size <= N_GRAM:
            return
        places = self.places
        if self.n_seen < size - 1:
            if len(places) + size - self.n_seen > MAX_INDEXED:
                places.clear()
                self.n_seen = max(N_GRAM - 1, size - MAX_INDEXED // 2)
            for end in range(self.n_seen, size - 1):
                places[_key(tokens, end)] = end
            self.n_seen = size - 1
        found = places.get(_key(tokens, size - 1))
        if found is None:
            return
        length, longest = 0, _LENGTHS[-1]
        while length < longest and found - length >= 0 and tokens[found - length] == tokens[size - 1 - length]:
            length += 1
        if length >= N_GRAM:  # else two runs have one key
            self.at, self.length = found + 1, length


def _key(tokens: list[int], end: int) -> int:
    return ((tokens[end - 2] << _BITS) ^ tokens[end - 1]) << _BITS ^ tokens[end]


class LookupDrafter:
    """Guesses by prompt lookup. Home thread: engine."""

    token_s = 0.0

    def look(self, unit: Unit) -> int:
        """See `Drafter.look`: one kind for each span of lengths."""
        index = unit.draft_state
        if not isinstance(index, _Index):
            unit.draft_state = index = _Index()
        index.find(unit.tokens)
        return sum(index.length >= length for length in _LENGTHS) if index.at >= 0 else -1

    def draft(self, wishes: Sequence[Wish]) -> None:
        """See `Drafter.draft`."""
        for wish in wishes:
            index, tokens = wish.unit.draft_state, wish.unit.tokens
            if isinstance(index, _Index) and index.at >= 0:
                wish.tokens = tokens[index.at : index.at + wish.n_max]
                # What repeats right up to the end goes on repeating.
                period = len(tokens) - index.at
                while len(wish.tokens) < wish.n_max:
                    wish.tokens.append(wish.tokens[len(wish.tokens) - period])
