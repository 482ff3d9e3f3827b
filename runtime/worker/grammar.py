"""Grammars over tokens: which may follow, and what a choice has written so far.

The matcher is ours (`runtime.grammar.matcher`), not llama.cpp's: that one may take exponential time over an
ambiguous grammar, ends the process where a token does not fit, and works every mask out anew. What an automaton has
learned here is kept and shared by all who use the same grammar.
"""

import threading
from collections import OrderedDict

import numpy as np

from runtime.grammar.gbnf import read_gbnf
from runtime.grammar.matcher import DEAD, Matcher
from runtime.grammar.program import Program
from runtime.worker.token_tree import BoolRow, StepTable, TokenTree
from runtime.worker.vocab import Vocab

STEP_FUEL = 200_000
"""Most work of one token: a fifth of a second."""
SPARE_FUEL = 1_000_000
"""What the steps of one choice may burn altogether, beside `TOKEN_FUEL` for each token."""
TOKEN_FUEL = 5_000
MAX_AUTOMATA = 8
MAX_MASKS = 128
"""Masks an automaton keeps: a byte for each token of the vocabulary."""


class Automaton:
    """A grammar over a vocabulary. Home thread: engine, once it is made."""

    def __init__(self, program: Program, tree: TokenTree) -> None:
        """Make it.

        Raises:
            BadRequest: its first step takes too much work.
        """
        self.tree = tree
        self.matcher = Matcher(program, fuel=STEP_FUEL)
        self._table = StepTable(self.matcher)
        self._masks: OrderedDict[int, BoolRow] = OrderedDict()
        # A control token is a mark, not text that happens to fit, unless the grammar writes it out.
        self._refused = np.array(
            [
                token
                for token, raw in tree.control.items()
                if token not in program.tokens and not any(raw and raw in literal for literal in program.literals)
            ],
            dtype=np.int64,
        )
        self._refused_ids = frozenset(self._refused.tolist())
        self._eog = {token: tree.control.get(token, b"") for token in tree.eog_ids}

    def renew(self) -> None:
        """Forget what was learned; walks carry their state over."""
        self.matcher = Matcher(self.matcher.program, fuel=STEP_FUEL)
        self._table = StepTable(self.matcher)
        self._masks.clear()

    def step(self, state: int, token: int, raw: bytes) -> int:
        """The state after a token, `DEAD` where it may not follow.

        Raises:
            BadRequest: the fuel is used up.
        """
        matcher = self.matcher
        after = DEAD
        if token not in self._refused_ids and raw and raw[0]:  # no text begins with NUL
            after = matcher.read(state, raw)
        if matcher.has_tokens(state):
            after = matcher.joined(after, matcher.step_token(state, token))
        return after

    def mask(self, state: int) -> BoolRow:
        """Which tokens may follow, among them those that end the generation.

        Raises:
            BadRequest: the fuel is used up.
        """
        found = self._masks.get(state)
        if found is not None:
            self._masks.move_to_end(state)
            return found
        found = self.tree.allowed(self.matcher, self._table, state)
        found[self._refused] = False
        if self.matcher.has_tokens(state):
            self._allow_named(found, state)
        may_end = self.matcher.may_end(state)
        for token, raw in self._eog.items():
            # A mark that closes a call may end the generation too (gpt-oss).
            found[token] = may_end or bool(raw and self.step(state, token, raw))
        self._masks[state] = found
        while len(self._masks) > MAX_MASKS:
            self._masks.popitem(last=False)
        return found

    def _allow_named(self, mask: BoolRow, state: int) -> None:
        named = self.matcher.program.tokens
        other = next(token for token in range(len(named) + 1) if token not in named)
        if self.matcher.step_token(state, other) != DEAD:
            allowed = np.ones_like(mask)
            for token in named:
                if token < len(mask):
                    allowed[token] = self.matcher.step_token(state, token) != DEAD
            mask |= allowed
            return
        for token in named:
            if token < len(mask) and self.matcher.step_token(state, token) != DEAD:
                mask[token] = True


