"""What tool calls look like in a model's text: read by the parser, written into prompts, made into grammars.

An answer that is nothing but calls (a forced one) is this text and nothing else::

    section_open CALL (call_separator CALL)* section_close
    CALL = call_open NAME name_close ARGUMENTS call_close

`{index}` in any of them stands for the number of the call, counted from 0. White space in them is how the model
usually writes it; the parser takes any amount of it, none included, between two such texts.

In a free answer a section begins where one of `triggers` appears, and goes on with the trigger's `then`, a name,
and the rest as above. A trigger that is not one token of the vocabulary may share a token with what comes next, so
a grammar that starts there has to take white space wherever the texts here have or may have it.

ARGUMENTS is one of the classes of `ArgumentStyle`.
"""

from collections.abc import Mapping, Sequence

import msgspec


class JsonArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="style", tag="json"):
    """A JSON object."""


class TaggedArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="style", tag="tagged"):
    """Each argument between tags: `key_open KEY key_close VALUE value_close`, one after the other.

    A string is written as it is, without quotes or escapes, and does not contain `value_close` (stripped of white
    space); any other value is JSON.

    Attributes:
        other_key_close: takes the place of `key_close` where the value is no string; "" is the same.
    """

    key_open: str
    key_close: str
    value_close: str
    other_key_close: str = ""


class BraceArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="style", tag="braces"):
    """JSON but for two things: keys are bare words, and strings stand between `quote` without escapes."""

    quote: str


class KeywordArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="style", tag="keywords"):
    """`key=value, key=value` with Python's literals: JSON, but `True`, `False` and `None`."""


ArgumentStyle = JsonArguments | TaggedArguments | BraceArguments | KeywordArguments


class Trigger(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a section begins in a free answer.

    Attributes:
        text: appears literally.
        then: what stands between it and the name of the first call.
        at_start: only counts as the first text of the answer (behind a thought and white space).
    """

    text: str
    then: str = ""
    at_start: bool = False


class ToolFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one family writes calls; see the module.

    Attributes:
        name_close_also: what models write in the place of `name_close` too; only read, never forced. `{id}` stands
            for any letters and digits.
        one_call: an answer holds one call at most.
    """

    call_open: str
    name_close: str
    call_close: str
    triggers: tuple[Trigger, ...]
    arguments: ArgumentStyle = msgspec.field(default_factory=JsonArguments)
    section_open: str = ""
    section_close: str = ""
    call_separator: str = ""
    name_close_also: tuple[str, ...] = ()
    one_call: bool = False


class AnswerFrame(msgspec.Struct, frozen=True):
    """What stands around the parts of one answer; with it a constraint finds its place. Made for each request.

    Attributes:
        tools: how calls are written; `None` if the request has no tools.
        thought_open, thought_close: the tags around a thought; "" if the model does not think in a known way.
        thought_is_open: the prompt has opened the thought; the answer begins inside.
        may_think: the answer may (or does) begin with a thought; a constraint then begins behind it.
        forced_close: text that ends a thought whose budget is used up (`thought_close` with its white space, and
            what opens the next part where there is such a mark).
        thought_budget: most tokens of thought before `forced_close` is written; None is no bound.
        after_thought: text between a thought and what follows, such as a new turn mark; optional white space else.
        content_open, content_close: marks around the text of an answer ("" in most families); a JSON answer is
            `content_open JSON content_close`.
    """

    tools: ToolFormat | None = None
    thought_open: str = ""
    thought_close: str = ""
    thought_is_open: bool = False
    may_think: bool = False
    forced_close: str = ""
    thought_budget: int | None = None
    after_thought: str = ""
    content_open: str = ""
    content_close: str = ""


FREE_FRAME = AnswerFrame()
"""That of an answer with nothing around it."""


def numbered(text: str, index: int) -> str:
    """Put the number of the call in its place."""
    return text.replace("{index}", str(index))


def write_calls(form: ToolFormat, calls: Sequence[tuple[str, Mapping[str, object]]]) -> str:
    """The text of an answer that makes these calls (name and arguments)."""
    written = [
        numbered(form.call_open, index)
        + name
        + numbered(form.name_close, index)
        + write_arguments(form.arguments, arguments)
        + numbered(form.call_close, index)
        for index, (name, arguments) in enumerate(calls)
    ]
    return form.section_open + form.call_separator.join(written) + form.section_close


def write_arguments(style: ArgumentStyle, arguments: Mapping[str, object]) -> str:
    """The arguments of one call as the family writes them."""
    if isinstance(style, JsonArguments):
        return _json(arguments)
    if isinstance(style, TaggedArguments):
        return "".join(
            style.key_open
            + key
            + (style.key_close if isinstance(value, str) else style.other_key_close or style.key_close)
            + (value if isinstance(value, str) else _json(value))
            + style.value_close
            for key, value in arguments.items()
        )
    if isinstance(style, BraceArguments):
        return _braces(arguments, style.quote)
    return ", ".join(f"{key}={_python(value)}" for key, value in arguments.items())


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def _braces(value: object, quote: str) -> str:
    if isinstance(value, str):
        return quote + value + quote
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_braces(item, quote)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(_braces(item, quote) for item in value) + "]"
    return _json(value)


def _python(value: object) -> str:
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_json(str(key))}: {_python(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_python(item) for item in value) + "]"
    return _json(value)
