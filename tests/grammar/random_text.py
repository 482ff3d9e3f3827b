"""Random texts of a grammar, as a model that knows nothing but the grammar would write them."""

import random

from runtime.grammar.gbnf import read_gbnf
from runtime.grammar.matcher import DEAD, Matcher
from runtime.grammar.program import Kind, Program

FUEL = 5_000_000
INFINITE = 10**9


def random_text(program: Program, draw: random.Random, *, patience: int = 200) -> bytes:
    """One text; after `patience` bytes it makes for the end."""
    matcher = Matcher(program, fuel=FUEL)
    members: list[list[int]] = [[] for _ in range(program.n_classes)]
    for byte in range(256):
        members[program.class_of[byte]].append(byte)
    written = bytearray()
    state = matcher.start
    while True:
        matcher.fuel = FUEL
        classes = [index for index in range(program.n_classes) if matcher.step(state, index) != DEAD]
        if matcher.may_end(state) and (not classes or draw.random() < 0.3):
            return bytes(written)
        if len(written) > patience:
            return bytes(written) + bytes(members[index][0] for index in _way_out(matcher, state))
        assert classes, f"a dead end behind {bytes(written)!r}"
        chosen = draw.choice(classes)
        byte = draw.choice(members[chosen])
        # Mostly letters, or there would be little else than control characters and far planes.
        if byte > 0x7F and draw.random() < 0.8:
            continue
        written.append(byte)
        state = matcher.step(state, program.class_of[byte])


class _Distances:
    """Fewest bytes from a place to the end."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._of_rule = [INFINITE] * len(program.rules)
        changed = True
        while changed:
            changed = False
            for rule, starts in enumerate(program.rules):
                least = min((self._rest(start) for start in starts), default=INFINITE)
                if least < self._of_rule[rule]:
                    self._of_rule[rule], changed = least, True

    def _rest(self, position: int, count: int = 0) -> int:
        program, total = self._program, 0
        while program.kinds[position] != Kind.END:
            kind = program.kinds[position]
            if kind == Kind.RULE:
                total += self._of_rule[program.values[position]]
            elif kind == Kind.REPEAT:
                needed = max(program.lows[position] - count, 0)
                total += needed and needed * self._of_rule[program.values[position]]
            else:
                total += 1
            position, count = position + 1, 0
        return min(total, INFINITE)

    def of_state(self, matcher: Matcher, state: int) -> int:
        return min(sum(self._rest(*frame) for frame in frames) for frames in matcher.export(state))


def _way_out(matcher: Matcher, state: int) -> list[int]:
    """Byte classes of a shortest text to the end."""
    distances = _Distances(matcher.program)
    way: list[int] = []
    while not matcher.may_end(state):
        matcher.fuel = FUEL
        steps = [(index, matcher.step(state, index)) for index in range(matcher.program.n_classes)]
        index, state = min(
            ((index, after) for index, after in steps if after != DEAD),
            key=lambda step: distances.of_state(matcher, step[1]),
        )
        way.append(index)
        assert len(way) < 10_000, "no end is near"
    return way


def texts_of(grammar: str, count: int, *, seed: int = 1, root: str = "root", patience: int = 200) -> list[bytes]:
    """Some texts of a grammar."""
    program = read_gbnf(grammar, root=root)
    draw = random.Random(seed)
    return [random_text(program, draw, patience=patience) for _ in range(count)]
