import json
import random
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.chat.tool_format import write_calls
from runtime.chat.tool_parser import CallPiece, ToolParser
from runtime.chat.tool_specs import PLAIN_FORM, ToolSample, ToolSpec, choose_tool_spec, load_tool_specs
from runtime.messages.shared import Tool


def tool(name: str, **properties: object) -> Tool:
    return Tool(name, f"About {name}.", json.dumps({"type": "object", "properties": properties}))


TOOLS = (
    tool("get_weather", city={"type": "string"}, days={"type": "integer"}),
    tool(
        "search",
        query={"type": "string"},
        limit={"type": ["integer", "null"]},
        filters={"type": "object"},
        exact={"type": "boolean"},
    ),
    tool("write_file", path={"type": "string"}, content={"type": "string"}),
    tool("now"),
)
CASES = [(spec, sample) for spec in load_tool_specs() for sample in spec.samples]
Found = tuple[str, list[tuple[str, object]]]


def parse(spec: ToolSpec, parts: list[str]) -> Found:
    parser = ToolParser(spec.form, TOOLS)
    content = ""
    calls: list[tuple[str, object]] = []
    pieces = [piece for part in parts for piece in parser.feed(part)] + parser.finish()
    for piece in pieces:
        if isinstance(piece, CallPiece):
            assert piece.head.index == len(calls)
            calls.append((piece.head.name, json.loads(piece.text)))
        else:
            assert piece[0] == "content"
            assert piece[1]
            content += piece[1]
    assert parser.n_calls == len(calls)
    return content, calls


def expected(sample: ToolSample) -> Found:
    return sample.content, [(call.name, call.arguments) for call in sample.calls]


@pytest.mark.parametrize(("spec", "sample"), CASES, ids=lambda value: getattr(value, "name", ""))
def test_sample_when_cut_at_any_place_then_gives_the_same_text_and_calls(spec: ToolSpec, sample: ToolSample) -> None:
    text = sample.text
    for first in range(len(text) + 1):
        assert parse(spec, [text[:first], text[first:]]) == expected(sample)
    assert parse(spec, list(text)) == expected(sample)


@pytest.mark.parametrize(("spec", "sample"), CASES, ids=lambda value: getattr(value, "name", ""))
def test_sample_when_cut_at_random_then_gives_the_same_text_and_calls(spec: ToolSpec, sample: ToolSample) -> None:
    chance = random.Random(11)
    for _ in range(20):
        cuts = sorted(chance.randint(0, len(sample.text)) for _ in range(chance.randint(2, 12)))
        parts = [sample.text[a:b] for a, b in zip([0, *cuts], [*cuts, len(sample.text)], strict=True)]
        assert parse(spec, parts) == expected(sample)


@pytest.mark.parametrize("spec", load_tool_specs(), ids=lambda spec: spec.name)
def test_spec_when_loaded_then_has_samples_with_and_without_calls(spec: ToolSpec) -> None:
    assert any(sample.calls for sample in spec.samples)
    if spec.name != "minimax_m2":
        assert any(not sample.calls and sample.content for sample in spec.samples)
    assert spec.families


@pytest.mark.parametrize("spec", load_tool_specs(), ids=lambda spec: spec.name)
def test_forced_answer_when_written_in_the_form_then_is_read_as_those_calls(spec: ToolSpec) -> None:
    calls: list[tuple[str, dict[str, object]]] = [
        ("search", {"query": 'what\'s "new", then\n{1}', "limit": 3, "filters": {"a": [True, None]}, "exact": False}),
        ("now", {}),
        ("get_weather", {"city": "Rome", "days": -1}),
    ]
    for n_calls in (1, 3):
        made = calls[:n_calls]
        if n_calls == 1 or not spec.form.one_call:
            assert parse(spec, list(write_calls(spec.form, made))) == ("", made)


@pytest.mark.parametrize("spec", load_tool_specs(), ids=lambda spec: spec.name)
def test_trigger_when_it_begins_a_forced_answer_then_says_truly_what_follows(spec: ToolSpec) -> None:
    form = spec.form
    before_name = form.section_open + form.call_open
    assert any((trigger.text + trigger.then).strip() == before_name.strip() for trigger in form.triggers)


@pytest.mark.parametrize("spec", load_tool_specs(), ids=lambda spec: spec.name)
def test_call_when_an_answer_is_cut_in_it_then_no_text_is_lost(spec: ToolSpec) -> None:
    text = "Look: " + write_calls(spec.form, [("search", {"query": "Rome", "filters": {"tags": ["x"]}})])
    if any(trigger.at_start for trigger in spec.form.triggers):
        text = text.removeprefix("Look: ")
    for end in range(len(text)):
        content, calls = parse(spec, [text[:end]])
        assert calls or content.replace(" ", "") == text[:end].rstrip(" \n").replace(" ", "") or content == text[:end]


def test_specs_when_a_template_is_known_then_one_is_chosen_by_its_marks() -> None:
    marks = {spec.name: " ".join(spec.template_marks) for spec in load_tool_specs()}
    for name, text in marks.items():
        chosen = choose_tool_spec(text, load_tool_specs())
        assert chosen is not None
        assert chosen.name == name
    assert choose_tool_spec("{{ message.content }}", load_tool_specs()) is None


def test_plain_form_when_read_then_is_that_of_hermes() -> None:
    hermes = next(spec for spec in load_tool_specs() if spec.name == "hermes")
    assert hermes.form == PLAIN_FORM


def _words(spec: ToolSpec) -> list[str]:
    form = spec.form
    marks = [form.section_open, form.call_open, form.name_close, form.call_close, form.section_close]
    marks += [trigger.text for trigger in form.triggers]
    marks += [str(value) for value in msgspec.structs.asdict(form.arguments).values()]
    halves = [mark[: len(mark) // 2] for mark in marks] + [mark[len(mark) // 2 :] for mark in marks]
    pieces = ["search", "now", "query", '{"query": "x"}', '{"', "1", "null", "é", "\0", " ", "\n", *'"\\{}[]:,=()']
    return [*filter(None, [*marks, *halves]), *pieces]


@pytest.mark.parametrize("spec", load_tool_specs(), ids=lambda spec: spec.name)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_text_made_of_a_familys_marks_when_read_then_nothing_fails_and_cuts_do_not_matter(
    spec: ToolSpec, data: st.DataObject
) -> None:
    words = data.draw(st.lists(st.sampled_from(_words(spec)), max_size=24))
    text = "".join(words)
    whole = parse(spec, [text])
    assert parse(spec, words) == whole
    assert parse(spec, list(text)) == whole
    if not whole[1]:
        assert whole[0] == text


@pytest.mark.parametrize("spec", load_tool_specs(), ids=lambda spec: spec.name)
@pytest.mark.parametrize("deep", ["[", '{"a":', "{a:", "(", "\\", '"', "<"])
def test_endless_nesting_when_read_then_is_text_after_a_bounded_time(spec: ToolSpec, deep: str) -> None:
    trigger = spec.form.triggers[0]
    text = trigger.text + trigger.then.replace("{index}", "0") + "search" + spec.form.name_close + deep * 20_000
    started = time.monotonic()
    content, calls = parse(spec, [text[i : i + 1000] for i in range(0, len(text), 1000)])
    assert time.monotonic() - started < 10
    assert not calls
    assert content == text
