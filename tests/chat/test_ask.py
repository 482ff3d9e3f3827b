import json

import pytest

from runtime.chat.ask import MAX_DEPTH, make_ask
from runtime.errors import BadRequest
from runtime.messages.shared import AnswerShape, Tool


def test_tools_when_asked_then_are_in_openais_form_and_marked() -> None:
    tool = Tool("f", "About.", '{"type": "object", "properties": {"a": {"enum": ["x", 1]}}}')
    ask = make_ask(AnswerShape(tools=(tool,)), str.upper)
    assert ask.tools == (
        {
            "type": "function",
            "function": {
                "name": "F",
                "description": "ABOUT.",
                "parameters": {"TYPE": "OBJECT", "PROPERTIES": {"A": {"ENUM": ["X", 1]}}},
            },
        },
    )


@pytest.mark.parametrize("parameters", ["{", "[]", "1", "[" * 100_000])
def test_parameters_that_are_no_schema_when_asked_then_the_tool_is_named(parameters: str) -> None:
    with pytest.raises(BadRequest, match="'f'"):
        make_ask(AnswerShape(tools=(Tool("f", parameters=parameters),)))


def test_parameters_nested_too_deeply_when_asked_then_are_refused() -> None:
    deep = '{"a":' * (MAX_DEPTH + 5) + "1" + "}" * (MAX_DEPTH + 5)
    with pytest.raises(BadRequest, match="deep"):
        make_ask(AnswerShape(tools=(Tool("f", parameters=deep),)))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (AnswerShape(), {}),
        (AnswerShape(reasoning="on"), {"enable_thinking": True, "thinking": True}),
        (AnswerShape(reasoning="off"), {"enable_thinking": False, "thinking": False, "reasoning_effort": "low"}),
        (AnswerShape(reasoning_effort="high"), {"reasoning_effort": "high"}),
        (AnswerShape(reasoning_budget=64), {"thinking_budget": 64}),
        (
            AnswerShape(template_values='{"a": [1, "x"], "enable_thinking": false}'),
            {"a": [1, "x"], "enable_thinking": False},
        ),
    ],
)
def test_wishes_for_the_thought_when_asked_then_the_usual_variables_are_set(
    shape: AnswerShape, expected: dict[str, object]
) -> None:
    assert dict(make_ask(shape).values) == expected


@pytest.mark.parametrize(
    "values", [{"messages": []}, {"bos_token": "x"}, {"_private": 1}, {"not a name": 1}, [1], "text", {"tools": 1}]
)
def test_values_that_may_not_be_set_when_asked_then_are_refused(values: object) -> None:
    with pytest.raises(BadRequest, match="template"):
        make_ask(AnswerShape(template_values=json.dumps(values)))


def test_values_that_are_no_json_when_asked_then_are_refused() -> None:
    with pytest.raises(BadRequest, match="JSON"):
        make_ask(AnswerShape(template_values="{"))
