"""Leads one answer along its shape: thought first, then what a grammar allows, calls of tools where they begin.

An answer passes through parts. It may open with a thought, which is free but may be closed for it when its budget is
used up. Behind it the grammar holds; or, where calls are only possible, the text stays free until one of the
triggers appears, and the grammar holds from its first character on.
"""

from collections import deque
from enum import Enum, auto

import numpy as np

from runtime.grammar.answer import AnswerPlan
from runtime.worker.grammar import Walk
from runtime.worker.token_tree import BoolRow
from runtime.worker.vocab import Vocab

MAX_START_BYTES = 16
"""White space an answer may begin with before its thought."""


class _Part(Enum):
    START = auto()
    """A thought may begin, or has not quite begun."""
    THOUGHT = auto()
    FREE = auto()
    """Until a trigger."""
    GRAMMAR = auto()
    OPEN = auto()
    """Nothing is asked of it any more."""


_Place = tuple[_Part, bytes]
"""A part, and what of the text is in it."""


class Guide:
    """One choice's way. Home thread: engine, once it is made.

    Args:
        plan: what the answer may be.
        walk: a walk at the start of the plan's grammar; None when it has none.
        vocab: of the model.
        forced_close: tokens of the plan's `forced_close`.
    """

    __slots__ = (
        "_forced",
        "_forced_close",
        "_held",
        "_is_first",
        "_marks_end_with",
        "_n_thought",
        "_part",
        "_plan",
        "_vocab",
        "_walk",
    )

    def __init__(self, plan: AnswerPlan, walk: Walk | None, vocab: Vocab, forced_close: tuple[int, ...]) -> None:
        self._plan = plan
        self._walk = walk
        self._vocab = vocab
        self._forced_close = forced_close
        self._forced: deque[int] = deque()
        self._held = b""
        """START: all text so far; THOUGHT and FREE: the end of it, in which a mark may have begun."""
        self._n_thought = 0
        self._is_first = True
        """Nothing but white space, or the beginning of a trigger, has been written in the free part."""
        marks = (plan.thought_close_bytes, *(trigger for trigger, _ in plan.trigger_bytes))
        self._marks_end_with = bytes({mark[-1] for mark in marks if mark})
        if plan.thought_is_open:
            self._part = _Part.THOUGHT
        elif plan.may_think and plan.thought_open_bytes:
            self._part = _Part.START
        else:
            self._part = self._answer_part

    def copy(self) -> "Guide":
        """The same for another choice."""
        walk = self._walk.restarted() if self._walk is not None else None
        return Guide(self._plan, walk, self._vocab, self._forced_close)

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to say any more."""
        return self._part is _Part.OPEN

    def forced(self) -> int | None:
        """The token that must come now, if there is one."""
        if not self._forced and self._part is _Part.THOUGHT:
            budget = self._plan.thought_budget
            if budget is not None and self._n_thought >= budget:
                self._forced.extend(self._forced_close)
        return self._forced[0] if self._forced else None

    def allows(self, token: int) -> bool:
        """Whether this token may come.

        Raises:
            BadRequest: the grammar is too ambiguous.
        """
        if self._walk is None and self._part is not _Part.THOUGHT:
            return True
        if self._part is _Part.GRAMMAR:
            return self._walk is None or self._walk.allows(token)
        raw = self._vocab.token_bytes(token, special=True)
        if token in self._vocab.eog_ids and self._part is not _Part.START:
            # A thought has to be closed before the answer ends, if an answer is asked for.
            is_needed = self._part is _Part.THOUGHT and self._answer_part is _Part.GRAMMAR
            return not is_needed or self._thought(self._held + raw)[0] is not _Part.THOUGHT
        place = self._place(raw)
        if place is None:
            return self._answer_part is not _Part.GRAMMAR or self._begun().allows(token)
        return place[0] is not _Part.GRAMMAR or self._reads(place[1])

    def mask(self) -> BoolRow:
        """Which tokens may come; not to be changed.

        Raises:
            BadRequest: the grammar is too ambiguous.
        """
        if self._part is _Part.GRAMMAR and self._walk is not None:
            return self._walk.mask()
        # Elsewhere few tokens are refused, and seldom: they are looked at one by one.
        n_tokens = self._vocab.n_tokens
        token_bytes = self._vocab.token_bytes
        if self._part is _Part.START:
            mask = self._begun().mask().copy() if self._walk is not None else np.ones(n_tokens, np.bool_)
            for token in range(n_tokens):
                if not mask[token]:
                    place = self._place(token_bytes(token, special=True))
                    mask[token] = place is not None and (place[0] is not _Part.GRAMMAR or self._reads(place[1]))
            return mask
        mask = np.ones(n_tokens, np.bool_)
        ends = self._marks_end_with
        for token in range(n_tokens):
            raw = token_bytes(token, special=True)
            if token in self._vocab.eog_ids or any(end in raw for end in ends):
                mask[token] = self.allows(token)
        return mask

    def accept(self, token: int) -> None:
        """Go on behind this token.

        Raises:
            BadRequest: the grammar is too ambiguous.
        """
        if self._forced:
            self._forced.popleft()
        if self._part is _Part.GRAMMAR and self._walk is not None:
            self._walk.accept(token)
        if self._part in (_Part.GRAMMAR, _Part.OPEN):
            return
        raw = self._vocab.token_bytes(token, special=True)
        if self._part is _Part.THOUGHT:
            self._n_thought += 1
        place = self._place(raw)
        if place is not None:
            self._enter(*place)
        elif self._answer_part is _Part.GRAMMAR:
            self._walk = self._begun()
            self._part = _Part.GRAMMAR
            self._walk.accept(token)
        else:
            self._enter(*self._answer(self._held + raw))

    def _enter(self, part: _Part, text: bytes) -> None:
        self._part = part
        if part is _Part.GRAMMAR and self._walk is not None:
            self._held = b""
            self._walk.read(text)
        elif part is _Part.THOUGHT:
            self._held = _end_of(text, len(self._plan.thought_close_bytes) - 1)
        elif part is _Part.FREE:
            self._held = self._free_end(text)
        else:
            self._held = text if part is _Part.START else b""

    # --- where text leads ---

    @property
    def _answer_part(self) -> _Part:
        """The part behind the thought."""
        if self._walk is None:
            return _Part.OPEN
        return _Part.FREE if self._plan.triggers else _Part.GRAMMAR

    def _place(self, raw: bytes) -> _Place | None:
        """Where these bytes lead; None when they show that there is no thought."""
        text = self._held + raw
        if self._part is _Part.THOUGHT:
            return self._thought(text)
        if self._part is not _Part.START:
            return self._answer(text)
        mark = self._plan.thought_open_bytes
        begun = text.lstrip()
        if begun.startswith(mark):
            return self._thought(begun[len(mark) :])
        return (_Part.START, text) if mark.startswith(begun) and len(text) - len(begun) <= MAX_START_BYTES else None

    def _thought(self, text: bytes) -> _Place:
        _thought, closed, rest = text.partition(self._plan.thought_close_bytes)
        return self._answer(rest) if closed else (_Part.THOUGHT, text)

    def _answer(self, text: bytes) -> _Place:
        part = self._answer_part
        if part is not _Part.FREE:
            return part, text
        begun = text.lstrip()
        starts = [
            (len(text) - len(begun) if self._is_first and begun.startswith(trigger) else -1)
            if at_start
            else text.find(trigger)
            for trigger, at_start in self._plan.trigger_bytes
        ]
        found = [start for start in starts if start >= 0]
        return (_Part.GRAMMAR, text[min(found) :]) if found else (part, text)

    def _free_end(self, text: bytes) -> bytes:
        triggers = self._plan.trigger_bytes
        if self._is_first:
            begun = text.lstrip()
            if not begun or any(at_start and trigger.startswith(begun) for trigger, at_start in triggers):
                return text[-_LONGEST_HELD:]
            self._is_first = False
        return _end_of(text, max(len(trigger) for trigger, _ in triggers) - 1)

    def _begun(self) -> Walk:
        """The grammar behind what was held for a thought that does not come."""
        walk = self._walk
        assert walk is not None  # noqa: S101 - only asked where there is one
        begun = walk.restarted()
        begun.read(self._held)
        return begun

    def _reads(self, raw: bytes) -> bool:
        if self._walk is None:
            return True
        trial = self._walk.restarted()
        trial.read(raw)
        return not trial.is_dead


_LONGEST_HELD = 256
"""Of white space at the start of an answer, so much is looked at again."""


def _end_of(text: bytes, size: int) -> bytes:
    return text[-size:] if size > 0 else b""
