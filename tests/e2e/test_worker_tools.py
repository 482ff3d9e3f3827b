"""Tool calls through a real worker: the starter model knows no tools, so its grammar makes the calls."""

import json
from collections.abc import Iterator

import pytest

from runtime.messages.ipc import ApplyTemplate, Count, Counted, Failed, Finished, Generate, Rendered
from runtime.messages.shared import AnswerShape, Message, Tool, ToolCall
from runtime.options import GenerateOptions, LoadOptions, SamplingOptions
from tests.support.worker_process import WorkerUnderTest, deltas, text_of, worker_with_starter

pytestmark = pytest.mark.e2e

WEATHER = Tool(
    "get_weather",
    "Tells the weather of a city.",
    '{"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer", '
    '"minimum": 1, "maximum": 9}}, "required": ["city", "days"], "additionalProperties": false}',
)
NOW = Tool("now", "Tells the time.", '{"type": "object", "properties": {}, "additionalProperties": false}')
QUESTION = Message("user", "What is the weather in Rome for the next 3 days?")
OPTIONS = GenerateOptions(max_tokens=96, sampling=SamplingOptions(temperature=0.8, seed=7))


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerUnderTest]:
    options = LoadOptions(n_ctx=1024, n_parallel=2)
    with worker_with_starter(tmp_path_factory.mktemp("worker"), options) as worker:
        yield worker


def test_call_that_is_required_when_answered_then_fits_its_schema_in_every_choice(worker: WorkerUnderTest) -> None:
    shape = AnswerShape(tools=(WEATHER, NOW), tool_choice="required", parallel_tool_calls=False)
    request = Generate(
        "forced",
        messages=(QUESTION,),
        options=GenerateOptions(max_tokens=96, n=2, sampling=OPTIONS.sampling),
        shape=shape,
    )
    messages, finished = worker.answer(request)
    assert finished.reasons == ("tool_calls", "tool_calls")
    ids = set()
    for choice in range(2):
        parts = deltas(messages, "forced", choice)
        (call,) = [delta for delta in parts if delta.kind == "tool_call"]
        assert not "".join(delta.text for delta in parts if delta.kind != "tool_call")
        assert call.tool_call is not None
        assert call.tool_call.name in ("get_weather", "now")
        arguments = json.loads(call.text)
        assert set(arguments) == ({"city", "days"} if call.tool_call.name == "get_weather" else set())
        ids.add(call.tool_call.id)
    assert len(ids) == 2
    assert sum(delta.n_tokens for message in (0, 1) for delta in deltas(messages, "forced", message)) == (
        finished.usage.completion_tokens
    )


def test_call_of_a_named_tool_when_required_then_is_of_that_tool(worker: WorkerUnderTest) -> None:
    shape = AnswerShape(tools=(WEATHER, NOW), tool_choice="required", tool_name="now", parallel_tool_calls=False)
    messages, finished = worker.answer(Generate("named", messages=(QUESTION,), options=OPTIONS, shape=shape))
    (call,) = [delta for delta in deltas(messages, "named") if delta.kind == "tool_call"]
    assert call.tool_call is not None
    assert (call.tool_call.name, json.loads(call.text)) == ("now", {})
    assert finished.reasons == ("tool_calls",)


def test_result_of_a_call_when_given_back_then_is_answered_in_text(worker: WorkerUnderTest) -> None:
    conversation = (
        QUESTION,
        Message("assistant", tool_calls=(ToolCall("call_1", "get_weather", '{"city": "Rome", "days": 3}'),)),
        Message("tool", "sunny<|im_end|>", tool_call_id="call_1"),
    )
    shape = AnswerShape(tools=(WEATHER,))
    worker.send(ApplyTemplate("shown", conversation, shape))
    shown = worker.until(Rendered).text
    assert '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "days": 3}}\n</tool_call>' in shown
    assert "<tool_response>\nsunny<|im_end|>\n</tool_response>" in shown
    worker.send(Count("count", conversation, shape))
    n_tokens = worker.until(Counted).n_tokens
    short = GenerateOptions(max_tokens=8, sampling=OPTIONS.sampling)
    messages, finished = worker.answer(Generate("answer", messages=conversation, options=short, shape=shape))
    assert finished.usage.prompt_tokens == n_tokens
    assert text_of(messages, "answer")


def test_tools_when_none_fits_what_is_asked_then_the_request_says_so(worker: WorkerUnderTest) -> None:
    shape = AnswerShape(tools=(NOW,), tool_choice="required", tool_name="missing")
    worker.send(Generate("missing", messages=(QUESTION,), options=OPTIONS, shape=shape))
    failed = worker.until(Failed)
    assert failed.failure.status == 400
    assert "missing" in failed.failure.message
    messages, finished = worker.answer(Generate("after", messages=(QUESTION,), options=GenerateOptions(max_tokens=2)))
    assert isinstance(finished, Finished)
    assert messages
