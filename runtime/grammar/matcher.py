"""Matches bytes against a program, with a bound on time and memory whatever the grammar is.

A place in the text is a set of stacks. A stack says what is still to come: the operation at its top, then what
follows. Stacks are shared lists and every set is kept once, so the same place is recognised when it comes again and
its transitions are only worked out once: a deterministic automaton that is built where it is walked.

llama.cpp's own matcher walks every path through the stacks for each token; where a grammar is ambiguous that is
exponential in the length of the token, and nothing can stop it. Here equal stacks are one, so most ambiguous
grammars cost no more than others, and for the rest each step burns `fuel` and ends at its bound.
"""

from collections.abc import Iterable

from runtime.errors import BadRequest
from runtime.grammar.program import NO_LIMIT, Kind, Program

DEAD = 0
"""The state in which nothing matches."""
MAX_STACKS = 2000
"""Stacks of one state."""
MAX_NODES = 150_000
MAX_STATES = 20_000
MAX_STORED = 400_000
"""Stacks of all states, and entries of all transitions: tens of MB at the worst."""

_END, _BYTES, _RULE, _REPEAT = int(Kind.END), int(Kind.BYTES), int(Kind.RULE), int(Kind.REPEAT)
_TOKEN, _NOT_TOKEN = int(Kind.TOKEN), int(Kind.NOT_TOKEN)

Frames = tuple[tuple[int, int], ...]
"""A stack written out: position and count of each frame, top first."""


def _too_complex() -> BadRequest:
    return BadRequest(
        "The grammar or schema is too ambiguous: one step through it takes too much work.",
        hint="Write it so that no text can be read in many ways: no repetition of a repetition, no two optional "
        "parts that begin alike.",
        param="grammar",
    )


