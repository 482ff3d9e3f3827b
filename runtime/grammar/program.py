"""A grammar made ready for matching: flat lists of operations over bytes and tokens.

Whoever builds one gets these promises: no rule refers to itself at its beginning in a way that never ends, and from
every place that can be reached some text leads to the end.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from runtime.errors import BadRequest
from runtime.grammar.utf8 import Ranges, byte_sequences, normalized

MAX_OPERATIONS = 400_000
"""Operations of one grammar; 100 MB of lists at the most."""
NO_LIMIT = -1


class Kind(IntEnum):
    """What an operation does."""

    END = 0
    """The alternative is complete."""
    BYTES = 1
    """One byte of a set."""
    RULE = 2
    """Any alternative of a rule."""
    REPEAT = 3
    """A rule from `low` to `high` times (`NO_LIMIT`: any number)."""
    TOKEN = 4
    """Exactly this token."""
    NOT_TOKEN = 5
    """Any token but this one."""


@dataclass(frozen=True, slots=True)
class Element:
    """One element of an alternative; `value` is a byte set (bit i is byte i), a rule or a token id."""

    kind: Kind
    value: int
    low: int = 1
    high: int = 1


@dataclass(frozen=True, slots=True)
class Program:
    """Operations by position; each alternative runs to its `END`.

    Attributes:
        kinds, values, lows, highs: the operation at each position. The value of `BYTES` is a set of byte classes
            (bit i is class i).
        rules: where the alternatives of each rule start.
        root: the rule a text must match.
        class_of: class of each byte; bytes of one class are never told apart.
        n_classes: how many there are.
        literals: texts written out in the grammar, for telling which control tokens are meant.
        tokens: ids of tokens that are named in it.
    """

    kinds: tuple[int, ...]
    values: tuple[int, ...]
    lows: tuple[int, ...]
    highs: tuple[int, ...]
    rules: tuple[tuple[int, ...], ...]
    root: int
    class_of: bytes
    n_classes: int
    literals: frozenset[bytes]
    tokens: frozenset[int]


class ProgramBuilder:
    """Collects rules and flattens them."""

    def __init__(self) -> None:
        self.rules: list[list[tuple[Element, ...]]] = []
        self.literals: set[bytes] = set()
        self._charsets: dict[Ranges, Element] = {}
        self._n_elements = 0

    def new_rule(self) -> int:
        """A rule without alternatives."""
        self.rules.append([])
        return len(self.rules) - 1

    def add_alternative(self, rule: int, elements: Sequence[Element]) -> None:
        """Add one.

        Raises:
            BadRequest: the grammar is too large.
        """
        self._n_elements += len(elements) + 1
        if self._n_elements > MAX_OPERATIONS:
            raise BadRequest(f"The grammar has more than {MAX_OPERATIONS:,} elements.", param="grammar")
        self.rules[rule].append(tuple(elements))

    def literal(self, text: str) -> list[Element]:
        """The bytes of a text, one after the other."""
        raw = text.encode("utf-8", "replace")
        if raw:
            self.literals.add(raw)
        return [Element(Kind.BYTES, 1 << byte) for byte in raw]

    def charset(self, ranges: Iterable[tuple[int, int]]) -> Element:
        """One character of these ranges."""
        wanted = normalized(ranges)
        found = self._charsets.get(wanted)
        if found is None:
            found = self._charsets[wanted] = self._new_charset(wanted)
        return found

    def _new_charset(self, ranges: Ranges) -> Element:
        ascii_set = 0
        sequences: list[tuple[Element, ...]] = []
        for sequence in byte_sequences(ranges):
            if len(sequence) == 1:
                ascii_set |= _byte_set(*sequence[0])
            else:
                sequences.append(tuple(Element(Kind.BYTES, _byte_set(*pair)) for pair in sequence))
        if not sequences:
            return Element(Kind.BYTES, ascii_set)
        rule = self.new_rule()
        for alternative in sequences:
            self.add_alternative(rule, alternative)
        if ascii_set:
            self.add_alternative(rule, (Element(Kind.BYTES, ascii_set),))
        return Element(Kind.RULE, rule)

    def group(self, elements: Sequence[Element]) -> int:
        """A rule that is these elements."""
        if len(elements) == 1 and elements[0].kind is Kind.RULE:
            return elements[0].value
        rule = self.new_rule()
        self.add_alternative(rule, elements)
        return rule

    def repeated(self, elements: Sequence[Element], low: int, high: int) -> list[Element]:
        """These elements from `low` to `high` times (`NO_LIMIT`: any number)."""
        if high == 0 or not elements:
            return []
        if (low, high) == (1, 1):
            return list(elements)
        if (low, high) == (0, 1):
            rule = self.new_rule()
            self.add_alternative(rule, elements)
            self.add_alternative(rule, ())
            return [Element(Kind.RULE, rule)]
        return [Element(Kind.REPEAT, self.group(elements), low, high)]

    def build(self, root: int) -> Program:
        """Flatten the rules.

        Raises:
            BadRequest: a rule refers to itself at its beginning, or no text ever ends.
        """
        self._drop_endless()
        if not self.rules[root]:
            raise BadRequest("The grammar can never come to an end: every way through it goes on.", param="grammar")
        self._check_left_recursion()
        sets = {element.value for rule in self.rules for alt in rule for element in alt if element.kind is Kind.BYTES}
        class_sets = _byte_classes(sets)
        in_classes = {value: sum(1 << i for i, members in enumerate(class_sets) if members & value) for value in sets}
        class_of = bytearray(256)
        for index, members in enumerate(class_sets):
            for byte in range(256):
                if members >> byte & 1:
                    class_of[byte] = index
        flat: list[Element] = []
        starts: list[tuple[int, ...]] = []
        end = Element(Kind.END, 0)
        for rule in self.rules:
            own: list[int] = []
            for alternative in rule:
                own.append(len(flat))
                flat += alternative
                flat.append(end)
            starts.append(tuple(own))
        return Program(
            kinds=tuple(int(element.kind) for element in flat),
            values=tuple(
                in_classes[element.value] if element.kind is Kind.BYTES else element.value for element in flat
            ),
            lows=tuple(element.low for element in flat),
            highs=tuple(element.high for element in flat),
            rules=tuple(starts),
            root=root,
            class_of=bytes(class_of),
            n_classes=len(class_sets),
            literals=frozenset(self.literals),
            tokens=frozenset(element.value for element in flat if element.kind in (Kind.TOKEN, Kind.NOT_TOKEN)),
        )

    def _drop_endless(self) -> None:
        """Drop alternatives that no text completes, so that nobody is led into them."""
        uses: dict[int, list[tuple[int, int]]] = {}
        missing: dict[tuple[int, int], int] = {}
        ends = [False] * len(self.rules)
        todo: list[int] = []

        def note(rule: int) -> None:
            if not ends[rule]:
                ends[rule] = True
                todo.append(rule)

        for rule, alternatives in enumerate(self.rules):
            for index, alternative in enumerate(alternatives):
                needed = {element.value for element in alternative if _needs_rule(element)}
                missing[rule, index] = len(needed)
                for other in needed:
                    uses.setdefault(other, []).append((rule, index))
                if not needed and not any(e.kind is Kind.BYTES and not e.value for e in alternative):
                    note(rule)
        good = {key for key, count in missing.items() if count == 0}
        while todo:
            for key in uses.get(todo.pop(), ()):
                missing[key] -= 1
                if missing[key] == 0:
                    good.add(key)
                    note(key[0])
        self.rules = [
            [
                tuple(e for e in alternative if e.kind is not Kind.REPEAT or ends[e.value])
                for index, alternative in enumerate(alternatives)
                if (rule, index) in good and not any(e.kind is Kind.BYTES and not e.value for e in alternative)
            ]
            for rule, alternatives in enumerate(self.rules)
        ]

    def _nullable(self) -> list[bool]:
        """Which rules may be empty; in time that grows with the grammar's size."""
        may_be_empty = [False] * len(self.rules)
        uses: dict[int, list[tuple[int, int]]] = {}
        missing: dict[tuple[int, int], int] = {}
        todo: list[int] = []

        def note(rule: int) -> None:
            if not may_be_empty[rule]:
                may_be_empty[rule] = True
                todo.append(rule)

        for rule, alternatives in enumerate(self.rules):
            for index, alternative in enumerate(alternatives):
                if any(element.kind not in (Kind.RULE, Kind.REPEAT) for element in alternative):
                    continue
                needed = {element.value for element in alternative if _needs_rule(element)}
                missing[rule, index] = len(needed)
                for other in needed:
                    uses.setdefault(other, []).append((rule, index))
                if not needed:
                    note(rule)
        while todo:
            for key in uses.get(todo.pop(), ()):
                missing[key] -= 1
                if missing[key] == 0:
                    note(key[0])
        return may_be_empty

    def _check_left_recursion(self) -> None:
        """Refuse cycles that would push without reading; those at the very end of a rule push nothing."""
        may_be_empty = self._nullable()
        edges: list[list[tuple[int, bool]]] = [[] for _ in self.rules]
        for rule, alternatives in enumerate(self.rules):
            for alternative in alternatives:
                for index, element in enumerate(alternative):
                    if element.kind in (Kind.RULE, Kind.REPEAT):
                        pushes = element.kind is Kind.REPEAT or index + 1 < len(alternative)
                        edges[rule].append((element.value, pushes))
                    if not _may_be_empty(element, may_be_empty):
                        break
        component = _components(edges)
        for rule, targets in enumerate(edges):
            if any(pushes and component[rule] == component[other] for other, pushes in targets):
                raise BadRequest(
                    "A rule of the grammar refers to itself at its beginning.",
                    hint="Turn it round, so that it reads something first.",
                    param="grammar",
                )


