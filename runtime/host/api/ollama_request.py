"""Ollama's request bodies: raw JSON in, our messages, options and answer shape out.

Ollama itself ignores fields and options it does not know, so they are ignored here too. Options of loading (`num_ctx`,
`num_gpu`, `num_thread` and so on) are ignored as well: how a model is loaded is set in Deskside, and a prompt that does
not fit is refused with both sizes instead of being cut in silence. Who wants the oldest turns dropped sends
`"truncate": true`. `template` and `context` would change the prompt and are refused by name.
"""

import re
from typing import Annotated, Any, Literal

import msgspec

from runtime.errors import BadRequest
from runtime.host.api.body import Raw, json_text, seed_of, typed, without_nulls
from runtime.host.api.media import check_count, picture_of_base64, with_pictures
from runtime.host.api.openai_shape import Choice, chosen
from runtime.messages.shared import (
    MAX_MEDIA,
    AnswerShape,
    Message,
    ReasoningEffort,
    ReasoningMode,
    Role,
    Tool,
    ToolCall,
)
from runtime.options import GenerateOptions, SamplingOptions

MAX_INPUTS = 2048
MAX_KEEP_S = 10 * 365 * 24 * 3600.0
"""Longer is for ever."""
FOREVER_S = -1.0

_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>ns|us|µs|ms|s|m|h)")
_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_ANY_OBJECT = '{"type":"object"}'
"""JSON mode: Ollama promises an object, not just any JSON."""

_EFFORTS: dict[str, ReasoningEffort] = {"low": "low", "medium": "medium", "high": "high"}

Name = Annotated[str, msgspec.Meta(max_length=1024)]
Images = Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_MEDIA)]


class _Function(msgspec.Struct, frozen=True):
    name: str
    arguments: dict[str, Any] | str = {}


class _Call(msgspec.Struct, frozen=True):
    function: _Function
    id: str = ""


class _Message(msgspec.Struct, frozen=True):
    role: str
    content: str | None = None
    thinking: str | None = None
    images: Images | None = None
    tool_calls: tuple[_Call, ...] | None = None
    tool_name: str | None = None
    name: str | None = None
    tool_call_id: str | None = None


class _ToolFunction(msgspec.Struct, frozen=True):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _ToolSpec(msgspec.Struct, frozen=True):
    function: _ToolFunction


class _Stops(msgspec.Struct, frozen=True):
    stop: str | tuple[str, ...]


class _Asking(msgspec.Struct, frozen=True, kw_only=True):
    model: Name = ""
    stream: bool = True
    format: Literal["", "json"] | dict[str, Any] = ""
    options: dict[str, Any] = {}
    keep_alive: float | str | None = None
    think: bool | Literal["low", "medium", "high"] | None = None
    logprobs: bool = False
    top_logprobs: int = 0
    truncate: bool = False


class OllamaChatBody(_Asking, frozen=True, kw_only=True):
    """POST /api/chat. Without messages it only loads the model, or with `keep_alive` 0 unloads it."""

    messages: tuple[_Message, ...] = ()
    tools: tuple[_ToolSpec, ...] = ()


class OllamaGenerateBody(_Asking, frozen=True, kw_only=True):
    """POST /api/generate. With `suffix` a code model writes the middle; `raw` takes the prompt as it is."""

    prompt: str = ""
    suffix: str = ""
    system: str = ""
    images: Images = ()
    raw: bool = False


class OllamaEmbedBody(msgspec.Struct, frozen=True):
    """POST /api/embed.

    `dimensions` keeps the first so many numbers, scaled to length 1 again. What is too long is cut at its end, unless
    `truncate` is false: that is what Ollama's users are told.
    """

    input: str | Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_INPUTS)]
    model: Name = ""
    dimensions: Annotated[int, msgspec.Meta(ge=1)] | None = None
    truncate: bool = True
    keep_alive: float | str | None = None


class OllamaEmbeddingsBody(msgspec.Struct, frozen=True):
    """POST /api/embeddings, the older form."""

    prompt: str
    model: Name = ""
    keep_alive: float | str | None = None


