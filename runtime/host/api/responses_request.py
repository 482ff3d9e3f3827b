"""Bodies of OpenAI's Responses API: raw JSON in, our messages, options and answer shape out.

As that API's users expect, an answer is kept for `previous_response_id` unless `store` is false, and instructions are
not. Fields that only matter to a paid service are ignored; what would change the answer and cannot be honoured
(tools that the server would run, work in the background, conversations and prompts kept elsewhere) is refused by name.
llama.cpp's sampling parameters are accepted under their own names, and `stop`.
"""

from typing import Annotated, Any, Literal, Protocol

import msgspec

from runtime.errors import BadRequest, PreviousNotFound, ResponseNotFound
from runtime.host.api.body import Raw, seed_of, typed, without_nulls
from runtime.host.api.media import check_count, picture_of_url, sound_of_base64, with_pictures
from runtime.host.api.openai_shape import (
    Choice,
    Effort,
    FormatSpec,
    FunctionSpec,
    answer_shape,
    function_tool,
    only_functions,
    reasoning_of,
    schema_of,
)
from runtime.host.api.responses_items import OutputItem, Turns, unsealed
from runtime.messages.shared import MAX_TOOLS, AnswerShape, MediaPart, Message, Role, Tool, ToolCall
from runtime.options import MAX_INT, GenerateOptions, SamplingOptions

LOGPROBS = "message.output_text.logprobs"
SEALED_THOUGHT = "reasoning.encrypted_content"
MAX_METADATA = 16

_ROLES: dict[str, Role] = {"system": "system", "developer": "developer", "user": "user", "assistant": "assistant"}
_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")


class _Sound(msgspec.Struct, frozen=True):
    data: str = ""


class _Part(msgspec.Struct, frozen=True):
    """Any part of a message; which fields must be there depends on `type`."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    input_audio: _Sound | None = None


class _Item(msgspec.Struct, frozen=True):
    """Any item; which fields must be there depends on `type`. One with a role alone is a message."""

    type: str | None = None
    id: str | None = None
    role: str = ""
    content: str | list[_Part] | None = None
    summary: list[_Part] | None = None
    encrypted_content: str | None = None
    call_id: str | None = None
    name: str = ""
    arguments: str = ""
    output: str | list[_Part] | None = None


class ResponseTool(msgspec.Struct, frozen=True):
    """A function that the model may call."""

    type: str = "function"
    name: str = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamedTool(msgspec.Struct, frozen=True):
    """A tool by its name."""

    type: str = "function"
    name: str = ""


class ResponseChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool that must be called, or those that may be."""

    type: Literal["function", "allowed_tools"]
    name: str = ""
    mode: Literal["", "auto", "required"] = ""
    tools: tuple[NamedTool, ...] = ()


class ReasoningSpec(msgspec.Struct, frozen=True):
    """How long to think, and whether the thought comes as a summary (all of it, in the summary's field)."""

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class _TextConfig(msgspec.Struct, frozen=True):
    format: FormatSpec | None = None
    verbosity: str | None = None


class ResponsesBody(SamplingOptions, frozen=True, forbid_unknown_fields=False):
    """POST /v1/responses, and of the same to count it.

    `stop` and the sampling parameters that OpenAI does not know are llama.cpp's.
    """

    model: Annotated[str, msgspec.Meta(max_length=1024)] = ""
    input: str | list[_Item] = ""
    instructions: str = ""
    previous_response_id: Annotated[str, msgspec.Meta(max_length=256)] = ""
    tools: Annotated[tuple[ResponseTool, ...], msgspec.Meta(max_length=MAX_TOOLS)] = ()
    tool_choice: str | ResponseChoice = "auto"
    parallel_tool_calls: bool = True
    reasoning: ReasoningSpec = ReasoningSpec()
    text: _TextConfig = _TextConfig()
    truncation: Literal["auto", "disabled"] = "disabled"
    stream: bool = False
    store: bool = True
    background: bool = False
    stop: str | tuple[str, ...] = ()
    max_output_tokens: Annotated[int, msgspec.Meta(ge=1, le=MAX_INT)] | None = None
    top_logprobs: int | None = None
    include: tuple[str, ...] = ()
    metadata: Annotated[
        dict[Annotated[str, msgspec.Meta(max_length=64)], Annotated[str, msgspec.Meta(max_length=512)]],
        msgspec.Meta(max_length=MAX_METADATA),
    ] = msgspec.field(default_factory=dict)


