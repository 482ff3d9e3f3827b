"""Enums of thousands of values: written as a tree, so that no step looks at all of them."""

import functools
import json

import pytest

from runtime.errors import BadRequest
from runtime.grammar.gbnf import read_gbnf
from runtime.grammar.json_schema import grammar_of as schema_grammar
from runtime.grammar.matcher import DEAD, Matcher
from runtime.grammar.program import Program
from runtime.grammar.rules import RuleSet, either_text

STEP_FUEL = 20_000
"""A tenth of what the worker lets one step burn for a whole vocabulary."""


def grammar_of(schema: object) -> str:
    return schema_grammar(json.dumps(schema))


@functools.cache
def program_of(grammar: str) -> Program:
    return read_gbnf(grammar)


def takes(grammar: str, text: str) -> bool:
    matcher = Matcher(program_of(grammar), fuel=STEP_FUEL)
    state = matcher.start
    for byte in text.encode():
        matcher.fuel = STEP_FUEL
        state = matcher.read(state, bytes([byte]))
        if state == DEAD:
            return False
    matcher.fuel = STEP_FUEL
    return matcher.may_end(state)


@pytest.mark.parametrize(
    "values",
    [
        [f"word{i} thing" for i in range(3000)],
        [f"{i:05d}" for i in range(0, 100_000, 37)],
        list(range(-1000, 2000)),
        [*range(200), 1.5, None, True, False, "x", *(f'"\\{i}\n' for i in range(300)), "\U0001f600" * 9, ""],
        ["a" * i for i in range(500)],
    ],
)
def test_when_an_enum_is_long_then_each_value_fits_and_nothing_beside_them(values: list[object]) -> None:
    for schema in ({"enum": values}, {"anyOf": [{"const": value, "title": "t"} for value in values]}):
        grammar = grammar_of(schema)
        written = {json.dumps(value, ensure_ascii=False) for value in values}
        for text in sorted(written)[:: len(written) // 40]:
            assert takes(grammar, text), text
            for other in (text[:-1], text + "0", text[:-1] + "z"):
                assert takes(grammar, other) == (other in written), other


def test_when_values_stand_beside_others_then_all_of_them_fit() -> None:
    listed: list[object] = [*(f"v{i}" for i in range(100)), {"a": [1, "b"]}, [None]]
    grammar = grammar_of({"enum": listed})
    assert takes(grammar, '"v99"')
    assert takes(grammar, '{"a": [1, "b"]}')
    assert takes(grammar, "[null]")
    assert not takes(grammar, '"v100"')
    grammar = grammar_of({"anyOf": [*({"const": f"v{i}"} for i in range(100)), {"type": "integer"}, {"enum": ["w"]}]})
    for text in ('"v7"', "12", '"w"'):
        assert takes(grammar, text)
    assert not takes(grammar, '"u"')


def test_when_constants_have_bounds_beside_them_then_those_hold() -> None:
    schema = {"anyOf": [{"const": "aaa", "maxLength": 2}, {"const": "bb", "type": "string"}, {"const": 5}]}
    grammar = grammar_of(schema)
    assert takes(grammar, '"bb"')
    assert takes(grammar, "5")
    assert not takes(grammar, '"aaa"')


def test_when_no_value_is_listed_then_it_says_values() -> None:
    with pytest.raises(BadRequest, match='"enum" must be a list of values, and not empty'):
        grammar_of({"enum": []})


def test_when_texts_begin_alike_then_the_tree_takes_exactly_them() -> None:
    texts = ["", "a", "ab", "abc", "b", 'q"\\', *(f"k{i}" for i in range(60))]
    rules = RuleSet()
    grammar = rules.text(either_text(rules, texts))
    for text in texts:
        assert takes(grammar, text), text
    for text in ("c", "abcd", "k", "k60", 'q"'):
        assert not takes(grammar, text), text


@pytest.mark.parametrize("kind", ["number", "integer"])
def test_when_bounds_are_what_a_double_holds_then_they_are_none(kind: str) -> None:
    most = 1.7976931348623157e308
    assert grammar_of({"type": kind, "minimum": -most, "maximum": most}) == grammar_of({"type": kind})
    assert grammar_of({"type": kind, "minimum": 3, "maximum": most}) == grammar_of({"type": kind, "minimum": 3})
    for schema in ({"minimum": most}, {"exclusiveMaximum": -most}):
        with pytest.raises(BadRequest, match=r"numbers beyond 1e\+114"):
            grammar_of({"type": kind, **schema})


def test_when_a_step_is_0_then_it_says_above_0() -> None:
    for step in (0, -2):
        with pytest.raises(BadRequest, match='"multipleOf" must be above 0'):
            grammar_of({"type": "integer", "multipleOf": step})
