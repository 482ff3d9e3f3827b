"""Tool calls through the front, with an engine that does what the test says."""

from collections.abc import Iterator

import pytest

from runtime.messages.ipc import (
    Count,
    Counted,
    Delta,
    Failed,
    Finished,
    FromWorker,
    Generate,
    Step,
)
from runtime.messages.shared import (
    AnswerShape,
    MediaPart,
    Message,
    PicturePart,
    TextPart,
    Timings,
    Tool,
    Usage,
)
from runtime.options import GenerateOptions
from runtime.scheduler.types import Done, Text
from tests.support.front_desk import HELLO, THINKING, WAIT_S, Desk


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.front.close(WAIT_S)


TOOLS = (Tool("now", "Tells the time."), Tool("get_weather", "", '{"properties": {"city": {"type": "string"}}}'))
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'


def deltas(messages: list[FromWorker]) -> list[Delta]:
    return [delta for message in messages if isinstance(message, Step) for delta in message.deltas]


def test_tool_calls_when_the_answer_makes_them_then_come_as_deltas_of_their_own(desk: Desk) -> None:
    shape = AnswerShape(tools=TOOLS)
    desk.front.handle(Generate("a", messages=HELLO, options=GenerateOptions(n=2), shape=shape))
    request = desk.engine.wait_for("a")
    assert "Tells the time." in desk.vocab.shown(request.prompt)
    pieces = ["Let me see.\n", CALL[:20], CALL[20:] + "\n" + CALL]
    messages = desk.say(*(Text("a", 0, piece, 3) for piece in pieces), Text("a", 1, "No call.", 2))
    messages += desk.say(Done("a", ("stop", "stop"), ("", ""), Usage(9, 0, 11), Timings()))
    found = deltas(messages)
    calls = [delta for delta in found if delta.kind == "tool_call"]
    assert [(delta.choice, delta.text) for delta in calls] == [(0, '{"city": "Rome"}')] * 2
    heads = [delta.tool_call for delta in calls]
    assert [(head.index, head.name) for head in heads if head] == [(0, "get_weather"), (1, "get_weather")]
    assert len({head.id for head in heads if head}) == 2
    assert "".join(delta.text for delta in found if delta.choice == 0 and delta.kind == "content") == "Let me see."
    assert "".join(delta.text for delta in found if delta.choice == 1) == "No call."
    assert sum(delta.n_tokens for delta in found) == 11
    finished = messages[-1]
    assert isinstance(finished, Finished)
    assert finished.reasons == ("tool_calls", "stop")


def test_call_that_is_cut_off_when_the_answer_ends_then_is_content_and_the_reason_stays(desk: Desk) -> None:
    desk.front.handle(Generate("a", messages=HELLO, shape=AnswerShape(tools=TOOLS)))
    desk.engine.wait_for("a")
    messages = desk.say(Text("a", 0, CALL[:30], 9), Done("a", ("length",), ("",), Usage(9, 0, 9), Timings()))
    assert [(delta.kind, delta.text) for delta in deltas(messages)] == [("content", CALL[:30])]
    finished = messages[-1]
    assert isinstance(finished, Finished)
    assert finished.reasons == ("length",)


@pytest.mark.parametrize("n_chars", range(1, len(CALL) - len("}\n</tool_call>")))
def test_call_that_had_to_be_made_when_it_is_cut_off_then_nothing_of_it_is_content(desk: Desk, n_chars: int) -> None:
    desk.front.handle(Generate("a", messages=HELLO, shape=AnswerShape(tools=TOOLS, tool_choice="required")))
    desk.engine.wait_for("a")
    messages = desk.say(Text("a", 0, CALL[:n_chars], 9), Done("a", ("length",), ("",), Usage(9, 0, 9), Timings()))
    assert [(delta.kind, delta.text, delta.n_tokens) for delta in deltas(messages)] == [("content", "", 9)]
    finished = messages[-1]
    assert isinstance(finished, Finished)
    assert finished.reasons == ("length",)


def test_calls_that_had_to_be_made_when_the_second_is_cut_off_then_the_first_stands_alone(desk: Desk) -> None:
    desk.front.handle(Generate("a", messages=HELLO, shape=AnswerShape(tools=TOOLS, tool_choice="required")))
    desk.engine.wait_for("a")
    text = CALL + "\n" + CALL[:30]
    messages = desk.say(Text("a", 0, text, 9), Done("a", ("length",), ("",), Usage(9, 0, 9), Timings()))
    assert [(delta.kind, delta.text) for delta in deltas(messages)] == [("tool_call", '{"city": "Rome"}')]


def test_text_like_a_call_when_no_tools_are_there_then_is_content(desk: Desk) -> None:
    for name, shape in (("a", AnswerShape()), ("b", AnswerShape(tools=TOOLS, tool_choice="none"))):
        desk.front.handle(Generate(name, messages=HELLO, shape=shape))
        request = desk.engine.wait_for(name)
        assert "Tells the time." not in desk.vocab.shown(request.prompt)
        messages = desk.say(Text(name, 0, CALL, 9), Done(name, ("stop",), ("",), Usage(9, 0, 9), Timings()))
        assert [(delta.kind, delta.text) for delta in deltas(messages)] == [("content", CALL)]


def test_tools_when_counted_then_are_counted(desk: Desk) -> None:
    counts = []
    for name, shape in (("a", AnswerShape()), ("b", AnswerShape(tools=TOOLS))):
        desk.front.handle(Count(name, HELLO, shape))
        (counted,) = desk.take()
        assert isinstance(counted, Counted)
        counts.append(counted.n_tokens)
    assert counts[1] > counts[0] + 100


def test_tools_when_their_schema_is_broken_then_the_request_fails_with_their_name(desk: Desk) -> None:
    desk.front.handle(Generate("a", messages=HELLO, shape=AnswerShape(tools=(Tool("f", parameters="{"),))))
    (failed,) = desk.take()
    assert isinstance(failed, Failed)
    assert failed.failure.kind == "BadRequest"
    assert "'f'" in failed.failure.message


def test_call_behind_a_thought_when_the_answer_makes_it_then_all_three_parts_are_told() -> None:
    thinking = Desk(THINKING)
    thinking.front.handle(Generate("a", messages=HELLO, shape=AnswerShape(tools=TOOLS)))
    thinking.engine.wait_for("a")
    text = "I need <tool_call> here.\n</think>\n\nYes.\n" + CALL
    messages = thinking.say(Text("a", 0, text, 20), Done("a", ("stop",), ("",), Usage(9, 0, 20), Timings()))
    assert [(delta.kind, delta.text) for delta in deltas(messages)] == [
        ("reasoning", "I need <tool_call> here."),
        ("content", "Yes."),
        ("tool_call", '{"city": "Rome"}'),
    ]
    thinking.front.close(WAIT_S)


def test_picture_when_the_model_cannot_see_then_the_request_is_refused(desk: Desk) -> None:
    message = Message("user", "Look", parts=(TextPart("Look"), PicturePart(MediaPart("image", b"x"))))
    desk.front.handle(Generate("a", messages=(message,)))
    (failed,) = desk.take()
    assert isinstance(failed, Failed)
    assert "cannot see" in failed.failure.message
