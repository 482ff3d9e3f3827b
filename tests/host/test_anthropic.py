"""The Anthropic dialect, asked by the official client, answered by the fake worker."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest
from anthropic.types import MessageParam, ToolParam

from tests.host.conftest import RunningHost

MODEL = "fake"
WEATHER: ToolParam = {
    "name": "weather",
    "description": "Weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n and the rest").decode()


def ask(text: str) -> list[MessageParam]:
    return [{"role": "user", "content": text}]


@pytest.fixture(scope="module")
def client(host: RunningHost) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=str(host.public.base_url), api_key="none", max_retries=0) as client:
        yield client


def described(host: RunningHost, **fields: Any) -> dict[str, Any]:
    """What the worker is asked when this is."""
    body = {"model": MODEL, "max_tokens": 5, "messages": ask("describe"), **fields}
    answer = host.public.post("/v1/messages", json=body).raise_for_status().json()
    told: dict[str, Any] = json.loads(answer["content"][0]["text"])
    return told


def test_when_asked_whole_then_text_reason_and_usage_come(client: anthropic.Anthropic) -> None:
    answer = client.messages.create(model=MODEL, max_tokens=100, messages=ask("say 3"))
    assert [block.type for block in answer.content] == ["text"]
    assert answer.content[0].type == "text"
    assert answer.content[0].text == "w0 w1 w2 "
    assert answer.stop_reason == "end_turn"
    assert answer.id.startswith("msg_")
    assert (answer.usage.input_tokens, answer.usage.cache_read_input_tokens, answer.usage.output_tokens) == (8, 4, 3)


def test_when_streamed_then_the_clients_own_sum_is_the_answer(client: anthropic.Anthropic) -> None:
    with client.messages.stream(model=MODEL, max_tokens=100, messages=ask("say 4")) as stream:
        assert "".join(stream.text_stream) == "w0 w1 w2 w3 "
        answer = stream.get_final_message()
    assert answer.stop_reason == "end_turn"
    assert answer.usage.output_tokens == 4
    assert answer.usage.input_tokens == 8


def test_when_streamed_then_events_are_in_order(client: anthropic.Anthropic) -> None:
    stream = client.messages.create(model=MODEL, max_tokens=100, messages=ask("call"), stream=True)
    events = list(stream)
    kinds = [event.type for event in events]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    open_index: int | None = None
    started = []
    for event in events:
        if event.type == "content_block_start":
            assert open_index is None
            open_index = event.index
            started.append(event.content_block.type)
        elif event.type == "content_block_delta":
            assert event.index == open_index
        elif event.type == "content_block_stop":
            assert event.index == open_index
            open_index = None
    assert started == ["thinking", "text", "tool_use", "tool_use"]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_when_tools_are_called_then_each_is_a_block_with_its_input(
    client: anthropic.Anthropic, *, is_streamed: bool
) -> None:
    if is_streamed:
        with client.messages.stream(model=MODEL, max_tokens=100, messages=ask("call"), tools=[WEATHER]) as stream:
            answer: Any = stream.get_final_message()
    else:
        answer = client.messages.create(model=MODEL, max_tokens=100, messages=ask("call"), tools=[WEATHER])
    thought, text, first, second = answer.content
    assert thought.type == "thinking"
    assert thought.thinking == "Which?"
    assert thought.signature
    assert text.text == "Let me see."
    assert (first.type, first.name, first.input) == ("tool_use", "weather", {"city": "Oslo"})
    assert (second.name, second.input) == ("clock", {})
    assert first.id != second.id
    assert answer.stop_reason == "tool_use"


def test_when_the_answer_is_cut_then_the_reason_tells_by_what(client: anthropic.Anthropic) -> None:
    assert client.messages.create(model=MODEL, max_tokens=2, messages=ask("say 5")).stop_reason == "max_tokens"


def test_when_a_conversation_is_sent_then_the_model_sees_all_of_it(host: RunningHost) -> None:
    told = described(
        host,
        system=[{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}],
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "x"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Oslo"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "rain"}]},
                    {"type": "text", "text": "describe"},
                ],
            },
        ],
    )
    assert told["messages"] == [
        {"role": "system", "content": "Be brief.\nBe kind."},
        {"role": "user", "content": "one\ntwo"},
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning": "Hm.",
            "tool_calls": [{"id": "t1", "name": "weather", "arguments": '{"city":"Oslo"}'}],
        },
        {"role": "tool", "content": "rain", "name": "weather", "tool_call_id": "t1"},
        {"role": "user", "content": "describe"},
    ]


def test_when_user_turns_follow_each_other_then_they_become_one(host: RunningHost) -> None:
    told = described(host, messages=[*ask("one"), *ask("two"), *ask("describe")])
    assert told["messages"] == [{"role": "user", "content": "one\ntwo\ndescribe"}]


def test_when_the_last_turn_is_the_assistants_then_it_is_gone_on_with(host: RunningHost) -> None:
    told = described(host, messages=[*ask("x"), {"role": "assistant", "content": "describe"}])
    assert told["continue_last"] is True


def test_when_options_are_given_then_they_arrive(host: RunningHost) -> None:
    told = described(host, temperature=0.5, top_p=0.9, top_k=7, stop_sequences=["END"], max_tokens=9)
    assert told["options"]["max_tokens"] == 9
    assert told["options"]["stop"] == ["END"]
    sampling = told["options"]["sampling"]
    assert (sampling["temperature"], sampling["top_p"], sampling["top_k"]) == (0.5, 0.9, 7)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"reasoning": "off"}),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 2048}},
            {"reasoning": "on", "reasoning_budget": 2048},
        ),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, {"reasoning_effort": "high"}),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
            {"json_schema": '{"type":"object"}', "reasoning": "off"},
        ),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
            {"tool_choice": "required", "parallel_tool_calls": False},
        ),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "weather"}},
            {"tool_choice": "required", "tool_name": "weather", "parallel_tool_calls": False},
        ),
        ({"tools": [WEATHER], "tool_choice": {"type": "none"}}, {"tool_choice": "none"}),
    ],
)
def test_when_a_shape_is_asked_for_then_it_arrives(
    host: RunningHost, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    shape = described(host, **given)["shape"]
    assert {name: shape.get(name) for name in expected} == expected
    if "tools" in given:
        schema = json.loads(shape["tools"][0]["parameters"])
        assert schema == WEATHER["input_schema"]


def test_when_fields_of_a_paid_service_are_sent_then_they_do_no_harm(host: RunningHost) -> None:
    cached = {"type": "ephemeral"}
    told = described(
        host,
        metadata={"user_id": "x"},
        service_tier="auto",
        context_management={"edits": [{"type": "clear_tool_uses_20250919"}]},
        inference_geo="eu",
        system=[{"type": "text", "text": "Be brief.", "cache_control": cached}],
        tools=[{**WEATHER, "type": "custom", "cache_control": cached, "strict": True}],
        messages=[{"role": "user", "content": [{"type": "text", "text": "describe", "cache_control": cached}]}],
    )
    assert [row["content"] for row in told["messages"]] == ["Be brief.", "describe"]
    assert told["shape"]["tools"][0]["name"] == "weather"


def test_when_tokens_are_counted_then_the_number_comes(client: anthropic.Anthropic) -> None:
    counted = client.messages.count_tokens(model=MODEL, system="a b", messages=ask("c d e"), tools=[WEATHER])
    assert counted.input_tokens == 5


def test_when_models_are_listed_then_they_are_in_this_dialect(client: anthropic.Anthropic) -> None:
    models = list(client.models.list())
    assert models[0].id == MODEL  # the loaded one first
    assert models[0].type == "model"
    assert client.models.retrieve(MODEL).max_input_tokens == 4096
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("nothing")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"messages": []}, "empty"),
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": "many"}, "whole number"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "wizard"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "video"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "tool_use_id"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "custom tools"),
        ({"tool_choice": {"type": "tool", "name": "x"}}, "none of the tools"),
        ({"tool_choice": {"type": "any"}}, "there are none"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"temperature": 99}, "temperature"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2**64}}, "budget_tokens"),
        (
            {
                "messages": [
                    *ask("x"),
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": {}}]},
                ]
            },
            "results are missing",
        ),
    ],
)
def test_when_a_body_is_wrong_then_the_error_says_what(host: RunningHost, body: dict[str, Any], words: str) -> None:
    answer = host.public.post("/v1/messages", json={"model": MODEL, "max_tokens": 5, "messages": ask("x"), **body})
    assert answer.status_code == 400, answer.text
    told = answer.json()
    assert told["type"] == "error"
    assert told["error"]["type"] == "invalid_request_error"
    assert words in told["error"]["message"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"type": "base64", "media_type": "image/png", "data": PNG}, "cannot see"),
        ({"type": "base64", "media_type": "image/png", "data": "%%%"}, "not base64"),
        ({"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}, "known format"),
        ({"type": "url", "url": "http://example.com/x.png"}, "remote"),
        ({"type": "file", "file_id": "x"}, "cannot be read"),
    ],
)
def test_when_a_picture_cannot_be_taken_then_the_error_says_why(
    host: RunningHost, source: dict[str, Any], words: str
) -> None:
    message = {"role": "user", "content": [{"type": "image", "source": source}, {"type": "text", "text": "What?"}]}
    answer = host.public.post("/v1/messages", json={"model": MODEL, "max_tokens": 5, "messages": [message]})
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]


def test_when_it_fails_then_the_client_raises_its_own_errors(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="nothing"):
        client.messages.create(model="nothing", max_tokens=5, messages=ask("x"))
    with pytest.raises(anthropic.RateLimitError, match="wait already") as busy:
        client.messages.create(model=MODEL, max_tokens=5, messages=ask("busy"))
    assert busy.value.response.headers["retry-after"] == "7"
    with pytest.raises(anthropic.BadRequestError, match="9000"):
        client.messages.create(model=MODEL, max_tokens=5, messages=ask("too long"))


def test_when_it_fails_in_the_midst_of_a_stream_then_an_error_event_comes(client: anthropic.Anthropic) -> None:
    stream = client.messages.create(model=MODEL, max_tokens=50, messages=ask("fail late"), stream=True)
    with pytest.raises(anthropic.APIStatusError, match="refused"):
        list(stream)


def test_when_the_client_leaves_then_the_worker_is_told(host: RunningHost) -> None:
    body = {"model": MODEL, "max_tokens": 100_000, "messages": ask("slowly 100000"), "stream": True}
    with (
        httpx.Client(base_url=host.public.base_url) as client,
        client.stream("POST", "/v1/messages", json=body) as told,
    ):
        next(told.iter_lines())

    def is_idle() -> bool:
        (model,) = host.private.get("/admin/status").json()["models"]
        return bool(model["engine"].get("active", 0) == 0)

    host.until(is_idle)
