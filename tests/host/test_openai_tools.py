"""Tools, structure and thought in OpenAI's chat, asked by the official client, answered by the fake worker."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pydantic
import pytest

from tests.host.conftest import RunningHost
from tests.host.test_openai import MODEL, NAMED, WEATHER, ask


@pytest.fixture(scope="module")
def client(host: RunningHost) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{host.public.base_url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("is_streamed", [False, True])
def test_when_tools_are_called_then_calls_and_reason_come(client: openai.OpenAI, *, is_streamed: bool) -> None:
    if is_streamed:
        with client.chat.completions.stream(model=MODEL, messages=ask("call"), tools=[WEATHER]) as stream:
            answer: Any = stream.get_final_completion()
    else:
        answer = client.chat.completions.create(model=MODEL, messages=ask("call"), tools=[WEATHER])
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me see."
    assert choice.message.model_extra["reasoning_content"] == "Which?"
    first, second = choice.message.tool_calls
    assert (first.type, first.function.name, first.function.arguments) == ("function", "weather", '{"city":"Oslo"}')
    assert (second.function.name, second.function.arguments) == ("clock", "{}")
    assert first.id != second.id


def test_when_calls_are_streamed_then_only_the_first_piece_tells_the_name(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(model=MODEL, messages=ask("call"), tools=[WEATHER], stream=True)
    chunks = list(stream)
    assert (chunks[0].choices[0].delta.role, chunks[0].choices[0].delta.content) == ("assistant", None)
    pieces = [call for chunk in chunks for choice in chunk.choices for call in choice.delta.tool_calls or ()]
    assert [(piece.index, piece.function and piece.function.name) for piece in pieces] == [
        (0, "weather"),
        (0, None),
        (1, "clock"),
    ]
    assert [bool(piece.id) for piece in pieces] == [True, False, True]


def described(client: openai.OpenAI, messages: list[Any] | None = None, **fields: Any) -> dict[str, Any]:
    """What the worker is asked when this is."""
    answer = client.chat.completions.create(model=MODEL, messages=messages or ask("describe"), **fields)
    told: dict[str, Any] = json.loads(answer.choices[0].message.content or "")
    return told


def test_when_tools_and_a_choice_are_given_then_the_model_is_asked_so(client: openai.OpenAI) -> None:
    clock = {"type": "function", "function": {"name": "clock"}}
    shape = described(client, tools=[WEATHER, clock], tool_choice=NAMED, parallel_tool_calls=False)["shape"]
    assert [tool["name"] for tool in shape["tools"]] == ["weather", "clock"]
    assert json.loads(shape["tools"][0]["parameters"])["required"] == ["city"]
    assert (shape["tool_choice"], shape["tool_name"]) == ("required", "clock")
    assert shape["parallel_tool_calls"] is False
    assert described(client, tools=[WEATHER, clock], tool_choice=NAMED)["shape"]["parallel_tool_calls"] is False
    assert "parallel_tool_calls" not in described(client, tools=[WEATHER], tool_choice="required")["shape"]
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [clock]}}
    shape = described(client, tools=[WEATHER, clock], tool_choice=allowed)["shape"]
    assert ([tool["name"] for tool in shape["tools"]], shape["tool_choice"]) == (["clock"], "required")
    assert described(client, tools=[WEATHER], tool_choice="none")["shape"]["tool_choice"] == "none"


class Answer(pydantic.BaseModel):
    """What a program wants to have."""

    name: str
    count: int


class City(pydantic.BaseModel):
    """Arguments of a tool."""

    city: str


class Nothing(pydantic.BaseModel):
    """No arguments."""


def test_when_json_is_asked_for_then_the_schema_reaches_the_model(client: openai.OpenAI) -> None:
    schema = Answer.model_json_schema()
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
    assert json.loads(described(client, response_format=form)["shape"]["json_schema"]) == schema
    assert described(client, response_format={"type": "json_object"})["shape"]["json_schema"] == '{"type":"object"}'
    asked = described(client, extra_body={"json_schema": schema})["shape"]
    assert json.loads(asked["json_schema"]) == schema
    assert described(client, response_format={"type": "text"})["shape"] == {}


def test_when_parsed_by_the_client_then_it_builds_the_programs_own_type(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(
        model=MODEL, messages=ask('exactly {"name":"a","count":2}'), response_format=Answer
    )
    assert answer.choices[0].message.parsed == Answer(name="a", count=2)
    tools = [openai.pydantic_function_tool(City, name="weather"), openai.pydantic_function_tool(Nothing, name="clock")]
    called = client.chat.completions.parse(model=MODEL, messages=ask("call"), tools=tools)
    calls = called.choices[0].message.tool_calls or []
    assert [call.function.parsed_arguments for call in calls] == [City(city="Oslo"), Nothing()]


@pytest.mark.parametrize(
    ("effort", "reasoning", "told"),
    [("none", "off", None), ("minimal", None, "minimal"), ("low", "on", "low"), ("xhigh", "on", "high")],
)
def test_when_effort_is_given_then_thought_is_switched(
    client: openai.OpenAI, effort: str, reasoning: str | None, told: str | None
) -> None:
    body = {"reasoning_budget": 64, "chat_template_kwargs": {"enable_thinking": True}}
    shape = described(client, reasoning_effort=effort, extra_body=body)["shape"]
    assert (shape.get("reasoning"), shape.get("reasoning_effort")) == (reasoning, told)
    assert shape["reasoning_budget"] == 64
    assert json.loads(shape["template_values"]) == {"enable_thinking": True}


@pytest.mark.parametrize("name", ["reasoning_budget", "reasoning_budget_tokens", "thinking_budget_tokens"])
def test_when_a_budget_goes_by_another_name_then_it_holds_and_minus_one_is_none(
    client: openai.OpenAI, name: str
) -> None:
    for budget, told in ((7, 7), (0, 0), (-1, None)):
        assert described(client, extra_body={name: budget})["shape"].get("reasoning_budget") == told
    with pytest.raises(openai.BadRequestError, match="reasoning_budget"):
        described(client, extra_body={name: -5})


def test_when_results_are_sent_then_they_belong_to_their_calls(client: openai.OpenAI) -> None:
    calls = [
        {"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}},
        {"id": "b", "type": "function", "function": {"name": "clock", "arguments": {}}},
    ]
    told = described(
        client,
        [
            *ask("both"),
            {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "b", "content": "noon"},
            {"role": "tool", "content": [{"type": "text", "text": "rain"}]},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            *ask("describe"),
        ],
    )
    assert told["messages"][1:5] == [
        {
            "role": "assistant",
            "reasoning": "Hm.",
            "tool_calls": [
                {"id": "a", "name": "weather", "arguments": '{"city":"Oslo"}'},
                {"id": "b", "name": "clock", "arguments": "{}"},
            ],
        },
        {"role": "tool", "content": "noon", "name": "clock", "tool_call_id": "b"},
        {"role": "tool", "content": "rain", "name": "weather", "tool_call_id": "a"},
        {"role": "assistant", "content": "No."},
    ]
