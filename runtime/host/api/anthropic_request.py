"""Anthropic Messages bodies: raw JSON in, our messages, options and answer shape out.

As that API's users expect, `max_tokens` is required, consecutive turns of one role become one, and a last assistant
turn is gone on with. Fields that only matter to a paid service (`metadata`, `service_tier`, `cache_control`,
`context_management`) are ignored; what would change the answer and cannot be honoured (tools that the server would
run, remote pictures, PDF files) is refused by name. `thinking` that is not there means none.
"""

from typing import Annotated, Any, Literal, TypeVar

import msgspec

from runtime.errors import BadRequest
from runtime.host.api.body import Raw, json_text, typed, without_nulls
from runtime.host.api.media import check_count, picture_of_base64, picture_of_url, with_pictures
from runtime.host.api.openai_shape import Choice, chosen
from runtime.messages.shared import (
    AnswerShape,
    MediaPart,
    Message,
    ReasoningEffort,
    ReasoningMode,
    TextPart,
    Tool,
    ToolCall,
    ToolChoice,
)
from runtime.options import MAX_INT, GenerateOptions

_SAMPLING = ("temperature", "top_p", "top_k")
_EFFORTS: dict[str, ReasoningEffort] = {
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
_THINKING: dict[str, ReasoningMode] = {"enabled": "on", "adaptive": "auto", "between_tools": "auto", "disabled": "off"}
_CHOICES: dict[str, ToolChoice] = {"auto": "auto", "any": "required", "tool": "required", "none": "none"}
_REFUSED = ("mcp_servers", "container")

B = TypeVar("B", bound="CountBody")


class _Block(msgspec.Struct, frozen=True):
    """Any content block; which fields must be there depends on `type`."""

    type: str
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] = {}
    tool_use_id: str = ""
    content: str | list["_Block"] | None = None
    is_error: bool = False
    title: str | None = None
    source: Any = None  # a text in search results, an object in pictures and documents


class _Source(msgspec.Struct, frozen=True):
    type: str
    data: str = ""
    url: str = ""
    media_type: str = ""
    content: str | list[_Block] = ""


class _Turn(msgspec.Struct, frozen=True):
    role: str
    content: str | list[_Block]


class _ToolSpec(msgspec.Struct, frozen=True):
    name: str
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class _ChoiceSpec(msgspec.Struct, frozen=True):
    type: Literal["auto", "any", "tool", "none"]
    name: str = ""
    disable_parallel_tool_use: bool = False


class _Thinking(msgspec.Struct, frozen=True):
    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: Annotated[int, msgspec.Meta(ge=0, le=MAX_INT)] | None = None


class _Format(msgspec.Struct, frozen=True):
    type: Literal["json_schema"]
    schema: dict[str, Any]


class _OutputConfig(msgspec.Struct, frozen=True):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: _Format | None = None


class CountBody(msgspec.Struct, frozen=True):
    """POST /v1/messages/count_tokens, and what /v1/messages shares with it."""

    messages: tuple[_Turn, ...]
    model: Annotated[str, msgspec.Meta(max_length=1024)] = ""
    system: str | list[_Block] = ""
    tools: tuple[_ToolSpec, ...] = ()
    tool_choice: _ChoiceSpec | None = None
    thinking: _Thinking | None = None
    output_config: _OutputConfig | None = None
    output_format: _Format | None = None


class MessagesBody(CountBody, frozen=True, kw_only=True):
    """POST /v1/messages."""

    max_tokens: Annotated[int, msgspec.Meta(ge=0, le=MAX_INT)]
    stream: bool = False
    stop_sequences: tuple[str, ...] = ()
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None


class CountAsk(msgspec.Struct, frozen=True):
    """A checked count_tokens request."""

    model: str
    messages: tuple[Message, ...]
    shape: AnswerShape


class MessagesAsk(msgspec.Struct, frozen=True):
    """A checked /v1/messages request. `stops` are the caller's own stop sequences."""

    model: str
    messages: tuple[Message, ...]
    options: GenerateOptions
    shape: AnswerShape
    stream: bool
    continue_last: bool
    stops: tuple[str, ...]