class Known(Protocol):
    """What requests may refer to."""

    def conversation(self, response_id: str) -> tuple[Message, ...] | None:
        """The conversation up to an answer's end; None where it is not kept."""
        ...

    def item(self, item_id: str) -> OutputItem | None:
        """An item of an answer that is kept."""
        ...


class CountInputAsk(msgspec.Struct, frozen=True):
    """A checked request to count or to sum up. `messages` has instructions before `history`."""

    model: str
    history: tuple[Message, ...]
    messages: tuple[Message, ...]
    shape: AnswerShape
    max_output_tokens: int | None = None


class ResponsesAsk(msgspec.Struct, frozen=True):
    """A checked /v1/responses request. `history` goes on with this answer; `messages` has instructions before it."""

    body: ResponsesBody
    history: tuple[Message, ...]
    messages: tuple[Message, ...]
    options: GenerateOptions
    shape: AnswerShape


def responses_ask(raw: Raw, known: Known) -> ResponsesAsk:
    """Check a /v1/responses body.

    Raises:
        BadRequest: names the field, and says what it should be; `PayloadTooLarge` for a picture.
        ResponseNotFound: the answer it goes on with, or an item that it refers to, is not kept.
    """
    body = _body(raw)
    history = _history(body, known)
    stops = (body.stop,) if isinstance(body.stop, str) else body.stop
    wants_logprobs = LOGPROBS in body.include or bool(body.top_logprobs)
    options = typed(
        {
            "max_tokens": body.max_output_tokens,
            "stop": [stop for stop in stops if stop],
            "logprobs": wants_logprobs,
            "top_logprobs": body.top_logprobs or 0,
            "context_policy": "drop_oldest" if body.truncation == "auto" else "stop",
            "sampling": {name: getattr(body, name) for name in SamplingOptions.__struct_fields__},
        },
        GenerateOptions,
    )
    if body.background and not body.store:
        raise BadRequest(
            "An answer in the background is kept, or nobody could ask for it.",
            hint="Leave `store` out, or `background`.",
            param="store",
        )
    shape = _shape(body)
    if shape.json_schema and body.grammar:
        raise BadRequest(
            "`grammar` and a JSON format cannot both hold for one answer.", hint="Send one.", param="grammar"
        )
    return ResponsesAsk(body, history, _instructed(body, history), options, shape)


def count_input_ask(raw: Raw, known: Known) -> CountInputAsk:
    """Check a body of input_tokens or of compact; errors as `responses_ask`."""
    body = _body(raw)
    history = _history(body, known)
    return CountInputAsk(body.model, history, _instructed(body, history), _shape(body), body.max_output_tokens)


_REFUSED = {
    "conversation": "Go on with `previous_response_id`, or send the messages.",
    "prompt": "Send the text itself as `input`.",
    "context_management": 'Use `truncation`: "auto", or POST /v1/responses/compact.',
}


def _body(raw: Raw) -> ResponsesBody:
    raw = without_nulls(raw)
    for name, hint in _REFUSED.items():
        if raw.get(name):
            raise BadRequest(f"`{name}` is not supported.", hint=hint, param=name)
    return typed({**raw, "seed": seed_of(raw["seed"])} if "seed" in raw else raw, ResponsesBody)


# --- shape ------------------------------------------------------------------------------------------------


def _shape(body: ResponsesBody) -> AnswerShape:
    form = body.text.format
    return answer_shape(
        tools=[_tool(index, tool) for index, tool in enumerate(body.tools)],
        choice=_choice(body.tool_choice),
        parallel_tool_calls=body.parallel_tool_calls,
        json_schema=schema_of(form, "text.format") if form is not None else "",
        reasoning=reasoning_of(body.reasoning.effort),
    )


def _tool(index: int, tool: ResponseTool) -> Tool:
    where = f"tools[{index}]"
    if tool.type != "function":
        raise only_functions(tool.type, where)
    return function_tool(FunctionSpec(tool.name, tool.description, tool.parameters), where)


def _choice(given: str | ResponseChoice) -> Choice:
    if given == "auto":
        return Choice()
    if given in ("none", "required"):
        return Choice("none" if given == "none" else "required")
    if isinstance(given, ResponseChoice):
        if given.type == "function" and given.name:
            return Choice("required", given.name)
        if given.type == "allowed_tools":
            allowed = tuple(tool.name for tool in given.tools)
            return Choice("required" if given.mode == "required" else "auto", allowed=allowed)
    raise BadRequest(
        "`tool_choice` is not understood.",
        hint='Write "auto", "none", "required" or {"type": "function", "name": ...}.',
        param="tool_choice",
    )


# --- input ------------------------------------------------------------------------------------------------


