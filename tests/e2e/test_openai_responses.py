"""OpenAI's Responses API by the official `openai` client, against a real host with the starter model."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any, Literal

import jsonschema
import openai
import pydantic
import pytest
from openai.types.responses import FunctionToolParam, Response

from tests.e2e.conftest import HostUnderTest, poll

pytestmark = pytest.mark.e2e

WEATHER: FunctionToolParam = {
    "type": "function",
    "name": "get_weather",
    "description": "Weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["C", "F"]}},
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
    "strict": True,
}
FORCED: dict[str, Any] = {
    "input": "What is the weather in Oslo?",
    "tools": [WEATHER],
    "tool_choice": {"type": "function", "name": "get_weather"},
    "parallel_tool_calls": False,
    "max_output_tokens": 120,
    "temperature": 0,
}


@pytest.fixture(scope="module")
def client(real_host: HostUnderTest) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{real_host.address}/v1", api_key="none", max_retries=0, timeout=120) as client:
        yield client


def idle(host: HostUnderTest) -> bool | None:
    engine = host.engine()
    return True if engine.get("active", 0) == 0 and engine.get("waiting", 0) == 0 else None


def validated(answer: Response) -> Response:
    """The client builds its types without checking them; here they are checked."""
    return Response.model_validate(answer.to_dict())


def test_when_asked_then_the_clients_types_hold_the_answer(client: openai.OpenAI, real_host: HostUnderTest) -> None:
    answer = validated(
        client.responses.create(
            model=real_host.model,
            instructions="You know geography.",
            input="What is the capital of France?",
            max_output_tokens=30,
            temperature=0,
        )
    )
    assert "Paris" in answer.output_text
    assert answer.usage is not None
    counted = client.responses.input_tokens.count(
        model=real_host.model, instructions="You know geography.", input="What is the capital of France?"
    )
    assert answer.usage.input_tokens == counted.input_tokens
    assert answer.status in ("completed", "incomplete")


def test_when_streamed_then_events_are_in_order_and_equal_the_whole_answer(
    client: openai.OpenAI, real_host: HostUnderTest
) -> None:
    asked: dict[str, Any] = {"model": real_host.model, "input": "Name three colours.", "temperature": 0}
    asked["extra_body"] = {"seed": 1}  # the same text twice, also where two words are nearly as likely
    whole = client.responses.create(**asked, max_output_tokens=30)
    events: list[Any] = list(client.responses.create(**asked, max_output_tokens=30, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    for event in events:
        type(event).model_validate(event.to_dict())
    kinds = [event.type.removeprefix("response.") for event in events]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert kinds[-4:-1] == ["output_text.done", "content_part.done", "output_item.done"]
    assert kinds[-1] == whole.status
    assert set(kinds[4:-4]) == {"output_text.delta"}
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == whole.output_text == events[-1].response.output_text


def test_when_streamed_async_then_the_same_comes(real_host: HostUnderTest) -> None:
    async def run() -> tuple[str, str]:
        async with openai.AsyncOpenAI(base_url=f"{real_host.address}/v1", api_key="none", timeout=120) as client:
            asked: dict[str, Any] = {"model": real_host.model, "input": "Say hi in one word.", "temperature": 0}
            async with client.responses.stream(**asked) as stream:
                text = "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])
                final = await stream.get_final_response()
            return text, final.output_text

    text, final = asyncio.run(run())
    assert text
    assert text == final


@pytest.mark.parametrize("is_streamed", [False, True])
def test_when_a_tool_is_forced_then_its_call_is_an_item_and_its_result_goes_on(
    client: openai.OpenAI, real_host: HostUnderTest, *, is_streamed: bool
) -> None:
    if is_streamed:
        with client.responses.stream(model=real_host.model, **FORCED) as stream:
            answer: Response = stream.get_final_response()
    else:
        answer = validated(client.responses.create(model=real_host.model, **FORCED))
    (call,) = (item for item in answer.output if item.type == "function_call")
    assert WEATHER["parameters"] is not None
    jsonschema.validate(json.loads(call.arguments), WEATHER["parameters"])
    second = client.responses.create(
        model=real_host.model,
        previous_response_id=answer.id,
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "It snows in Oslo, -4 degrees."}],
        max_output_tokens=30,
        temperature=0,
    )
    assert second.output_text
    assert second.previous_response_id == answer.id


def test_when_a_response_is_gone_on_with_then_its_prompt_is_found_in_the_cache(
    client: openai.OpenAI, real_host: HostUnderTest
) -> None:
    first = client.responses.create(
        model=real_host.model, input="Remember the number 4711. " * 10, max_output_tokens=8, temperature=0
    )
    second = client.responses.create(
        model=real_host.model,
        previous_response_id=first.id,
        input="Which number?",
        max_output_tokens=16,
        temperature=0,
    )
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.input_tokens > first.usage.input_tokens
    assert second.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens - 8
    assert "4711" in second.output_text


class Animal(pydantic.BaseModel):
    """What a program wants to have."""

    model_config = pydantic.ConfigDict(extra="forbid")
    name: str = pydantic.Field(max_length=20)
    kind: Literal["cat", "dog", "bird"]
    legs: int = pydantic.Field(ge=0, le=8)


def test_when_parsed_then_the_programs_own_type_comes(client: openai.OpenAI, real_host: HostUnderTest) -> None:
    for seed in range(2):
        answer = client.responses.parse(
            model=real_host.model,
            input="Describe a cat.",
            text_format=Animal,
            max_output_tokens=200,
            extra_body={"seed": seed},
        )
        assert isinstance(answer.output_parsed, Animal)


def test_when_the_answer_is_cut_then_it_is_incomplete(client: openai.OpenAI, real_host: HostUnderTest) -> None:
    answer = validated(client.responses.create(model=real_host.model, input="Tell a story.", max_output_tokens=5))
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert answer.usage is not None
    assert answer.usage.output_tokens == 5


def test_when_logprobs_are_included_then_the_chosen_token_is_likeliest(
    client: openai.OpenAI, real_host: HostUnderTest
) -> None:
    answer = validated(
        client.responses.create(
            model=real_host.model,
            input="Say yes.",
            include=["message.output_text.logprobs"],
            top_logprobs=3,
            max_output_tokens=5,
            temperature=0,
        )
    )
    item = answer.output[0]
    assert item.type == "message"
    assert item.content[0].type == "output_text"
    assert item.content[0].logprobs
    for entry in item.content[0].logprobs:
        assert len(entry.top_logprobs) == 3
        assert entry.token == entry.top_logprobs[0].token


def test_when_the_prompt_is_too_long_then_it_is_an_error_or_cut_as_asked(
    client: openai.OpenAI, real_host: HostUnderTest
) -> None:
    with pytest.raises(openai.BadRequestError, match=r"1,?024"):
        client.responses.create(model=real_host.model, input="word " * 5000)
    turns: Any = [{"role": role, "content": "word " * 200} for role in ("user", "assistant") * 4]
    turns.append({"role": "user", "content": "Say hi."})
    answer = client.responses.create(model=real_host.model, input=turns, truncation="auto", max_output_tokens=10)
    assert answer.output_text


def test_when_a_stream_is_closed_then_the_engine_is_idle(client: openai.OpenAI, real_host: HostUnderTest) -> None:
    stream = client.responses.create(
        model=real_host.model, input="Count to a million.", stream=True, extra_body={"logit_bias": {"2": -100}}
    )
    for _ in range(6):
        next(iter(stream))
    stream.close()
    poll(lambda: idle(real_host), timeout_s=10)


def test_when_asked_in_the_background_then_it_is_written_alone_and_a_long_one_is_cancelled(
    client: openai.OpenAI, real_host: HostUnderTest
) -> None:
    asked: dict[str, Any] = {"model": real_host.model, "input": "Name three rivers.", "background": True}
    answer = client.responses.create(**asked, max_output_tokens=20)
    poll(lambda: client.responses.retrieve(answer.id).status in ("completed", "incomplete") or None)
    assert validated(client.responses.retrieve(answer.id)).output_text
    long = client.responses.create(**asked, max_output_tokens=1500, extra_body={"ignore_eos": True})
    poll(lambda: client.responses.retrieve(long.id).status == "in_progress" or None)
    assert client.responses.cancel(long.id).status == "cancelled"
    poll(lambda: idle(real_host))


def test_when_a_conversation_is_compacted_then_it_goes_on(client: openai.OpenAI, real_host: HostUnderTest) -> None:
    first = client.responses.create(model=real_host.model, input="My name is Ada.", max_output_tokens=30)
    shorter = {"max_output_tokens": 60}
    short = client.responses.compact(model=real_host.model, previous_response_id=first.id, extra_body=shorter)
    items: Any = [item.to_dict(warnings=False) for item in short.output]
    assert [item["type"] for item in items] == ["message", "compaction"]
    more = [*items, {"role": "user", "content": "What is my name?"}]
    assert client.responses.create(model=real_host.model, input=more, max_output_tokens=30).output_text