class Walk:
    """How far one choice has come in a grammar. Home thread: engine, once it is made."""

    __slots__ = ("_automaton", "_matcher", "_spare", "_state", "_vocab")

    def __init__(self, automaton: Automaton, vocab: Vocab) -> None:
        self._automaton = automaton
        self._matcher = automaton.matcher
        self._vocab = vocab
        self._state = self._matcher.start
        self._spare = SPARE_FUEL

    @property
    def is_dead(self) -> bool:
        """Whether what was read does not fit the grammar."""
        return self._state == DEAD

    @property
    def may_end(self) -> bool:
        """Whether the text may end here."""
        return self._matcher.may_end(self._state)

    def allows(self, token: int) -> bool:
        """Whether this token may follow.

        Raises:
            BadRequest: the grammar is too ambiguous.
        """
        self._refuel()
        try:
            if token in self._automaton.tree.eog_ids:
                return bool(self._automaton.mask(self._state)[token])
            return self._automaton.step(self._state, token, self._vocab.token_bytes(token, special=True)) != DEAD
        finally:
            self._pay()

    def mask(self) -> BoolRow:
        """Which tokens may follow; not to be changed.

        Raises:
            BadRequest: the grammar is too ambiguous.
        """
        self._refuel()
        try:
            return self._automaton.mask(self._state)
        finally:
            self._pay()

    def accept(self, token: int) -> None:
        """Go on behind this token.

        Raises:
            BadRequest: the grammar is too ambiguous.
        """
        self._refuel()
        self._spare = min(self._spare + TOKEN_FUEL, SPARE_FUEL)
        raw = self._vocab.token_bytes(token, special=True)
        after = self._automaton.step(self._state, token, raw)
        if after == DEAD and token in self._automaton.tree.eog_ids and self.may_end:
            return
        self._state = after
        self._pay()

    def read(self, raw: bytes) -> None:
        """Go on behind these bytes.

        Raises:
            BadRequest: the grammar is too ambiguous.
        """
        self._refuel()
        self._state = self._matcher.read(self._state, raw)
        self._pay()

    def restarted(self) -> "Walk":
        """Another one, at the start; it has no more to burn than is left here."""
        other = Walk(self._automaton, self._vocab)
        other._spare = self._spare
        return other

    def _refuel(self) -> None:
        automaton = self._automaton
        if automaton.matcher.is_full:
            automaton.renew()
        matcher = automaton.matcher
        matcher.fuel = max(min(STEP_FUEL, self._spare), 0)
        if matcher is not self._matcher:
            self._state = matcher.take(self._matcher.export(self._state))
            self._matcher = matcher

    def _pay(self) -> None:
        self._spare -= max(min(STEP_FUEL, self._spare), 0) - self._matcher.fuel


class Grammars:
    """Automata by their text. Usable from any thread."""

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab
        self._lock = threading.Lock()
        self._tree: TokenTree | None = None
        self._known: OrderedDict[tuple[str, str], Automaton] = OrderedDict()

    def walk(self, grammar: str, root: str = "root") -> Walk:
        """A walk at the start of a grammar.

        Raises:
            BadRequest: the grammar does not parse or is too ambiguous to start.
        """
        with self._lock:
            automaton = self._known.get((grammar, root))
            if automaton is None:
                program = read_gbnf(grammar, self._token_id, root=root)
                if self._tree is None:
                    self._tree = TokenTree(self._vocab)
                automaton = self._known[grammar, root] = Automaton(program, self._tree)
                while len(self._known) > MAX_AUTOMATA:
                    self._known.popitem(last=False)
            self._known.move_to_end((grammar, root))
            return Walk(automaton, self._vocab)

    def _token_id(self, text: str) -> int | None:
        tokens = self._vocab.tokenize(text, add_special=False, parse_special=True)
        return tokens[0] if len(tokens) == 1 else None