def _history(body: ResponsesBody, known: Known) -> tuple[Message, ...]:
    before: tuple[Message, ...] = ()
    if body.previous_response_id:
        found = known.conversation(body.previous_response_id)
        if found is None:
            raise PreviousNotFound(  # clients also look for OpenAI's own words
                f"Previous response with id {body.previous_response_id!r} not found: it is not kept (any more).",
                hint="Send the whole conversation as `input`.",
                param="previous_response_id",
            )
        before = found
    turns = Turns(before)
    if isinstance(body.input, str):
        if body.input:
            turns.message(Message("user", body.input))
    else:
        for index, item in enumerate(body.input):
            _add(turns, item, f"input[{index}]", known)
    history = (*before, *turns.rows)
    if not history:
        raise BadRequest("`input` is missing or empty.", hint="Send a text or a list of items.", param="input")
    check_count(history)
    return history


def _instructed(body: ResponsesBody, history: tuple[Message, ...]) -> tuple[Message, ...]:
    return (Message("system", body.instructions), *history) if body.instructions else history


def _add(turns: Turns, item: _Item, where: str, known: Known) -> None:
    kind = item.type or ("message" if item.role else "item_reference" if item.id else "")
    if kind == "message":
        _add_message(turns, item, where)
    elif kind == "function_call":
        _need(item.call_id and item.name, f"{where}.call_id` and `{where}.name", where)
        turns.call(ToolCall(item.call_id or "", item.name, item.arguments or "{}"))
    elif kind == "function_call_output":
        _need(item.call_id, f"{where}.call_id", where)
        text, parts = with_pictures(_pieces(item.output, "tool", f"{where}.output"), "")
        turns.result(item.call_id or "", text, parts)
    elif kind == "reasoning":
        content = item.content if isinstance(item.content, list) else ()
        sealed = unsealed(item.encrypted_content or "")
        thought = "".join(part.text or "" for part in content) or sealed
        turns.thought(thought or "".join(part.text or "" for part in item.summary or ()))
    elif kind == "compaction":
        summary = unsealed(item.encrypted_content or "")
        if not summary:
            raise BadRequest(
                f"`{where}.encrypted_content` cannot be read: another server made it.",
                hint="Compact the conversation here, or send it whole.",
                param=f"{where}.encrypted_content",
            )
        turns.summary(summary)
    elif kind == "item_reference":
        found = known.item(item.id or "")
        if found is None:
            raise ResponseNotFound(
                f"Item with id {item.id!r} not found: it is not kept (any more).",
                hint="Send the item itself.",
                param=f"{where}.id",
            )
        turns.item(found)
    else:
        raise BadRequest(
            f"`{where}` is of type {kind!r}, which cannot be read here.",
            hint="Send messages, function_call, function_call_output and reasoning items.",
            param=f"{where}.type",
        )


def _add_message(turns: Turns, item: _Item, where: str) -> None:
    role = _ROLES.get(item.role)
    if role is None:
        raise BadRequest(
            f"`{where}.role` is {item.role!r}.", hint=f"Roles are {', '.join(_ROLES)}.", param=f"{where}.role"
        )
    text, parts = with_pictures(_pieces(item.content, role, f"{where}.content"), "")
    if role == "assistant":
        turns.text(text)
    else:
        turns.message(Message(role, text, parts=parts))


def _need(found: object, names: str, where: str) -> None:
    if not found:
        raise BadRequest(f"`{names}` must be there.", hint="Send the item as it came.", param=where)


def _pieces(content: str | list[_Part] | None, role: Role, where: str) -> list[str | MediaPart]:
    if content is None:
        raise BadRequest(f"`{where}` is missing.", hint="Send a text.", param=where)
    if isinstance(content, str):
        return [content]
    return [_piece(part, role, f"{where}[{number}]") for number, part in enumerate(content)]


def _piece(part: _Part, role: Role, where: str) -> str | MediaPart:
    if part.type in _TEXTS and part.text is not None:
        return part.text
    if part.type == "refusal" and part.refusal is not None:
        return part.refusal
    if role in ("user", "tool"):
        if part.type == "input_image" and part.image_url is not None:
            return picture_of_url(part.image_url, f"{where}.image_url")
        if part.type == "input_audio" and part.input_audio is not None:
            return sound_of_base64(part.input_audio.data, f"{where}.input_audio.data")
    raise BadRequest(
        f"`{where}` is of type {part.type!r}, which cannot be read in this place.",
        hint="Send input_text, and in messages of the user input_image with an `image_url` that holds the picture.",
        param=where,
    )
