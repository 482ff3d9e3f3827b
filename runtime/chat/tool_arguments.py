"""Arguments of a call, from the ways families write them to the JSON text that callers expect."""

import ast
import json
import re
from collections.abc import Mapping
from typing import NoReturn

import msgspec

from runtime.chat.source import MAX_DEPTH, Reading, Source, Unreadable, fixed_part
from runtime.chat.tool_format import TaggedArguments
from runtime.messages.shared import Tool

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]

_TO_CLOSE = re.compile(r"""["'()\[\]{}]""")
_ENDS = {quote: re.compile(rf"[{quote}\\]") for quote in "\"'"}
_WORDS: dict[str, Json] = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}


def _refuse(word: str) -> NoReturn:
    raise ValueError(word)


def parse_json(text: str) -> Json:
    """Read JSON that a model wrote; raw line breaks in strings are let through.

    Raises:
        Unreadable: if it is none.
    """
    try:
        value: Json = json.loads(text, strict=False, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise Unreadable from error
    return value


def json_text(value: Json) -> str:
    """JSON text of a value."""
    return json.dumps(value, ensure_ascii=False)


def object_text(raw: str) -> str:
    """Arguments as the model wrote them if they are a JSON object; mended if they nearly are.

    Raises:
        Unreadable: if they are something else.
    """
    try:
        msgspec.json.decode(raw, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        value = parse_json(raw)
        if not isinstance(value, dict):
            raise Unreadable from None
        return json_text(value)
    return raw


class ParameterTypes:
    """What the tools of a request say about the types of their parameters."""

    def __init__(self, tools: tuple[Tool, ...] = ()) -> None:
        self.names = frozenset(tool.name for tool in tools)
        self._properties: dict[str, dict[str, Json]] = {}
        for tool in tools:
            try:
                schema = json.loads(tool.parameters or "{}")
            except (ValueError, RecursionError):
                continue
            properties = schema.get("properties") if isinstance(schema, dict) else None
            if isinstance(properties, dict):
                self._properties[tool.name] = properties

    def value(self, tool: str, key: str, raw: str) -> Json:
        """The value of an argument that was written without quotes."""
        properties = self._properties.get(tool)
        known = None if properties is None else _types(properties.get(key))
        if known == frozenset(("string",)):
            return raw
        if raw.strip() in _WORDS:
            word = _WORDS[raw.strip()]
            name = "null" if word is None else "boolean"
            return word if not known or name in known or "string" not in known else raw
        try:
            value = parse_json(raw)
        except Unreadable:
            return raw
        if not known or "string" not in known:
            return value
        return value if _type_of(value) & known else raw


def _types(schema: object) -> frozenset[str]:
    """Types a schema allows; none where it does not say."""
    if not isinstance(schema, Mapping):
        return frozenset()
    given = schema.get("type")
    found = {given} if isinstance(given, str) else {item for item in given or () if isinstance(item, str)}
    for word in ("anyOf", "oneOf"):
        options = schema.get(word)
        for option in options if isinstance(options, list) else ():
            found |= _types(option)
    options = schema.get("enum")
    if not found and isinstance(options, list):
        found = set().union(*(_type_of(item) for item in options))
    return frozenset(found)


def _type_of(value: object) -> frozenset[str]:
    if value is None:
        return frozenset(("null",))
    if isinstance(value, bool):
        return frozenset(("boolean",))
    if isinstance(value, int):
        return frozenset(("integer", "number"))
    names: tuple[tuple[type, str], ...] = ((float, "number"), (str, "string"), (list, "array"))
    return frozenset((next((name for kind, name in names if isinstance(value, kind)), "object"),))


def read_tagged(
    source: Source, style: TaggedArguments, tool: str, types: ParameterTypes, call_close: str
) -> Reading[dict[str, Json]]:
    """Read arguments between tags; the place is then at the end of the call."""
    found: dict[str, Json] = {}
    while not (yield from source.is_over()) and (yield from source.form(style.key_open)):
        key = yield from source.until(
            [fixed_part(close) for close in (style.key_close, style.other_key_close) if close]
        )
        is_other = bool(style.other_key_close) and (yield from source.literal(style.other_key_close))
        if not is_other and not (yield from _exactly_or_nearly(source, style.key_close)):
            raise Unreadable
        raw = yield from _tagged_value(source, style, call_close)
        if is_other:
            found[key.strip()] = parse_json(raw)
        elif style.other_key_close:
            found[key.strip()] = raw
        else:
            found[key.strip()] = types.value(tool, key.strip(), raw)
    return found


def _exactly_or_nearly(source: Source, form: str) -> Reading[bool]:
    """Take a form; white space behind it is taken only where it is the form's own."""
    fixed = form.rstrip()
    if not (yield from source.form(fixed)):
        return False
    if form.endswith("\n"):
        yield from source.literal("\n")
    return True


def _tagged_value(source: Source, style: TaggedArguments, call_close: str) -> Reading[str]:
    """The text of a value. A closing tag counts only where the next argument or the end of the call follows."""
    mark = style.value_close.strip()
    text = ""
    while True:
        text += yield from source.until([mark])
        yield from source.literal(mark)
        place = source.at
        followers = [fixed_part(style.key_open), *([fixed_part(call_close)] if fixed_part(call_close) else [])]
        is_end = yield from source.is_over()
        for follower in followers:
            is_end = is_end or (yield from source.literal(follower))
        source.at = place
        if is_end:
            break
        text += mark
    return text.removesuffix("\n") if style.value_close.startswith("\n") else text


def read_braces(source: Source, quote: str, depth: int = 0) -> Reading[Json]:
    """Read a value whose strings stand between `quote` and whose keys are bare words."""
    if depth > MAX_DEPTH:
        raise Unreadable
    yield from source.is_over()
    if (yield from source.literal(quote)):
        text = yield from source.until([quote])
        yield from source.literal(quote)
        return text
    if (yield from source.literal("{")):
        found: dict[str, Json] = {}
        while not (yield from _closes(source, "}")):
            key = (yield from source.until([":"])).strip()
            yield from source.literal(":")
            found[key.replace(quote, "").strip('"')] = yield from read_braces(source, quote, depth + 1)
        return found
    if (yield from source.literal("[")):
        items: list[Json] = []
        while not (yield from _closes(source, "]")):
            items.append((yield from read_braces(source, quote, depth + 1)))
        return items
    if (yield from source.here()) == '"':
        return parse_json((yield from source.string()))
    word = (yield from source.until([",", "}", "]"])).strip()
    return _WORDS[word] if word in _WORDS else parse_json(word)


def _closes(source: Source, bracket: str) -> Reading[bool]:
    yield from source.is_over()
    if (yield from source.literal(",")):
        yield from source.is_over()
    return (yield from source.literal(bracket))


def read_keywords(source: Source) -> Reading[dict[str, Json]]:
    """Read `key=value, ...` up to the closing bracket, which is left."""
    start, depth = source.at, 0
    while True:
        found = _TO_CLOSE.search(source.text, source.at)
        if found is None:
            source.at = len(source.text)
            yield from source.more()
            continue
        sign = found.group()
        if sign == ")" and depth == 0:
            source.at = found.start()
            break
        source.at = found.end()
        if sign in _ENDS:
            yield from _python_string(source, _ENDS[sign])
        else:
            depth += 1 if sign in "([{" else -1
        if not 0 <= depth <= MAX_DEPTH:
            raise Unreadable
    return _keywords(source.text[start : source.at])


def _python_string(source: Source, end: re.Pattern[str]) -> Reading[None]:
    while True:
        found = end.search(source.text, source.at)
        if found is None:
            source.at = len(source.text)
            yield from source.more()
        elif found.group() != "\\":
            source.at = found.end()
            return
        else:
            while len(source.text) < found.end() + 1:
                yield from source.more()
            source.at = found.end() + 1


def _keywords(text: str) -> dict[str, Json]:
    try:
        call = ast.parse(f"f({text})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unreadable from error
    if not isinstance(call, ast.Call) or call.args:
        raise Unreadable
    found: dict[str, Json] = {}
    for keyword in call.keywords:
        if keyword.arg is None:
            raise Unreadable
        found[keyword.arg] = _literal(keyword.value)
    return found


def _literal(node: ast.expr) -> Json:
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float | bool | None):
        return node.value
    if isinstance(node, ast.Name) and node.id in _WORDS:
        return _WORDS[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        return [_literal(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        return {str(_literal(key)): _literal(value) for key, value in zip(node.keys, node.values, strict=True) if key}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _literal(node.operand)
        if isinstance(value, int | float):
            return -value
    raise Unreadable
