"""Takes tool calls out of an answer while it streams in."""

import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from runtime.chat.response import AnswerParser, Piece
from runtime.chat.source import Reading, Source, Unreadable
from runtime.chat.tool_arguments import ParameterTypes
from runtime.chat.tool_format import ToolFormat, Trigger
from runtime.chat.tool_reader import CallReader, ReadCall
from runtime.messages.shared import Tool, ToolCallHead

MAX_SECTION_CHARS = 4 * 1024 * 1024
"""A call longer than this is passed on as text."""
MAX_CALLS = 256
"""More calls in one answer are passed on as text."""
MAX_THOUGHT_CHARS = 64 * 1024
"""The end of a thought in which calls are looked for when it never closed."""
MAX_TRIES = 16
"""Places in it where they may begin."""


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A call that has closed; `text` is the JSON of its arguments."""

    head: ToolCallHead
    text: str


AnswerPiece = Piece | CallPiece


def new_call_id() -> str:
    """An id as callers know them."""
    return "call_" + secrets.token_hex(12)


class ToolParser:
    """Splits the content of one answer into text and calls. Home thread: the one that feeds it.

    What may still become a call is held back, and so is white space, which before and after calls is dropped. What
    began like a call and is none stays text.

    Args:
        form: how the model writes calls.
        tools: those of the request; their schemas say what an unquoted value is.
        make_id: gives each call its id.
        only_calls: the answer is held to calls alone, so that what is left of one that was cut off is no text.
    """

    def __init__(
        self,
        form: ToolFormat,
        tools: Sequence[Tool],
        make_id: Callable[[], str] = new_call_id,
        *,
        only_calls: bool = False,
    ) -> None:
        self._form = form
        self._given = tuple(tools)
        self._reader = CallReader(form, ParameterTypes(self._given))
        self._anywhere = tuple(trigger for trigger in form.triggers if not trigger.at_start)
        self._at_start = tuple(trigger for trigger in form.triggers if trigger.at_start)
        self._untried = list(self._at_start)
        self._make_id = make_id
        self._only_calls = only_calls
        self._source = Source()
        self._found: list[ReadCall] = []
        self._section: Reading[None] | None = None
        self._mark_chars = 0
        self._calls_in_section = 0
        self._is_behind_call = False
        self.n_calls = 0

    def feed(self, text: str) -> list[AnswerPiece]:
        """Take the next text and give what is certain by now."""
        self._source.feed(text)
        pieces: list[AnswerPiece] = []
        while self._step(pieces):
            pass
        return pieces

    def finish(self) -> list[AnswerPiece]:
        """Give what was held back; the answer is at its end."""
        self._source.ended = True
        pieces = self.feed("")
        return [piece for piece in pieces if isinstance(piece, CallPiece)] if self._only_calls else pieces

    def calls_at_end(self, text: str) -> list[AnswerPiece]:
        """The calls that a text ends with, each on a line of its own; for the end of an answer that had none."""
        places = [
            match.start(1)
            for trigger in self._anywhere
            for match in re.finditer(rf"(?:^|\n)[ \t]*({re.escape(trigger.text)})", text)
        ]
        for place in sorted(places)[-MAX_TRIES:]:
            trial = ToolParser(self._form, self._given, self._make_id)
            pieces = [*trial.feed(text[place:]), *trial.finish()]
            if pieces and all(isinstance(piece, CallPiece) for piece in pieces):
                self.n_calls = len(pieces)
                return pieces
        return []

    def _step(self, pieces: list[AnswerPiece]) -> bool:
        """Go on where the text stands; whether there is more to do."""
        return self._search(pieces) if self._section is None else self._read(pieces)

    def _read(self, pieces: list[AnswerPiece]) -> bool:
        source = self._source
        is_open, is_read = self._go_on()
        for call in self._found:
            pieces.append(CallPiece(ToolCallHead(self.n_calls, self._make_id(), call.name), call.arguments))
            self.n_calls += 1
            self._calls_in_section += 1
        self._found.clear()
        if is_open:
            return False
        self._section = None
        if not is_read:
            # Where no call came, the mark is text after all; the search goes on behind it.
            source.at = 0 if self._calls_in_section else self._mark_chars
            self._say(source.text[: source.at], pieces)
        self._is_behind_call = self._calls_in_section > 0
        source.drop_read()
        return True

    def _go_on(self) -> tuple[bool, bool]:
        """Read on in the section: whether it is still open, and if not, whether it could be read."""
        section = self._section
        if section is None or len(self._source.text) > MAX_SECTION_CHARS or self.n_calls >= MAX_CALLS:
            return False, False
        try:
            next(section)
        except StopIteration:
            return False, True
        except (Unreadable, RecursionError):
            return False, False
        return True, True

    def _search(self, pieces: list[AnswerPiece]) -> bool:
        source = self._source
        if self._is_behind_call:
            source.text = source.text.lstrip()
        found = self._next_trigger()
        if found is not None:
            place, trigger = found
            said = source.text[:place].rstrip()
            self._say(said, pieces)
            source.at = len(said)
            source.drop_read()
            self._mark_chars = 0 if trigger.at_start else place - len(said) + len(trigger.text)
            self._calls_in_section = 0
            self._section = self._reader.section(source, trigger, self._found)
            return True
        kept = 0 if source.ended else self._may_begin()
        ready = source.text[: len(source.text) - kept]
        if not source.ended:
            ready = ready.rstrip()
        self._say(ready, pieces)
        source.at = len(ready)
        source.drop_read()
        return False

    def _say(self, text: str, pieces: list[AnswerPiece]) -> None:
        if text:
            self._is_behind_call = False
            if text.strip():
                self._untried.clear()
            pieces.append(("content", text))

    def _next_trigger(self) -> tuple[int, Trigger] | None:
        text = self._source.text
        places = [
            (place, -len(trigger.text), trigger)
            for trigger in self._anywhere
            if (place := text.find(trigger.text)) >= 0
        ]
        best = min(places, key=lambda item: item[:2], default=None)
        start = len(text) - len(text.lstrip())
        if self._untried and start < len(text) and (best is None or best[0] > start):
            while self._untried:
                trigger = self._untried.pop(0)
                if text[start] == trigger.text[0]:
                    return start, trigger
        return (best[0], best[2]) if best else None

    def _may_begin(self) -> int:
        """How many characters at the end may be the beginning of a trigger."""
        text = self._source.text
        longest = max((len(trigger.text) for trigger in self._anywhere), default=1) - 1
        for size in range(min(longest, len(text)), 0, -1):
            if any(trigger.text.startswith(text[-size:]) for trigger in self._anywhere):
                return size
        return 0


class AnswerReader:
    """Splits one answer into thought, text and calls; an `AnswerParser` that also gives calls.

    Some models forget to close their thought before they call. A thought that ends with calls and nothing behind
    them has made them.
    """

    def __init__(self, parser: AnswerParser | None, tools: ToolParser | None) -> None:
        self._parser = parser
        self._tools = tools
        self._thought = ""

    @property
    def reasoning_tokens(self) -> int:
        """Tokens of the thought so far."""
        return self._parser.reasoning_tokens if self._parser else 0

    @property
    def n_calls(self) -> int:
        """Calls so far."""
        return self._tools.n_calls if self._tools else 0

    @property
    def is_plain(self) -> bool:
        """Whether all that follows is content, so that nothing need be fed any more."""
        return self._tools is None and (self._parser is None or self._parser.is_plain)

    @property
    def in_reasoning(self) -> bool:
        """Whether a thought is open."""
        return self._parser is not None and self._parser.in_reasoning

    def feed(self, text: str, n_tokens: int) -> list[AnswerPiece]:
        """Take the next text, made of `n_tokens` tokens, and give what is certain by now."""
        if self._parser is None:
            return self._with_calls([("content", text)])
        return self._with_calls(self._parser.feed(text, n_tokens))

    def finish(self) -> list[AnswerPiece]:
        """Give what was held back; the answer is at its end."""
        was_thinking = self.in_reasoning
        pieces = self._with_calls(self._parser.finish() if self._parser else [])
        if self._tools is None:
            return pieces
        if was_thinking and not self._tools.n_calls:
            pieces += self._tools.calls_at_end(self._thought)
        return pieces + self._tools.finish()

    def _with_calls(self, pieces: Sequence[Piece]) -> list[AnswerPiece]:
        if self._tools is None:
            return list(pieces)
        found: list[AnswerPiece] = []
        for kind, text in pieces:
            if kind == "reasoning":
                self._thought = (self._thought + text)[-MAX_THOUGHT_CHARS:]
            found += self._tools.feed(text) if kind == "content" else [(kind, text)]
        return found
