"""Strings as a schema bounds them, written in the form a dialect of JSON wants."""

from dataclasses import dataclass

from runtime.errors import BadRequest
from runtime.grammar.gbnf import read_gbnf
from runtime.grammar.matcher import Matcher
from runtime.grammar.regex import Chars, Either, Node, Repeat, Sequence, length_range
from runtime.grammar.rules import RuleSet, charset, counted, either, literal, sequence
from runtime.grammar.utf8 import MAX_CODE_POINT, Ranges, inverted, normalized

MAX_STATES = 2000
"""States of a pattern's automaton, where it has to be counted along with a length."""
MAX_COUNTED = 60_000
"""Transitions times lengths: about a second of work."""
_HEX = "[0-9a-fA-F]"
_JSON_CHARACTER = (
    '[^"\\\\\\x00-\\x1F\\x7F] | "\\\\" (["\\\\/bfnrt] | "u" ([0-9abcefABCEF] ' + _HEX + "{3} | [dD] [0-7] "
    f'{_HEX}{{2}} | [dD] [89abAB] {_HEX}{{2}} "\\\\u" [dD] [c-fC-F] {_HEX}{{2}}))'
)
_PYTHON_CHARACTER = '[^"\\\\\\x00-\\x1F\\x7F] | "\\\\" ["\\\\nrt]'
_SHORT_ESCAPES = {0x08: "b", 0x09: "t", 0x0A: "n", 0x0C: "f", 0x0D: "r", 0x22: '"', 0x5C: "\\"}


@dataclass(frozen=True, slots=True)
class StringForm:
    """How a string is written.

    Attributes:
        quote: what stands around it.
        escapes: JSON's escapes; without them it cannot contain `banned`.
        banned: characters that would end it.
        is_python: of the escapes, only those that mean the same in Python.
    """

    quote: str = '"'
    escapes: bool = True
    banned: Ranges = ()
    is_python: bool = False


JSON_STRING = StringForm()


def any_character(rules: RuleSet, form: StringForm) -> str:
    """Any one character of a string."""
    if form.escapes:
        return rules.rule(_PYTHON_CHARACTER if form.is_python else _JSON_CHARACTER)
    return rules.rule(charset(_without(((0x09, 0x0A), (0x20, 0x7E), (0xA0, MAX_CODE_POINT)), form.banned)))


def free_string(rules: RuleSet, form: StringForm, low: int, high: int | None) -> str:
    """A string of `low` to `high` characters, quotes included."""
    return _quoted(form, counted(any_character(rules, form), low, high))


def fixed_string(form: StringForm, text: str) -> str:
    """Exactly this string, quotes included.

    Raises:
        BadRequest: it cannot be written in this form.
    """
    return literal(written_string(form, text))


def written_string(form: StringForm, text: str) -> str:
    """How a string is written, quotes included; errors as `fixed_string`."""
    if form.escapes:
        return form.quote + "".join(_escaped(c) for c in text) + form.quote
    if any(low <= ord(character) <= high for character in text for low, high in form.banned):
        raise BadRequest(f"The text {text[:80]!r} cannot be written in this model's tool calls.", param="tools")
    return form.quote + text + form.quote


def pattern_string(rules: RuleSet, form: StringForm, node: Node, low: int, high: int | None) -> str:
    """A string that fits a pattern and has `low` to `high` characters, quotes included.

    Raises:
        BadRequest: pattern and length together are too large.
    """
    if fits_length(node, low, high):
        return _quoted(form, _expression(rules, form, node))
    return _quoted(form, _Counted(rules, form, low, high).start(node))


def fits_length(node: Node, low: int, high: int | None) -> bool:
    """Whether all that fits a pattern has `low` to `high` characters."""
    least, most = length_range(node)
    return least >= low and (high is None or (most is not None and most <= high))


def pattern_takes(node: Node, text: str) -> bool:
    """Whether a text fits a pattern."""
    rules = RuleSet()
    root = pattern_string(rules, JSON_STRING, node, 0, None)
    matcher = Matcher(read_gbnf(rules.text(root)), fuel=1_000_000)
    return matcher.may_end(matcher.read(matcher.start, fixed_text(text)))


def fixed_text(text: str) -> bytes:
    """A string as JSON text."""
    return ('"' + "".join(_escaped(c) for c in text) + '"').encode("utf-8", "replace")


def _quoted(form: StringForm, inner: str) -> str:
    return sequence([literal(form.quote), inner, literal(form.quote)]) if form.quote else inner


def _expression(rules: RuleSet, form: StringForm, node: Node) -> str:
    if isinstance(node, Chars):
        return _characters(rules, form, node.ranges)
    if isinstance(node, Repeat):
        part = _expression(rules, form, node.part)
        return rules.rule(counted(part, node.low, node.high))
    if isinstance(node, Sequence):
        return rules.rule(sequence([_expression(rules, form, part) for part in node.parts]))
    if isinstance(node, Either):
        return rules.rule(either(_expression(rules, form, part) for part in node.parts))
    raise BadRequest("A pattern has an anchor inside.", param="pattern")


