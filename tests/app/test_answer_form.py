"""Forms of answers: which one settings ask for."""

import pytest

from app.answer_form import Form, form_of, with_form
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
