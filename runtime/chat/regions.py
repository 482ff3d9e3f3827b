"""Reads answers in regions (gpt-oss's channels) with transformers' `ResponseParser`.

That package takes one to two seconds and 45 MB to import, so only models whose spec needs it pay for it, and
`prepare` lets the import go on while the weights are read. It is a young interface, pinned exactly; this module is
the only one that knows it, and the samples of the specs are what it has to keep.
"""

from functools import cache
from importlib import import_module
from typing import Any

from runtime.chat.response import AnswerParser, Piece, ReasoningParser, RegionSpec, ResponseSpec, TagSpec

MAX_RAW_CHARS = 4 * 1024 * 1024
"""Text of one answer kept by the parser; beyond it the rest passes as content."""


@cache
def _library() -> Any:  # noqa: ANN401 - the package has no types; this module is the door
    return import_module("transformers.utils.chat_parsing.response_parser")


def prepare(spec: ResponseSpec | None) -> None:
    """Do the slow part of the first `make_parser` ahead of time."""
    if isinstance(spec, RegionSpec):
        _library()


def make_parser(spec: ResponseSpec, answer_start: str, *, is_continued: bool) -> AnswerParser:
    """The parser for one choice of one answer.

    Args:
        spec: the model's.
        answer_start: what of the answer is already written before the first text is fed.
        is_continued: the answer goes on where its content was broken off.
    """
    if isinstance(spec, TagSpec):
        return ReasoningParser(spec, answer_start, is_continued=is_continued)
    return RegionParser(spec, answer_start)


class RegionParser:
    """The `AnswerParser` of a `RegionSpec`."""

    def __init__(self, spec: RegionSpec, answer_start: str = "") -> None:
        self._shown_as = spec.shown_as
        self._parser: Any = _library().ResponseParser(spec.grammar, prefix=answer_start)
        self._region = ""
        self._n_chars = 0
        self._pending_tokens = 0
        self.reasoning_tokens = 0
        # What was written before was shown before; only where it ends matters.
        self._read(self._parser.initial_events)

    @property
    def is_plain(self) -> bool:
        """Whether the parser has given up; an answer may open a new region at any time."""
        return self._parser is None

    @property
    def in_reasoning(self) -> bool:
        """Whether a thought is open."""
        return self._shown_as.get(self._region) == "reasoning"

    def feed(self, text: str, n_tokens: int) -> list[Piece]:
        """Take the next text, made of `n_tokens` tokens, and give what is certain by now."""
        if self._parser is None:
            return [("content", text)] if text else []
        was_reasoning = self.in_reasoning
        self._n_chars += len(text)
        try:
            pieces = self._read(self._parser.feed(text))
        except ValueError:
            # A region that does not read as what it should be: its text is shown, not lost.
            self._parser = None
            return [("content", text)] if text else []
        if self._n_chars > MAX_RAW_CHARS:
            pieces += self._end()
        self._pending_tokens += n_tokens
        if was_reasoning or self.in_reasoning or any(kind == "reasoning" for kind, _ in pieces):
            self.reasoning_tokens += self._pending_tokens
            self._pending_tokens = 0
        elif pieces:
            self._pending_tokens = 0
        return pieces

    def finish(self) -> list[Piece]:
        """Give what was held back; the answer is at its end."""
        return self._end() if self._parser is not None else []

    def _end(self) -> list[Piece]:
        parser, self._parser = self._parser, None
        try:
            _, events = parser.finalize()
        except ValueError:
            return []
        return self._read(events)

    def _read(self, events: list[dict[str, Any]]) -> list[Piece]:
        pieces: list[Piece] = []
        for event in events:
            if event["type"] == "region_open":
                self._region = event["field"]
            elif event["type"] == "region_close":
                self._region = ""
            elif event["text"]:
                pieces.append((self._shown_as.get(event["field"], "content"), event["text"]))
        return pieces