def _characters(rules: RuleSet, form: StringForm, ranges: Ranges) -> str:
    """One character of these, escaped where it has to be."""
    if not form.escapes:
        return rules.rule(charset(_without(ranges, form.banned)))
    plain = _without(ranges, ((0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C), (0x7F, 0x7F)))
    parts = [charset(plain)] if plain else []
    special = [*range(0x20), 0x22, 0x5C, 0x7F]
    parts += [
        literal(_escaped(chr(code_point)))
        for code_point in special
        if any(low <= code_point <= high for low, high in ranges)
    ]
    if not parts:
        raise BadRequest("A pattern has a class that no character is in.", param="pattern")
    return rules.rule(either(parts))


def _without(ranges: Ranges, taken: Ranges) -> Ranges:
    kept = inverted(taken)
    return normalized(
        (max(low, first), min(high, last))
        for low, high in ranges
        for first, last in kept
        if low <= last and first <= high
    )


def _escaped(character: str) -> str:
    code_point = ord(character)
    if code_point in _SHORT_ESCAPES:
        return "\\" + _SHORT_ESCAPES[code_point]
    return f"\\u{code_point:04x}" if code_point < 0x20 or code_point == 0x7F else character  # noqa: PLR2004


class _Counted:
    """A pattern's automaton, walked together with a count of characters: both bounds hold exactly."""

    def __init__(self, rules: RuleSet, form: StringForm, low: int, high: int | None) -> None:
        self._rules = rules
        self._form = form
        self._low = low
        self._high = high
        self._free: list[list[int]] = []
        self._reads: list[tuple[Ranges, int] | None] = []
        self._closures: dict[int, list[int]] = {}

    def start(self, node: Node) -> str:
        last = self._state()
        first = self._build(node, last)
        names: dict[tuple[int, int], str] = {}
        n_ways = 0
        todo: list[tuple[int, int]] = []

        def name(state: int, count: int) -> str:
            key = state, (min(count, self._low) if self._high is None else count)
            if key not in names:
                names[key] = self._rules.reserve()
                todo.append(key)
            return names[key]

        root = name(first, 0)
        while todo:
            state, count = todo.pop()
            alternatives = []
            reachable = self._closure(state)
            n_ways += len(reachable)
            if n_ways > MAX_COUNTED:
                raise BadRequest(
                    "A pattern together with minLength or maxLength is too large.",
                    hint="Write the length into the pattern, or choose a smaller one.",
                    param="pattern",
                )
            for reached in reachable:
                if reached == last and count >= self._low:
                    alternatives.append('""')
                edge = self._reads[reached]
                if edge is not None and (self._high is None or count < self._high):
                    ranges, target = edge
                    one = _characters(self._rules, self._form, ranges)
                    alternatives.append(f"{one} {name(target, count + 1)}")
            # Where nothing goes on, a rule that refers to itself never ends, and is dropped with all that leads here.
            own = names[state, count]
            self._rules.define(own, " | ".join(alternatives) or own)
        return root

    def _state(self) -> int:
        if len(self._free) >= MAX_STATES:
            raise BadRequest("A pattern together with minLength or maxLength is too large.", param="pattern")
        self._free.append([])
        self._reads.append(None)
        return len(self._free) - 1

    def _build(self, node: Node, after: int) -> int:
        """The state before a part that leads to `after`."""
        if isinstance(node, Chars):
            state = self._state()
            self._reads[state] = node.ranges, after
            return state
        if isinstance(node, Sequence):
            for part in reversed(node.parts):
                after = self._build(part, after)
            return after
        state = self._state()
        if isinstance(node, Either):
            self._free[state] += [self._build(part, after) for part in node.parts]
        elif isinstance(node, Repeat):
            # More than there are characters is as good as any number, and takes one state instead of many.
            most, each = self._high, max(length_range(node.part)[0], 1)
            if node.high is None or (most is not None and node.high * each >= most):
                self._free[state] += [self._build(node.part, state), after]
                after = state
            else:
                for _ in range(node.high - node.low):
                    option = self._state()
                    self._free[option] += [self._build(node.part, after), after]
                    after = option
            for _ in range(node.low):
                after = self._build(node.part, after)
            return after
        return state

    def _closure(self, state: int) -> list[int]:
        """What is reached without a character, of which something comes: an edge, or the end."""
        found = self._closures.get(state)
        if found is None:
            found = self._closures[state] = self._search(state)
        return found

    def _search(self, state: int) -> list[int]:
        seen, todo = {state}, [state]
        while todo:
            for target in self._free[todo.pop()]:
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        return sorted(other for other in seen if self._reads[other] is not None or not self._free[other])
