"""Grammars in a running engine: bad ones end their own request only."""

import json
import time
from collections.abc import Iterator

import jsonschema
import pytest
from msgspec.structs import replace

from runtime.chat.tool_format import AnswerFrame
from runtime.chat.tool_parser import CallPiece, ToolParser
from runtime.chat.tool_specs import PLAIN_FORM
from runtime.errors import BadRequest
from runtime.grammar.answer import AnswerPlan
from runtime.grammar.plan import plan_answer
from runtime.messages.shared import AnswerShape, Tool
from runtime.options import GenerateOptions, SamplingOptions
from runtime.scheduler.types import Done, Ended, EngineRequest
from runtime.worker.grammar import Grammars
from runtime.worker.guide import Guide
from tests.fakes.engine_rig import EngineRig, chat, running, starter
from tests.grammar.test_matcher import HARMLESS, HOSTILE

GREEDY = SamplingOptions(temperature=0)


@pytest.fixture(scope="module")
def rig() -> Iterator[EngineRig]:
    with running(starter()) as found:
        yield found


def ask(rig: EngineRig, plan: AnswerPlan, prompt: str = "Hello", **options: object) -> tuple[list[str], Done]:
    name = f"plan-{time.monotonic_ns()}"
    chosen = GenerateOptions(**{"max_tokens": 80, "sampling": GREEDY, **options})  # type: ignore[arg-type]
    rig.engine.submit(EngineRequest(name, chat(rig.model, prompt), chosen, plan=plan))
    ending = rig.wait(name)
    assert isinstance(ending, Done)
    return [rig.texts[name, choice] for choice in range(chosen.n)], ending


def test_when_a_grammar_is_too_ambiguous_then_its_request_fails_and_the_others_go_on(rig: EngineRig) -> None:
    other = rig.submit("Tell me a long story.", max_tokens=60, ignore_eos=True)
    names = []
    for grammar in HOSTILE.values():
        # The model is made to walk into it: only the letters of the grammar are likely.
        bias = dict.fromkeys(rig.model.vocab.tokenize("aaaaaaaa", add_special=False, parse_special=False), 50.0)
        sampling = SamplingOptions(temperature=0, grammar=grammar, logit_bias=bias)
        try:
            names.append(rig.submit("Write aaaa", sampling=sampling, max_tokens=60, n=2))
        except BadRequest as error:
            assert "too ambiguous" in error.message  # noqa: PT017 - some cannot even begin
    assert len(names) >= 2
    for name in names:
        rig.wait_until(lambda name=name: bool(rig.ends[name]))  # type: ignore[misc]
        ending = rig.ends[name][0]
        assert isinstance(ending, Ended)
        assert "too ambiguous" in ending.failure.message
        assert ending.failure.status == 400
        assert len(rig.ends[name]) == 1
    done = rig.wait(other)
    assert isinstance(done, Done)
    assert done.reasons == ("length",)
    assert rig.engine._scheduler.n_active == 0


def test_when_a_grammar_is_ambiguous_but_small_then_it_is_followed(rig: EngineRig) -> None:
    for grammar, _text in HARMLESS.values():
        sampling = SamplingOptions(temperature=0, grammar=grammar)
        _text, done = rig.ask("Hi", sampling=sampling, max_tokens=16)
        assert done.reasons[0] in {"stop", "length"}


def test_when_several_choices_follow_a_grammar_then_each_is_led_by_itself(rig: EngineRig) -> None:
    grammar = 'root ::= "{\\"n\\": " [0-9]{1,6} ", \\"w\\": \\"" [a-z]{1,9} "\\"}"'
    texts, done = ask(rig, AnswerPlan(grammar=grammar), n=3, sampling=SamplingOptions(temperature=2.0, seed=5))
    assert done.reasons == ("stop",) * 3
    assert len({json.dumps(json.loads(text)) for text in texts}) > 1


def test_when_a_grammar_and_a_stop_string_meet_then_the_stop_string_ends_the_answer(rig: EngineRig) -> None:
    texts, done = ask(rig, AnswerPlan(grammar='root ::= "one two three"'), stop=("two",))
    assert (texts, done.stop_strings) == (["one "], ("two",))


# --- calls, JSON and thoughts ---

WEATHER = Tool(
    "get_weather",
    "The weather of a city.",
    '{"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}, '
    '"days": {"type": "integer", "minimum": 1, "maximum": 7}}, "required": ["city", "days"]}',
)
CLOCK = Tool("get_time")
THINKING = AnswerFrame(
    thought_open="<think>", thought_close="</think>", may_think=True, forced_close="\n</think>\n\n", tools=PLAIN_FORM
)


