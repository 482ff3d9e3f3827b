"""Tools, structure and thought by the official `openai` client, against a real host with the starter model.

Forced calls and schemas hold even with 135M parameters, because a grammar makes them so.
"""

import base64
import json
from collections.abc import Iterator
from typing import Any, Literal

import jsonschema
import openai
import pydantic
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam, ChatCompletionToolParam

from tests.e2e.conftest import HostUnderTest

pytestmark = pytest.mark.e2e

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["C", "F"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
TIME = {
    "type": "object",
    "properties": {"hours": {"type": "integer", "minimum": 0, "maximum": 23}},
    "required": ["hours"],
    "additionalProperties": False,
}
WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": "get_weather", "description": "Weather of a city.", "parameters": CITY},
}
CLOCK: ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": "set_clock", "description": "Set a clock.", "parameters": TIME},
}
SCHEMAS: dict[str, dict[str, Any]] = {"get_weather": CITY, "set_clock": TIME}
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def ask(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": text}]


@pytest.fixture(scope="module")
def client(real_host: HostUnderTest) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{real_host.address}/v1", api_key="none", max_retries=0, timeout=120) as client:
        yield client


def check_calls(answer: ChatCompletion) -> list[str]:
    """Names of the calls, whose arguments hold to their schemas."""
    ChatCompletion.model_validate(answer.to_dict())
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls", choice
    names = []
    for call in choice.message.tool_calls or ():
        assert call.type == "function"
        assert call.id
        jsonschema.validate(json.loads(call.function.arguments), SCHEMAS[call.function.name])
        names.append(call.function.name)
    return names


@pytest.mark.parametrize("is_streamed", [False, True])
def test_when_a_named_tool_is_forced_then_it_is_called_with_arguments_that_fit(
    client: openai.OpenAI, real_host: HostUnderTest, *, is_streamed: bool
) -> None:
    asked: dict[str, Any] = {
        "model": real_host.model,
        "messages": ask("What is the weather in Oslo?"),
        "tools": [WEATHER, CLOCK],
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
        "parallel_tool_calls": False,
        "max_tokens": 120,
        "temperature": 0,
    }
    if is_streamed:
        with client.chat.completions.stream(**asked) as stream:
            answer: ChatCompletion = stream.get_final_completion()
    else:
        answer = client.chat.completions.create(**asked)
    assert check_calls(answer) == ["get_weather"]


def test_when_any_tool_is_required_then_one_of_them_is_called(client: openai.OpenAI, real_host: HostUnderTest) -> None:
    for seed in range(2):
        answer = client.chat.completions.create(
            model=real_host.model,
            messages=ask("Set the clock to eight, or tell me the weather."),
            tools=[WEATHER, CLOCK],
            tool_choice="required",
            parallel_tool_calls=False,
            max_tokens=120,
            seed=seed,
        )
        assert len(check_calls(answer)) == 1


def test_when_several_choices_are_forced_then_each_calls(client: openai.OpenAI, real_host: HostUnderTest) -> None:
    answer = client.chat.completions.create(
        model=real_host.model,
        messages=ask("What is the weather in Oslo?"),
        tools=[WEATHER],
        tool_choice="required",
        parallel_tool_calls=False,
        n=2,
        max_tokens=120,
        temperature=1.0,
        seed=3,
    )
    for choice in answer.choices:
        calls = choice.message.tool_calls or []
        assert len(calls) == 1
        assert calls[0].type == "function"
        jsonschema.validate(json.loads(calls[0].function.arguments), CITY)


def test_when_tools_may_be_called_or_not_then_text_or_calls_come(
    client: openai.OpenAI, real_host: HostUnderTest
) -> None:
    choices: tuple[Literal["auto", "none"], ...] = ("auto", "none")
    for choice in choices:
        answer = client.chat.completions.create(
            model=real_host.model,
            messages=ask("Say hello."),
            tools=[WEATHER],
            tool_choice=choice,
            max_tokens=40,
            temperature=0,
        )
        message = answer.choices[0].message
        assert message.content or message.tool_calls
        if choice == "none":
            assert not message.tool_calls


def test_when_a_result_is_sent_back_then_the_model_answers_with_it(
    client: openai.OpenAI, real_host: HostUnderTest
) -> None:
    question = ask("What is the weather in Oslo?")
    first = client.chat.completions.create(
        model=real_host.model,
        messages=question,
        tools=[WEATHER],
        tool_choice="required",
        parallel_tool_calls=False,
        max_tokens=120,
        temperature=0,
    )
    call = (first.choices[0].message.tool_calls or [])[0]
    history: list[Any] = [
        *question,
        first.choices[0].message,
        {"role": "tool", "tool_call_id": call.id, "content": "The weather in Oslo is snow, -4 degrees."},
    ]
    second = client.chat.completions.create(
        model=real_host.model, messages=history, tools=[WEATHER], tool_choice="none", max_tokens=40, temperature=0
    )
    assert second.choices[0].message.content
    assert second.usage is not None
    assert first.usage is not None
    assert second.usage.prompt_tokens > 20


class Animal(pydantic.BaseModel):
    """What a program wants to have."""

    model_config = pydantic.ConfigDict(extra="forbid")
    name: str = pydantic.Field(max_length=20)
    kind: Literal["cat", "dog", "bird"]
    legs: int = pydantic.Field(ge=0, le=8)
    tags: list[str] = pydantic.Field(max_length=2)


class SetClock(pydantic.BaseModel):
    """Set a clock."""

    model_config = pydantic.ConfigDict(extra="forbid")
    hours: Literal[8, 12]


def test_when_parsed_then_the_programs_own_types_come(client: openai.OpenAI, real_host: HostUnderTest) -> None:
    for seed in range(2):
        answer = client.chat.completions.parse(
            model=real_host.model, messages=ask("Describe a cat."), response_format=Animal, max_tokens=200, seed=seed
        )
        assert isinstance(answer.choices[0].message.parsed, Animal)
    called = client.chat.completions.parse(
        model=real_host.model,
        messages=ask("Set it to eight."),
        tools=[openai.pydantic_function_tool(SetClock)],
        tool_choice="required",
        parallel_tool_calls=False,
        max_tokens=120,
    )
    call = (called.choices[0].message.tool_calls or [])[0]
    assert isinstance(call.function.parsed_arguments, SetClock)


def test_when_a_schema_is_streamed_then_the_pieces_join_to_valid_json(
    client: openai.OpenAI, real_host: HostUnderTest
) -> None:
    with client.chat.completions.stream(
        model=real_host.model, messages=ask("Describe a bird."), response_format=Animal, max_tokens=200, temperature=0
    ) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        final = stream.get_final_completion()
    assert final.choices[0].message.parsed == Animal.model_validate_json(text)


def test_when_json_mode_is_on_then_the_answer_is_an_object(client: openai.OpenAI, real_host: HostUnderTest) -> None:
    answer = client.chat.completions.create(
        model=real_host.model,
        messages=ask("Answer in JSON with one key."),
        response_format={"type": "json_object"},
        max_tokens=400,
        temperature=0,
    )
    content = answer.choices[0].message.content or ""
    assert content.lstrip().startswith("{")
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(content), dict)


