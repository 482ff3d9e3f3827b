"""Objects of a JSON schema: named properties in order, further ones, and how many there are."""

from typing import Protocol

from runtime.grammar.regex import read_pattern
from runtime.grammar.rules import RuleSet, counted, either, literal
from runtime.grammar.schema_terms import (
    Schema,
    Unsatisfiable,
    as_schema,
    both,
    integer,
    names,
    properties,
    unsupported,
)
from runtime.grammar.strings import JSON_STRING, any_character, pattern_string, pattern_takes


class ValueWriter(Protocol):
    """What writes the values, as an object needs it."""

    rules: RuleSet
    space: str

    @property
    def bare_keys(self) -> bool:
        """Whether names stand without quotes."""

    def possible(self, schema: object) -> str | None:
        """The expression of a value, None when nothing fits."""

    def key(self, name: str) -> str:
        """A property's name as it is written."""


class ObjectWriter:
    """Writes one object."""

    def __init__(self, writer: ValueWriter, schema: Schema) -> None:
        """Read its keywords.

        Raises:
            Unsatisfiable: a property it must have cannot be.
        """
        self._writer = writer
        self._rules = writer.rules
        self._schema = schema
        self._required = set(names(schema))
        self._pairs = self._named()
        self._low = max(integer(schema, "minProperties") or 0, len(self._required))
        self._high = integer(schema, "maxProperties")
        self._extra = self._extra_pair()

    def write(self) -> str:
        """The whole object.

        Raises:
            Unsatisfiable: its bounds contradict its properties.
        """
        space = self._writer.space
        members = self._members()
        may_be_empty = self._low == 0
        if members is None:
            if not may_be_empty:
                raise Unsatisfiable
            return self._rules.rule(f'"{{" {space} "}}"')
        inner = f"{members} {space}"
        return self._rules.rule(f'"{{" {space} {counted(inner, 0, 1) if may_be_empty else inner} "}}"')

    def _named(self) -> list[tuple[str, bool]]:
        """`name: value` of each property, and whether it must be there."""
        schema = self._schema
        declared = properties(schema)
        patterned = properties(schema, "patternProperties")
        for name in names(schema):
            # Must be there, but is only described by what holds for further ones.
            declared.setdefault(name, schema.get("additionalProperties", True))
        pairs: list[tuple[str, bool]] = []
        for name, given in declared.items():
            value = given
            for pattern, pattern_schema in patterned.items():
                if pattern_takes(read_pattern(pattern), name):
                    value = both(value, pattern_schema)
            written = self._writer.possible(value)
            if written is not None:
                pairs.append((self._pair(self._writer.key(name), written), name in self._required))
            elif name in self._required:
                raise Unsatisfiable
        return pairs

    def _pair(self, key: str, value: str) -> str:
        return self._rules.rule(f'{key} ":" {self._writer.space} {value}')

    # --- how many, in which order ---

    def _members(self) -> str | None:
        """One property or more, separated; None when there may be none."""
        n_pairs, low, high = len(self._pairs), self._low, self._high
        if high is not None and high < low:
            raise Unsatisfiable
        if self._extra is not None and not n_pairs:
            if low > 1:
                raise unsupported("minProperties", "above 1 without names: one name could come twice")
            if high == 0:
                return None
            more = counted(f'"," {self._writer.space} {self._extra}', 0, None if high is None else high - 1)
            return self._rules.rule(f"{self._extra} {more}")
        n_required = len(self._required)
        counts_low, counts_high = low > n_required, high is not None and (high < n_pairs or self._extra is not None)
        if self._extra is not None and (counts_low or counts_high):
            raise unsupported("minProperties" if counts_low else "maxProperties", "beside names and further properties")
        if low > n_pairs:
            raise Unsatisfiable
        if low == n_required == 0:
            low = 1  # the empty object is written apart
        counts = max(low if low > max(n_required, 1) else 0, high or 0 if counts_high else 0)
        return self._chain(low, high if counts_high else None, counts)

    def _chain(self, low: int, high: int | None, most_counted: int) -> str | None:
        """Rules from the last property to the first: what may follow when so many have been written."""
        space, n_pairs = self._writer.space, len(self._pairs)
        comma = f'"," {space}'
        # after[c]: what follows when c have been written (1: at least one, where nobody counts).
        further = counted(f"{comma} {self._extra}", 0, None) if self._extra is not None else '""'
        cap = max(most_counted, 1)
        after: list[str | None] = [further if count >= min(low, cap) else None for count in range(cap + 1)]
        after[0] = None if self._extra is None else self._rules.rule(f"{self._extra} {further}")
        for index in range(n_pairs - 1, -1, -1):
            pair, is_required = self._pairs[index]
            now: list[str | None] = []
            for count in range(cap + 1):
                ways: list[str] = []
                then = after[min(count + 1, cap)]
                if then is not None and (high is None or count < high):
                    ways.append(f"{comma if count else ''} {pair} {'' if then == chr(34) * 2 else then}".strip())
                skipped = after[count]
                if not is_required and skipped is not None:
                    ways.append(skipped)
                now.append(self._rules.rule(either(ways)) if ways else None)
            after = now
        if after[0] is None and n_pairs:
            raise Unsatisfiable
        return after[0]

    # --- further properties ---

    def _extra_pair(self) -> str | None:
        """`name: value` of a property that is not named; None when there are none."""
        schema = self._schema
        patterned = properties(schema, "patternProperties")
        if patterned:
            return self._patterned_pair(patterned)
        further = schema.get("additionalProperties")
        if schema.get("unevaluatedProperties") is False and further is None:
            further = False
        if further is None:
            further = "properties" not in schema and "required" not in schema
        value = self._writer.possible(further)
        if value is None:
            return None
        return self._pair(self._free_key(), value)

    def _patterned_pair(self, patterned: dict[str, object]) -> str | None:
        """A name that fits any of the patterns. What other readers let pass beside them is not written."""
        value: object = True
        for given in patterned.values():
            value = both(value, given)
        if "propertyNames" in self._schema:
            raise unsupported("propertyNames", 'together with "patternProperties"')
        nodes = [read_pattern(pattern) for pattern in patterned]
        if any(pattern_takes(node, name) for node in nodes for name in properties(self._schema)):
            raise unsupported("patternProperties", "where a pattern fits a name of properties")
        written = self._writer.possible(value)
        if written is None:
            return None
        if self._writer.bare_keys:
            raise unsupported("patternProperties", "in this model's tool calls")
        keys = either(pattern_string(self._rules, JSON_STRING, node, 0, None) for node in nodes)
        return self._pair(self._rules.rule(keys), written)

    def _free_key(self) -> str:
        taken = [*properties(self._schema), *names(self._schema)]
        bare = self._writer.bare_keys
        if "propertyNames" in self._schema:
            wanted = as_schema(self._schema["propertyNames"])
            if taken or bare:
                raise unsupported("propertyNames", "beside names of properties")
            written = self._writer.possible({"type": "string", **wanted})
            if written is None:
                raise Unsatisfiable
            return written
        return free_key(self._rules, taken, bare=bare)


