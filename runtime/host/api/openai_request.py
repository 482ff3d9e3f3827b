"""OpenAI request bodies: raw JSON in, typed and checked values out.

Rules: `null` is the same as not there. A field that this version cannot honour is refused by name, never dropped in
silence; fields nobody knows are ignored, because clients send many. llama.cpp's sampling parameters are accepted
under their own names (`runtime.options.SamplingOptions`).
"""

from typing import Annotated, Any, Literal, TypeVar

import msgspec

from runtime.errors import BadRequest
from runtime.host.api.body import Raw, seed_of, typed, without_nulls
from runtime.messages.shared import Message, Role
from runtime.options import GenerateOptions, SamplingOptions

MAX_PROMPTS = 256
"""Prompts of one /v1/completions call, and inputs of one /v1/embeddings call times eight."""

_ALIASES = {
    "max_completion_tokens": "max_tokens",
    "n_predict": "max_tokens",
    "repetition_penalty": "repeat_penalty",
    "typ_p": "typical_p",
}
"""Other names of the same option. The first one wins over `max_tokens`, as in OpenAI's own API."""

ModelName = Annotated[str, msgspec.Meta(max_length=1024)]

B = TypeVar("B", bound=msgspec.Struct)


class StreamOptions(msgspec.Struct, frozen=True):
    """What `stream_options` may hold."""

    include_usage: bool = False


class _TextPart(msgspec.Struct, frozen=True):
    type: str
    text: str = ""


class _ChatMessage(msgspec.Struct, frozen=True):
    role: str
    content: str | list[_TextPart] | None = None
    reasoning_content: str | None = None
    name: str | None = None


class _Common(SamplingOptions, frozen=True, forbid_unknown_fields=False):
    model: ModelName = ""
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    n: int = 1
    stop: str | tuple[str, ...] = ()
    max_tokens: int | None = None
    ignore_eos: bool = False
    context_policy: Literal["stop", "drop_oldest"] = "stop"


class ChatBody(_Common, frozen=True, forbid_unknown_fields=False):
    """POST /v1/chat/completions. Beside these, `max_completion_tokens` is another name of `max_tokens`."""

    messages: tuple[_ChatMessage, ...] = ()
    logprobs: bool = False
    top_logprobs: int = 0
    continue_final_message: bool = False


class CompletionBody(_Common, frozen=True, forbid_unknown_fields=False):
    """POST /v1/completions."""

    prompt: str | list[str | int | list[int]] = ""
    logprobs: int | None = None
    echo: bool = False


class EmbeddingBody(msgspec.Struct, frozen=True):
    """POST /v1/embeddings."""

    input: str | list[str | int | list[int]]
    model: ModelName = ""
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None


class ChatAsk(msgspec.Struct, frozen=True):
    """A checked /v1/chat/completions request."""

    model: str
    messages: tuple[Message, ...]
    options: GenerateOptions
    stream: bool
    include_usage: bool
    continue_last: bool


class CompletionAsk(msgspec.Struct, frozen=True):
    """A checked /v1/completions request; each prompt is text or token ids."""

    model: str
    prompts: tuple[str | tuple[int, ...], ...]
    options: GenerateOptions
    stream: bool
    include_usage: bool


class EmbeddingAsk(msgspec.Struct, frozen=True):
    """A checked /v1/embeddings request."""

    model: str
    inputs: tuple[str | tuple[int, ...], ...]
    as_base64: bool
    dimensions: int | None


# --- the three bodies -------------------------------------------------------------------------------------


def chat_ask(raw: Raw) -> ChatAsk:
    """Check a chat body.

    Raises:
        BadRequest: names the field, and says what it should be.
    """
    raw = _without_nulls(raw)
    _refuse_later_fields(raw)
    body = _typed(raw, ChatBody)
    if not body.messages:
        raise BadRequest("`messages` is missing or empty.", hint="Send at least one message.", param="messages")
    if body.top_logprobs and not body.logprobs:
        raise BadRequest(
            "`top_logprobs` needs `logprobs` to be true.", hint="Set it, or leave both out.", param="top_logprobs"
        )
    messages = tuple(_message(index, message) for index, message in enumerate(body.messages))
    if body.continue_final_message and messages[-1].role != "assistant":
        raise BadRequest(
            "`continue_final_message` needs the last message to be the assistant's.",
            hint="End with the text to go on from, or leave the field out.",
            param="continue_final_message",
        )
    options = _options(body, logprobs=body.logprobs, top_logprobs=body.top_logprobs)
    return ChatAsk(
        body.model, messages, options, body.stream, body.stream_options.include_usage, body.continue_final_message
    )


def completion_ask(raw: Raw) -> CompletionAsk:
    """Check a legacy completion body.

    Raises:
        BadRequest: names the field, and says what it should be.
    """
    raw = _without_nulls(raw)
    _refuse_later_fields(raw)
    if raw.get("suffix"):
        raise BadRequest("`suffix` (fill in the middle) is not supported.", hint="Leave it out.", param="suffix")
    best_of = raw.get("best_of", 1)
    if best_of not in (1, raw.get("n", 1)):
        raise BadRequest("`best_of` other than `n` is not supported.", hint="Leave it out.", param="best_of")
    if "prompt" not in raw:
        raise BadRequest("`prompt` is missing.", hint="Send the text to go on from.", param="prompt")
    body = _typed(raw, CompletionBody)
    prompts = _texts(body.prompt, "prompt", MAX_PROMPTS)
    wants_logprobs = body.logprobs is not None
    if wants_logprobs and body.echo:
        raise BadRequest(
            "`logprobs` with `echo` is not supported: the prompt's own probabilities are not kept.",
            hint="Leave one of them out.",
            param="logprobs",
        )
    options = _options(body, logprobs=wants_logprobs, top_logprobs=body.logprobs or 0, echo=body.echo)
    return CompletionAsk(body.model, prompts, options, body.stream, body.stream_options.include_usage)


