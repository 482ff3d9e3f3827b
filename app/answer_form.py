"""What form an answer must have: free text, JSON, JSON that fits a schema, or a grammar. No Qt here."""

import json
import re
from typing import Literal

import msgspec

from runtime.errors import BadRequest
from runtime.grammar.gbnf import read_gbnf
from runtime.grammar.json_schema import grammar_of
from runtime.messages.shared import AnswerShape
from runtime.options import GenerateOptions

Form = Literal["text", "json", "schema", "grammar"]

ANY_JSON = "{}"

SCHEMA_EXAMPLES: tuple[tuple[str, str], ...] = (
    (
        "person",
        """{
  "type": "object",
  "properties": {
    "name": { "type": "string" },
    "age": { "type": "integer", "minimum": 0, "maximum": 130 },
    "email": { "type": "string", "format": "email" }
  },
  "required": ["name", "age"],
  "additionalProperties": false
}""",
    ),
    (
        "list",
        """{
  "type": "object",
  "properties": {
    "items": {
      "type": "array",
      "minItems": 1,
      "maxItems": 10,
      "items": { "type": "string", "maxLength": 80 }
    }
  },
  "required": ["items"]
}""",
    ),
    (
        "choice",
        """{
  "type": "object",
  "properties": {
    "sentiment": { "enum": ["positive", "neutral", "negative"] },
    "reason": { "type": "string", "maxLength": 200 }
  },
  "required": ["sentiment", "reason"]
}""",
    ),
)
"""Key and schema; the window has a title for each key."""

GRAMMAR_EXAMPLES: tuple[tuple[str, str], ...] = (
    ("yes_no", 'root ::= "yes" | "no"'),
    ("numbered", 'root ::= item{3,10}\nitem ::= "- " [^\\n]{1,80} "\\n"'),
    ("date", 'root ::= [0-9]{4} "-" [0-9]{2} "-" [0-9]{2}'),
)


def form_of(shape: AnswerShape, options: GenerateOptions) -> Form:
    """The form that these ask for."""
    if options.sampling.grammar.strip():
        return "grammar"
    if not shape.json_schema.strip():
        return "text"
    return "json" if shape.json_schema.strip() == ANY_JSON else "schema"


def with_form(
    shape: AnswerShape, options: GenerateOptions, form: Form, text: str
) -> tuple[AnswerShape, GenerateOptions]:
    """Both, changed to ask for a form; `text` is the schema or the grammar, which exclude each other."""
    schema = {"json": ANY_JSON, "schema": text}.get(form, "")
    grammar = text if form == "grammar" else ""
    sampling = msgspec.structs.replace(options.sampling, grammar=grammar)
    return (
        msgspec.structs.replace(shape, json_schema=schema),
        msgspec.structs.replace(options, sampling=sampling),
    )


def problem_of(form: Form, text: str) -> str:
    """Why a schema or grammar cannot be used, with the line where known; empty if it can.

    A large schema takes some tenths of a second: call it on a lane.
    """
    try:
        if form == "schema":
            json.loads(text)
            grammar_of(text)
        elif form == "grammar":
            read_gbnf(text, lambda _text: 0)  # which tokens there are, the model knows
    except json.JSONDecodeError as error:
        return f"Line {error.lineno}, column {error.colno}: {error.msg}."
    except RecursionError:
        return "It nests too deeply."
    except BadRequest as error:
        line = _line_of(text, error)
        why = error.message.partition(": ")[2] or error.message
        return f"{f'Line {line}: ' if line else ''}{why[:1].upper()}{why[1:]}"
    return ""


def _line_of(text: str, error: BadRequest) -> int:
    """The line that an error speaks of, from 1; 0 where it cannot be told."""
    named = str(error.details.get("keyword", "")) or next(iter(re.findall(r"[\"']([^\"']+)[\"']", error.message)), "")
    if not named:
        return 0
    places = [found.start() for found in re.finditer(rf"(?<![\w-]){re.escape(named)}(?![\w-])", text)]
    # Of a word that stands there more than once nobody can tell which one is meant.
    return text.count("\n", 0, places[0]) + 1 if len(places) == 1 else 0
