"""Reads GBNF, llama.cpp's notation for grammars, into a program.

The notation is that of llama.cpp's `grammars/README.md`: rules `name ::= ...`, literals, character classes, `.`,
groups, alternatives, `* + ? {m} {m,} {m,n}`, comments, and tokens as `<[id]>` or `<text>`, with `!` for any other.
"""

import string
from collections.abc import Callable

from runtime.errors import BadRequest
from runtime.grammar.program import NO_LIMIT, Element, Kind, Program, ProgramBuilder
from runtime.grammar.utf8 import MAX_CODE_POINT, inverted

MAX_DEPTH = 200
"""Nested groups; each is two frames of this parser."""
MAX_REPETITIONS = 2**31 - 1

TokenId = Callable[[str], int | None]
"""Id of the one token that is written so; None when there is none."""

_NAME = frozenset(string.ascii_letters + string.digits + "-")
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]"}


def no_tokens(_text: str) -> int | None:
    """For grammars without a vocabulary."""
    return None


def read_gbnf(text: str, token_id: TokenId = no_tokens, *, root: str = "root") -> Program:
    """Read a grammar.

    Raises:
        BadRequest: it does not parse, with the place and the reason; has no root; or can never end.
    """
    if "\0" in text:
        raise BadRequest("The grammar contains a NUL character.", param="grammar")
    return _Reader(text, token_id).read(root)


