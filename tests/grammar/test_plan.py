"""Plans of answers: forced and optional calls in the forms of every family, JSON, thoughts, and what contradicts."""

import json

import jsonschema
import pytest

from runtime.chat.tool_format import FREE_FRAME, AnswerFrame, JsonArguments, write_calls
from runtime.chat.tool_parser import CallPiece, ToolParser
from runtime.chat.tool_specs import PLAIN_FORM, ToolSpec, load_tool_specs
from runtime.errors import BadRequest
from runtime.grammar.gbnf import read_gbnf
from runtime.grammar.matcher import DEAD, Matcher
from runtime.grammar.plan import plan_answer
from runtime.messages.shared import AnswerShape, Tool
from tests.grammar.random_text import texts_of

WEATHER_SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 7},
        "now": {"type": "boolean"},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS = (
    Tool("get_weather", "", json.dumps(WEATHER_SCHEMA)),
    Tool("list_files"),
    Tool("add", "", '{"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}'),
)
SCHEMAS = {"get_weather": WEATHER_SCHEMA, "list_files": {"type": "object"}, "add": json.loads(TOOLS[2].parameters)}
SPECS = [pytest.param(spec, id=spec.name) for spec in load_tool_specs()]


def matches(grammar: str, text: str, root: str = "root") -> bool:
    matcher = Matcher(read_gbnf(grammar, root=root), fuel=5_000_000)
    state = matcher.read(matcher.start, text.encode())
    return state != DEAD and matcher.may_end(state)


def calls_in(text: str, frame: AnswerFrame) -> list[tuple[str, dict[str, object]]]:
    """What the parser of answers finds."""
    assert frame.tools is not None
    parser = ToolParser(frame.tools, TOOLS)
    found: dict[str, list[str]] = {}
    heads: dict[str, str] = {}
    for piece in [*parser.feed(text), *parser.finish()]:
        if isinstance(piece, CallPiece):
            heads[piece.head.id] = piece.head.name
            found.setdefault(piece.head.id, []).append(piece.text)
        else:
            assert not piece[1].strip(), (text, piece)
    return [(heads[call_id], json.loads("".join(texts))) for call_id, texts in found.items()]


@pytest.mark.parametrize("spec", SPECS)
def test_when_a_call_is_forced_then_what_the_family_writes_itself_fits(spec: ToolSpec) -> None:
    frame = AnswerFrame(tools=spec.form)
    plan = plan_answer(AnswerShape(tools=TOOLS, tool_choice="required"), frame)
    weather = ("get_weather", {"city": "Oslo", "unit": "celsius", "days": 3, "now": True})
    assert matches(plan.grammar, write_calls(spec.form, [weather])), write_calls(spec.form, [weather])
    both = write_calls(spec.form, [weather, ("add", {"a": 1, "b": 2.5})])
    assert matches(plan.grammar, both) == (not spec.form.one_call), both
    one = plan_answer(AnswerShape(tools=TOOLS, tool_choice="required", parallel_tool_calls=False), frame)
    assert not matches(one.grammar, both)
    assert not matches(plan.grammar, write_calls(spec.form, [("rm", {})]))


@pytest.mark.parametrize("spec", SPECS)
def test_when_a_call_is_forced_then_all_that_can_be_written_is_read_as_calls_that_fit(spec: ToolSpec) -> None:
    frame = AnswerFrame(tools=spec.form)
    plan = plan_answer(AnswerShape(tools=TOOLS, tool_choice="required"), frame)
    n_calls = 0
    for raw in texts_of(plan.grammar, 8, patience=80):
        text = raw.decode()
        calls = calls_in(text, frame)
        assert calls, text
        n_calls += len(calls)
        for name, arguments in calls:
            if isinstance(spec.form.arguments, JsonArguments):
                jsonschema.validate(arguments, SCHEMAS[name])
            else:
                assert set(arguments) <= set(SCHEMAS[name].get("properties", {})) or name == "list_files", text
    assert n_calls >= 8


@pytest.mark.parametrize("spec", SPECS)
def test_when_a_call_is_optional_then_its_text_from_the_trigger_on_fits(spec: ToolSpec) -> None:
    plan = plan_answer(AnswerShape(tools=TOOLS), AnswerFrame(tools=spec.form))
    assert plan.triggers
    written = write_calls(spec.form, [("get_weather", {"city": "Oslo", "days": 3})])
    starts = [written.find(trigger) for trigger, _ in plan.triggers if trigger in written]
    assert starts, (plan.triggers, written)
    assert matches(plan.grammar, written[min(starts) :]), written


