import random

import pytest

from runtime.chat.regions import RegionParser, make_parser
from runtime.chat.response import (
    ReasoningParser,
    RegionSpec,
    ResponseSample,
    ResponseSpec,
    TagSpec,
    choose_spec,
    load_specs,
)

CASES = [(spec, sample) for spec in load_specs() for sample in spec.samples]
THINK = next(spec for spec in load_specs() if isinstance(spec, TagSpec) and spec.name == "think")
GPT_OSS = next(spec for spec in load_specs() if isinstance(spec, RegionSpec) and spec.name == "gpt_oss")


def parse(spec: ResponseSpec, answer_start: str, parts: list[str]) -> tuple[str, str, int]:
    parser = make_parser(spec, answer_start, is_continued=False)
    found = {"reasoning": "", "content": ""}
    for part in parts:
        for kind, text in parser.feed(part, 1):
            assert text
            found[kind] += text
    for kind, text in parser.finish():
        found[kind] += text
    return found["reasoning"], found["content"], parser.reasoning_tokens


@pytest.mark.parametrize(("spec", "sample"), CASES, ids=lambda value: getattr(value, "name", ""))
def test_sample_when_cut_at_any_two_places_then_gives_the_same_parts(
    spec: ResponseSpec, sample: ResponseSample
) -> None:
    text, expected = sample.text, (sample.reasoning, sample.content)
    for first in range(len(text) + 1):
        # Every pair of places in short samples; in long ones every place with the end of the text.
        for second in range(first if len(text) < 90 else len(text), len(text) + 1):
            parts = [text[:first], text[first:second], text[second:]]
            assert parse(spec, sample.answer_start, parts)[:2] == expected
    assert parse(spec, sample.answer_start, list(text))[:2] == expected


@pytest.mark.parametrize(("spec", "sample"), CASES, ids=lambda value: getattr(value, "name", ""))
def test_sample_when_cut_at_random_then_gives_the_same_parts(spec: ResponseSpec, sample: ResponseSample) -> None:
    chance = random.Random(7)
    for _ in range(200):
        cuts = sorted(chance.randint(0, len(sample.text)) for _ in range(chance.randint(1, 12)))
        parts = [sample.text[a:b] for a, b in zip([0, *cuts], [*cuts, len(sample.text)], strict=True)]
        assert parse(spec, sample.answer_start, parts)[:2] == (sample.reasoning, sample.content)


def test_every_spec_when_loaded_then_has_samples_with_and_without_a_thought() -> None:
    assert len({spec.name for spec in load_specs()}) == len(load_specs())
    for spec in load_specs():
        assert any(sample.reasoning for sample in spec.samples)
        assert any(not sample.reasoning for sample in spec.samples)


def test_tokens_of_a_thought_when_counted_then_the_tags_count_and_the_answer_does_not() -> None:
    parts = ["<think>", "\n", "a", " b", "\n", "</think>", "\n\n", "Yes", "."]
    assert parse(THINK, "", parts) == ("a b", "Yes.", 6)
    assert parse(THINK, "", ["<th", "ink>", "a", "</think>", "Yes"]) == ("a", "Yes", 4)
    assert parse(THINK, "", ["Hello", " you"]) == ("", "Hello you", 0)
    assert parse(THINK, "assistant\n<think>\n", ["a", "</think>", "b"]) == ("a", "b", 2)


def test_thought_when_still_open_then_is_streamed_and_not_kept_back() -> None:
    parser = ReasoningParser(THINK, "<think>\n")
    assert parser.feed("First words", 1) == [("reasoning", "First words")]
    assert parser.feed(" and more </", 1) == [("reasoning", " and more")]
    assert parser.in_reasoning


def test_answer_when_the_thought_is_over_then_needs_no_parser_any_more() -> None:
    parser = ReasoningParser(THINK)
    before = parser.is_plain
    parser.feed("<think>a</think>b", 1)
    assert (before, parser.is_plain) == (False, True)
    assert parser.feed(" <think>no</think>", 1) == [("content", " <think>no</think>")]


@pytest.mark.parametrize(
    ("answer_start", "text", "expected"),
    [
        ("Hello, I am", " a <think>model</think>", ("", " a <think>model</think>")),
        ("<think>\nso far", " and on</think>Yes", (" and on", "Yes")),
        ("<think>\nall</think>\n\nYes, ", " but", ("", " but")),
    ],
)
def test_answer_when_continued_then_goes_on_where_it_was(
    answer_start: str, text: str, expected: tuple[str, str]
) -> None:
    parser = ReasoningParser(THINK, answer_start, is_continued=True)
    found = {"reasoning": "", "content": ""}
    for kind, piece in [*parser.feed(text, 1), *parser.finish()]:
        found[kind] += piece
    assert (found["reasoning"], found["content"]) == expected


def test_spec_when_chosen_then_it_is_by_what_the_template_mentions() -> None:
    chosen = choose_spec("{% if '</think>' in content %}", load_specs())
    assert chosen is not None
    assert chosen.name == "think"
    assert choose_spec("{{ message.content }}", load_specs()) is None


def test_channels_when_counted_then_marks_of_a_thought_count_and_those_of_the_answer_do_not() -> None:
    parts = ["<|channel|>", "analysis", "<|message|>", "Hm", ".", "<|end|>", "<|start|>", "assistant"]
    parts += ["<|channel|>", "final", "<|message|>", "Yes"]
    assert parse(GPT_OSS, "<|start|>assistant", parts) == ("Hm.", "Yes", 6)


def test_region_that_does_not_read_when_closed_then_its_text_is_not_lost() -> None:
    grammar: dict[str, object] = {
        "start_anchor": "<|start|>",
        "fields": {"call": {"open": "<call>", "close": "</call>", "content": "json"}, "loose": {}},
    }
    spec = RegionSpec("calls", (), (), {"loose": "content", "call": "content"}, grammar, ())
    parser = RegionParser(spec)
    pieces = [piece for text in ("Look: ", "<call>", "{broken", "</call>", " and on") for piece in parser.feed(text, 1)]
    assert "".join(text for _, text in pieces).startswith("Look: {broken")
    assert pieces[-1] == ("content", " and on")
    assert parser.finish() == []
