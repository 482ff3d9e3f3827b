"""Code highlighting: lexers are imported on a lane, code is lexed in slices between events."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Protocol, cast

from PySide6.QtCore import QObject, Signal

from app.tasks import Lane

POLITE_SWITCH_S = 0.0005
"""A tenth of the interpreter's usual turn."""

MAX_LEXERS = 32
"""Languages kept ready."""

_COLOURS = (
    ("Comment", "syntax_comment"),
    ("Literal.String", "syntax_string"),
    ("Literal.Number", "syntax_number"),
    ("Keyword.Type", "syntax_type"),
    ("Keyword.Constant", "syntax_number"),
    ("Keyword", "syntax_keyword"),
    ("Name.Function", "syntax_name"),
    ("Name.Class", "syntax_type"),
    ("Name.Decorator", "syntax_name"),
    ("Name.Builtin", "syntax_type"),
    ("Name.Tag", "syntax_keyword"),
    ("Name.Attribute", "syntax_name"),
    ("Name.Exception", "syntax_type"),
    ("Operator.Word", "syntax_keyword"),
    ("Operator", "syntax_operator"),
    ("Punctuation", "syntax_operator"),
    ("Generic.Deleted", "syntax_error"),
    ("Generic.Inserted", "syntax_string"),
    ("Generic.Heading", "syntax_name"),
)
"""Prefix of pygments' token name (after "Token.") and our colour token; the first that fits counts."""


class Lexer(Protocol):
    """The part of a pygments lexer used here."""

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, object, str]]:
        """(offset, token type, text) in order."""
        ...


_colour_cache: dict[object, str] = {}


def colour_of(token_type: object) -> str:
    """The colour token of a pygments token type; empty for plain text."""
    found = _colour_cache.get(token_type)
    if found is None:
        name = str(token_type).removeprefix("Token.")
        found = next((colour for prefix, colour in _COLOURS if name.startswith(prefix)), "")
        _colour_cache[token_type] = found  # bounded by pygments' own set of token types
    return found


class Lexers(QObject):
    """Lexers by the language name at a fence."""

    ready = Signal(str)
    """A language asked for can be lexed now."""

    def __init__(self, lane: Lane | None, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lane = lane
        self._known: dict[str, Lexer | None] = {}
        self._asked: set[str] = set()

    def get(self, language: str) -> Lexer | None:
        """The lexer, or `None` if it is unknown or not imported yet (`ready` follows then)."""
        if not language:
            return None
        if language in self._known:
            return self._known[language]
        if language not in self._asked and len(self._known) < MAX_LEXERS:
            self._asked.add(language)
            if self._lane is None:
                self._on_found(language, find_lexer(language))
            else:
                self._lane.submit(lambda: find_lexer(language), lambda found: self._on_found(language, found))
        return self._known.get(language)

    def _on_found(self, language: str, lexer: Lexer | None) -> None:
        self._known[language] = lexer
        if lexer is not None:
            self.ready.emit(language)


@contextmanager
def polite_thread() -> Iterator[None]:
    """While a lane imports something heavy, let the main thread have the interpreter ten times as often."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(POLITE_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before_s)


def find_lexer(language: str) -> Lexer | None:
    """Import the lexer of a language; `None` if there is none of that name."""
    with polite_thread():
        lexers = import_module("pygments.lexers")
        missing = import_module("pygments.util").ClassNotFound
        try:
            return cast("Lexer", lexers.get_lexer_by_name(language, stripnl=False, ensurenl=False))
        except missing:
            return None
