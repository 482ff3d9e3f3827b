r"""Regular expressions of JSON schemas (ECMA-262), as syntax trees and as grammars of strings.

Read: alternatives, groups, classes, `\d \w \s` and their opposites, quantifiers, `^` and `$` at the ends. Not read,
and refused by name: look-around, back references, word borders, properties, flags.
"""

import string
from dataclasses import dataclass

from runtime.errors import BadRequest
from runtime.grammar.utf8 import MAX_CODE_POINT, Ranges, inverted, normalized

MAX_PATTERN_CHARS = 4096
MAX_DEPTH = 40
MAX_COUNT = 100_000
DIGITS: Ranges = ((0x30, 0x39),)
WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
SPACE: Ranges = ((0x09, 0x0D), (0x20, 0x20))
# The opposites leave out what only some readers of patterns take for digits, letters or white space.
_CLASSES: dict[str, Ranges] = {
    "d": DIGITS,
    "D": ((0x00, 0x2F), (0x3A, 0x65F)),
    "w": WORD,
    "W": ((0x00, 0x2F), (0x3A, 0x40), (0x5B, 0x5E), (0x60, 0x60), (0x7B, 0xA9)),
    "s": SPACE,
    "S": ((0x21, 0x7E), (0xA1, 0x167F)),
}
_DOT = inverted(((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)))
_CONTROLS = {"n": 0x0A, "r": 0x0D, "t": 0x09, "f": 0x0C, "v": 0x0B, "0": 0x00}


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of these."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Sequence:
    """These one after the other."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Either:
    """Any of these."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part from `low` to `high` times; None is any number."""

    part: "Node"
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Anchor:
    """`^` or `$`."""

    is_start: bool


Node = Chars | Sequence | Either | Repeat | Anchor
ANY = Chars(((0, MAX_CODE_POINT),))
_ANYTHING = Repeat(ANY, 0, None)


