import datetime
import json
import time

import pytest

from runtime.chat import sandbox
from runtime.chat import template as template_module
from runtime.chat.ask import make_ask
from runtime.chat.template import ChatTemplate
from runtime.chat.tool_format import TaggedArguments
from runtime.chat.tool_specs import PLAIN_FORM
from runtime.errors import BadRequest
from runtime.messages.shared import AnswerShape, Message, Tool, ToolCall
from tests.support import tool_templates

NOW = datetime.datetime(2026, 3, 4, tzinfo=datetime.UTC)
WEATHER = Tool("get_weather", "Tells the weather.", '{"type": "object", "properties": {"city": {"type": "string"}}}')
SHAPE = AnswerShape(tools=(WEATHER, Tool("now", "Tells the time.")))
CALLS = (ToolCall("toolu_01A", "get_weather", '{"city":  "Rome"}'), ToolCall("toolu_02B", "now", ""))
TALK = (
    Message("system", "Be brief."),
    Message("user", "Weather and time?"),
    Message("assistant", tool_calls=CALLS),
    Message("tool", "sunny", tool_call_id="toolu_01A"),
    Message("tool", "noon", tool_call_id="toolu_02B"),
)


def make(text: str, special_texts: tuple[str, ...] = ()) -> ChatTemplate:
    return ChatTemplate(text, bos_token="<s>", eos_token="</s>", clock=lambda: NOW, special_texts=special_texts)


def render(template: ChatTemplate, *messages: Message, shape: AnswerShape = SHAPE) -> str:
    return template.render(messages, now=NOW, add_generation_prompt=True, ask=make_ask(shape))


@pytest.mark.parametrize(
    "text",
    [
        tool_templates.HERMES,
        tool_templates.TAGGED,
        tool_templates.STRICT,
        tool_templates.ONE_CALL,
        tool_templates.IDS_WITH_NAMES,
        tool_templates.KNOWS_NONE,
    ],
    ids=["hermes", "tagged", "strict", "one_call", "ids_with_names", "knows_none"],
)
def test_conversation_with_tools_when_rendered_then_every_family_shows_all_of_it(text: str) -> None:
    shown = render(make(text), *TALK, Message("user", "And tomorrow?"))
    for word in ("Be brief.", "get_weather", "Tells the time.", "Rome", "sunny", "noon", "And tomorrow?"):
        assert word in shown


def test_template_that_takes_both_when_rendered_then_arguments_are_as_the_model_wrote_them() -> None:
    template = make(tool_templates.HERMES)
    assert template.abilities.arguments == "text"
    assert '{"name": "get_weather", "arguments": {"city":  "Rome"}}' in render(template, *TALK)
    assert '{"name": "now", "arguments": {}}' in render(template, *TALK)


def test_template_that_wants_objects_when_rendered_then_gets_them() -> None:
    template = make(tool_templates.TAGGED)
    assert template.abilities.arguments == "object"
    assert '<call:x name="get_weather"><value:x key="city">Rome</value:x></call:x>' in render(template, *TALK)


def test_arguments_that_are_no_object_when_the_template_wants_one_then_the_call_is_named() -> None:
    broken = Message("assistant", tool_calls=(ToolCall("c7", "now", "[1]"),))
    with pytest.raises(BadRequest, match="c7"):
        render(make(tool_templates.TAGGED), TALK[1], broken)


def test_template_with_short_ids_when_rendered_then_each_id_is_shortened_alike() -> None:
    template = make(tool_templates.STRICT)
    assert template.abilities.ids == "nine"
    shown = render(template, *TALK)
    short = json.loads(shown.split("[TOOL_CALLS] ")[1].split("</s>")[0])[0]["id"]
    assert len(short) == 9
    assert f"[RESULT]{short}:sunny" in shown


def test_template_whose_ids_carry_names_when_rendered_then_ids_are_made_so() -> None:
    template = make(tool_templates.IDS_WITH_NAMES)
    assert template.abilities.ids == "function"
    shown = render(template, *TALK)
    assert "<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>" in shown
    assert "## Return of functions.now:1: noon" in shown


def test_template_that_takes_one_call_when_there_are_two_then_each_gets_its_turn_and_result() -> None:
    template = make(tool_templates.ONE_CALL)
    assert template.abilities.one_call
    shown = render(template, *TALK)
    places = [
        shown.index(word) for word in ('"name": "get_weather", "parameters"', "sunny", '"name": "now", "p', "noon")
    ]
    assert places == sorted(places)


def test_template_without_tools_when_asked_with_some_then_the_system_turn_tells_them() -> None:
    template = make(tool_templates.KNOWS_NONE)
    assert not template.abilities.shows_tools
    assert template.form == PLAIN_FORM
    shown = render(template, *TALK)
    assert shown.startswith("<start>user\nBe brief.\n\nYou can call functions.")
    assert '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>' in shown
    assert "<tool_response>\nsunny\n</tool_response>\n<tool_response>\nnoon\n</tool_response>" in shown


