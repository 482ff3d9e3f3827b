"""Reads a section of tool calls, as a family writes them, while it comes in."""

import re
from dataclasses import dataclass
from functools import cached_property

from runtime.chat.source import Reading, Source, Unreadable
from runtime.chat.tool_arguments import (
    Json,
    ParameterTypes,
    json_text,
    object_text,
    parse_json,
    read_braces,
    read_keywords,
    read_tagged,
)
from runtime.chat.tool_format import BraceArguments, JsonArguments, TaggedArguments, ToolFormat, Trigger

_NAME_KEYS = ("name", "tool_name", "function_name", "function", "tool")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "function_args")


@dataclass(frozen=True, slots=True)
class ReadCall:
    """A call; `arguments` is the text of a JSON object."""

    name: str
    arguments: str


class CallReader:
    """Reads calls of one format. Home thread: any (immutable).

    Where a call is a JSON object (`{"name": ..., "arguments": ...}`), it is read as such: the order of its keys,
    white space and further keys do not matter.
    """

    def __init__(self, form: ToolFormat, types: ParameterTypes) -> None:
        self._form = form
        self._types = types

    @cached_property
    def _is_object(self) -> bool:
        return "{" in self._form.call_open and isinstance(self._form.arguments, JsonArguments)

    @cached_property
    def _name_is_key(self) -> bool:
        """Whether the object has the name as its only key: `{"get_time": {...}}`."""
        return self._form.call_open.rstrip().endswith('{"')

    @cached_property
    def _next(self) -> str:
        """What comes between two calls, up to where reading a call begins."""
        return self._form.call_separator + self._before_object(self._form.call_open)

    @cached_property
    def _section_closes(self) -> tuple[str, ...]:
        """How a section may end: as it should, or with only the bracket, or only what comes behind the bracket."""
        whole = self._form.section_close
        bracket, found, rest = whole.partition("]")
        return (whole, "]", *([rest] if rest.strip() else [])) if found and not bracket.strip() else (whole,)

    def _before_object(self, text: str) -> str:
        return text[: text.index("{")] if self._is_object and "{" in text else text

    def section(self, source: Source, trigger: Trigger, found: list[ReadCall]) -> Reading[None]:
        """Read the section that begins with `trigger` at the place of `source`; the place is then behind it.

        Calls are added to `found` as they close, and what is before the last of them is dropped.

        Raises:
            Unreadable: what follows is no call. Where calls came before it, they stand.
        """
        yield from self._begin(source, trigger)
        while True:
            calls = yield from (self._object(source) if self._is_object else self._call(source))
            if trigger.at_start and any(call.name not in self._types.names for call in calls):
                raise Unreadable  # JSON that only looks like a call
            found += calls
            source.drop_read()
            if self._form.section_close:
                if (yield from source.is_over()) or (yield from source.one_of(self._section_closes)):
                    return
            elif not self._next.strip() and (
                not trigger.at_start or (yield from source.is_over()) or (yield from source.here()) != "{"
            ):
                return
            if not (yield from source.form(self._next)):
                return
            if self._form.one_call:
                raise Unreadable

    def _begin(self, source: Source, trigger: Trigger) -> Reading[None]:
        yield from source.is_over()
        if trigger.at_start and self._is_object:
            start = source.at
            if not (yield from source.form(_loosened(trigger.text))):
                raise Unreadable
            source.at = source.text.index("{", start)
            return
        if not (yield from source.literal(trigger.text)):
            raise Unreadable
        before = self._before_object(trigger.then)
        if (yield from source.form(before)):
            return
        # One call may come without the list around it.
        if not before.rstrip().endswith("[") or not (yield from source.form(before.rstrip().removesuffix("["))):
            raise Unreadable

    def _close(self, source: Source, text: str) -> Reading[None]:
        """The end of a call. The call is whole already: one that is not there is not missed."""
        if text.strip() and not (yield from source.is_over()):
            yield from source.form(text)

    def _object(self, source: Source) -> Reading[list[ReadCall]]:
        value = parse_json((yield from source.json()))
        calls = [self._call_of(item) for item in (value if isinstance(value, list) else [value])]
        if not calls:
            raise Unreadable
        yield from self._close(source, self._form.call_close.rpartition("}")[2])
        return calls

    def _call_of(self, value: Json) -> ReadCall:
        if not isinstance(value, dict) or not value:
            raise Unreadable
        if self._name_is_key:
            name, arguments = next(iter(value.items()))
            return ReadCall(name, _arguments(arguments))
        inner = value.get("function")
        if isinstance(inner, dict):
            value = inner
        name_key = next((key for key in _NAME_KEYS if key in value), "")
        found = value.get(name_key)
        if not isinstance(found, str) or not found:
            raise Unreadable
        key = next((key for key in _ARGUMENT_KEYS if key in value), "")
        return ReadCall(found, _arguments(value.get(key)))

    def _call(self, source: Source) -> Reading[list[ReadCall]]:
        form = self._form
        name = yield from source.name()
        if not (yield from source.one_of((form.name_close, *form.name_close_also))):
            raise Unreadable
        style = form.arguments
        if isinstance(style, TaggedArguments):
            arguments = json_text((yield from read_tagged(source, style, name, self._types, form.call_close)))
            if not (yield from source.is_over()) and not (yield from source.form(form.call_close)):
                raise Unreadable
            return [ReadCall(name, arguments)]
        if isinstance(style, JsonArguments):
            arguments = "{}"
            if (yield from source.here()) and not (yield from source.form(form.call_close.strip() or "\0")):
                arguments = object_text((yield from source.json()))
                yield from self._close(source, form.call_close)
            return [ReadCall(name, arguments)]
        if isinstance(style, BraceArguments):
            value = yield from read_braces(source, style.quote)
            if not isinstance(value, dict):
                raise Unreadable
        else:
            value = yield from read_keywords(source)
        yield from self._close(source, form.call_close)
        return [ReadCall(name, json_text(value))]


def _loosened(text: str) -> str:
    """The form of a piece of JSON, with white space wherever JSON may have it."""
    return re.sub(r'([{}\[\]":,])', r" \1 ", text)


def _arguments(value: Json) -> str:
    if value is None:
        return "{}"
    if isinstance(value, str):
        return object_text(value) if value.strip() else "{}"
    if not isinstance(value, dict):
        raise Unreadable
    return json_text(value)