class OllamaAsk(msgspec.Struct, frozen=True):
    """A checked /api/chat or /api/generate request. `keep_s` is how long the model shall stay; below 0 for ever.

    `is_bare` asks for nothing but loading or unloading.
    """

    model: str
    options: GenerateOptions
    shape: AnswerShape
    stream: bool
    keep_s: float | None
    messages: tuple[Message, ...] = ()
    prompt: str | None = None
    suffix: str = ""
    continue_last: bool = False
    is_bare: bool = False


class OllamaEmbedAsk(msgspec.Struct, frozen=True):
    """A checked /api/embed or /api/embeddings request."""

    model: str
    inputs: tuple[str, ...]
    dimensions: int | None
    keep_s: float | None
    truncate: bool = False


def chat_ask(raw: Raw) -> OllamaAsk:
    """Check a /api/chat body.

    Raises:
        BadRequest: names the field, and says what it should be; `PayloadTooLarge` for a picture.
    """
    body = typed(without_nulls(raw), OllamaChatBody)
    messages = _messages(body.messages)
    tools = tuple(
        typed(
            {
                "name": tool.function.name,
                "description": tool.function.description or "",
                "parameters": json_text(tool.function.parameters) if tool.function.parameters else "",
            },
            Tool,
        )
        for tool in body.tools
    )
    tools, _ = chosen(tools, Choice())
    is_continued = bool(messages) and messages[-1].role == "assistant" and not messages[-1].tool_calls
    return OllamaAsk(
        body.model,
        _options(body),
        _shape(body, tools),
        body.stream,
        keep_of(body.keep_alive),
        messages,
        continue_last=is_continued,
        is_bare=not messages,
    )


def generate_ask(raw: Raw) -> OllamaAsk:
    """Check a /api/generate body; errors as `chat_ask`."""
    raw = without_nulls(raw)
    for name in ("template", "context"):
        if raw.get(name):
            raise BadRequest(f"`{name}` is not supported.", hint="Send the conversation to /api/chat.", param=name)
    body = typed(raw, OllamaGenerateBody)
    options, shape, keep_s = _options(body), _shape(body, ()), keep_of(body.keep_alive)
    if not body.prompt and not body.suffix and not body.images:
        return OllamaAsk(body.model, options, shape, body.stream, keep_s, is_bare=True)
    if body.raw or body.suffix:
        if body.images:
            raise BadRequest("`images` do not go with `raw` or `suffix`.", hint="Leave them out.", param="images")
        return OllamaAsk(body.model, options, shape, body.stream, keep_s, prompt=body.prompt, suffix=body.suffix)
    pictures = [picture_of_base64(text, f"images[{index}]") for index, text in enumerate(body.images)]
    content, parts = with_pictures([*pictures, body.prompt], "")
    user = Message("user", content, parts=parts)
    messages = (Message("system", body.system), user) if body.system else (user,)
    return OllamaAsk(body.model, options, shape, body.stream, keep_s, messages)


def embed_ask(raw: Raw) -> OllamaEmbedAsk:
    """Check a /api/embed body; errors as `chat_ask`."""
    body = typed(without_nulls(raw), OllamaEmbedBody)
    inputs = (body.input,) if isinstance(body.input, str) else body.input
    if any(not text for text in inputs):
        raise BadRequest("`input` holds an empty text.", hint="Leave it out.", param="input")
    return OllamaEmbedAsk(body.model, inputs, body.dimensions, keep_of(body.keep_alive), body.truncate)


def embeddings_ask(raw: Raw) -> OllamaEmbedAsk:
    """Check a /api/embeddings body; errors as `chat_ask`."""
    body = typed(without_nulls(raw), OllamaEmbeddingsBody)
    if not body.prompt:
        raise BadRequest("`prompt` is empty.", hint="Send a text.", param="prompt")
    return OllamaEmbedAsk(body.model, (body.prompt,), None, keep_of(body.keep_alive))