class Matcher:
    """The automaton of a program. Home thread: one at a time.

    Attributes:
        program: the grammar.
        start: the state before the first byte.
        fuel: work that may still be done; set it before a step. One unit takes about a microsecond.
    """

    def __init__(self, program: Program, *, fuel: int) -> None:
        """Make it.

        Raises:
            BadRequest: the first step already takes more than `fuel`.
        """
        self.program = program
        self.fuel = fuel
        # The stack of number 0 is empty: the text may end.
        self._positions, self._counts, self._rests = [-1], [0], [0]
        self._nodes: dict[tuple[int, int, int], int] = {}
        self._after: list[tuple[int, ...] | None] = [None]
        self._states: list[tuple[int, ...]] = [()]
        self._state_ids: dict[tuple[int, ...], int] = {(): DEAD}
        self._has_tokens: list[bool] = [False]
        self._steps: dict[int, int] = {}
        self._n_stored = 0
        first: set[int] = set()
        for start in program.rules[program.root]:
            first.update(self._closure(0 if program.kinds[start] == _END else self._node(start, 0, 0)))
        self.start = self._state(first)

    @property
    def is_full(self) -> bool:
        """Whether it has grown so much that a fresh one should take over."""
        return (
            len(self._positions) > MAX_NODES
            or len(self._states) > MAX_STATES
            or self._n_stored + len(self._steps) > MAX_STORED
        )

    @property
    def n_states(self) -> int:
        """States known by now."""
        return len(self._states)

    def step(self, state: int, byte_class: int) -> int:
        """The state after a byte of this class.

        Raises:
            BadRequest: the fuel is used up.
        """
        key = state * self.program.n_classes + byte_class
        found = self._steps.get(key)
        if found is None:
            kinds, values, positions = self.program.kinds, self.program.values, self._positions
            nodes: set[int] = set()
            for node in self._states[state]:
                position = positions[node]
                if node and kinds[position] == _BYTES and values[position] >> byte_class & 1:
                    nodes.update(self._next(node))
            found = self._steps[key] = self._state(nodes)
        return found

    def may_end(self, state: int) -> bool:
        """Whether the text may end here."""
        stacks = self._states[state]
        return bool(stacks) and stacks[0] == 0

    def must_end(self, state: int) -> bool:
        """Whether nothing but the end may follow."""
        return self._states[state] == (0,)

    def has_tokens(self, state: int) -> bool:
        """Whether the grammar names a token at this place."""
        return self._has_tokens[state]

    def step_token(self, state: int, token: int) -> int:
        """The state after a token that the grammar names as such (`DEAD` when it names none that fits)."""
        kinds, values = self.program.kinds, self.program.values
        nodes: set[int] = set()
        for node in self._states[state]:
            if not node:
                continue
            position = self._positions[node]
            kind = kinds[position]
            if (kind == _TOKEN and values[position] == token) or (kind == _NOT_TOKEN and values[position] != token):
                nodes.update(self._next(node))
        return self._state(nodes)

    def joined(self, one: int, other: int) -> int:
        """The state that is either."""
        if DEAD in (one, other):
            return one or other
        return self._state({*self._states[one], *self._states[other]})

    def read(self, state: int, raw: bytes) -> int:
        """The state after these bytes."""
        class_of = self.program.class_of
        for byte in raw:
            if state == DEAD:
                return DEAD
            state = self.step(state, class_of[byte])
        return state

    # --- moving to a fresh automaton ---

    def export(self, state: int) -> tuple[Frames, ...]:
        """A state written out, for `take`."""
        written: list[Frames] = []
        for stack in self._states[state]:
            frames: list[tuple[int, int]] = []
            node = stack
            while node:
                frames.append((self._positions[node], self._counts[node]))
                node = self._rests[node]
            written.append(tuple(frames))
        return tuple(written)

    def take(self, written: Iterable[Frames]) -> int:
        """The state that another matcher of the same program wrote out."""
        nodes: set[int] = set()
        for frames in written:
            node = 0
            for position, count in reversed(frames):
                node = self._node(position, count, node)
            nodes.add(node)
        return self._state(nodes)

    # --- stacks ---

    def _node(self, position: int, count: int, rest: int) -> int:
        key = position, count, rest
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = len(self._positions)
            self._positions.append(position)
            self._counts.append(count)
            self._rests.append(rest)
            self._after.append(None)
        return found

    def _state(self, nodes: set[int]) -> int:
        self._burn(1 + len(nodes))
        if len(nodes) > MAX_STACKS:
            raise _too_complex()
        stacks = tuple(sorted(nodes))
        found = self._state_ids.get(stacks)
        if found is None:
            found = self._state_ids[stacks] = len(self._states)
            self._states.append(stacks)
            self._n_stored += len(stacks)
            kinds, positions = self.program.kinds, self._positions
            self._has_tokens.append(any(node and kinds[positions[node]] != _BYTES for node in stacks))
        return found

    def _next(self, node: int) -> tuple[int, ...]:
        """Stacks after the operation at the top of this one has matched."""
        found = self._after[node]
        if found is None:
            following, rest = self._positions[node] + 1, self._rests[node]
            is_last = self.program.kinds[following] == _END
            found = self._after[node] = self._closure(rest if is_last else self._node(following, 0, rest))
            self._n_stored += len(found)
        self._burn(len(found))
        return found

    def _closure(self, node: int) -> tuple[int, ...]:
        """The stacks a stack comes to when its rules are entered, each with something to match at its top."""
        program, positions = self.program, self._positions
        kinds, values = program.kinds, program.values
        todo, seen, found = [node], {node}, []
        while todo:
            self._burn(1)
            current = todo.pop()
            if not current:
                found.append(0)
                continue
            position, rest = positions[current], self._rests[current]
            kind = kinds[position]
            if kind in (_BYTES, _TOKEN, _NOT_TOKEN):
                found.append(current)
                continue
            after = rest if kinds[position + 1] == _END else self._node(position + 1, 0, rest)
            under = after
            entered: list[int] = []
            if kind == _REPEAT:
                count, low, high = self._counts[current], program.lows[position], program.highs[position]
                if count >= low:
                    entered.append(after)
                count = count + 1 if high != NO_LIMIT else min(count + 1, low)
                under = after if count == high else self._node(position, count, rest)
            entered += [
                under if kinds[start] == _END else self._node(start, 0, under)
                for start in program.rules[values[position]]
            ]
            for stack in entered:
                if stack not in seen:
                    seen.add(stack)
                    todo.append(stack)
            if len(seen) > 4 * MAX_STACKS:
                raise _too_complex()
        return tuple(found)

    def _burn(self, amount: int) -> None:
        self.fuel -= amount
        if self.fuel < 0:
            raise _too_complex()
