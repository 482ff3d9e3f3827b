"""From a decoded JSON body to typed values, with errors that a person understands. For all dialects.

`null` is the same as not there, and a wrong type or range is named by its field.
"""

import re
from typing import Any, TypeVar

import msgspec

from runtime.errors import BadRequest
from runtime.host.api.http import MAX_DEPTH_SENTENCE

Raw = dict[str, Any]
"""A decoded JSON object; it does not leave the module of its dialect."""

T = TypeVar("T")

_SEEDS = 2**32

_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def without_nulls(raw: Raw) -> Raw:
    """The fields that say something."""
    return {name: value for name, value in raw.items() if value is not None}


def seed_of(value: object) -> object:
    """A dialect's seed as ours: signed 64-bit ones stay the same seed, -1 is llama.cpp's "any"."""
    if isinstance(value, int) and not isinstance(value, bool):
        return None if value == -1 else value % _SEEDS
    return value


def typed(raw: object, kind: type[T]) -> T:
    """Check a decoded value against its declaration.

    Raises:
        BadRequest: names the field, and says what it should be.
    """
    try:
        return msgspec.convert(raw, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise _explained(str(error)) from None
    except RecursionError:
        raise BadRequest(MAX_DEPTH_SENTENCE, hint="Send plainer values.") from None


def json_text(value: object) -> str:
    """A value that came as JSON, as JSON text again (schemas, arguments).

    Raises:
        BadRequest: it is nested too deeply.
    """
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:
        raise BadRequest(MAX_DEPTH_SENTENCE, hint="Send plainer values.") from None


def _explained(text: str) -> BadRequest:
    """`Expected `int`, got `str` - at `$.top_k`` -> a sentence about `top_k`."""
    problem, _, raw_path = text.partition(" - at ")
    path = raw_path.replace("`key` in ", "").strip("`").removeprefix("$").removeprefix(".").removeprefix("sampling.")
    path = re.sub(r"\[\.\.\.\]$", "", path)
    name = f"`{path}`" if path else "The request"
    missing = re.fullmatch(r"Object missing required field `(\w+)`", problem)
    if missing:
        whole = f"{path}.{missing[1]}" if path else missing[1]
        return BadRequest(f"`{whole}` is missing.", hint="Add it.", param=whole)
    kinds = re.fullmatch(r"Expected `([^`]+)`, got `([^`]+)`", problem)
    if kinds:
        wanted = " or ".join(_WORDS.get(kind, kind) for kind in kinds[1].split(" | "))
        return BadRequest(f"{name} must be {wanted}, not {_WORDS.get(kinds[2], kinds[2])}.", param=path)
    span = re.fullmatch(r"Expected `\w+` (.*)", problem)
    if span:
        return BadRequest(f"{name} must be {span[1]}.", param=path)
    return BadRequest(f"{name}: {problem}.", param=path)