def messages_ask(raw: Raw) -> MessagesAsk:
    """Check a /v1/messages body.

    Raises:
        BadRequest: names the field, and says what it should be; `PayloadTooLarge` for a picture.
    """
    raw = without_nulls(raw)
    if "max_tokens" not in raw:
        raise BadRequest("`max_tokens` is missing.", hint="Say how long the answer may be.", param="max_tokens")
    body, messages = _checked(raw, MessagesBody)
    stops = tuple(stop for stop in body.stop_sequences if stop)
    sampling = {name: value for name in _SAMPLING if (value := getattr(body, name)) is not None}
    options = typed({"max_tokens": body.max_tokens, "stop": stops, "sampling": sampling}, GenerateOptions)
    continue_last = messages[-1].role == "assistant"
    if continue_last and messages[-1].tool_calls:
        raise BadRequest(
            "The last message calls tools whose results are missing.",
            hint="Add a user message with their `tool_result` blocks.",
            param="messages",
        )
    return MessagesAsk(body.model, messages, options, _shape(body), body.stream, continue_last, stops)


def count_ask(raw: Raw) -> CountAsk:
    """Check a count_tokens body; errors as `messages_ask`."""
    body, messages = _checked(without_nulls(raw), CountBody)
    return CountAsk(body.model, messages, _shape(body))


def _checked(raw: Raw, kind: type[B]) -> tuple[B, tuple[Message, ...]]:
    for name in _REFUSED:
        if raw.get(name):
            raise BadRequest(f"`{name}` is not supported.", hint=f"Leave `{name}` out.", param=name)
    body = typed(raw, kind)
    if not body.messages:
        raise BadRequest("`messages` is empty.", hint="Send at least one message.", param="messages")
    return body, _messages(body)


# --- shape ------------------------------------------------------------------------------------------------


def _shape(body: CountBody) -> AnswerShape:
    tools = tuple(_tool(index, tool) for index, tool in enumerate(body.tools))
    choice = body.tool_choice or _ChoiceSpec("auto")
    if choice.type == "tool" and not choice.name:
        raise BadRequest("`tool_choice.name` is missing.", hint="Name one of `tools`.", param="tool_choice.name")
    wanted = Choice(_CHOICES[choice.type], choice.name if choice.type == "tool" else "")
    tools, wanted = chosen(tools, wanted)
    config = body.output_config or _OutputConfig()
    form = config.format or body.output_format
    thinking = body.thinking or _Thinking("disabled")
    return AnswerShape(
        tools=tools,
        tool_choice=wanted.mode,
        tool_name=wanted.name,
        # Who names one tool wants it called, not called again and again by a small model that cannot stop.
        parallel_tool_calls=not choice.disable_parallel_tool_use and choice.type != "tool",
        json_schema=json_text(form.schema) if form is not None else "",
        reasoning=_THINKING[thinking.type],
        reasoning_effort=_EFFORTS[config.effort] if config.effort is not None else "",
        reasoning_budget=thinking.budget_tokens if thinking.type == "enabled" else None,
    )


def _tool(index: int, tool: _ToolSpec) -> Tool:
    if tool.type not in (None, "custom") or tool.input_schema is None:
        raise BadRequest(
            f"`tools[{index}]` is of type {tool.type or 'custom'!r}"
            + (", which has no `input_schema`." if tool.type in (None, "custom") else "; only custom tools work here."),
            hint="Describe it with `name`, `description` and `input_schema`, and run it yourself.",
            param=f"tools[{index}]",
        )
    return typed(
        {"name": tool.name, "description": tool.description or "", "parameters": json_text(tool.input_schema)}, Tool
    )


# --- messages ---------------------------------------------------------------------------------------------


def _messages(body: CountBody) -> tuple[Message, ...]:
    system = _system(body.system, "system")
    rows = [Message("system", system)] if system else []
    names: dict[str, str] = {}
    for index, turn in enumerate(body.messages):
        where = f"messages[{index}]"
        blocks = [_Block("text", turn.content)] if isinstance(turn.content, str) else turn.content
        if turn.role == "assistant":
            rows.append(_assistant(blocks, where, names))
        elif turn.role == "user":
            rows.extend(_user(blocks, where, names))
        elif turn.role == "system":
            rows.append(Message("system", _system(turn.content, f"{where}.content")))
        else:
            raise BadRequest(
                f"`{where}.role` is {turn.role!r}.", hint="Roles are user and assistant.", param=f"{where}.role"
            )
    check_count(rows)
    return tuple(_joined(rows))


def _system(given: str | list[_Block], where: str) -> str:
    if isinstance(given, str):
        return given
    for index, block in enumerate(given):
        if block.type != "text":
            raise _unknown_block(block, f"{where}[{index}]")
    return "\n".join(block.text for block in given if block.text)