def test_when_a_plain_completion_is_to_be_json_then_it_is(client: openai.OpenAI, real_host: HostUnderTest) -> None:
    answer = client.completions.create(
        model=real_host.model, prompt="Oslo:", max_tokens=120, temperature=0, extra_body={"json_schema": CITY}
    )
    jsonschema.validate(json.loads(answer.choices[0].text), CITY)


def test_when_a_keyword_is_not_supported_then_it_is_named(client: openai.OpenAI, real_host: HostUnderTest) -> None:
    schema: dict[str, object] = {"properties": {"a": {"type": "string"}}, "unevaluatedProperties": {"type": "null"}}
    with pytest.raises(openai.BadRequestError, match="unevaluatedProperties"):
        client.chat.completions.create(
            model=real_host.model,
            messages=ask("x"),
            response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}},
        )


def test_when_the_model_cannot_see_then_a_picture_is_refused(client: openai.OpenAI, real_host: HostUnderTest) -> None:
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    content: Any = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": url}}]
    with pytest.raises(openai.BadRequestError, match="cannot see pictures"):
        client.chat.completions.create(model=real_host.model, messages=[{"role": "user", "content": content}])


def test_when_the_template_gets_values_then_effort_and_kwargs_do_no_harm(
    client: openai.OpenAI, real_host: HostUnderTest
) -> None:
    answer = client.chat.completions.create(
        model=real_host.model,
        messages=ask("Say hello."),
        reasoning_effort="low",
        max_tokens=10,
        extra_body={"chat_template_kwargs": {"enable_thinking": False}, "reasoning_budget": 20},
    )
    assert answer.choices[0].message.content
    with pytest.raises(openai.BadRequestError, match="messages"):
        client.chat.completions.create(
            model=real_host.model, messages=ask("x"), extra_body={"chat_template_kwargs": {"messages": []}}
        )
