"""JSON schemas as values: reading, references, joining two into one, and telling that two exclude each other."""

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal

import msgspec

from runtime.errors import BadRequest
from runtime.grammar.regex import read_pattern
from runtime.grammar.strings import pattern_takes
from runtime.messages.shared import MAX_SCHEMA_CHARS

Schema = Mapping[str, object]
PARAM = "json_schema"
MAX_DEPTH = 64
MAX_BRANCHES = 128
"""Combinations of two lists of branches."""
TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
UNSUPPORTED = frozenset(
    {
        "not", "if", "then", "else", "dependencies", "dependentSchemas", "dependentRequired", "contains", "minContains",
        "maxContains", "unevaluatedItems", "$dynamicRef", "$recursiveRef",
    }
)  # fmt: skip
_BY_TYPE = {
    "object": ("properties", "required", "additionalProperties", "patternProperties", "propertyNames",
               "minProperties", "maxProperties", "unevaluatedProperties"),
    "array": ("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}  # fmt: skip
_LOWER_BOUNDS = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})
_UPPER_BOUNDS = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})
_SCHEMAS = frozenset({"items", "additionalProperties", "additionalItems", "propertyNames", "unevaluatedProperties"})
ASSERTIONS = frozenset(
    {"type", "enum", "const", "allOf", "anyOf", "oneOf", "$ref", "nullable", *UNSUPPORTED}.union(*_BY_TYPE.values())
)
"""Keywords that say something; all others are notes for people."""


class Unsatisfiable(Exception):
    """No value fits the schema. Never leaves this package."""


def wrong(reason: str, **details: str) -> BadRequest:
    """The error for a schema that cannot be used."""
    return BadRequest(f"The JSON schema cannot be used: {reason}.", param=PARAM, **details)


def unsupported(keyword: str, why: str = "") -> BadRequest:
    """The error for a keyword, by its name."""
    return wrong(f'the keyword "{keyword}" is not supported{why and " " + why}', keyword=keyword)


def read_schema(text: str) -> Schema:
    """Read a schema.

    Raises:
        BadRequest: it is no JSON object or boolean, or nests too deeply.
    """
    if len(text) > MAX_SCHEMA_CHARS:
        raise wrong(f"it is longer than {MAX_SCHEMA_CHARS:,} characters")
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise wrong(f"it is no JSON ({error})") from error
    _check_depth(value)
    return as_schema(value)


def _check_depth(value: object) -> None:
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for item in level
            for inner in (item.values() if isinstance(item, dict) else item if isinstance(item, list) else ())
        ]
        if not level:
            return
    raise wrong(f"it nests more than {MAX_DEPTH} deep")


def as_schema(value: object) -> Schema:
    """A schema as an object; `true` and `false` too."""
    if isinstance(value, Mapping):
        return value
    if value is True:
        return {}
    if value is False:
        raise Unsatisfiable
    raise wrong("a schema must be an object, true or false")


def schemas(schema: Schema, keyword: str) -> list[object]:
    """The schemas a keyword lists; empty without it."""
    found = schema.get(keyword, [])
    if not isinstance(found, Sequence) or isinstance(found, str) or (keyword in schema and not found):
        raise wrong(f'"{keyword}" must be a list of {"values" if keyword == "enum" else "schemas"}, and not empty')
    return list(found)


def properties(schema: Schema, keyword: str = "properties") -> dict[str, object]:
    """Schemas by name; empty without the keyword."""
    found = schema.get(keyword, {})
    if not isinstance(found, Mapping):
        raise wrong(f'"{keyword}" must be an object')
    return dict(found)


def names(schema: Schema) -> list[str]:
    """What `required` lists, each once."""
    found = schema.get("required", [])
    if isinstance(found, bool):
        return []  # draft 3, and a habit of some
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise wrong('"required" must be a list of names')
    return list(dict.fromkeys(found))


def integer(schema: Schema, keyword: str) -> int | None:
    """A whole number that is not negative; None without the keyword."""
    found = schema.get(keyword)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or found != int(found) or found < 0:
        raise wrong(f'"{keyword}" must be a whole number from 0')
    return int(found)


def number(schema: Schema, keyword: str) -> Decimal | None:
    """A number; None without the keyword."""
    found = schema.get(keyword)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise wrong(f'"{keyword}" must be a number')
    return Decimal(str(found))


def types_of(schema: Schema) -> tuple[str, ...]:
    """The types a value may have.

    Without `type`, the keywords tell: a standard's reader would let any other type pass, but nobody means that.
    """
    found = schema.get("type")
    if found is None:
        implied = [name for name, keywords in _BY_TYPE.items() if any(word in schema for word in keywords)]
        return tuple(implied) if implied else tuple(name for name in TYPES if name != "integer")
    listed = [found] if isinstance(found, str) else found
    if not isinstance(listed, list) or not listed or any(name not in TYPES for name in listed):
        raise wrong(f'"type" must be one or some of {", ".join(TYPES)}')
    if "number" in listed:
        listed = [name for name in listed if name != "integer"]
    if schema.get("nullable") is True and "null" not in listed:
        listed = [*listed, "null"]
    return tuple(dict.fromkeys(listed))