def _assistant(blocks: list[_Block], where: str, names: dict[str, str]) -> Message:
    text: list[str] = []
    thought: list[str] = []
    calls: list[ToolCall] = []
    for index, block in enumerate(blocks):
        if block.type == "text":
            text.append(block.text)
        elif block.type == "thinking":
            thought.append(block.thinking)
        elif block.type == "tool_use":
            if not block.id or not block.name:
                raise BadRequest(
                    f"`{where}.content[{index}]` needs `id` and `name`.",
                    hint="Send the block as it came.",
                    param=f"{where}.content[{index}]",
                )
            names[block.id] = block.name
            calls.append(ToolCall(block.id, block.name, json_text(block.input)))
        elif block.type != "redacted_thinking":
            raise _unknown_block(block, f"{where}.content[{index}]")
    # Not joined by lines: an answer comes back as it was written, and so its prompt is found in the cache.
    return Message("assistant", "".join(text), "".join(thought), tool_calls=tuple(calls))


def _user(blocks: list[_Block], where: str, names: dict[str, str]) -> list[Message]:
    """Results of tools come first, each a message of its own, as every chat template wants them."""
    results: list[Message] = []
    pieces: list[str | MediaPart] = []
    for index, block in enumerate(blocks):
        place = f"{where}.content[{index}]"
        if block.type == "tool_result":
            if not block.tool_use_id:
                raise BadRequest(f"`{place}.tool_use_id` is missing.", hint="Name the call.", param=place)
            text, parts = with_pictures(_result_pieces(block, place), "\n")
            if block.is_error and not parts:
                text = f"Error: {text}" if text else "Error"
            name = names.get(block.tool_use_id, "")
            results.append(Message("tool", text, name=name, parts=parts, tool_call_id=block.tool_use_id))
        else:
            pieces.append(_piece(block, place))
    if pieces or not results:
        text, parts = with_pictures([piece for piece in pieces if piece], "\n")
        results.append(Message("user", text, parts=parts))
    return results


def _result_pieces(block: _Block, where: str) -> list[str | MediaPart]:
    content = block.content
    if isinstance(content, list):
        return [_piece(inner, f"{where}.content[{number}]") for number, inner in enumerate(content)]
    return [content or ""]


def _piece(block: _Block, where: str) -> str | MediaPart:
    """Text or a picture of a block that a user or a tool wrote."""
    if block.type == "text":
        return block.text
    if block.type == "search_result" and isinstance(block.content, list):
        inner = "\n".join(part.text for part in block.content)
        return f"{block.title or ''}\n{block.source if isinstance(block.source, str) else ''}\n{inner}".strip()
    if block.type in ("image", "document"):
        source = typed(block.source, _Source)
        if block.type == "image":
            if source.type == "base64":
                return picture_of_base64(source.data, f"{where}.source.data")
            if source.type == "url":
                return picture_of_url(source.url, f"{where}.source.url")
        elif source.type == "text":
            return f"{block.title}\n{source.data}" if block.title else source.data
        elif source.type == "content":
            whole = source.content
            return whole if isinstance(whole, str) else "\n".join(part.text for part in whole)
        raise BadRequest(
            f"`{where}.source` is of type {source.type!r}, which cannot be read.",
            hint="Send pictures as base64 and documents as text.",
            param=f"{where}.source",
        )
    raise _unknown_block(block, where)


def _unknown_block(block: _Block, where: str) -> BadRequest:
    return BadRequest(
        f"`{where}` is of type {block.type!r}, which cannot be read here.",
        hint="Send text, image, tool_use and tool_result blocks.",
        param=f"{where}.type",
    )


def _joined(rows: list[Message]) -> list[Message]:
    """Neighbouring user messages as one, since many templates insist on turns that alternate."""
    joined: list[Message] = []
    for row in rows:
        last = joined[-1] if joined else None
        if last is None or last.role != row.role or row.role not in ("user", "assistant") or last.tool_calls:
            joined.append(row)
            continue
        joint = "\n" if row.role == "user" else ""
        parts = last.parts + row.parts
        if parts:
            pieces = [*_pieces_of(last), *_pieces_of(row)]
            content, parts = with_pictures(pieces, joint)
        else:
            content = joint.join(text for text in (last.content, row.content) if text)
        reasoning = last.reasoning + row.reasoning
        joined[-1] = Message(row.role, content, reasoning, parts=parts, tool_calls=row.tool_calls)
    return joined


def _pieces_of(message: Message) -> list[str | MediaPart]:
    if not message.parts:
        return [message.content] if message.content else []
    return [part.text if isinstance(part, TextPart) else part.media for part in message.parts]