def test_when_a_tool_is_named_then_only_that_one_can_be_called() -> None:
    plan = plan_answer(AnswerShape(tools=TOOLS, tool_choice="required", tool_name="add"), AnswerFrame(tools=PLAIN_FORM))
    assert matches(plan.grammar, write_calls(PLAIN_FORM, [("add", {"a": 1})]))
    assert not matches(plan.grammar, write_calls(PLAIN_FORM, [("list_files", {})]))


def test_when_json_is_asked_for_and_tools_may_be_called_then_either_fits() -> None:
    shape = AnswerShape(tools=TOOLS, json_schema='{"type": "array", "items": {"type": "integer"}}')
    plan = plan_answer(shape, AnswerFrame(tools=PLAIN_FORM))
    assert not plan.triggers
    assert matches(plan.grammar, "[1, 2]")
    assert matches(plan.grammar, write_calls(PLAIN_FORM, [("add", {"a": 1})]))
    assert not matches(plan.grammar, "hello")


def test_when_the_answer_has_marks_then_the_json_stands_between_them() -> None:
    frame = AnswerFrame(
        thought_open="<|channel|>analysis<|message|>",
        thought_close="<|end|>",
        may_think=True,
        after_thought="<|start|>assistant",
        content_open="<|channel|>final<|message|>",
        thought_budget=5,
        forced_close="<|end|><|start|>assistant",
    )
    plan = plan_answer(AnswerShape(json_schema="{}"), frame)
    assert matches(plan.grammar, "<|start|>assistant<|channel|>final<|message|>{}")
    assert matches(plan.grammar, "<|channel|>final<|message|>[]")
    assert not matches(plan.grammar, "{}")
    assert (plan.may_think, plan.thought_budget, plan.forced_close) == (True, 5, "<|end|><|start|>assistant")


def test_when_a_grammar_is_brought_then_it_stands_behind_the_thought() -> None:
    own = 'root ::= "yes" | "no"'
    assert plan_answer(AnswerShape(), FREE_FRAME, own).grammar == own
    thinking = AnswerFrame(thought_open="<think>", thought_close="</think>", may_think=True, thought_is_open=True)
    plan = plan_answer(AnswerShape(), thinking, own)
    assert matches(plan.grammar, "\n\nyes", plan.root)
    assert not matches(plan.grammar, "maybe", plan.root)


def test_when_nothing_is_asked_then_the_plan_is_free() -> None:
    assert plan_answer(AnswerShape(), FREE_FRAME).is_free
    assert plan_answer(AnswerShape(tools=TOOLS, tool_choice="none"), FREE_FRAME).is_free


def test_when_a_tool_asks_for_what_is_not_supported_then_only_that_is_loosened() -> None:
    schema = {
        "type": "object",
        "properties": {
            "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
            "not": {"type": "integer"},
            "mode": {"type": "string", "not": {"const": "x"}},
        },
        "required": ["not"],
    }
    tool = Tool("tag", "", json.dumps(schema))
    plan = plan_answer(AnswerShape(tools=(tool,), tool_choice="required"), AnswerFrame(tools=PLAIN_FORM))
    assert matches(plan.grammar, write_calls(PLAIN_FORM, [("tag", {"tags": ["a", "a"], "not": 3, "mode": "y"})]))
    assert not matches(plan.grammar, write_calls(PLAIN_FORM, [("tag", {"tags": ["a"], "not": "3"})]))


@pytest.mark.parametrize(
    ("shape", "own", "words"),
    [
        (AnswerShape(tool_choice="required"), "", "no tools"),
        (AnswerShape(tools=TOOLS, tool_choice="required", tool_name="rm"), "", "'rm'"),
        (AnswerShape(json_schema="{}"), 'root ::= "a"', "cannot be combined"),
        (AnswerShape(tools=TOOLS, tool_choice="required"), 'root ::= "a"', "cannot be combined"),
        (AnswerShape(tools=(Tool("f", "", "[1"),)), "", "The tool f: .* no JSON"),
    ],
)
def test_when_wishes_contradict_then_it_is_said(shape: AnswerShape, own: str, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        plan_answer(shape, AnswerFrame(tools=PLAIN_FORM), own)