def listed_values(schema: Schema) -> list[object] | None:
    """The values of `enum` and `const` that fit the rest of the schema; None without them."""
    if "const" in schema:
        values: object = [schema["const"]]
        if "enum" in schema and schema["const"] not in schemas(schema, "enum"):
            raise Unsatisfiable
    elif "enum" in schema:
        values = schemas(schema, "enum")
    else:
        return None
    kept = [value for value in values if fits(value, schema)]  # type: ignore[attr-defined]
    if not kept:
        raise Unsatisfiable
    return kept


def fits(value: object, schema: Schema) -> bool:
    """Whether a listed value fits the simple keywords beside it."""
    if "type" in schema and not any(_is_type(value, name) for name in types_of(schema)):
        return False
    if isinstance(value, str):
        low, high = integer(schema, "minLength") or 0, integer(schema, "maxLength")
        pattern = schema.get("pattern")
        # Not Python's own engine: a hostile pattern could keep it busy for ever.
        matches = not isinstance(pattern, str) or pattern_takes(read_pattern(pattern), value)
        return low <= len(value) and (high is None or len(value) <= high) and matches
    if isinstance(value, int | float) and not isinstance(value, bool):
        low_bound, high_bound = number(schema, "minimum"), number(schema, "maximum")
        exact = Decimal(str(value))
        return (low_bound is None or exact >= low_bound) and (high_bound is None or exact <= high_bound)
    return True


def _is_type(value: object, name: str) -> bool:
    if name == "null":
        return value is None
    if name == "boolean":
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if name == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    kinds = {"object": dict, "array": list, "string": str, "number": (int, float)}
    return isinstance(value, kinds[name])  # type: ignore[arg-type]


class References:
    """Finds what `$ref` points to, inside the same document."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._anchors: dict[str, object] | None = None

    def resolve(self, schema: Schema) -> Schema:
        """The schema itself, or what its reference leads to joined with what stands beside it.

        Raises:
            BadRequest: the reference leads nowhere, to another document, or in a circle.
        """
        for _ in range(MAX_DEPTH):
            if "$ref" not in schema:
                return schema
            target = as_schema(self._find(schema["$ref"]))
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            schema = join(target, beside) if any(key in ASSERTIONS for key in beside) else target
        raise wrong('a "$ref" leads in a circle')

    def _find(self, reference: object) -> object:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise wrong(f'"$ref" can only point into the schema itself (#/...), not to {str(reference)[:200]!r}')
        if reference == "#":
            return self._root
        if not reference.startswith("#/"):
            return self._anchor(reference)
        value = self._root
        for part in reference[2:].split("/"):
            key = _unquoted(part)
            if isinstance(value, Mapping) and key in value:
                value = value[key]
            elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
                value = value[int(key)]
            else:
                raise wrong(f'"$ref" points to {reference[:200]!r}, where there is nothing')
        return value

    def _anchor(self, reference: str) -> object:
        if self._anchors is None:
            self._anchors = {}
            todo = [self._root]
            while todo:
                value = todo.pop()
                if isinstance(value, Mapping):
                    if isinstance(name := value.get("$anchor"), str):
                        self._anchors["#" + name] = value
                    todo += value.values()
                elif isinstance(value, list):
                    todo += value
        if reference not in self._anchors:
            raise wrong(f'"$ref" points to {reference[:200]!r}, where there is nothing')
        return self._anchors[reference]


def _unquoted(part: str) -> str:
    raw = re.sub(r"%([0-9a-fA-F]{2})", lambda match: chr(int(match[1], 16)), part)
    return raw.replace("~1", "/").replace("~0", "~")


def join(one: Schema, other: Schema) -> Schema:
    """The schema of values that fit both.

    Raises:
        BadRequest: two keywords cannot be joined; they are named.
        Unsatisfiable: nothing fits both.
    """
    one, other = _plain_bounds(one), _plain_bounds(other)
    if "$ref" in one or "$ref" in other:
        # A reference is resolved where the result is used.
        return {"allOf": [one, other]}
    joined = dict(one)
    for keyword, value in other.items():
        if keyword not in joined or joined[keyword] == value:
            joined[keyword] = value
        elif keyword in ASSERTIONS:
            joined[keyword] = _joined(keyword, joined[keyword], value, one, other)
    if "properties" in joined:
        joined["properties"] = _joined_properties(one, other)
    return joined


def _joined(keyword: str, one: object, other: object, first: Schema, second: Schema) -> object:  # noqa: C901, PLR0911
    if keyword == "type":
        return _common_types(first, second)
    if keyword in _LOWER_BOUNDS:
        return one if _bound_of(keyword, first) >= _bound_of(keyword, second) else other
    if keyword in _UPPER_BOUNDS:
        return one if _bound_of(keyword, first) <= _bound_of(keyword, second) else other
    if keyword == "required":
        return list(dict.fromkeys([*names(first), *names(second)]))
    if keyword == "enum":
        common = [value for value in schemas(first, "enum") if value in schemas(second, "enum")]
        if not common:
            raise Unsatisfiable
        return common
    if keyword == "const":
        raise Unsatisfiable
    if keyword in _SCHEMAS:
        return both(one, other)
    if keyword == "allOf":
        return [*schemas(first, keyword), *schemas(second, keyword)]
    if keyword in {"anyOf", "oneOf"}:
        if len(schemas(first, keyword)) * len(schemas(second, keyword)) > MAX_BRANCHES:
            raise unsupported(keyword, f"in more than {MAX_BRANCHES} combinations")
        return [both(left, right) for left in schemas(first, keyword) for right in schemas(second, keyword)]
    if keyword in {"properties", "patternProperties"}:
        left, right = properties(first, keyword), properties(second, keyword)
        return left | {key: both(left[key], value) if key in left else value for key, value in right.items()}
    if keyword in {"uniqueItems", "nullable"}:
        return (one and other) if keyword == "nullable" else (one or other)
    if keyword == "prefixItems":
        left_items, right_items = schemas(first, keyword), schemas(second, keyword)
        if len(left_items) == len(right_items):
            return [both(left, right) for left, right in zip(left_items, right_items, strict=True)]
    raise unsupported(keyword, "twice, with different values (through allOf or beside $ref)")


def _bound_of(keyword: str, schema: Schema) -> Decimal:
    bound = number(schema, keyword)
    assert bound is not None  # noqa: S101 - both sides have the keyword
    return bound


def both(one: object, other: object) -> object:
    """Two schemas as one that asks for both."""
    if one is False or other is False:
        return False
    if one is True or other is True or one == other:
        return other if one is True else one
    return {"allOf": [one, other]}


def _common_types(one: Schema, other: Schema) -> list[str]:
    left, right = types_of(one), types_of(other)
    common = [name for name in left if name in right]
    if ("number" in left and "integer" in right) or ("integer" in left and "number" in right):
        common.append("integer")
    if not common:
        raise Unsatisfiable
    return common


def _joined_properties(one: Schema, other: Schema) -> dict[str, object]:
    """All properties; where one side closes or types what it does not name, that holds for the other's names."""
    left, right = properties(one), properties(other)
    joined = dict(left)
    for name, value in right.items():
        joined[name] = both(left[name], value) if name in left else both(one.get("additionalProperties", True), value)
    for name, value in left.items():
        if name not in right:
            joined[name] = both(value, other.get("additionalProperties", True))
    return joined


