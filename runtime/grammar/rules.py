"""Writes GBNF: rules by their text, each kept once."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter

from runtime.errors import BadRequest
from runtime.grammar.utf8 import Ranges

MAX_RULES = 40_000
MAX_CHARS = 4 * 1024 * 1024
"""Of one grammar's text."""

_FEW_TEXTS = 32
"""So many alternatives are written one beside the other."""
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _.,:;/+*=<>(){}'@#&%!?$|~`")


class RuleSet:
    """Rules under construction."""

    def __init__(self) -> None:
        self._bodies: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._n_chars = 0

    def reserve(self) -> str:
        """A name whose body comes later, by `define`."""
        name = f"r{len(self._bodies)}"
        self._bodies[name] = ""
        self._check()
        return name

    def define(self, name: str, body: str) -> None:
        """Give a reserved name its body."""
        self._bodies[name] = body
        self._n_chars += len(body)
        self._check()

    def rule(self, body: str) -> str:
        """The name of a rule with this body.

        Raises:
            BadRequest: the grammar grows too large.
        """
        known = self._names.get(body)
        if known is None:
            known = self._names[body] = self.reserve()
            self.define(known, body)
        return known

    def text(self, root: str) -> str:
        """The grammar whose root is this expression.

        A name that was given up without a body refers to itself: it never ends, so nobody is led into it.
        """
        lines = [f"root ::= {root}", *(f"{name} ::= {body or name}" for name, body in self._bodies.items())]
        return "\n".join(lines) + "\n"

    def _check(self) -> None:
        if len(self._bodies) > MAX_RULES or self._n_chars > MAX_CHARS:
            raise BadRequest(
                "The schema is too large: its grammar would have more than "
                f"{MAX_RULES:,} rules or {MAX_CHARS // 1024**2} MiB.",
                hint="Use fewer or smaller enums, bounds and alternatives.",
                param="json_schema",
            )


def literal(text: str) -> str:
    """A text as a GBNF literal."""
    return '"' + "".join(c if c in _PLAIN else _escaped(c) for c in text) + '"'


def charset(ranges: Ranges) -> str:
    """A GBNF class of these code points."""
    if not ranges:
        raise BadRequest("A pattern has a class that no character is in.", param="pattern")
    parts = []
    for low, high in ranges:
        parts.append(_in_class(low) if low == high else f"{_in_class(low)}-{_in_class(high)}")
    return "[" + "".join(parts) + "]"


def either(parts: Iterable[str]) -> str:
    """Any of these; each kept once."""
    unique = list(dict.fromkeys(parts))
    return unique[0] if len(unique) == 1 else "(" + " | ".join(unique) + ")"


def either_text(rules: RuleSet, texts: Iterable[str]) -> str:
    """Any of these texts; many as a tree, so that a step looks at one letter of each branch and not at every text."""
    unique = list(dict.fromkeys(texts))
    if len(unique) <= _FEW_TEXTS:
        return either(literal(text) for text in unique)
    by_ending = sorted(unique)
    return _tree(rules, by_ending, 0)


def _tree(rules: RuleSet, texts: list[str], skipped: int) -> str:
    """A rule for the rest of sorted texts, which all begin alike. Without recursion: texts may be long."""
    root = rules.reserve()
    waiting = [(root, texts, skipped)]
    while waiting:
        name, group, at = waiting.pop()
        alternatives = []
        for first, several in groupby(group, itemgetter(slice(at, at + 1))):
            inner = list(several)
            if len(inner) == 1:
                alternatives.append(literal(inner[0][at:]))
                continue
            end = _common_end(inner[0], inner[-1], at + len(first))
            below = rules.reserve()
            waiting.append((below, inner, end))
            alternatives.append(f"{literal(inner[0][at:end])} {below}")
        rules.define(name, " | ".join(alternatives))
    return root


def _common_end(first: str, last: str, at: int) -> int:
    """How far the first and the last of sorted texts are alike, and so all between them."""
    while at < min(len(first), len(last)) and first[at] == last[at]:
        at += 1
    return at


def sequence(parts: Sequence[str]) -> str:
    """These one after the other."""
    return " ".join(part for part in parts if part) or '""'


def counted(part: str, low: int, high: int | None) -> str:
    """A part repeated."""
    if (low, high) == (1, 1):
        return part
    if high == 0:
        return '""'
    bounds = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((low, high))
    if bounds is None:
        bounds = f"{{{low}}}" if low == high else f"{{{low},{'' if high is None else high}}}"
    return f"({part}){bounds}"


def until(rules: RuleSet, mark: str) -> str:
    """Any text up to the first `mark`, which it includes."""
    names = [rules.reserve() for _ in mark]
    letters = sorted(set(mark))
    for matched, name in enumerate(names):
        alternatives = [f"[^{''.join(_in_class(ord(letter)) for letter in letters)}] {names[0]}"]
        for letter in letters:
            after = _longest_border(mark, mark[:matched] + letter)
            follow = names[after] if after < len(mark) else ""
            alternatives.append(f"{literal(letter)} {follow}".strip())
        rules.define(name, " | ".join(alternatives))
    return names[0]


def _longest_border(mark: str, text: str) -> int:
    return next(size for size in range(min(len(mark), len(text)), -1, -1) if text.endswith(mark[:size]))


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character) or f"\\U{ord(character):08X}"


def _in_class(code_point: int) -> str:
    character = chr(code_point)
    return character if character.isascii() and character.isalnum() else f"\\U{code_point:08X}"
