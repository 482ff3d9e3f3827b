"""Derives from a template how its model writes thoughts and tool calls, for families no spec knows.

A conversation is rendered twice, with and without the thing in question. What the two have in common stands around
it; what is left is taken apart at the words that were put in. A form found this way counts only if what the
template wrote can be read back with it.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from runtime.chat.response import TagSpec
from runtime.chat.tool_format import (
    ArgumentStyle,
    BraceArguments,
    JsonArguments,
    KeywordArguments,
    TaggedArguments,
    ToolFormat,
    Trigger,
)
from runtime.chat.tool_parser import CallPiece, ToolParser
from runtime.messages.shared import Tool

Calls = tuple[tuple[str, dict[str, object]], ...]
RenderAnswer = Callable[[str, str, Calls], str]
"""Renders a user turn and an answer of (content, reasoning, calls) with `PROBE_TOOLS`; "" where that is refused."""

_CONTENT, _THOUGHT = "Probe\u2603content", "Probe\u2604thought"
_ONE: Calls = (("probe_alpha", {"first_key": "first value", "second_key": 7351}),)
_TWO: Calls = (*_ONE, ("probe_omega", {"third_key": "third value", "fourth_key": 8462}))
PROBE_TOOLS = tuple(
    Tool(
        name,
        parameters=json.dumps(
            {
                "properties": {
                    key: {"type": "integer" if isinstance(value, int) else "string"} for key, value in given.items()
                }
            }
        ),
    )
    for name, given in _TWO
)
_MARK = re.compile(r"<[^<>\s]+>|\[[^\[\]\s\"'{}]+\]")
MIN_MARK_CHARS = 3
PROBE_ID = "probeid"
"""Ids of the calls begin so; a form that has one in it cannot be told apart from the id."""


def _common_start(one: str, other: str) -> str:
    count = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:count]


def _common_end(one: str, other: str) -> str:
    return _common_start(one[::-1], other[::-1])[::-1]


def _mark_start(text: str, at: int) -> int:
    """Where the mark begins that `at` is inside of, else `at`: two marks may begin with the same letters."""
    for opening, closing in (("<", ">"), ("[", "]")):
        start = text.rfind(opening, 0, at)
        if start >= 0 and closing not in text[start:at]:
            return start
    return at


def _mark_end(text: str, at: int) -> int:
    """Where the mark ends that `at` is inside of, else `at`."""
    start = _mark_start(text, at)
    if start == at:
        return at
    end = text.find(">" if text[start] == "<" else "]", at)
    return end + 1 if end >= 0 else at


def derive_tags(render: RenderAnswer) -> TagSpec | None:
    """The tags around a thought; `None` if the template writes none."""
    with_thought, without = render(_CONTENT, _THOUGHT, ()), render(_CONTENT, "", ())
    before, found, rest = with_thought.partition(_THOUGHT)
    between, found_content, _ = rest.partition(_CONTENT)
    if not found or not found_content or not without:
        return None
    head = without.partition(_CONTENT)[0]
    opened = before[_mark_start(before, len(_common_start(before, head))) :]
    tag, close = opened.strip(), between.strip()
    if not (_MARK.fullmatch(tag) and _MARK.fullmatch(close)) or tag == close:
        return None
    return TagSpec("derived", (), (), tag, close, ())


def derive_form(render: RenderAnswer, *, one_call: bool) -> ToolFormat | None:
    """How calls are written; `None` if that cannot be told.

    Args:
        render: the template.
        one_call: it takes only one call in a turn.
    """
    plain, one, two = render(_CONTENT, "", ()), render("", "", _ONE), render("", "", _TWO)
    section = _section(plain, one)
    if section is None:
        return None
    cut = _cut(section, *_ONE[0])
    if cut is None:
        return None
    both = None if one_call else _section(plain, two)
    form = _form(cut, _between(both, cut) if both else None)
    if form is None:
        return None
    expected = _TWO if not form.one_call else _ONE
    text = both if both and not form.one_call else section
    return form if _read(form, text) == [(name, given) for name, given in expected] else None


def can_read(render: RenderAnswer, form: ToolFormat) -> bool:
    """Whether a form reads what the template writes."""
    section = _section(render(_CONTENT, "", ()), render("", "", _ONE))
    return section is not None and _read(form, section) == list(_ONE)


def _section(plain: str, with_calls: str) -> str | None:
    """The text of the calls: what stands in the place of the content."""
    head, found, tail = plain.partition(_CONTENT)
    if not found or not with_calls:
        return None
    start = _mark_start(with_calls, len(_common_start(head, with_calls)))
    end = _mark_end(with_calls, len(with_calls) - len(_common_end(tail, with_calls)))
    section = with_calls[start:end]
    closed = section.rfind("</think>", 0, max(section.find(_ONE[0][0]), 0))
    return section[closed + len("</think>") :] if closed >= 0 else section


@dataclass(frozen=True, slots=True)
class _Cut:
    """One call taken apart: `head NAME name_close ARGUMENTS tail`."""

    head: str
    name_close: str
    style: ArgumentStyle
    tail: str


def _cut(section: str, name: str, given: dict[str, object]) -> _Cut | None:
    head, found, rest = section.partition(name)
    if not found:
        return None
    for written in (json.dumps(given), json.dumps(given, separators=(",", ":"))):
        name_close, is_json, tail = rest.partition(written)
        if is_json:
            return _Cut(head, name_close, JsonArguments(), tail)
    (first, first_value), (second, second_value) = ((key, str(value)) for key, value in given.items())
    pieces: list[str] = []
    for word in (first, first_value, second, second_value):
        piece, found, rest = rest.partition(word)
        if not found:
            return None
        pieces.append(piece)
    return _cut_values(head, pieces, rest)


def _cut_values(head: str, pieces: list[str], tail: str) -> _Cut | None:
    before_first, string_close, between, other_close = pieces
    quote = string_close.removeprefix(":").strip()
    if before_first.endswith("{") and string_close.startswith(":") and quote and other_close == ":":
        return _Cut(head, before_first.removesuffix("{"), BraceArguments(quote), tail.removeprefix("}"))
    if string_close in ("='", '="') and other_close == "=":
        return _Cut(head, before_first, KeywordArguments(), tail)
    key_open = _common_end(before_first, between)
    mark = re.search(r"[<\[]", key_open)  # before it stands the end of something else
    key_open = key_open[mark.start() :] if mark else key_open.lstrip()
    value_close = between.removesuffix(key_open)
    if not key_open or not value_close.strip() or not string_close:
        return None
    end = value_close if tail.startswith(value_close) else value_close.rstrip()
    if not tail.startswith(end):
        return None
    style = TaggedArguments(key_open, string_close, value_close, "" if other_close == string_close else other_close)
    return _Cut(head, before_first.removesuffix(key_open), style, tail.removeprefix(end))


def _between(both: str, cut: _Cut) -> str | None:
    """What stands between the arguments of the first call and the name of the second."""
    name = _TWO[1][0]
    first_values = [str(value) for value in _ONE[0][1].values()]
    at = both.find(name)
    if at < 0:
        return None
    before = both[:at]
    last = before.rfind(first_values[-1])
    if last < 0:
        return None
    rest = before[last + len(first_values[-1]) :]
    if isinstance(cut.style, JsonArguments | BraceArguments):
        return rest.removeprefix("}")
    if isinstance(cut.style, TaggedArguments):
        close = cut.style.value_close
        return rest.removeprefix(close if rest.startswith(close) else close.rstrip())
    return rest


def _form(cut: _Cut, between: str | None) -> ToolFormat | None:
    head, tail = cut.head, cut.tail
    if between is None:
        call_open, section_open, call_close, section_close, separator = head, "", tail, "", ""
    else:
        call_close = tail[: _mark_start(tail, len(_common_start(tail, between)))]
        section_close = tail[len(call_close) :]
        rest = between[len(call_close) :]
        call_open = _common_end(head, rest)
        section_open, separator = head.removesuffix(call_open), rest.removesuffix(call_open)
    section_open = section_open.lstrip()
    if not section_open:
        call_open = call_open.lstrip()
        if between is None:
            call_close = _without_turn_end(call_close, len(_MARK.findall(call_open)))
    section_close = _without_turn_end(section_close, len(_MARK.findall(section_open)))
    trigger = _trigger(section_open + call_open)
    if trigger is None or PROBE_ID in section_open + call_open + cut.name_close:
        return None
    return ToolFormat(
        section_open=section_open,
        call_open=call_open,
        name_close=cut.name_close,
        arguments=cut.style,
        call_close=call_close,
        call_separator=separator,
        section_close=section_close.rstrip(),
        triggers=(trigger,),
        one_call=between is None,
    )


def _without_turn_end(close: str, n_marks: int) -> str:
    """The end of a section without what ends the turn: it closes no more marks than were opened."""
    marks = list(_MARK.finditer(close))
    if len(marks) <= n_marks:
        return close[: _mark_start(close, len(close))]
    return close[: marks[n_marks].start()]


def _trigger(head: str) -> Trigger | None:
    """The mark a section begins with."""
    mark = _MARK.match(head)
    if mark is not None:
        return Trigger(mark.group(), head[mark.end() :])
    if head.startswith("{"):
        return Trigger(head, at_start=True)
    text = head.partition("{")[0].rstrip()
    return Trigger(text, head[len(text) :]) if len(text) >= MIN_MARK_CHARS else None


def _read(form: ToolFormat, text: str) -> list[tuple[str, object]]:
    parser = ToolParser(form, PROBE_TOOLS)
    pieces = [*parser.feed(text), *parser.finish()]
    return [(piece.head.name, json.loads(piece.text)) for piece in pieces if isinstance(piece, CallPiece)]