def _plain_bounds(schema: Schema) -> Schema:
    """Draft 4's `exclusiveMinimum: true` as the number it stands for."""
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        flag = schema.get(exclusive)
        if isinstance(flag, bool):
            changed = {key: value for key, value in schema.items() if key != exclusive}
            if flag and bound in changed:
                changed[exclusive] = changed.pop(bound)
            schema = changed
    return schema


def plain(schema: Schema) -> Schema:
    """A schema in today's form: bounds as numbers."""
    return _plain_bounds(schema)


def excludes(one: Schema, other: Schema, references: References, depth: int = 0) -> bool:
    """Whether it is certain that no value written for one fits the other."""
    one, other = references.resolve(one), references.resolve(other)
    if depth > 4:  # noqa: PLR2004 - deeper, discriminators are not looked for
        return False
    try:
        values, others = listed_values(one), listed_values(other)
        if values is not None and others is not None:
            return not any(_same(value, right) for value in values for right in others)
        left, right = set(types_of(one)), set(types_of(other))
    except Unsatisfiable:
        return True
    if values is not None:
        return not any(_is_type(value, name) for value in values for name in right)
    if others is not None:
        return not any(_is_type(value, name) for value in others for name in left)
    if "number" in left | right:
        left, right = ({"number" if name == "integer" else name for name in side} for side in (left, right))
    common = left & right
    if not common:
        return True
    if common != {"object"}:
        return False
    return _objects_exclude(one, other, references, depth) or _objects_exclude(other, one, references, depth)


def _objects_exclude(one: Schema, other: Schema, references: References, depth: int) -> bool:
    own, required = properties(one), names(one)
    others, needed = properties(other), names(other)
    # What is written for `one` has only its own names, unless it is open.
    is_closed = bool(own) and one.get("additionalProperties", False) is False and "patternProperties" not in one
    if any(is_closed and name not in own and name not in required for name in needed):
        return True
    if other.get("additionalProperties") is False and any(name not in others for name in required):
        return True
    for name in required:
        if name in own and name in others:
            try:
                left, right = as_schema(own[name]), as_schema(others[name])
            except Unsatisfiable:
                return True
            if excludes(left, right, references, depth + 1):
                return True
    return False


def _same(one: object, other: object) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def to_json(value: object) -> str:
    """JSON text of a listed value, spaced as models write it."""
    return json.dumps(value, ensure_ascii=False)


def key_of(schema: Schema) -> bytes:
    """Equal for equal schemas; notes for people are left out."""
    return msgspec.json.encode({key: value for key, value in schema.items() if key in ASSERTIONS}, order="sorted")
