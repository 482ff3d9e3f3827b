"""OpenAI's Responses API, asked by the official client, answered by the fake worker."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import openai
import pydantic
import pytest
from openai.types.responses import FunctionToolParam, Response

from tests.host.conftest import RunningHost

MODEL = "fake"
WEATHER: FunctionToolParam = {
    "type": "function",
    "name": "weather",
    "description": "Weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": True,
}
CLOCK: FunctionToolParam = {"type": "function", "name": "clock", "parameters": None, "strict": None}
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n and the rest").decode()


@pytest.fixture(scope="module")
def client(host: RunningHost) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{host.public.base_url}/v1", api_key="none", max_retries=0) as client:
        yield client


def described(client: openai.OpenAI, **fields: Any) -> dict[str, Any]:
    """What the worker is asked when this is."""
    answer = client.responses.create(**{"model": MODEL, "input": "describe", **fields})
    told: dict[str, Any] = json.loads(answer.output_text)
    return told


def validated(answer: Response) -> Response:
    """The client builds its types without checking them; here they are checked."""
    return Response.model_validate(answer.to_dict())


def test_when_asked_whole_then_the_clients_own_types_hold_the_answer(client: openai.OpenAI) -> None:
    answer = validated(
        client.responses.create(
            model=MODEL, input="say 3", instructions="Be brief.", metadata={"a": "b"}, temperature=0.5
        )
    )
    assert answer.output_text == "w0 w1 w2 "
    assert (answer.status, answer.object, answer.instructions) == ("completed", "response", "Be brief.")
    assert answer.id.startswith("resp_")
    assert (answer.metadata, answer.temperature, answer.tool_choice, answer.tools) == ({"a": "b"}, 0.5, "auto", [])
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.total_tokens) == (12, 3, 15)
    assert answer.usage.input_tokens_details.cached_tokens == 4
    assert answer.completed_at is not None
    (item,) = answer.output
    assert item.type == "message"
    assert item.content[0].type == "output_text"
    assert item.content[0].annotations == []


def test_when_streamed_then_events_are_numbered_and_in_order(client: openai.OpenAI) -> None:
    events: list[Any] = list(client.responses.create(model=MODEL, input="call", tools=[WEATHER], stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events]
    assert kinds == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    for event in events:
        type(event).model_validate(event.to_dict())
    indices = [event.output_index for event in events if event.type == "response.output_item.done"]
    assert indices == [0, 1, 2, 3]
    first, last = events[0], events[-1]
    assert first.type == "response.created"
    assert last.type == "response.completed"
    assert (first.response.status, first.response.output) == ("in_progress", [])
    assert last.response.output == [event.item for event in events if event.type == "response.output_item.done"]


def test_when_streamed_by_the_clients_helper_then_its_sum_is_the_answer(client: openai.OpenAI) -> None:
    with client.responses.stream(model=MODEL, input="say 4") as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        answer = stream.get_final_response()
    assert "".join(deltas) == answer.output_text == "w0 w1 w2 w3 "


@pytest.mark.parametrize("is_streamed", [False, True])
def test_when_tools_are_called_then_thought_text_and_calls_are_items(
    client: openai.OpenAI, *, is_streamed: bool
) -> None:
    if is_streamed:
        with client.responses.stream(model=MODEL, input="call", tools=[WEATHER, CLOCK]) as stream:
            answer: Any = stream.get_final_response()
    else:
        answer = validated(client.responses.create(model=MODEL, input="call", tools=[WEATHER, CLOCK]))
    thought, text, first, second = answer.output
    assert (thought.type, thought.content[0].text, thought.summary) == ("reasoning", "Which?", [])
    assert text.content[0].text == "Let me see."
    assert (first.type, first.name, first.arguments) == ("function_call", "weather", '{"city":"Oslo"}')
    assert (second.name, second.arguments, second.status) == ("clock", "{}", "completed")
    assert first.call_id != second.call_id
    assert len({item.id for item in answer.output}) == 4
    assert answer.tools[0].name == "weather"
    assert answer.status == "completed"


def test_when_a_summary_is_asked_for_then_the_thought_comes_as_one(client: openai.OpenAI) -> None:
    answer = validated(client.responses.create(model=MODEL, input="think", reasoning={"summary": "auto"}))
    assert answer.output[0].type == "reasoning"
    assert [part.text for part in answer.output[0].summary] == ["Hmm. "]
    assert not answer.output[0].content
    stream = client.responses.create(model=MODEL, input="think", reasoning={"summary": "auto"}, stream=True)
    events: list[Any] = list(stream)
    assert [event.type for event in events if "summary" in event.type] == [
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
    ]
    for event in events:
        type(event).model_validate(event.to_dict())


def test_when_the_answer_is_cut_then_it_is_incomplete(client: openai.OpenAI) -> None:
    answer = validated(client.responses.create(model=MODEL, input="say 9", max_output_tokens=2))
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert answer.output[0].type == "message"
    assert answer.output[0].status == "incomplete"
    events: list[Any] = list(client.responses.create(model=MODEL, input="say 9", max_output_tokens=2, stream=True))
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.output_text == "w0 w1 "


def test_when_logprobs_are_included_then_they_come(client: openai.OpenAI) -> None:
    answer = validated(
        client.responses.create(model=MODEL, input="logprobs", include=["message.output_text.logprobs"], top_logprobs=2)
    )
    item = answer.output[0]
    assert item.type == "message"
    assert item.content[0].type == "output_text"
    logprobs = item.content[0].logprobs or []
    assert (logprobs[0].token, logprobs[0].logprob) == ("Hi", -0.25)
    assert len(logprobs) == 2
    events = client.responses.create(model=MODEL, input="logprobs", top_logprobs=2, stream=True)
    told = [len(event.logprobs) for event in events if event.type == "response.output_text.delta"]
    assert told == [1, 1]


class Answer(pydantic.BaseModel):
    """What a program wants to have."""

    name: str
    count: int


def test_when_parsed_by_the_client_then_it_builds_the_programs_own_type(client: openai.OpenAI) -> None:
    answer = client.responses.parse(model=MODEL, input='exactly {"name":"a","count":2}', text_format=Answer)
    assert answer.output_parsed == Answer(name="a", count=2)
    assert answer.text is not None
    assert answer.text.format is not None
    assert answer.text.format.type == "json_schema"


def test_when_shape_is_asked_for_then_the_model_is_asked_so(client: openai.OpenAI) -> None:
    schema = Answer.model_json_schema()
    told = described(
        client,
        tools=[WEATHER, CLOCK],
        tool_choice={"type": "function", "name": "clock"},
        parallel_tool_calls=False,
        text={"format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}},
        reasoning={"effort": "high"},
        truncation="auto",
        extra_body={"top_k": 7, "stop": "END"},
        max_output_tokens=9,
    )
    shape = told["shape"]
    assert [tool["name"] for tool in shape["tools"]] == ["weather", "clock"]
    assert (shape["tool_choice"], shape["tool_name"], shape["parallel_tool_calls"]) == ("required", "clock", False)
    assert json.loads(shape["json_schema"]) == schema
    assert (shape["reasoning"], shape["reasoning_effort"]) == ("on", "high")
    options = told["options"]
    assert (options["context_policy"], options["max_tokens"], options["stop"]) == ("drop_oldest", 9, ["END"])
    assert options["sampling"]["top_k"] == 7
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "clock"}]}
    shape = described(client, tools=[WEATHER, CLOCK], tool_choice=allowed)["shape"]
    assert ([tool["name"] for tool in shape["tools"]], shape["tool_choice"]) == (["clock"], "required")


def test_when_items_are_sent_then_each_turn_is_one_message(client: openai.OpenAI) -> None:
    items: list[dict[str, Any]] = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": [{"type": "input_text", "text": "both"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
        },
        {"type": "function_call", "call_id": "a", "name": "weather", "arguments": '{"city":"Oslo"}'},
        {"type": "function_call", "call_id": "b", "name": "clock", "arguments": ""},
        {"type": "function_call_output", "call_id": "b", "output": "noon"},
        {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "rain"}]},
        {"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": "So."}]},
        {"role": "assistant", "content": "It rains at noon."},
        {"role": "user", "content": "describe"},
    ]
    told = described(client, input=items, instructions="Be brief.")
    assert told["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": "both"},
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning": "Hm.",
            "tool_calls": [
                {"id": "a", "name": "weather", "arguments": '{"city":"Oslo"}'},
                {"id": "b", "name": "clock", "arguments": "{}"},
            ],
        },
        {"role": "tool", "content": "noon", "name": "clock", "tool_call_id": "b"},
        {"role": "tool", "content": "rain", "name": "weather", "tool_call_id": "a"},
        {"role": "assistant", "content": "It rains at noon.", "reasoning": "So."},
        {"role": "user", "content": "describe"},
    ]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_when_a_response_is_gone_on_with_then_the_model_sees_the_conversation(
    client: openai.OpenAI, *, is_streamed: bool
) -> None:
    if is_streamed:
        with client.responses.stream(model=MODEL, input="call", instructions="Be brief.", tools=[WEATHER]) as stream:
            first_id = stream.get_final_response().id
    else:
        first_id = client.responses.create(model=MODEL, input="call", instructions="Be brief.", tools=[WEATHER]).id
    second = client.responses.create(
        model=MODEL,
        previous_response_id=first_id,
        input=[{"type": "function_call_output", "call_id": "call_0", "output": "rain"}],
    )
    assert second.previous_response_id == first_id
    told = described(client, previous_response_id=second.id, instructions="Be kind.")
    assert [message["role"] for message in told["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    system, _, called, result, _, _ = told["messages"]
    assert system["content"] == "Be kind."
    assert [call["name"] for call in called["tool_calls"]] == ["weather", "clock"]
    assert (called["reasoning"], called["content"]) == ("Which?", "Let me see.")
    assert result == {"role": "tool", "content": "rain", "name": "weather", "tool_call_id": "call_0"}


def test_when_items_are_referred_to_then_they_stand_for_themselves(client: openai.OpenAI) -> None:
    answer = client.responses.create(model=MODEL, input="call", tools=[WEATHER])
    references: list[Any] = [{"type": "item_reference", "id": item.id} for item in answer.output]
    told = described(client, input=[*references, {"role": "user", "content": "describe"}])
    assert told["messages"][0]["reasoning"] == "Which?"
    assert [call["name"] for call in told["messages"][0]["tool_calls"]] == ["weather", "clock"]
    with pytest.raises(openai.NotFoundError, match="Item with id 'msg_none' not found"):
        client.responses.create(model=MODEL, input=[{"type": "item_reference", "id": "msg_none"}])


def test_when_encrypted_thought_comes_back_then_the_model_sees_it(client: openai.OpenAI) -> None:
    answer = client.responses.create(
        model=MODEL, input="think", store=False, include=["reasoning.encrypted_content"], reasoning={"summary": "auto"}
    )
    thought = answer.output[0]
    assert thought.type == "reasoning"
    item: Any = {"type": "reasoning", "id": thought.id, "summary": [], "encrypted_content": thought.encrypted_content}
    foreign: Any = {"type": "reasoning", "id": "x", "summary": [], "encrypted_content": "gAAAA"}
    told = described(client, input=[item, foreign, {"role": "user", "content": "describe"}])
    assert told["messages"][0] == {"role": "assistant", "reasoning": "Hmm. "}


def test_when_kept_then_it_can_be_read_and_deleted(client: openai.OpenAI) -> None:
    answer = client.responses.create(model=MODEL, input="say 2")
    assert client.responses.retrieve(answer.id).output_text == "w0 w1 "
    client.responses.delete(answer.id)
    with pytest.raises(openai.NotFoundError, match="is not kept"):
        client.responses.retrieve(answer.id)
    with pytest.raises(openai.BadRequestError, match=r"Previous response with id 'resp_.*' not found") as raised:
        client.responses.create(model=MODEL, input="x", previous_response_id=answer.id)
    assert (raised.value.param, raised.value.code) == ("previous_response_id", "previous_response_not_found")
    with pytest.raises(openai.NotFoundError):
        client.responses.delete(answer.id)


def test_when_it_is_not_to_be_stored_then_it_is_not(client: openai.OpenAI) -> None:
    answer = client.responses.create(model=MODEL, input="say 2", store=False)
    assert answer.output_text == "w0 w1 "
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(answer.id)


def test_when_input_is_counted_then_history_counts_too(client: openai.OpenAI) -> None:
    counted = client.responses.input_tokens.count(model=MODEL, input="one two three", instructions="four")
    assert counted.input_tokens == 4
    answer = client.responses.create(model=MODEL, input="say 2")
    assert client.responses.input_tokens.count(previous_response_id=answer.id, input="x").input_tokens == 5


def test_when_it_fails_late_then_the_stream_says_so(client: openai.OpenAI) -> None:
    events: list[Any] = list(client.responses.create(model=MODEL, input="fail late", stream=True))
    last = events[-1]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert "The batch was refused" in last.response.error.message
    assert events[-2].type == "response.output_item.done"
    type(last).model_validate(last.to_dict())
    with pytest.raises(openai.InternalServerError, match="The batch was refused"):
        client.responses.create(model=MODEL, input="fail late")


@pytest.mark.parametrize("stream", [False, True])
def test_when_refused_before_the_first_token_then_status_says_so(client: openai.OpenAI, *, stream: bool) -> None:
    with pytest.raises(openai.RateLimitError, match="32 requests wait already"):
        client.responses.create(model=MODEL, input="busy", stream=stream)
    with pytest.raises(openai.NotFoundError, match="No model named 'gpt-4o' is installed"):
        client.responses.create(model="gpt-4o", input="x", stream=stream)


def test_when_stream_is_closed_then_the_worker_is_idle_again(client: openai.OpenAI, host: RunningHost) -> None:
    stream = client.responses.create(model=MODEL, input="slowly 100000", stream=True)
    next(iter(stream))
    stream.close()

    def is_idle() -> bool:
        status = host.private.get("/admin/status").json()["models"][0]
        return int(status["engine"].get("active", 0)) == 0

    host.until(is_idle)


def test_when_cancelled_from_the_table_then_the_answer_says_so(client: openai.OpenAI, host: RunningHost) -> None:
    stream = client.responses.create(model=MODEL, input="slowly 100000", stream=True)
    events: list[Any] = [next(stream)]
    running = [row for row in host.private.get("/admin/requests").json() if row["state"] == "generating"]
    for row in running:
        host.private.post("/admin/requests/cancel", json={"request_id": row["request_id"]}).raise_for_status()
    events.extend(stream)
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.status == "cancelled"
    assert events[-1].response.output[0].status == "incomplete"


def user(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(parts)}]


@pytest.mark.parametrize(
    ("body", "words", "param"),
    [
        ({}, "`input` is missing or empty", "input"),
        ({"input": []}, "`input` is missing or empty", "input"),
        ({"input": 5}, "`input` must be", "input"),
        ({"input": "x", "conversation": "conv_1"}, "`conversation` is not supported", "conversation"),
        ({"input": "x", "prompt": {"id": "p"}}, "`prompt` is not supported", "prompt"),
        ({"input": "x", "tools": [{"type": "web_search"}]}, "only tools of type 'function'", "tools[0].type"),
        ({"input": "x", "tools": [{"type": "function"}]}, "`tools[0].name` is empty", "tools[0].name"),
        ({"input": "x", "tool_choice": "required"}, "there are none", "tool_choice"),
        ({"input": "x", "tool_choice": {"type": "function"}}, "`tool_choice` is not understood", "tool_choice"),
        ({"input": "x", "text": {"format": {"type": "json_schema"}}}, "is missing", None),
        ({"input": "x", "max_output_tokens": 0}, "`max_output_tokens` must be >= 1", "max_output_tokens"),
        ({"input": "x", "temperature": 11}, "`temperature` must be <= 10", "temperature"),
        ({"input": "x", "metadata": {str(n): "" for n in range(17)}}, "`metadata`", "metadata"),
        ({"input": "x", "reasoning": {"effort": "huge"}}, "`reasoning.effort`", "reasoning.effort"),
        ({"input": [{"role": "robot", "content": "x"}]}, "Roles are system", "input[0].role"),
        ({"input": [{"type": "computer_call"}]}, "is of type 'computer_call'", "input[0].type"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "`input[0].call_id` must be there", "input[0]"),
        ({"input": [{"role": "user"}]}, "`input[0].content` is missing", "input[0].content"),
        ({"input": user({"type": "input_file", "file_id": "f"})}, "is of type 'input_file'", "input[0].content[0]"),
        (
            {"input": user({"type": "input_image", "image_url": "https://x/y.png"})},
            "is a remote address, which is not fetched",
            "input[0].content[0].image_url",
        ),
        (
            {"input": user({"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"})},
            "fake cannot see pictures",
            "messages",
        ),
    ],
)
def test_when_a_field_is_wrong_then_the_answer_names_it(
    host: RunningHost, body: dict[str, Any], words: str, param: str | None
) -> None:
    answer = host.public.post("/v1/responses", json={"model": MODEL, **body})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert words in error["message"]
    if param is not None:
        assert error["param"] == param


@pytest.mark.parametrize("content", [b"", b"[]", b"[" * 100_000, b"\xff\xfe", b'{"input":' * 5000])
def test_when_body_is_no_object_then_it_is_refused(host: RunningHost, content: bytes) -> None:
    assert host.public.post("/v1/responses", content=content).status_code == 400


def test_when_the_input_of_an_answer_is_asked_for_then_the_clients_types_hold_it(client: openai.OpenAI) -> None:
    first = client.responses.create(model=MODEL, input="say 1", instructions="Be brief.")
    second = client.responses.create(
        model=MODEL,
        previous_response_id=first.id,
        input=[{"role": "user", "content": [{"type": "input_text", "text": "say 2"}]}],
    )
    items = list(client.responses.input_items.list(second.id, order="asc", limit=2))
    told = [item.to_dict() for item in items]
    assert [(row["role"], row["content"][0]["text"]) for row in told] == [  # type: ignore[index]
        ("user", "say 1"),
        ("assistant", "w0 "),
        ("user", "say 2"),
    ]
    newest = client.responses.input_items.list(second.id, limit=1)
    assert newest.data[0].to_dict() == told[-1]
    assert newest.has_next_page()
    for wrong in ({"limit": 0}, {"order": "up"}, {"after": "nothing"}):
        with pytest.raises(openai.BadRequestError):
            client.responses.input_items.list(second.id, extra_query=wrong)
    with pytest.raises(openai.NotFoundError):
        client.responses.input_items.list("resp_unknown")
