"""What form an answer must have: free text, JSON, JSON that fits a schema, or a grammar. No Qt here."""

from typing import Literal

import msgspec

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