def free_key(rules: RuleSet, taken: list[str], *, bare: bool) -> str:
    """A name that is none of these. Without escapes, where it could be spelled as one of them."""
    if not taken and not bare:
        return rules.rule(f'"\\"" {any_character(rules, JSON_STRING)}* "\\""')
    character = "[A-Za-z0-9_]" if bare else '[^"\\\\\\x00-\\x1F\\x7F]'
    rest = rules.rule(f"{character}*")
    tree: dict[str, dict[str, object]] = {}
    ends: set[str] = set()
    for name in taken:
        ends.add(name)
        for size in range(len(name)):
            tree.setdefault(name[:size], {})[name[size]] = True
    known: dict[str, str] = {}
    for begun in sorted({*tree, *ends, ""}, key=len, reverse=True):
        children = tree.get(begun, {})
        excluded = "".join(f"\\U{ord(letter):08X}" for letter in children)
        other = f'[^{excluded}"\\\\\\x00-\\x1F\\x7F]'
        if bare:
            kept = "".join(c for c in _BARE if c not in children)
            other = f"[{kept}]" if kept else ""
        ways = [f"{other} {rest}"] if other else []
        ways += [f"{literal(letter)} {known[begun + letter]}" for letter in children if _writable(letter, bare=bare)]
        if begun not in ends and (begun or not bare):
            ways.append('""')
        known[begun] = rules.rule(either(ways))
    return known[""] if bare else rules.rule(f'"\\"" {known[""]} "\\""')


_BARE = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"


def _writable(letter: str, *, bare: bool) -> bool:
    return letter in _BARE if bare else letter not in '"\\' and letter.isprintable()