def embedding_ask(raw: Raw) -> EmbeddingAsk:
    """Check an embedding body.

    Raises:
        BadRequest: names the field, and says what it should be.
    """
    raw = _without_nulls(raw)
    if "input" not in raw:
        raise BadRequest("`input` is missing.", hint="Send a text or a list of texts.", param="input")
    body = _typed(raw, EmbeddingBody)
    inputs = _texts(body.input, "input", MAX_PROMPTS * 8)
    if any(not text for text in inputs):
        raise BadRequest("`input` holds an empty text.", hint="Leave it out.", param="input")
    return EmbeddingAsk(body.model, inputs, body.encoding_format == "base64", body.dimensions)


# --- parts ------------------------------------------------------------------------------------------------


def _without_nulls(raw: Raw) -> Raw:
    kept = without_nulls(raw)
    for alias, name in _ALIASES.items():
        if alias in kept and (name not in kept or alias == "max_completion_tokens"):
            kept[name] = kept[alias]
    return kept


_LATER: dict[str, tuple[object, ...]] = {
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "modalities": (["text"], []),
    "audio": (),
    "web_search_options": (),
    "json_schema": ({},),
    "chat_template_kwargs": ({},),
    "chat_template": ("",),
}
"""Fields that would change the answer and are not honoured yet, with the values that ask for nothing."""


def _refuse_later_fields(raw: Raw) -> None:
    for name, harmless in _LATER.items():
        if name in raw and raw[name] not in harmless:
            raise BadRequest(f"`{name}` is not supported yet.", hint=f"Leave `{name}` out.", param=name)
    form = raw.get("response_format")
    if form is not None and not (isinstance(form, dict) and form.get("type") == "text"):
        raise BadRequest(
            '`response_format` other than {"type": "text"} is not supported yet.',
            hint="Leave it out, or give a GBNF `grammar`.",
            param="response_format",
        )
    for index, message in enumerate(raw["messages"] if isinstance(raw.get("messages"), list) else ()):
        for name in ("tool_calls", "function_call", "audio"):
            if isinstance(message, dict) and message.get(name):
                raise BadRequest(
                    f"`messages[{index}].{name}` is not supported yet.",
                    hint="Send the conversation as text.",
                    param=f"messages[{index}].{name}",
                )


_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


def _message(index: int, message: _ChatMessage) -> Message:
    where = f"messages[{index}]"
    role = _ROLES.get(message.role)
    if role is None:
        raise BadRequest(
            f"`{where}.role` is {message.role!r}.", hint=f"Roles are {', '.join(_ROLES)}.", param=f"{where}.role"
        )
    content = message.content
    if isinstance(content, list):
        for number, part in enumerate(content):
            if part.type != "text":
                raise BadRequest(
                    f"`{where}.content[{number}]` is of type {part.type!r}; only text can be read so far.",
                    hint="Send text parts only.",
                    param=f"{where}.content[{number}].type",
                )
        content = "".join(part.text for part in content)
    if content is None and role != "assistant":
        raise BadRequest(f"`{where}.content` is missing.", hint="Send a text.", param=f"{where}.content")
    return Message(role, content or "", message.reasoning_content or "", message.name or "")


def _texts(value: str | list[str | int | list[int]], name: str, most: int) -> tuple[str | tuple[int, ...], ...]:
    """A text, a list of texts, one list of token ids, or a list of such lists."""
    if isinstance(value, str):
        return (value,)
    if not value:
        raise BadRequest(f"`{name}` is empty.", hint="Send at least one text.", param=name)
    if all(isinstance(entry, int) for entry in value):
        return (_token_ids(value, name),)
    if len(value) > most:
        raise BadRequest(f"`{name}` holds {len(value)} entries.", hint=f"Send at most {most} at once.", param=name)
    texts: list[str | tuple[int, ...]] = []
    for entry in value:
        if isinstance(entry, int):
            raise BadRequest(f"`{name}` mixes texts and token ids.", hint="Send one kind.", param=name)
        texts.append(entry if isinstance(entry, str) else _token_ids(entry, name))
    return tuple(texts)


def _token_ids(value: list[Any], name: str) -> tuple[int, ...]:
    if not value:
        raise BadRequest(f"`{name}` holds an empty list of token ids.", hint="Leave it out.", param=name)
    if any(not 0 <= token < 2**31 for token in value):
        raise BadRequest(f"`{name}` holds a token id out of range.", hint="Token ids are 0 or more.", param=name)
    return tuple(value)


def _options(body: _Common, *, logprobs: bool, top_logprobs: int, echo: bool = False) -> GenerateOptions:
    """Ranges are checked by the declaration in `runtime.options`, so it is said once."""
    stops = (body.stop,) if isinstance(body.stop, str) else body.stop
    sampling = {name: getattr(body, name) for name in SamplingOptions.__struct_fields__}
    raw: Raw = {
        "max_tokens": None if body.max_tokens == -1 else body.max_tokens,  # llama.cpp's "no limit"
        "stop": [stop for stop in stops if stop],
        "n": body.n,
        "logprobs": logprobs,
        "top_logprobs": top_logprobs,
        "context_policy": body.context_policy,
        "echo": echo,
        "ignore_eos": body.ignore_eos,
        "sampling": sampling,
    }
    return _typed(raw, GenerateOptions)


def _typed(raw: Raw, kind: type[B]) -> B:
    # OpenAI's seeds are signed 64-bit.
    return typed({**raw, "seed": seed_of(raw["seed"])} if "seed" in raw else raw, kind)
