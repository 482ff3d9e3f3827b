"""A JSON schema as a grammar of JSON texts that all fit it.

What is written is always valid; not all that is valid can be written. An object without `additionalProperties` that
names properties has just those; property names come in the order of the schema; a schema without `type` means the
types its keywords speak of; `oneOf` needs branches that provably exclude each other. White space is bounded, since
small models like to go on with it. A keyword that cannot be kept is refused by its name.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from runtime.grammar.formats import PATTERNS, SHORTER
from runtime.grammar.numbers import UNREACHABLE, integer_between, number_between
from runtime.grammar.regex import read_pattern
from runtime.grammar.rules import RuleSet, counted, either, either_text, literal, sequence
from runtime.grammar.schema_objects import ObjectWriter
from runtime.grammar.schema_terms import (
    ASSERTIONS,
    MAX_DEPTH,
    UNSUPPORTED,
    References,
    Schema,
    Unsatisfiable,
    as_schema,
    excludes,
    integer,
    join,
    key_of,
    listed_values,
    number,
    plain,
    read_schema,
    schemas,
    to_json,
    types_of,
    unsupported,
    wrong,
)
from runtime.grammar.strings import (
    JSON_STRING,
    StringForm,
    fits_length,
    fixed_string,
    free_string,
    pattern_string,
    written_string,
)

MAX_SCHEMAS = 20_000
"""Schemas looked at, joined ones included."""
MAX_LOOKED_AT_BYTES = 8 * 1024 * 1024
"""Text of those schemas."""
MAX_UNIQUE = 8
"""Values of an enum whose items must differ: each set of them is a rule."""
MAX_STEP = 1000
"""Of `multipleOf`: each rest of the division is a rule."""
MAX_MULTIPLES = 2000


@dataclass(frozen=True, slots=True)
class Dialect:
    """How values are written.

    Attributes:
        string: strings.
        bare_keys: property names stand without quotes.
        true, false, null: their words.
        space: GBNF of what may stand between marks.
    """

    string: StringForm = JSON_STRING
    bare_keys: bool = False
    true: str = "true"
    false: str = "false"
    null: str = "null"
    space: str = '"" | " " | "\\n" [ ]{0,20}'


JSON = Dialect()


def grammar_of(schema_text: str) -> str:
    """GBNF, with a rule `root`, of the JSON texts that fit a schema.

    Raises:
        BadRequest: the schema is none, nothing fits it, it is too large, or a keyword is not supported (`keyword`).
    """
    rules = RuleSet()
    return rules.text(write_schema(rules, schema_text))


def write_schema(rules: RuleSet, schema_text: str, dialect: Dialect = JSON) -> str:
    """The same as an expression over rules; errors as there."""
    return SchemaWriter(rules, schema_text, dialect).root()


class SchemaWriter:
    """Writes the rules of one schema."""

    def __init__(self, rules: RuleSet, schema_text: str, dialect: Dialect = JSON) -> None:
        """Read the schema; errors as `grammar_of`."""
        self.rules = rules
        self.dialect = dialect
        try:
            self.schema = read_schema(schema_text)
        except Unsatisfiable:
            raise wrong("no value fits it") from None
        self.references = References(self.schema)
        self.space = rules.rule(dialect.space)
        self._known: dict[bytes, str] = {}
        self._impossible: set[bytes] = set()
        self._n_schemas = 0
        self._n_bytes = 0
        self._depth = 0

    @property
    def bare_keys(self) -> bool:
        """Whether names stand without quotes."""
        return self.dialect.bare_keys

    def root(self) -> str:
        """The expression of the whole schema."""
        return self.guarded(lambda: self.value(self.schema))

    def guarded(self, write: Callable[[], str]) -> str:
        """Do it, and say so when nothing fits."""
        try:
            return write()
        except Unsatisfiable:
            raise wrong("no value fits it: some of its keywords contradict each other") from None

    def value(self, schema: object) -> str:
        """The expression of a value.

        Raises:
            Unsatisfiable: nothing fits.
        """
        found = self.references.resolve(as_schema(schema))
        key = key_of(found)
        if key in self._impossible:
            raise Unsatisfiable
        if key not in self._known:
            self._n_schemas += 1
            self._n_bytes += len(key)
            if self._n_schemas > MAX_SCHEMAS or self._n_bytes > MAX_LOOKED_AT_BYTES:
                raise wrong("it comes to too many combinations of its parts")
            # A schema may lead to itself, so it has its name before it has its body.
            name = self._known[key] = self.rules.reserve()
            self._depth += 1
            try:
                if self._depth > 2 * MAX_DEPTH:
                    raise wrong("it leads into itself too deeply")
                self.rules.define(name, self._body(plain(found)))
            except Unsatisfiable:
                self._impossible.add(key)
                del self._known[key]
                # Whoever has used the name meanwhile is led nowhere: such a rule never ends and is dropped.
                self.rules.define(name, name)
                raise
            finally:
                self._depth -= 1
        return self._known[key]

    def possible(self, schema: object) -> str | None:
        """The expression of a value, None when nothing fits."""
        try:
            return self.value(schema)
        except Unsatisfiable:
            return None

    def any_value(self) -> str:
        """Any JSON value."""
        return self.value({})

    def _body(self, schema: Schema) -> str:
        for keyword in UNSUPPORTED & schema.keys():
            raise unsupported(keyword)
        if schema.get("unevaluatedProperties") not in (None, False, True):
            raise unsupported("unevaluatedProperties", "with a schema")
        if "allOf" in schema:
            return self.value(self._joined_all(schema))
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return self._branches(schema, keyword)
        values = listed_values(schema)
        if values is not None:
            return self._any_of(values)
        parts = [part for name in types_of(schema) if (part := self._typed(name, schema)) is not None]
        if not parts:
            raise Unsatisfiable
        return either(parts)

    def _joined_all(self, schema: Schema) -> Schema:
        joined: Schema = {key: value for key, value in schema.items() if key != "allOf"}
        for part in schemas(schema, "allOf"):
            joined = join(joined, self.references.resolve(as_schema(part)))
        return joined

    def _branches(self, schema: Schema, keyword: str) -> str:
        base = {key: value for key, value in schema.items() if key != keyword}
        branches: list[Schema] = []
        for part in schemas(schema, keyword):
            try:
                branch = self.references.resolve(as_schema(part))
                branches.append(join(base, branch) if base else branch)
            except Unsatisfiable:
                continue
        if keyword == "oneOf":
            for index, branch in enumerate(branches):
                for other in branches[:index]:
                    if not excludes(branch, other, self.references):
                        raise unsupported("oneOf", "where a value may fit two of its branches; use anyOf")
        # Constants, each in a branch of its own, are how many libraries write an enum.
        constants = [branch for branch in branches if _is_constant(branch)]
        parts = [self._any_of([branch["const"] for branch in constants])] if constants else []
        others = [branch for branch in branches if not _is_constant(branch)]
        parts += [part for branch in others if (part := self.possible(branch)) is not None]
        if not parts:
            raise Unsatisfiable
        return either(parts)

    def _any_of(self, values: list[object]) -> str:
        """One of the values of `enum` or `const`."""
        plain_texts = [text for value in values if (text := self._written(value)) is not None]
        others = [self._listed(value) for value in values if isinstance(value, list | dict)]
        if not others:
            return either_text(self.rules, plain_texts)
        return either([either_text(self.rules, plain_texts), *others] if plain_texts else others)

    def _listed(self, value: object) -> str:
        """A value of `enum` or `const`."""
        if isinstance(value, list):
            inner = [self._listed(item) for item in value]
            return sequence(['"["', *_separated(inner, '", "'), '"]"'])
        if isinstance(value, dict):
            pairs = [sequence([self.key(str(key)), '": "', self._listed(item)]) for key, item in value.items()]
            return sequence(['"{"', *_separated(pairs, '", "'), '"}"'])
        return literal(self._written(value) or "")

    def _written(self, value: object) -> str | None:
        """How a value without parts is written; None for others."""
        dialect = self.dialect
        if isinstance(value, str):
            return written_string(dialect.string, value)
        if value is None:
            return dialect.null
        if isinstance(value, bool):
            return dialect.true if value else dialect.false
        return None if isinstance(value, list | dict) else to_json(value)

    def key(self, name: str) -> str:
        """A property's name as it is written."""
        return literal(name) if self.dialect.bare_keys else fixed_string(JSON_STRING, name)

    def _typed(self, name: str, schema: Schema) -> str | None:
        """A value of one type; None when the keywords leave none."""
        try:
            if name == "object":
                return ObjectWriter(self, schema).write()
            if name == "array":
                return self._array(schema)
        except Unsatisfiable:
            return None
        if name == "string":
            return self.string(schema, self.dialect.string)
        if name in {"number", "integer"}:
            return self._number(schema, is_integer=name == "integer")
        words = {"null": [self.dialect.null], "boolean": [self.dialect.true, self.dialect.false]}[name]
        return self.rules.rule(either(literal(word) for word in words))

    def string(self, schema: Schema, form: StringForm) -> str | None:
        """A string; None when its bounds leave none."""
        low, high = integer(schema, "minLength") or 0, integer(schema, "maxLength")
        if high is not None and low > high:
            return None
        pattern, form_name = schema.get("pattern"), schema.get("format")
        known = PATTERNS.get(form_name) if isinstance(form_name, str) else None
        if pattern is not None and not isinstance(pattern, str):
            raise wrong('"pattern" must be a string')
        if pattern is not None and known is not None:
            raise unsupported("format", 'together with "pattern"')
        wanted = known if pattern is None else pattern
        if wanted is None:
            return self.rules.rule(free_string(self.rules, form, low, high))
        node = read_pattern(wanted)
        if pattern is None and isinstance(form_name, str) and form_name in SHORTER and not fits_length(node, low, high):
            node = read_pattern(SHORTER[form_name])
        return self.rules.rule(pattern_string(self.rules, form, node, low, high))

    def _number(self, schema: Schema, *, is_integer: bool) -> str | None:
        low, above = _bound(number(schema, "minimum"), number(schema, "exclusiveMinimum"), is_low=True)
        high, below = _bound(number(schema, "maximum"), number(schema, "exclusiveMaximum"), is_low=False)
        step = number(schema, "multipleOf")
        if not is_integer and step is not None and step == int(step):
            is_integer = True
        if not is_integer:
            if step is not None:
                raise unsupported("multipleOf", "with a fraction")
            return number_between(low, high, above=above, below=below) or None
        least = None if low is None else int(low.to_integral_value(ROUND_CEILING)) + (above and low == int(low))
        most = None if high is None else int(high.to_integral_value(ROUND_FLOOR)) - (below and high == int(high))
        if step is None or step == 1:
            between = integer_between(least, most)
            return self.rules.rule(between) if between else None
        return self._multiple(_whole_step(step), least, most)

    def _multiple(self, step: int, low: int | None, high: int | None) -> str | None:
        if step > MAX_STEP:
            raise unsupported("multipleOf", f"above {MAX_STEP}")
        if low is not None and high is not None:
            first = -(-low // step) * step
            if (high - first) // step > MAX_MULTIPLES:
                raise unsupported("multipleOf", f"between bounds that leave more than {MAX_MULTIPLES} values")
            listed = [literal(str(value)) for value in range(first, high + 1, step)]
            return self.rules.rule(either(listed)) if listed else None
        if high is not None or (low is not None and low > step):
            raise unsupported("multipleOf", "with one bound other than a minimum of 0")
        natural = self._natural_multiple(step)
        if low is None:
            return self.rules.rule(f'"-"? {natural}')
        return natural if low > 0 else self.rules.rule(f'"0" | {natural}')

    def _natural_multiple(self, step: int) -> str:
        """Digits of a multiple above 0, by the rest that division leaves so far."""
        names = [self.rules.reserve() for _ in range(step)]
        for rest, name in enumerate(names):
            ways = [f'"{digit}" {names[(rest * 10 + digit) % step]}' for digit in range(10)]
            self.rules.define(name, " | ".join(ways + (['""'] if rest == 0 else [])))
        return self.rules.rule(either(f'"{digit}" {names[digit % step]}' for digit in range(1, 10)))

    def _array(self, schema: Schema) -> str:
        low, high = integer(schema, "minItems") or 0, integer(schema, "maxItems")
        items = schema.get("items")
        first = schemas(schema, "prefixItems")
        if isinstance(items, list):  # before draft 2020-12
            first, items = items, schema.get("additionalItems")
        if schema.get("uniqueItems") is True and high not in (0, 1):
            return self._unique(schema, items, low, high)
        rest = None if items is None and first else self.possible(True if items is None else items)
        parts = [self.possible(part) for part in first]
        if None in parts:
            parts, rest = parts[: parts.index(None)], None
        if rest is None:
            high = len(parts) if high is None else min(high, len(parts))
        if high is not None and low > high:
            raise Unsatisfiable
        filled = [part for part in parts if part is not None]
        return self._list(self._items(filled, rest, low, high), may_be_empty=low == 0)

    def _list(self, items: str | None, *, may_be_empty: bool) -> str:
        space = self.space
        if items is None:
            return self.rules.rule(f'"[" {space} "]"')
        inner = f"{items} {space}"
        return self.rules.rule(f'"[" {space} {counted(inner, 0, 1) if may_be_empty else inner} "]"')

    def _items(self, parts: list[str], rest: str | None, low: int, high: int | None) -> str | None:
        """One item or more, separated; None when there may be none at all."""
        comma = f'"," {self.space}'
        if high == 0:
            return None
        if not parts:
            if rest is None:
                return None
            more = counted(f"{comma} {rest}", max(low - 1, 0), None if high is None else high - 1)
            return self.rules.rule(f"{rest} {more}")
        tail = ""
        if rest is not None and (high is None or high > len(parts)):
            tail = counted(f"{comma} {rest}", max(low - len(parts), 0), None if high is None else high - len(parts))
        for index in range(min(len(parts), high or len(parts)) - 1, 0, -1):
            after = f"{comma} {parts[index]} {tail}"
            tail = self.rules.rule(after if low > index else counted(after, 0, 1))
        return self.rules.rule(f"{parts[0]} {tail}")

    def _unique(self, schema: Schema, items: object, low: int, high: int | None) -> str:
        """A list of different values of an enum."""
        values = None
        if items is not None and not schemas(schema, "prefixItems"):
            values = listed_values(self.references.resolve(as_schema(items)))
        if values is None or len(values) > MAX_UNIQUE:
            raise unsupported("uniqueItems", f"but for items of an enum of at most {MAX_UNIQUE} values")
        values = [value for index, value in enumerate(values) if value not in values[:index]]
        written = [self._listed(value) for value in values]
        most = len(values) if high is None else min(high, len(values))
        if low > most:
            raise Unsatisfiable
        everything = (1 << len(values)) - 1
        names = {used: self.rules.reserve() for used in range(1, everything + 1)}
        for used, name in names.items():
            count = used.bit_count()
            ways = ['""'] if count >= low else []
            if count < most:
                ways += [
                    f'"," {self.space} {text} {names[used | 1 << index]}'
                    for index, text in enumerate(written)
                    if not used >> index & 1
                ]
            self.rules.define(name, " | ".join(ways) or name)
        first = self.rules.rule(either(f"{text} {names[1 << index]}" for index, text in enumerate(written)))
        return self._list(first if most else None, may_be_empty=low == 0)


def _bound(inclusive: Decimal | None, exclusive: Decimal | None, *, is_low: bool) -> tuple[Decimal | None, bool]:
    """The stricter of two bounds, and whether it excludes itself; None where nothing that is written comes near it."""
    if exclusive is None or inclusive is None:
        bound, excludes = (inclusive, False) if exclusive is None else (exclusive, True)
    else:
        stricter = exclusive >= inclusive if is_low else exclusive <= inclusive
        bound, excludes = (exclusive, True) if stricter else (inclusive, False)
    if bound is None or abs(bound) < UNREACHABLE:
        return bound, excludes
    if (bound < 0) is is_low:  # what a double can hold at most, as many libraries write where there is no bound
        return None, False
    raise wrong(f"numbers beyond {UNREACHABLE:.0e} are not supported as a {'minimum' if is_low else 'maximum'}")


def _whole_step(step: Decimal) -> int:
    """`multipleOf` of whole numbers."""
    whole = int(step)
    if step <= 0:
        raise wrong('"multipleOf" must be above 0')
    if step != whole:
        raise unsupported("multipleOf", "with a fraction")
    return whole


def _is_constant(branch: Schema) -> bool:
    return ASSERTIONS & branch.keys() == {"const"}


def _separated(parts: list[str], separator: str) -> list[str]:
    joined: list[str] = []
    for part in parts:
        joined += [separator, part] if joined else [part]
    return joined
