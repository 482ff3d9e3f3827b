"""Tool calls as grammars, in the form a family of models writes them."""

import re
from collections.abc import Sequence

from runtime.chat.tool_format import (
    BraceArguments,
    JsonArguments,
    KeywordArguments,
    TaggedArguments,
    ToolFormat,
    Trigger,
    numbered,
)
from runtime.errors import BadRequest
from runtime.grammar.json_schema import JSON, Dialect, SchemaWriter
from runtime.grammar.rules import RuleSet, counted, either, literal, sequence, until
from runtime.grammar.schema_terms import Schema, Unsatisfiable, as_schema, names, properties, to_json
from runtime.grammar.strings import StringForm
from runtime.messages.shared import Tool

MAX_CALLS = 16
"""Calls of one answer that must call; small models would not stop."""
PYTHON = Dialect(StringForm(is_python=True), true="True", false="False", null="None")
_SPACE = "[ \\n\\t]{0,24}"
_NAME = "[A-Za-z_] [A-Za-z0-9_]{0,63}"
_MAX_LOOSENED = 16


class CallWriter:
    """Writes the calls of one request's tools.

    Args:
        rules: where the rules go.
        form: how the model writes calls.
        tools: those that may be called.
        several: more than one call in an answer.
    """

    def __init__(self, rules: RuleSet, form: ToolFormat, tools: Sequence[Tool], *, several: bool) -> None:
        self._rules = rules
        self._form = form
        self._tools = tools
        self._several = several and not form.one_call
        self._arguments = {tool.name: self._arguments_of(tool) for tool in tools}

    def answer(self) -> str:
        """An answer that is nothing but calls."""
        form = self._form
        first = sequence([literal(numbered(form.call_open, 0)), self._named(0)])
        return sequence([literal(form.section_open), first, self._more(), literal(form.section_close)])

    def behind(self, trigger: Trigger) -> str:
        """What stands in a free answer from a trigger on, the trigger included."""
        begun = sequence([literal(trigger.text), _loose(numbered(trigger.then, 0))])
        return sequence([begun, self._named(0, loose=True), self._more(loose=True), _loose(self._form.section_close)])

    def _more(self, *, loose: bool = False) -> str:
        if not self._several:
            return ""
        form, write = self._form, _loose if loose else literal
        opened = _indexed(form.call_open, write)
        call = sequence([write(form.call_separator), opened, self._named(1, loose=loose)])
        return self._rules.rule(counted(call, 0, MAX_CALLS - 1))

    def _named(self, index: int, *, loose: bool = False) -> str:
        """From the name of a call to its end."""
        form, write = self._form, _loose if loose else literal

        def text(given: str) -> str:
            return _indexed(given, write) if index else write(numbered(given, 0))

        return self._rules.rule(
            either(
                sequence([literal(tool.name), text(form.name_close), self._arguments[tool.name], text(form.call_close)])
                for tool in self._tools
            )
        )

    def _arguments_of(self, tool: Tool) -> str:
        """The arguments of a tool.

        What its schema asks for beyond what is supported is loosened, keyword by keyword: tools are described by
        others, and a call is checked by who made the tool.
        """
        text = tool.parameters or '{"type": "object", "properties": {}}'
        for _ in range(_MAX_LOOSENED):
            try:
                return self._style(text)
            except BadRequest as error:
                keyword = error.details.get("keyword")
                if not isinstance(keyword, str):
                    raise BadRequest(
                        f"The tool {tool.name}: {error.message}", hint=error.hint, param="tools"
                    ) from error
                text = _without(text, keyword)
        return self._style('{"type": "object"}')

    def _style(self, text: str) -> str:
        style = self._form.arguments
        if isinstance(style, JsonArguments):
            writer = _writer(self._rules, text, JSON)
            return writer.guarded(lambda: writer.value({**writer.schema, "type": "object"}))
        if isinstance(style, BraceArguments):
            quote = style.quote
            form = StringForm(quote, escapes=False, banned=((ord(quote[0]), ord(quote[0])),))
            writer = _writer(self._rules, text, Dialect(form, bare_keys=True, space='""'))
            return writer.guarded(lambda: writer.value({**writer.schema, "type": "object"}))
        if isinstance(style, KeywordArguments):
            return self._keywords(_writer(self._rules, text, PYTHON))
        return self._tagged(_writer(self._rules, text, JSON), style)

    def _keywords(self, writer: SchemaWriter) -> str:
        schema = writer.references.resolve(writer.schema)
        required = names(schema)
        pairs = []
        for name, value in properties(schema).items():
            written = writer.possible(value)
            if written is not None:
                pairs.append((sequence([literal(name + "="), written]), name in required))
        return chained(self._rules, pairs, ", ")

    def _tagged(self, writer: SchemaWriter, style: TaggedArguments) -> str:
        schema = writer.references.resolve(writer.schema)
        required = names(schema)
        declared = properties(schema)
        if not declared and schema.get("additionalProperties", True) is not False and "properties" not in schema:
            free = sequence([literal(style.key_open), _NAME, literal(style.key_close), self._until(style.value_close)])
            return self._rules.rule(counted(free, 0, 32))
        pairs = []
        for name, value in declared.items():
            written = self._tagged_value(writer, value, style)
            if written is not None:
                pairs.append((sequence([literal(style.key_open + name), written]), name in required))
        return chained(self._rules, pairs, "")

    def _tagged_value(self, writer: SchemaWriter, value: object, style: TaggedArguments) -> str | None:
        """From behind a key to the end of its value; None when there can be none."""
        try:
            schema = writer.references.resolve(as_schema(value))
        except Unsatisfiable:
            return None
        close = literal(style.key_close)
        if _may_be_text(schema):
            mark = style.value_close.strip() or style.value_close
            is_bounded = any(
                word in schema for word in ("enum", "const", "pattern", "format", "minLength", "maxLength")
            )
            if is_bounded and schema.get("type") == "string":
                form = StringForm("", escapes=False, banned=((ord(mark[0]), ord(mark[0])),))
                inner = SchemaWriter(self._rules, to_json(dict(schema)), Dialect(form))
                return sequence([close, inner.root(), literal(style.value_close)])
            return sequence([close, self._until(style.value_close)])
        written = writer.possible(schema)
        if written is None:
            return None
        return sequence([literal(style.other_key_close or style.key_close), written, literal(style.value_close)])

    def _until(self, close: str) -> str:
        mark = close.strip() or close
        trailing = close[close.index(mark) + len(mark) :]
        return sequence([until(self._rules, mark), literal(trailing)])