def keep_of(value: float | str | None) -> float | None:
    """Seconds from `keep_alive`: a number of seconds or a duration such as "5m" or "1h30m"; below 0 is for ever.

    Raises:
        BadRequest: it is neither.
    """
    if value is None or value == "":
        return None
    if isinstance(value, str):
        sign, text = (-1.0, value[1:]) if value.startswith("-") else (1.0, value)
        found = list(_DURATION.finditer(text))
        if re.fullmatch(r"\d+(\.\d+)?", text):
            value = sign * float(text)
        elif found and "".join(match[0] for match in found) == text:
            value = sign * sum(float(match["number"]) * _UNITS_S[match["unit"]] for match in found)
        else:
            raise BadRequest(
                f"`keep_alive` is {value[:50]!r}.", hint="Write seconds, or a duration such as 5m.", param="keep_alive"
            )
    return float(value) if 0 <= value <= MAX_KEEP_S else FOREVER_S


# --- parts ------------------------------------------------------------------------------------------------


def _options(body: _Asking) -> GenerateOptions:
    given = without_nulls(body.options)
    sampling = {name: given[name] for name in SamplingOptions.__struct_fields__ if name in given}
    if "seed" in sampling:
        sampling["seed"] = seed_of(sampling["seed"])
    if sampling.get("mirostat") == 1:
        raise BadRequest("`mirostat` 1 is not supported.", hint="Use 2, or 0 for off.", param="options.mirostat")
    if isinstance(sampling.get("top_k"), int):
        sampling["top_k"] = max(0, sampling["top_k"])  # below 0 keeps all, in Ollama's words
    stops = typed({"stop": given.get("stop", ())}, _Stops).stop
    most = given.get("num_predict")
    raw: Raw = {
        # -1 is no limit, -2 until the context is full: the same, as nothing is ever shifted out.
        "max_tokens": None if isinstance(most, int) and most < 0 else most,
        "stop": [stop for stop in ([stops] if isinstance(stops, str) else stops) if stop],
        "logprobs": body.logprobs,
        "top_logprobs": body.top_logprobs,
        "context_policy": "drop_oldest" if body.truncate else "stop",
        "sampling": sampling,
    }
    return typed(raw, GenerateOptions)


def _shape(body: _Asking, tools: tuple[Tool, ...]) -> AnswerShape:
    reasoning: ReasoningMode = "auto" if body.think is None else "on" if body.think else "off"
    schema = _ANY_OBJECT if body.format == "json" else json_text(body.format) if body.format else ""
    return AnswerShape(
        tools=tools,
        json_schema=schema,
        reasoning=reasoning,
        reasoning_effort=_EFFORTS[body.think] if isinstance(body.think, str) else "",
    )


def _messages(given: tuple[_Message, ...]) -> tuple[Message, ...]:
    rows: list[Message] = []
    waiting: list[ToolCall] = []
    n_calls = 0
    for index, message in enumerate(given):
        where = f"messages[{index}]"
        role = _ROLES.get(message.role)
        if role is None:
            raise BadRequest(
                f"`{where}.role` is {message.role!r}.", hint=f"Roles are {', '.join(_ROLES)}.", param=f"{where}.role"
            )
        calls = []
        for call in message.tool_calls or ():
            # Ollama's calls have no names of their own: they are numbered, and results belong to them in order.
            arguments = call.function.arguments
            text = arguments if isinstance(arguments, str) else json_text(arguments)
            calls.append(ToolCall(call.id or f"call_{n_calls}", call.function.name, text))
            n_calls += 1
        waiting.extend(calls)
        pictures = [
            picture_of_base64(text, f"{where}.images[{number}]") for number, text in enumerate(message.images or ())
        ]
        content, parts = with_pictures([*pictures, *filter(None, (message.content,))], "")
        answered = _answered(message, waiting) if role == "tool" else None
        rows.append(
            Message(
                role,
                content,
                message.thinking or "",
                message.tool_name or message.name or (answered.name if answered is not None else ""),
                parts,
                tuple(calls),
                message.tool_call_id or (answered.id if answered is not None else ""),
            )
        )
    check_count(rows)
    return tuple(rows)


def _answered(message: _Message, waiting: list[ToolCall]) -> ToolCall | None:
    """The call a result belongs to, which then waits no more."""
    for call in waiting:
        if message.tool_call_id in (None, "", call.id) and message.tool_name in (None, "", call.name):
            waiting.remove(call)
            return call
    return None
