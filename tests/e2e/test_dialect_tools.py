"""Tools and JSON answers through the official `anthropic` and `ollama` clients, with the starter model.

At 135 million parameters it is the grammar that makes calls and answers right, and so they always are.
"""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import jsonschema
import ollama
import pytest
from anthropic.types import MessageParam, ToolParam

from tests.e2e.conftest import HostUnderTest

pytestmark = pytest.mark.e2e

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["C", "F"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
WEATHER: ToolParam = {"name": "get_weather", "description": "Weather of a city.", "input_schema": SCHEMA}
CLOCK: ToolParam = {
    "name": "get_time",
    "description": "Time in a zone.",
    "input_schema": {
        "type": "object",
        "properties": {"zone": {"type": "string", "maxLength": 20}},
        "required": ["zone"],
        "additionalProperties": False,
    },
}
SCHEMAS = {"get_weather": SCHEMA, "get_time": CLOCK["input_schema"]}
QUESTION: list[MessageParam] = [{"role": "user", "content": "What is the weather in Oslo?"}]


@pytest.fixture(scope="module")
def claude(real_host: HostUnderTest) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=real_host.address, api_key="none", max_retries=0, timeout=120) as client:
        yield client


@pytest.fixture(scope="module")
def llama(real_host: HostUnderTest) -> Iterator[ollama.Client]:
    with ollama.Client(host=real_host.address, timeout=120) as client:
        yield client


def calls_of(message: anthropic.types.Message) -> list[anthropic.types.ToolUseBlock]:
    return [block for block in message.content if block.type == "tool_use"]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_when_a_call_of_any_tool_is_forced_then_calls_fit_their_schemas(
    claude: anthropic.Anthropic, real_host: HostUnderTest, *, is_streamed: bool
) -> None:
    asked: Any = {
        "model": real_host.model,
        "messages": QUESTION,
        "tools": [WEATHER, CLOCK],
        "tool_choice": {"type": "any"},
        "max_tokens": 300,
    }
    if is_streamed:
        with claude.messages.stream(**asked) as stream:
            answer = stream.get_final_message()
    else:
        answer = claude.messages.create(**asked)
    calls = calls_of(answer)
    assert calls
    assert answer.stop_reason in ("tool_use", "max_tokens")
    whole = calls if answer.stop_reason == "tool_use" else calls[:-1]
    for call in whole:
        jsonschema.validate(call.input, SCHEMAS[call.name])
    assert len({call.id for call in calls}) == len(calls)


def test_when_one_tool_is_named_and_parallel_is_off_then_it_is_called_once_and_answered(
    claude: anthropic.Anthropic, real_host: HostUnderTest
) -> None:
    answer = claude.messages.create(
        model=real_host.model,
        messages=QUESTION,
        tools=[WEATHER, CLOCK],
        tool_choice={"type": "tool", "name": "get_time", "disable_parallel_tool_use": True},
        max_tokens=200,
    )
    (call,) = calls_of(answer)
    assert call.name == "get_time"
    assert answer.stop_reason == "tool_use"
    jsonschema.validate(call.input, SCHEMAS["get_time"])
    result: list[MessageParam] = [
        *QUESTION,
        answer.to_param(),
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "12:30"}]},
    ]
    after = claude.messages.create(
        model=real_host.model, messages=result, tools=[WEATHER, CLOCK], tool_choice={"type": "none"}, max_tokens=30
    )
    assert not calls_of(after)
    assert after.usage.output_tokens > 0


def test_when_tools_are_counted_then_they_cost_tokens(claude: anthropic.Anthropic, real_host: HostUnderTest) -> None:
    without = claude.messages.count_tokens(model=real_host.model, messages=QUESTION)
    counted = claude.messages.count_tokens(model=real_host.model, messages=QUESTION, tools=[WEATHER])
    assert counted.input_tokens > without.input_tokens + 20
    asked = claude.messages.create(model=real_host.model, messages=QUESTION, tools=[WEATHER], max_tokens=1)
    assert asked.usage.input_tokens + (asked.usage.cache_read_input_tokens or 0) == counted.input_tokens


def test_when_a_schema_is_asked_for_then_the_answer_fits(claude: anthropic.Anthropic, real_host: HostUnderTest) -> None:
    answer = claude.messages.create(
        model=real_host.model,
        messages=QUESTION,
        max_tokens=200,
        output_config={"format": {"type": "json_schema", "schema": SCHEMA}},
    )
    text = "".join(block.text for block in answer.content if block.type == "text")
    jsonschema.validate(json.loads(text), SCHEMA)


def test_when_ollama_is_asked_for_a_format_then_the_answer_fits(llama: ollama.Client, real_host: HostUnderTest) -> None:
    question = [{"role": "user", "content": "Weather in Oslo?"}]
    answer = llama.chat(model=real_host.model, messages=question, format=SCHEMA)
    jsonschema.validate(json.loads(answer.message.content or ""), SCHEMA)
    text = "".join(part.response or "" for part in llama.generate(real_host.model, "City?", format=SCHEMA, stream=True))
    jsonschema.validate(json.loads(text), SCHEMA)


def test_when_ollama_is_given_tools_then_the_prompt_has_them(llama: ollama.Client, real_host: HostUnderTest) -> None:
    def get_weather(city: str) -> str:
        """Weather of a city.

        Args:
            city: its name
        """
        return city

    question = [{"role": "user", "content": "Weather in Oslo?"}]
    options = {"temperature": 0, "num_predict": 40}
    plain = llama.chat(model=real_host.model, messages=question, options=options)
    armed = llama.chat(model=real_host.model, messages=question, tools=[get_weather], options=options)
    assert armed.prompt_eval_count is not None
    assert plain.prompt_eval_count is not None
    assert armed.prompt_eval_count > plain.prompt_eval_count + 20
    for call in armed.message.tool_calls or ():
        assert call.function.name == "get_weather"


def test_when_a_schema_cannot_be_kept_then_the_keyword_is_named(real_host: HostUnderTest) -> None:
    body = {
        "model": real_host.model,
        "messages": QUESTION,
        "stream": False,
        "format": {"type": "object", "unevaluatedProperties": False, "dependentSchemas": {"a": {"required": ["b"]}}},
    }
    answer = httpx.post(f"{real_host.address}/api/chat", json=body, timeout=60)
    assert answer.status_code == 400
    assert "dependentSchemas" in answer.json()["error"] or "unevaluatedProperties" in answer.json()["error"]


def test_when_llama_servers_completion_has_a_schema_then_the_answer_fits(real_host: HostUnderTest) -> None:
    body = {"model": real_host.model, "prompt": "Weather as JSON:", "json_schema": SCHEMA, "n_predict": 200}
    answer = httpx.post(f"{real_host.address}/completion", json=body, timeout=60).raise_for_status()
    jsonschema.validate(json.loads(answer.json()["content"]), SCHEMA)