def read_pattern(pattern: str) -> Node:
    """The tree of the strings in which the pattern is found; it has no anchors any more.

    Raises:
        BadRequest: it does not parse, or uses what is not supported; the part is named.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise _wrong(pattern[:40] + "...", f"it is longer than {MAX_PATTERN_CHARS:,} characters")
    return _anchored(_Reader(pattern).read(), pattern)


def length_range(node: Node) -> tuple[int, int | None]:
    """Fewest and most characters; None is any number."""
    if isinstance(node, Chars):
        return 1, 1
    if isinstance(node, Anchor):
        return 0, 0
    if isinstance(node, Repeat):
        low, high = length_range(node.part)
        most = 0 if high == 0 or node.high == 0 else None if high is None or node.high is None else high * node.high
        return low * node.low, most
    ranges = [length_range(part) for part in node.parts]
    highs = [high for _, high in ranges]
    if isinstance(node, Sequence):
        return sum(low for low, _ in ranges), None if None in highs else sum(high or 0 for high in highs)
    return min(low for low, _ in ranges), None if None in highs else max(high or 0 for high in highs)


def _anchored(node: Node, pattern: str) -> Node:
    """Turn anchors at the ends into what they mean, and their absence too."""
    if isinstance(node, Either):
        return Either(tuple(_anchored(part, pattern) for part in node.parts))
    parts = list(node.parts) if isinstance(node, Sequence) else [node]
    if len(parts) == 1 and isinstance(parts[0], Either | Sequence):
        return _anchored(parts[0], pattern)
    starts = bool(parts) and parts[0] == Anchor(is_start=True)
    ends = bool(parts) and parts[-1] == Anchor(is_start=False)
    inner = parts[starts : len(parts) - ends]
    if any(_has_anchor(part) for part in inner):
        raise _wrong(pattern, "^ and $ are only supported at its beginning and end")
    return Sequence((*(() if starts else (_ANYTHING,)), *inner, *(() if ends else (_ANYTHING,))))


def _has_anchor(node: Node) -> bool:
    if isinstance(node, Anchor):
        return True
    if isinstance(node, Repeat):
        return _has_anchor(node.part)
    return not isinstance(node, Chars) and any(_has_anchor(part) for part in node.parts)


def _wrong(pattern: str, reason: str) -> BadRequest:
    return BadRequest(f"The pattern {pattern!r} is not supported: {reason}.", param="pattern")


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._text = pattern + "\0"
        self._at = 0
        self._depth = 0

    def read(self) -> Node:
        node = self._either()
        if self._at < len(self._pattern):
            raise self._wrong("a bracket is closed that was not opened")
        return node

    def _either(self) -> Node:
        parts = [self._sequence()]
        while self._here == "|":
            self._at += 1
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    @property
    def _here(self) -> str:
        return self._text[self._at] if self._at < len(self._pattern) else ""

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._here and self._here not in "|)":
            parts.append(self._quantified(self._atom()))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _quantified(self, node: Node) -> Node:
        while True:
            bounds = self._bounds()
            if bounds is None:
                return node
            if isinstance(node, Anchor):
                raise self._wrong("an anchor is repeated")
            node = Repeat(node, *bounds)
            if self._here == "?":
                self._at += 1  # which of the readings is tried first does not matter here

    def _bounds(self) -> tuple[int, int | None] | None:
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        found = simple.get(self._here)
        if found is not None:
            self._at += 1
            return found
        end = self._text.find("}", self._at)
        if self._here != "{" or end < 0:
            return None
        low, comma, high = self._text[self._at + 1 : end].partition(",")
        if not low.isdecimal() or not (high.isdecimal() or not high) or len(low + high) > 12:  # noqa: PLR2004
            return None
        self._at = end + 1
        least = int(low)
        most = int(high) if high else None if comma else least
        if max(least, most or 0) > MAX_COUNT:
            raise self._wrong(f"a count is over {MAX_COUNT:,}")
        if most is not None and most < least:
            raise self._wrong("a repetition runs backwards")
        return least, most

    def _atom(self) -> Node:
        character = self._here
        self._at += 1
        if character == "(":
            return self._group()
        if character == "[":
            return Chars(self._class())
        if character == ".":
            return Chars(_DOT)
        if character in "^$":
            return Anchor(is_start=character == "^")
        if character in "*+?":
            raise self._wrong(f"{character} has nothing to repeat")
        if character == "\\":
            return Chars(self._escape())
        return Chars(((ord(character), ord(character)),))

    def _group(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._wrong(f"its groups nest more than {MAX_DEPTH} deep")
        if self._here == "?":
            self._at += 1
            named = self._here in {"P", "<"} and self._text[self._at + (self._here == "P") + 1] not in "=!"
            if named and (end := self._text.find(">", self._at)) > 0:
                self._at = end + 1
            elif self._here == ":":
                self._at += 1
            else:
                raise self._wrong("look-around and flags (?" + self._text[self._at : self._at + 2].rstrip("\0") + ")")
        node = self._either()
        if self._here != ")":
            raise self._wrong("a bracket is not closed")
        self._at += 1
        self._depth -= 1
        return node

    def _escape(self, *, in_class: bool = False) -> Ranges:
        character = self._here
        self._at += 1
        if character in _CLASSES:
            return _CLASSES[character]
        if character in _CONTROLS:
            code_point = _CONTROLS[character]
        elif character == "b" and in_class:
            code_point = 0x08
        elif character in {"x", "u"}:
            code_point = self._hex(2 if character == "x" else 4)
        elif character == "c" and self._here.isascii() and self._here.isalpha():
            code_point = ord(self._here.upper()) - 64
            self._at += 1
        elif not character or (character.isalnum() and character.isascii()):
            raise self._wrong(f"\\{character}")
        else:
            code_point = ord(character)
        return ((code_point, code_point),)

    def _hex(self, n_digits: int) -> int:
        if n_digits == 4 and self._here == "{":  # noqa: PLR2004 - \u{...} of the u flag
            end = self._text.find("}", self._at)
            digits = self._text[self._at + 1 : max(end, self._at)]
            self._at = end + 1
        else:
            digits = self._text[self._at : self._at + n_digits]
            self._at += n_digits
        is_hex = 0 < len(digits) <= 6 and all(digit in string.hexdigits for digit in digits)  # noqa: PLR2004
        if not is_hex or int(digits, 16) > MAX_CODE_POINT:
            raise self._wrong("an escape has no hexadecimal number")
        return int(digits, 16)

    def _class(self) -> Ranges:
        is_inverted = self._here == "^"
        self._at += is_inverted
        ranges: list[tuple[int, int]] = []
        while self._here != "]":
            if not self._here:
                raise self._wrong("a class is not closed")
            first = self._member()
            if self._here == "-" and self._text[self._at + 1] not in "]\0" and len(first) == 1:
                self._at += 1
                last = self._member()
                if len(last) != 1 or last[0][0] != last[0][1] or first[0][0] != first[0][1]:
                    raise self._wrong("a class has a range that does not run between two characters")
                if last[0][0] < first[0][0]:
                    raise self._wrong("a class runs backwards")
                first = ((first[0][0], last[0][0]),)
            ranges += first
        self._at += 1
        return inverted(ranges) if is_inverted else normalized(ranges)

    def _member(self) -> Ranges:
        character = self._here
        self._at += 1
        return self._escape(in_class=True) if character == "\\" else ((ord(character), ord(character)),)

    def _wrong(self, reason: str) -> BadRequest:
        return _wrong(self._pattern, reason)