def test_tools_when_none_may_be_called_then_are_not_shown() -> None:
    for text in (tool_templates.HERMES, tool_templates.KNOWS_NONE):
        shape = AnswerShape(tools=SHAPE.tools, tool_choice="none")
        assert "get_weather" not in render(make(text), TALK[1], shape=shape)


def test_template_of_no_known_family_when_it_shows_calls_then_their_form_is_derived() -> None:
    form = make(tool_templates.TAGGED).form
    assert isinstance(form.arguments, TaggedArguments)
    assert form.section_open + form.call_open == '<calls:x><call:x name="'
    assert form.triggers[0].text == "<calls:x>"
    assert form.arguments.key_open.strip() == '<value:x key="'
    assert form.arguments.value_close.strip() == "</value:x>"
    assert form.section_close.strip() == "</calls:x>"


@pytest.mark.parametrize(
    ("text", "trigger"),
    [
        (tool_templates.HERMES, "<tool_call>"),
        (tool_templates.STRICT, "[TOOL_CALLS]"),
        (tool_templates.IDS_WITH_NAMES, "<|tool_calls_section_begin|>"),
        (tool_templates.ONE_CALL, "<|python_tag|>"),
    ],
)
def test_template_of_a_known_family_when_read_then_its_spec_is_used(text: str, trigger: str) -> None:
    assert make(text).form.triggers[0].text == trigger


def test_template_that_is_silent_when_the_vocabulary_has_the_marks_then_they_decide() -> None:
    text = "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}" + "{{ messages[-1].content }}"
    assert make(text, ("<|tool_call_start|>", "<|x|>")).form.triggers[0].text == "<|tool_call_start|>"


def test_template_whose_calls_cannot_be_read_when_it_shows_tools_then_ours_are_told_instead() -> None:
    text = (
        "{% for t in tools or [] %}native {{ t.function.name }}{% endfor %}"
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
        "{{ c.function.name | upper }} with {{ c.function.arguments }}{% endfor %}{% endfor %}"
    )
    template = make(text)
    assert template.form == PLAIN_FORM
    shown = render(template, *TALK)
    assert "native" not in shown
    assert shown.count("<tool_call>") == 3  # one in the instruction
    assert "<tool_response>\nsunny\n</tool_response>" in shown


def test_switch_for_reasoning_when_the_template_has_one_then_it_is_found() -> None:
    assert make(tool_templates.HERMES).abilities.switches_reasoning
    assert not make(tool_templates.TAGGED).abilities.switches_reasoning
    assert "<think>\n\n</think>" in render(make(tool_templates.HERMES), TALK[1], shape=AnswerShape(reasoning="off"))


def test_template_that_reads_descriptions_when_a_parameter_has_none_then_gets_an_empty_one() -> None:
    text = (
        "{% for t in tools or [] %}{% for k, p in t.function.parameters.properties | items %}"
        "{{ t.function.name + k + p['description'] }}{% endfor %}{% endfor %}{{ messages[-1].content }}"
    )
    template = make(text, ("<|tool_call_start|>",))
    assert template.abilities.describes
    assert "get_weathercity" in render(template, TALK[1])


def test_template_with_tools_in_the_system_message_when_rendered_then_they_are_there_as_text() -> None:
    text = (
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if 'tools' in m and m['tools'] %}"
        "<|tool|>{{ m['tools'] }}<|/tool|>{% endif %}<|end|>{% endfor %}"
    )
    template = make(text, ("<|tool_call_start|>",))
    assert template.abilities.system_tools
    assert '<|tool|>[{"name": "get_weather"' in render(template, TALK[1])


def test_template_that_never_ends_when_tried_out_then_takes_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "RENDER_LIMIT_S", 0.2)
    monkeypatch.setattr(template_module, "TRIAL_LIMIT_S", 0.5)
    started = time.monotonic()
    template = make("{% set r = range(100000) %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}")
    assert time.monotonic() - started < 5
    assert not template.abilities.shows_tools
    assert template.form == PLAIN_FORM


def test_template_that_takes_thought_or_text_when_a_call_has_both_then_both_are_shown() -> None:
    text = tool_templates.HERMES.replace(
        "{%- for call in m.tool_calls or [] %}",
        "{%- if m.tool_calls and m.content and m.thinking %}{{ raise_exception('one of both') }}{% endif %}"
        "{{ '<think>' + m.thinking + '</think>' if m.thinking }}{%- for call in m.tool_calls or [] %}",
    )
    template = make(text)
    assert not template.abilities.thought_beside_text
    assert make(tool_templates.HERMES).abilities.thought_beside_text
    shown = render(template, TALK[1], Message("assistant", "I look.", "I should.", tool_calls=CALLS))
    assert "<think>I should.\n\nI look.</think>" in shown
    assert "Rome" in shown
