"""Whether a schema or grammar that a person typed can be used. No Qt here.

Beside `app.answer_form`, so that only whoever checks a text loads the compiler of grammars, and no start does.
"""

import json
import re

from app.answer_form import Form
from runtime.errors import BadRequest
from runtime.grammar.gbnf import read_gbnf
from runtime.grammar.json_schema import grammar_of


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