def calls_in(text: str) -> list[tuple[str, object]]:
    parser = ToolParser(PLAIN_FORM, (WEATHER, CLOCK))
    pieces = [*parser.feed(text), *parser.finish()]
    return [(piece.head.name, json.loads(piece.text)) for piece in pieces if isinstance(piece, CallPiece)]


def test_when_a_call_is_required_then_the_smallest_model_makes_one(rig: EngineRig) -> None:
    shape = AnswerShape(tools=(WEATHER, CLOCK), tool_choice="required", parallel_tool_calls=False)
    plan = plan_answer(shape, AnswerFrame(tools=PLAIN_FORM))
    for sampling in (GREEDY, SamplingOptions(temperature=2.0, seed=3)):
        (text,), done = ask(rig, plan, "Hello there", sampling=sampling, max_tokens=120)
        assert done.reasons == ("stop",)
        ((name, arguments),) = calls_in(text)
        assert name in {"get_weather", "get_time"}
        if name == "get_weather":
            jsonschema.validate(arguments, json.loads(WEATHER.parameters))


def test_when_a_tool_is_named_then_it_is_that_one(rig: EngineRig) -> None:
    shape = AnswerShape(tools=(WEATHER, CLOCK), tool_choice="required", tool_name="get_time", parallel_tool_calls=False)
    (text,), _done = ask(rig, plan_answer(shape, AnswerFrame(tools=PLAIN_FORM)), "What is the weather?")
    assert calls_in(text) == [("get_time", {})]


def test_when_a_call_is_optional_then_it_is_led_from_its_trigger_on(rig: EngineRig) -> None:
    plan = plan_answer(AnswerShape(tools=(WEATHER,), parallel_tool_calls=False), AnswerFrame(tools=PLAIN_FORM))
    (text,), _done = ask(rig, plan, "Say hello.", max_tokens=12)
    assert text.strip()
    assert calls_in(text) == []
    # This model would not begin a call by itself.
    vocab = rig.model.vocab
    guide = Guide(plan, Grammars(vocab).walk(plan.grammar), vocab, ())
    for token in vocab.tokenize("Let me see. <tool_call>", add_special=False, parse_special=True):
        assert guide.allows(token)
        guide.accept(token)
    for token in vocab.tokenize('{"name": "get_wea', add_special=False, parse_special=True):
        assert guide.allows(token)
        guide.accept(token)
    (wrong,) = vocab.tokenize("x", add_special=False, parse_special=False)
    (right,) = vocab.tokenize("ther", add_special=False, parse_special=False)
    assert not guide.allows(wrong)
    assert guide.mask()[right]
    assert not guide.mask()[wrong]


def test_when_json_is_asked_for_then_it_fits_the_schema(rig: EngineRig) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 120}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    plan = plan_answer(AnswerShape(json_schema=json.dumps(schema)), AnswerFrame())
    for sampling in (GREEDY, SamplingOptions(temperature=1.5, seed=9)):
        (text,), done = ask(rig, plan, "Describe a person.", sampling=sampling)
        assert done.reasons == ("stop",)
        jsonschema.validate(json.loads(text), schema)


def test_when_a_thought_is_open_then_its_budget_closes_it_and_the_json_follows(rig: EngineRig) -> None:
    frame = replace(THINKING, thought_is_open=True, thought_budget=8, tools=None)
    plan = plan_answer(
        AnswerShape(json_schema='{"type": "array", "items": {"enum": [1, 2]}, "minItems": 2, "maxItems": 3}'), frame
    )
    (text,), done = ask(rig, plan, "Why is the sky blue?")
    thought, closed, answer = text.partition("</think>")
    assert closed
    assert thought.strip()
    assert len(rig.model.vocab.tokenize(thought, add_special=False, parse_special=False)) <= 8 + 2
    assert done.reasons == ("stop",)
    assert json.loads(answer)[0] in {1, 2}


def test_when_the_thought_has_no_budget_left_at_all_then_it_is_closed_at_once(rig: EngineRig) -> None:
    frame = replace(THINKING, thought_is_open=True, thought_budget=0, tools=None)
    (text,), _done = ask(rig, plan_answer(AnswerShape(), frame), "Hello", max_tokens=12)
    assert text.lstrip().startswith("</think>")
    assert text.partition("</think>")[2].strip()


def test_when_a_thought_may_come_and_does_not_then_the_grammar_holds_at_once(rig: EngineRig) -> None:
    plan = plan_answer(AnswerShape(json_schema='{"const": "yes"}'), replace(THINKING, tools=None))
    (text,), _done = ask(rig, plan, "Hello")
    thought, closed, answer = text.partition("</think>")
    assert json.loads(answer if closed else thought) == "yes"