def chained(rules: RuleSet, pairs: Sequence[tuple[str, bool]], separator: str) -> str:
    """Parts in their order, of which some may be left out, with a text between neighbours."""
    first, after = '""', '""'
    for pair, is_required in reversed(pairs):
        later = sequence([literal(separator) if separator else "", pair, after])
        first_here = sequence([pair, after])
        first = rules.rule(first_here if is_required else either([first_here, first]))
        after = rules.rule(later if is_required else either([later, after]))
    return first


def _writer(rules: RuleSet, text: str, dialect: Dialect) -> SchemaWriter:
    return SchemaWriter(rules, text, dialect)


def _may_be_text(schema: Schema) -> bool:
    kinds = schema.get("type")
    listed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if kinds is None and isinstance(listed, list):
        return any(isinstance(value, str) for value in listed)
    if kinds is None:
        branches = schema.get("anyOf", schema.get("oneOf"))
        if isinstance(branches, list):
            return any(isinstance(branch, dict) and _may_be_text(branch) for branch in branches)
        return "properties" not in schema and "items" not in schema and "$ref" not in schema
    return "string" in (kinds if isinstance(kinds, list) else [kinds])


def _without(text: str, keyword: str) -> str:
    """A schema without a keyword, wherever it stands as one."""
    return to_json(_stripped(SchemaWriter(RuleSet(), text).schema, keyword))


def _stripped(value: object, keyword: str, *, are_names: bool = False) -> object:
    if isinstance(value, dict):
        return {
            key: _stripped(inner, keyword, are_names=not are_names and key in {"properties", "$defs", "definitions"})
            for key, inner in value.items()
            if are_names or key != keyword
        }
    return [_stripped(inner, keyword) for inner in value] if isinstance(value, list) else value


def _loose(text: str) -> str:
    """A text whose white space may be other white space, or none; a token may have taken some of it already."""
    parts = re.split(r"\s+", text)
    written: list[str] = []
    for index, part in enumerate(parts):
        if index:
            written.append(_SPACE)
        if part:
            written.append(literal(part))
    return sequence(written)


def _indexed(text: str, write: object) -> str:
    """A text with the number of a later call in it."""
    parts = text.split("{index}")
    written: list[str] = []
    for index, part in enumerate(parts):
        if index:
            written.append("[1-9] [0-9]?")
        if part:
            written.append(write(part))  # type: ignore[operator]
    return sequence(written)
