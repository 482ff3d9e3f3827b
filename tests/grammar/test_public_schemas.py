"""Schemas as people write them: all that their grammars let through is valid.

`schemas/*.jsonl` holds one schema a line, in the manner of tools, of extraction, of web APIs and configurations, and
of the corners of the standard. `expect` names the keyword that has to be refused.
"""

import json
import random
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from runtime.errors import BadRequest
from runtime.grammar.gbnf import read_gbnf
from runtime.grammar.json_schema import grammar_of
from tests.grammar.random_text import random_text

FOLDER = Path(__file__).with_name("schemas")
LINES = [json.loads(line) for file in sorted(FOLDER.glob("*.jsonl")) for line in file.read_text("utf-8").splitlines()]
N_TEXTS = 4
DRAFTS = {4: jsonschema.Draft4Validator, 7: jsonschema.Draft7Validator}


def test_when_the_schemas_are_counted_then_they_are_enough_and_each_has_its_own_name() -> None:
    assert len(LINES) >= 200
    assert len({line["name"] for line in LINES}) == len(LINES)


@pytest.mark.parametrize("line", [pytest.param(line, id=line["name"]) for line in LINES])
def test_when_texts_are_drawn_from_a_schema_then_they_are_valid(line: dict[str, Any]) -> None:
    given = line["schema"]
    schema = _today(given)
    validator = DRAFTS.get(line.get("draft", 0), jsonschema.Draft202012Validator)
    validator.check_schema(schema)
    if "expect" in line:
        with pytest.raises(BadRequest, match=line["expect"]) as refused:
            grammar_of(json.dumps(given))
        assert refused.value.details["keyword"] == line["expect"]
        return
    program = read_gbnf(grammar_of(json.dumps(given)))
    draw = random.Random(line["name"])
    for index in range(N_TEXTS):
        text = random_text(program, draw, patience=40 + 60 * index)
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()
        validator(schema, format_checker=validator.FORMAT_CHECKER).validate(value)


def _today(schema: Any) -> Any:
    """OpenAPI's `nullable` as validators understand it."""
    if isinstance(schema, dict):
        inner = {key: _today(value) for key, value in schema.items() if key != "nullable"}
        return {"anyOf": [inner, {"type": "null"}]} if schema.get("nullable") is True else inner
    return [_today(item) for item in schema] if isinstance(schema, list) else schema


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"not": {"type": "string"}}, '"not"'),
        ({"if": {}, "then": {}}, '"(if|then)"'),
        ({"type": "object", "dependentRequired": {"a": ["b"]}}, '"dependentRequired"'),
        ({"type": "array", "contains": {"type": "integer"}}, '"contains"'),
        ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, '"uniqueItems"'),
        ({"type": "number", "multipleOf": 0.01}, '"multipleOf"'),
        ({"type": "object", "additionalProperties": {}, "minProperties": 2}, '"minProperties"'),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, '"oneOf"'),
        ({"allOf": [{"pattern": "a"}, {"pattern": "b"}]}, '"pattern"'),
        ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
        ({"type": "string", "pattern": "(a)\\1"}, r"\\\\1"),
        ({"type": "string", "pattern": "\\bword"}, "b"),
        ({"type": "string", "pattern": "["}, "not closed"),
        ({"type": "string", "pattern": "^([a-y]{1,400}z){3}[a-y]{1,400}$", "maxLength": 700}, "too large"),
        ({"$ref": "https://example.com/schema.json"}, "example.com"),
        ({"$ref": "#/nowhere"}, "nowhere"),
        ({"$ref": "#"}, "circle"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "circle"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "never come to an end"),
        ({"type": "strin"}, '"type"'),
        ({"type": "object", "required": "a"}, '"required"'),
        ({"enum": []}, '"enum"'),
        ({"minLength": -1}, '"minLength"'),
        ({"minimum": "1"}, '"minimum"'),
        ({"properties": []}, '"properties"'),
        (False, "no value fits"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "no value fits"),
        ({"type": "object", "properties": {"a": False}, "required": ["a"]}, "no value fits"),
        ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "no value fits"),
        ([1], "object"),
    ],
)
def test_when_a_schema_cannot_be_kept_then_the_keyword_is_named(schema: object, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        read_gbnf(grammar_of(json.dumps(schema)))


def _nested(depth: int) -> str:
    return '{"type":"array","items":' * depth + "{}" + "}" * depth


HOSTILE = {
    "deep": _nested(500),
    "very deep": _nested(100_000),
    "not json": "{",
    "wide enum": json.dumps({"enum": [f"value {i}" for i in range(60_000)]}),
    "many properties": json.dumps({"properties": {f"p{i}": {"type": "integer", "minimum": i} for i in range(5_000)}}),
    "branches of branches": json.dumps(
        {"allOf": [{"anyOf": [{"required": [f"{i}{j}"]} for j in range(6)]} for i in range(12)]}
    ),
    "counted": json.dumps(
        {"properties": {f"p{i}": {} for i in range(2_000)}, "minProperties": 1_000, "additionalProperties": False}
    ),
    "heavy pattern": json.dumps({"pattern": "^" + "(a?b?c?){0,100}" * 40 + "$", "maxLength": 1_000}),
    "nested pattern": json.dumps({"pattern": "(" * 2_000 + "a" + ")" * 2_000}),
    "growing by itself": json.dumps(
        {
            "$ref": "#/$defs/a",
            "$defs": {
                "a": {"type": "object", "properties": {"x": {"allOf": [{"$ref": "#/$defs/a"}, {"minProperties": 1}]}}}
            },
        }
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_when_a_schema_is_hostile_then_it_is_read_or_refused_in_bounded_time(name: str) -> None:
    before_s = time.thread_time()
    try:
        read_gbnf(grammar_of(HOSTILE[name]))
    except BadRequest as error:
        assert error.message  # noqa: PT017 - refusing is as good as reading; the time is the point
    assert time.thread_time() - before_s < 6.0