class _Reader:
    def __init__(self, text: str, token_id: TokenId) -> None:
        self._text = text + "\0"
        self._at = 0
        self._token_id = token_id
        self._builder = ProgramBuilder()
        self._names: dict[str, int] = {}
        self._depth = 0

    def read(self, root: str) -> Program:
        self._space(newlines=True)
        defined: set[str] = set()
        while self._text[self._at] != "\0":
            defined.add(self._rule())
        for name in self._names:
            if name not in defined:
                raise self._wrong(f"Undefined rule identifier '{name}'")
        if root not in defined:
            raise self._wrong(f"it has no rule named {root}")
        return self._builder.build(self._names[root])

    def _rule(self) -> str:
        name = self._name()
        self._space(newlines=False)
        if not self._text.startswith("::=", self._at):
            raise self._wrong("expecting ::=", self._at)
        self._at += 3
        self._space(newlines=True)
        rule = self._rule_of(name)
        self._builder.rules[rule].clear()  # the last definition of a name holds
        self._alternatives(rule, nested=False)
        if self._text[self._at] not in "\r\n\0":
            raise self._wrong("expecting newline or end", self._at)
        self._space(newlines=True)
        return name

    def _rule_of(self, name: str) -> int:
        if name not in self._names:
            self._names[name] = self._builder.new_rule()
        return self._names[name]

    def _alternatives(self, rule: int, *, nested: bool) -> None:
        self._builder.add_alternative(rule, self._sequence(nested=nested))
        while self._text[self._at] == "|":
            self._at += 1
            self._space(newlines=True)
            self._builder.add_alternative(rule, self._sequence(nested=nested))

    def _sequence(self, *, nested: bool) -> list[Element]:
        done: list[Element] = []
        last: list[Element] | None = None
        while True:
            character = self._text[self._at]
            if character in "*+?{":
                if last is None:
                    raise self._wrong("expecting preceding item to */+/?/{", self._at)
                low, high = self._counts()
                last = self._builder.repeated(last, low, high)
            else:
                symbol = self._symbol(character)
                if symbol is None:
                    return done + (last or [])
                done += last or []
                last = symbol
            self._space(newlines=nested)

    def _symbol(self, character: str) -> list[Element] | None:
        if character == '"':
            return self._literal()
        if character == "[":
            return [self._class()]
        if character == ".":
            self._at += 1
            return [self._builder.charset(((0, MAX_CODE_POINT),))]
        if character == "(":
            return [self._group()]
        if character in "<!":
            return [self._token()]
        if character in _NAME:
            return [Element(Kind.RULE, self._rule_of(self._name()))]
        return None

    def _group(self) -> Element:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise BadRequest(f"The grammar nests groups more than {MAX_DEPTH} deep.", param="grammar")
        self._at += 1
        self._space(newlines=True)
        rule = self._builder.new_rule()
        self._alternatives(rule, nested=True)
        if self._text[self._at] != ")":
            raise self._wrong("expecting ')'", self._at)
        self._at += 1
        self._depth -= 1
        return Element(Kind.RULE, rule)

    def _literal(self) -> list[Element]:
        self._at += 1
        characters: list[str] = []
        while self._text[self._at] != '"':
            characters.append(chr(self._character()))
        self._at += 1
        return self._builder.literal("".join(characters))

    def _class(self) -> Element:
        start = self._at
        self._at += 1
        is_inverted = self._text[self._at] == "^"
        self._at += is_inverted
        ranges: list[tuple[int, int]] = []
        while self._text[self._at] != "]":
            low = high = self._character()
            if self._text[self._at] == "-" and self._text[self._at + 1] != "]":
                self._at += 1
                high = self._character()
                if high < low:
                    raise self._wrong("a class runs backwards", start)
            ranges.append((low, high))
        self._at += 1
        if not ranges:
            raise self._wrong("a class is empty", start)
        return self._builder.charset(inverted(ranges) if is_inverted else ranges)

    def _character(self) -> int:
        character = self._text[self._at]
        if character == "\0":
            raise self._wrong("unexpected end of input")
        self._at += 1
        if character != "\\":
            return ord(character)
        escaped = self._text[self._at]
        self._at += 1
        if escaped in _ESCAPES:
            return ord(_ESCAPES[escaped])
        n_digits = _HEX_DIGITS.get(escaped)
        if n_digits is None:
            raise self._wrong("unknown escape", self._at - 2)
        digits = self._text[self._at : self._at + n_digits]
        if len(digits) < n_digits or any(digit not in string.hexdigits for digit in digits):
            raise self._wrong(f"expecting {n_digits} hex chars", self._at)
        self._at += n_digits
        value = int(digits, 16)
        if value > MAX_CODE_POINT:
            raise self._wrong("there is no such character", self._at - n_digits)
        return value

    def _token(self) -> Element:
        start = self._at
        is_other = self._text[self._at] == "!"
        self._at += is_other
        end = self._text.find(">", self._at)
        if self._text[self._at] != "<" or end < 0:
            raise self._wrong("expecting a token as <text> or <[id]>", start)
        written = self._text[self._at : end + 1]
        self._at = end + 1
        if written.startswith("<["):
            digits = written[2:-2]
            if not digits.isdecimal() or not digits.isascii() or len(digits) > 9 or written[-2] != "]":  # noqa: PLR2004
                raise self._wrong("expecting a token id", start)
            found: int | None = int(digits)
        else:
            found = self._token_id(written)
        if found is None:
            raise self._wrong(f"invalid token '{written[:80]}'", start)
        return Element(Kind.NOT_TOKEN if is_other else Kind.TOKEN, found)

    def _counts(self) -> tuple[int, int]:
        character = self._text[self._at]
        self._at += 1
        if character != "{":
            return {"*": (0, NO_LIMIT), "+": (1, NO_LIMIT), "?": (0, 1)}[character]
        self._space(newlines=True)
        low = high = self._integer()
        self._space(newlines=True)
        if self._text[self._at] == ",":
            self._at += 1
            self._space(newlines=True)
            high = NO_LIMIT
            if self._text[self._at] in string.digits:
                high = self._integer()
            self._space(newlines=True)
        if self._text[self._at] != "}":
            raise self._wrong("expecting '}'", self._at)
        self._at += 1
        if high != NO_LIMIT and high < low:
            raise self._wrong("a repetition runs backwards", self._at)
        return low, high

    def _integer(self) -> int:
        start = self._at
        while self._text[self._at] in string.digits:
            self._at += 1
        digits = self._text[start : self._at]
        if not digits:
            raise self._wrong("expecting an int", start)
        if len(digits) > 10 or int(digits) > MAX_REPETITIONS:  # noqa: PLR2004 - the digits of the bound
            raise self._wrong(f"a number of repetitions exceeds {MAX_REPETITIONS:,}", start)
        return int(digits)

    def _name(self) -> str:
        start = self._at
        while self._text[self._at] in _NAME:
            self._at += 1
        if self._at == start:
            raise self._wrong("expecting name", start)
        return self._text[start : self._at]

    def _space(self, *, newlines: bool) -> None:
        skipped = " \t\r\n" if newlines else " \t"
        while True:
            character = self._text[self._at]
            if character == "#":
                while self._text[self._at] not in "\r\n\0":
                    self._at += 1
            elif character in skipped:
                self._at += 1
            else:
                return

    def _wrong(self, reason: str, at: int | None = None) -> BadRequest:
        place = ""
        if at is not None:
            rest = self._text[at : at + 40].rstrip("\0").splitlines()
            line = self._text.count("\n", 0, at) + 1
            place = f" at line {line}" + (f": {rest[0]}" if rest and rest[0] else "")
        return BadRequest(
            f"The grammar cannot be used: {reason}{place}.",
            hint="A grammar in GBNF needs a rule named root; see llama.cpp's grammars/README.md.",
            param="grammar",
        )
