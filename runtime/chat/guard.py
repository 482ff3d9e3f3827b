"""Keeps what a person typed from being read as the model's own control tokens.

A prompt is tokenized with control tokens on, because the template writes them. Text that a person, a web page or a
document brought in may hold the same characters (`<|im_end|>` and a system turn after it), and would then become
turns. So control tokens in such text are put between two marks before the template sees it, and what stands
between marks is tokenized as the plain characters it is. Text without any is not touched and costs one search.

The marks are Unicode noncharacters: no text needs them, white-space trimming leaves them alone, and any that
already stand in a message are taken out first. A template may cut a text apart between them; a lone mark still
shields the control token beside it.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from runtime.errors import BugFault

MARK_START = "\ufdd0"
MARK_END = "\ufdd1"
CUT = "\ufdd2"
"""Put where an unfinished answer ends, to find the place again in the rendered text."""
MEDIA = "\ufdd3"
"""Put where a picture or sound stands in a text."""
_NONCHARACTERS = re.compile(f"[{MARK_START}{MARK_END}{CUT}{MEDIA}]")
_NEVER = re.compile("(?!)")

CHUNK_CHARS = 8192
"""A longer text is tokenized in parts. llama.cpp's search for control tokens takes time that grows with the square
of how many there are (25 s for 20,000 short messages), and a call cannot be broken off."""


class Tokenizer(Protocol):
    """What is needed of a model's vocabulary."""

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Text to token ids."""

    def token_bytes(self, token_id: int, *, special: bool) -> bytes:
        """Bytes of one token; control tokens are empty unless `special`."""


def _pattern(texts: Iterable[str]) -> re.Pattern[str]:
    longest_first = sorted({text for text in texts if text}, key=lambda text: (-len(text), text))
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else _NEVER


def _looks_like_marker(text: str) -> bool:
    return text.startswith(("<|", "<\uff5c")) and len(text) > 3  # noqa: PLR2004 - more than the brackets


class ControlTokenGuard:
    """Marks and tokenizes. Home thread: any (immutable).

    Args:
        tokenizer: the model's vocabulary.
        control: texts of tokens that are never ordinary text.
        user_defined: texts of other tokens that are found whole (`<think>`, but also `<table>` or runs of spaces
            in some vocabularies); guarded where the template writes them or they look like turn marks.
        template_text: source of the chat template.
    """

    def __init__(
        self, tokenizer: Tokenizer, control: Iterable[str], user_defined: Iterable[str], template_text: str
    ) -> None:
        self._tokenizer = tokenizer
        control = [text for text in control if text.strip()]
        words = [text for text in user_defined if text.strip() and (_looks_like_marker(text) or text in template_text)]
        self._control = _pattern(control)
        self._all = _pattern([*control, *words])
        # At a control token a text may be cut: the tokenizer reads what is on either side by itself. Not beside white
        # space, which some control tokens take with them. Before one, as a rule; behind one where turns are empty.
        self._before = re.compile(rf"(?<=\S)(?:{self._control.pattern})")
        self._beside = re.compile(rf"(?<=\S)(?:{self._control.pattern})|(?P<behind>{self._control.pattern})(?=\S)")
        guarded = self._all.pattern
        self._pieces = re.compile(
            f"{MARK_START}(?P<after>{guarded}){MARK_END}?|(?P<before>{guarded}){MARK_END}|[{MARK_START}{MARK_END}]"
        )
        sample = tokenizer.tokenize("a", add_special=False, parse_special=False)
        self._adds_space = b"".join(tokenizer.token_bytes(token, special=False) for token in sample)[:1] == b" "
        self._newline = tokenizer.tokenize("\n", add_special=False, parse_special=False)

    def mark(self, text: str, *, model_wrote_it: bool) -> str:
        """Put marks around control tokens in a message's text.

        Args:
            text: what the message says.
            model_wrote_it: an earlier answer; there `<think>` and the like keep their meaning, since templates
                look for them.
        """
        text = strip_marks(text)
        return (self._control if model_wrote_it else self._all).sub(rf"{MARK_START}\g<0>{MARK_END}", text)

    def tokenize(
        self, rendered: str, *, is_wanted: Callable[[], bool] = lambda: True, goes_on: bool = False
    ) -> list[int]:
        """Tokenize a rendered conversation: the template's control tokens as such, marked ones as characters.

        Args:
            rendered: the conversation.
            goes_on: other tokens stand before it.
            is_wanted: asked between parts; once it says no, what was made so far is returned.
        """
        ids: list[int] = []
        at = 0
        for match in self._pieces.finditer(rendered):
            if not is_wanted():
                return ids
            if match.start() > at:
                ids += self._template_text(
                    rendered[at : match.start()], first=not (ids or goes_on), is_wanted=is_wanted
                )
            marked = match["after"] or match["before"]
            if marked:
                ids += self._characters(marked, first=not (ids or goes_on))
            at = match.end()
        if at < len(rendered):
            ids += self._template_text(rendered[at:], first=not (ids or goes_on), is_wanted=is_wanted)
        return ids

    def _template_text(self, text: str, *, first: bool, is_wanted: Callable[[], bool]) -> list[int]:
        ids: list[int] = []
        for number, chunk in enumerate(self._chunks(text)):
            if number and not is_wanted():
                break
            if number:  # it begins with a control token: nothing is put before it
                ids += self._tokenizer.tokenize(chunk, add_special=False, parse_special=True)
            else:
                ids += self._piece(chunk, parse_special=True, first=first)
        return ids

    def _chunks(self, text: str) -> Iterator[str]:
        at = 0
        while (cut := self._next_cut(text, at + CHUNK_CHARS)) is not None:
            yield text[at:cut]
            at = cut
        yield text[at:]

    def _next_cut(self, text: str, start: int) -> int | None:
        cut = self._before.search(text, start, start + CHUNK_CHARS)
        if cut is not None:
            return cut.start()
        cut = self._beside.search(text, start)
        if cut is None:
            return None
        return cut.start() if cut["behind"] is None else cut.end()

    def _characters(self, marked: str, *, first: bool) -> list[int]:
        """Tokens of a control token's text that are not the control token."""
        whole = self._tokenizer.tokenize(marked, add_special=False, parse_special=True)
        ids = self._piece(marked[:1], parse_special=False, first=first)
        ids += self._piece(marked[1:], parse_special=False, first=False)
        if len(whole) == 1 and whole[0] in ids:
            raise BugFault(f"The tokenizer turns the plain text {marked!r} into a control token.")
        return ids

    def _piece(self, text: str, *, parse_special: bool, first: bool) -> list[int]:
        if not text:
            return []
        if first or not self._adds_space:
            return self._tokenizer.tokenize(text, add_special=False, parse_special=parse_special)
        # SentencePiece vocabularies put a space before each text they are given; after a line break they do not,
        # so the piece is read after one, whose tokens are taken off again.
        ids = self._tokenizer.tokenize("\n" + text, add_special=False, parse_special=parse_special)
        n_newline = len(self._newline)
        if ids[:n_newline] == self._newline:
            return ids[n_newline:]
        return self._tokenizer.tokenize(text, add_special=False, parse_special=parse_special)


def strip_marks(text: str) -> str:
    """Take the guard's noncharacters out of a text."""
    return _NONCHARACTERS.sub("", text)