def _needs_rule(element: Element) -> bool:
    return element.kind is Kind.RULE or (element.kind is Kind.REPEAT and element.low > 0)


def _may_be_empty(element: Element, may_be_empty: Sequence[bool]) -> bool:
    if element.kind is Kind.RULE:
        return may_be_empty[element.value]
    return element.kind is Kind.REPEAT and (element.low == 0 or may_be_empty[element.value])


def _byte_set(low: int, high: int) -> int:
    return (1 << high + 1) - (1 << low)


def _byte_classes(sets: Iterable[int]) -> list[int]:
    """The coarsest parts of the 256 bytes of which every set is made."""
    parts = [(1 << 256) - 1]
    for wanted in sets:
        if len(parts) == 256:  # noqa: PLR2004 - every byte is apart already
            break
        split: list[int] = []
        for part in parts:
            split += [half for half in (part & wanted, part & ~wanted) if half]
        parts = split
    return parts


def _components(edges: Sequence[Sequence[tuple[int, bool]]]) -> list[int]:
    """Strongly connected components (Tarjan), without recursion: component number of each rule."""
    n_rules = len(edges)
    order = [-1] * n_rules
    low = [0] * n_rules
    component = [-1] * n_rules
    stack: list[int] = []
    counter = n_found = 0
    for first in range(n_rules):
        if order[first] >= 0:
            continue
        work = [(first, 0)]
        while work:
            rule, at = work.pop()
            if at == 0:
                order[rule] = low[rule] = counter
                counter += 1
                stack.append(rule)
            if at < len(edges[rule]):
                work.append((rule, at + 1))
                other = edges[rule][at][0]
                if order[other] < 0:
                    work.append((other, 0))
                elif component[other] < 0:
                    low[rule] = min(low[rule], order[other])
                continue
            for other, _pushes in edges[rule]:
                if component[other] < 0:
                    low[rule] = min(low[rule], low[other])
            if low[rule] == order[rule]:
                while True:
                    member = stack.pop()
                    component[member] = n_found
                    if member == rule:
                        break
                n_found += 1
    return component
