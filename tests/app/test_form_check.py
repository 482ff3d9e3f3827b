"""What is wrong with a schema or grammar, by line."""

import subprocess
import sys

import pytest

from app.answer_form import GRAMMAR_EXAMPLES, SCHEMA_EXAMPLES, Form
from app.form_check import problem_of


def test_when_the_window_is_loaded_then_the_compiler_of_grammars_is_not() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "import app.main, sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    loaded = ended.stdout.split()
    assert "app.ui.window" in loaded
    assert [name for name in loaded if name.startswith("runtime.grammar")] == []


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
