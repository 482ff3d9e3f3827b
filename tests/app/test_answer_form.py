"""Forms of answers: which one settings ask for, and what is wrong with a schema or grammar, by line."""

import pytest

from app.answer_form import GRAMMAR_EXAMPLES, SCHEMA_EXAMPLES, Form, form_of, problem_of, with_form
from runtime.messages.shared import AnswerShape
from runtime.options import GenerateOptions


@pytest.mark.parametrize("form", ["text", "json", "schema", "grammar"])
def test_when_a_form_is_asked_for_then_it_is_the_only_one(form: Form) -> None:
    shape, options = AnswerShape(reasoning="on", json_schema='{"type": "null"}'), GenerateOptions(max_tokens=7)
    text = 'root ::= "a"' if form == "grammar" else '{"type": "string"}'
    shape, options = with_form(shape, options, form, text)
    assert form_of(shape, options) == form
    assert (shape.reasoning, options.max_tokens) == ("on", 7)
    assert bool(shape.json_schema) + bool(options.sampling.grammar) == (form != "text")
    assert form_of(*with_form(shape, options, "text", text)) == "text"


@pytest.mark.parametrize(("key", "text"), SCHEMA_EXAMPLES)
def test_when_an_example_of_a_schema_is_taken_then_it_can_be_used(key: str, text: str) -> None:
    assert problem_of("schema", text) == "", key


@pytest.mark.parametrize(("key", "text"), GRAMMAR_EXAMPLES)
def test_when_an_example_of_a_grammar_is_taken_then_it_can_be_used(key: str, text: str) -> None:
    assert problem_of("grammar", text) == "", key


@pytest.mark.parametrize(
    ("form", "text", "words"),
    [
        ("schema", '{\n  "type": "object",\n  "properties": {,}\n}', "Line 3, column"),
        ("schema", '{\n  "type": "object",\n  "not": {}\n}', "Line 3: The keyword"),
        ("schema", "[1]", "schema"),
        ("schema", "", "Line 1"),
        ("schema", "[" * 100_000, "nests"),
        ("grammar", 'root ::= "a" | tail\n', "Line 1: Undefined rule identifier 'tail'"),
        ("grammar", 'start ::= "a"', "no rule named root"),
        ("grammar", 'root ::= "a', "Unexpected end"),
    ],
)
def test_when_a_text_cannot_be_used_then_it_says_where_and_why(form: Form, text: str, words: str) -> None:
    assert words.casefold() in problem_of(form, text).casefold()


def test_when_a_grammar_names_tokens_then_the_model_decides() -> None:
    assert problem_of("grammar", "root ::= <|eot_id|> | <[5]>") == ""
    assert problem_of("text", "anything") == problem_of("json", "anything") == ""
