"""OpenAI request bodies: raw JSON in, typed and checked values out.

Rules: `null` is the same as not there. A field that this version cannot honour is refused by name, never dropped in
silence; fields nobody knows are ignored, because clients send many. llama.cpp's sampling parameters are accepted
under their own names (`runtime.options.SamplingOptions`). Fields that only matter to a paid service or to speed
(`store`, `metadata`, `service_tier`, `prediction`, `verbosity`) are ignored.
"""

from typing import Annotated, Any, Literal, TypeVar

import msgspec

from runtime.errors import BadRequest
from runtime.host.api.body import Raw, json_text, seed_of, typed, without_nulls
from runtime.host.api.openai_messages import ChatMessage, chat_messages
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
from runtime.messages.shared import MAX_TOOLS, AnswerShape, Message, Tool
from runtime.options import MAX_ADAPTERS, MAX_INT, AdapterScale, GenerateOptions, SamplingOptions

MAX_PROMPTS = 256
"""Prompts of one /v1/completions call, and inputs of one /v1/embeddings call times eight."""

_ALIASES = {
    "max_completion_tokens": "max_tokens",
    "n_predict": "max_tokens",
    "repetition_penalty": "repeat_penalty",
    "typ_p": "typical_p",
    "reasoning_budget_tokens": "reasoning_budget",
    "thinking_budget_tokens": "reasoning_budget",
}
"""Other names of the same option. The first one wins over `max_tokens`, as in OpenAI's own API; the last two are
llama-server's (`tools/server/server-common.cpp`)."""
_ANY_BUDGET = -1
"""llama-server's word for thought without a bound."""

ModelName = Annotated[str, msgspec.Meta(max_length=1024)]

B = TypeVar("B", bound=msgspec.Struct)


class StreamOptions(msgspec.Struct, frozen=True):
    """What `stream_options` may hold."""

    include_usage: bool = False


class _ToolSpec(msgspec.Struct, frozen=True):
    type: str = "function"
    function: FunctionSpec | None = None


class _Named(msgspec.Struct, frozen=True):
    name: str = ""


class _AllowedTool(msgspec.Struct, frozen=True):
    function: _Named = _Named()


class _Allowed(msgspec.Struct, frozen=True):
    mode: Literal["auto", "required"] = "auto"
    tools: tuple[_AllowedTool, ...] = ()


class _ChoiceSpec(msgspec.Struct, frozen=True):
    type: str = "function"
    function: _Named | None = None
    allowed_tools: _Allowed | None = None


class _Common(SamplingOptions, frozen=True, forbid_unknown_fields=False):
    model: ModelName = ""
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    n: int = 1
    stop: str | tuple[str, ...] = ()
    max_tokens: int | None = None
    ignore_eos: bool = False
    context_policy: Literal["stop", "drop_oldest"] = "stop"
    response_format: FormatSpec | None = None
    json_schema: dict[str, Any] | None = None
    lora: tuple[AdapterScale, ...] | None = None


class ChatBody(_Common, frozen=True, forbid_unknown_fields=False):
    """POST /v1/chat/completions. Beside these, `max_completion_tokens` is another name of `max_tokens`.

    `json_schema` and `chat_template_kwargs` are llama-server's; `reasoning_budget` bounds the tokens of thought (-1: no
    bound).
    """

    messages: tuple[ChatMessage, ...] = ()
    logprobs: bool = False
    top_logprobs: int = 0
    continue_final_message: bool = False
    tools: Annotated[tuple[_ToolSpec, ...], msgspec.Meta(max_length=MAX_TOOLS)] = ()
    tool_choice: str | _ChoiceSpec = "auto"
    parallel_tool_calls: bool = True
    reasoning_effort: Effort | None = None
    reasoning_budget: Annotated[int, msgspec.Meta(ge=0, le=MAX_INT)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class CompletionBody(_Common, frozen=True, forbid_unknown_fields=False):
    """POST /v1/completions. With a `suffix`, a code model fills in what stands between."""

    prompt: str | list[str | int | list[int]] = ""
    logprobs: int | None = None
    echo: bool = False
    suffix: str = ""


class EmbeddingBody(msgspec.Struct, frozen=True):
    """POST /v1/embeddings."""

    input: str | list[str | int | list[int]]
    model: ModelName = ""
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, msgspec.Meta(ge=1)] | None = None
    lora: Annotated[tuple[AdapterScale, ...], msgspec.Meta(max_length=MAX_ADAPTERS)] | None = None


class ChatAsk(msgspec.Struct, frozen=True):
    """A checked /v1/chat/completions request."""

    model: str
    messages: tuple[Message, ...]
    options: GenerateOptions
    shape: AnswerShape
    stream: bool
    include_usage: bool
    continue_last: bool


class CompletionAsk(msgspec.Struct, frozen=True):
    """A checked /v1/completions request; each prompt is text or token ids."""

    model: str
    prompts: tuple[str | tuple[int, ...], ...]
    suffix: str
    options: GenerateOptions
    shape: AnswerShape
    stream: bool
    include_usage: bool


class EmbeddingAsk(msgspec.Struct, frozen=True):
    """A checked /v1/embeddings request."""

    model: str
    inputs: tuple[str | tuple[int, ...], ...]
    as_base64: bool
    dimensions: int | None
    lora: tuple[AdapterScale, ...] | None = None


# --- the three bodies -------------------------------------------------------------------------------------


def chat_ask(raw: Raw) -> ChatAsk:
    """Check a chat body.

    Raises:
        BadRequest: names the field, and says what it should be; `PayloadTooLarge` for a picture.
    """
    raw = _without_nulls(raw)
    _refuse_fields(raw)
    body = _typed(raw, ChatBody)
    if not body.messages:
        raise BadRequest("`messages` is missing or empty.", hint="Send at least one message.", param="messages")
    if body.top_logprobs and not body.logprobs:
        raise BadRequest(
            "`top_logprobs` needs `logprobs` to be true.", hint="Set it, or leave both out.", param="top_logprobs"
        )
    messages = chat_messages(body.messages)
    if body.continue_final_message and (messages[-1].role != "assistant" or messages[-1].tool_calls):
        raise BadRequest(
            "`continue_final_message` needs the last message to be the assistant's, with a text.",
            hint="End with the text to go on from, or leave the field out.",
            param="continue_final_message",
        )
    options = _options(body, logprobs=body.logprobs, top_logprobs=body.top_logprobs)
    return ChatAsk(
        body.model,
        messages,
        options,
        _shape(body),
        body.stream,
        body.stream_options.include_usage,
        body.continue_final_message,
    )


def completion_ask(raw: Raw) -> CompletionAsk:
    """Check a legacy completion body.

    Raises:
        BadRequest: names the field, and says what it should be.
    """
    raw = _without_nulls(raw)
    _refuse_fields(raw)
    if raw.get("tools"):
        raise BadRequest("`tools` need messages.", hint="Ask /v1/chat/completions.", param="tools")
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
    if body.suffix and (body.echo or not all(isinstance(prompt, str) for prompt in prompts)):
        raise BadRequest(
            "`suffix` needs prompts that are text, without `echo`.", hint="Send text alone.", param="suffix"
        )
    shape = typed({"json_schema": _schema(body)}, AnswerShape)
    return CompletionAsk(
        body.model, prompts, body.suffix, options, shape, body.stream, body.stream_options.include_usage
    )


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
    return EmbeddingAsk(body.model, inputs, body.encoding_format == "base64", body.dimensions, body.lora)


# --- before the types -------------------------------------------------------------------------------------


def _without_nulls(raw: Raw) -> Raw:
    kept = without_nulls(raw)
    for alias, name in _ALIASES.items():
        if alias in kept and (name not in kept or alias == "max_completion_tokens"):
            kept[name] = kept[alias]
    if kept.get("reasoning_budget") == _ANY_BUDGET:
        del kept["reasoning_budget"]
    return kept


_REFUSED: dict[str, tuple[tuple[object, ...], str]] = {
    "functions": (([],), "Use `tools`."),
    "function_call": (("none", "auto"), "Use `tool_choice`."),
    "modalities": ((["text"], []), "Answers are text."),
    "audio": ((), "Answers are text."),
    "web_search_options": ((), "Offer a search as one of `tools`, and run it yourself."),
    "chat_template": (("",), "Give the template's variables as `chat_template_kwargs`."),
}
"""Fields that would change the answer and are not honoured: values that ask for nothing, and what to do instead."""


def _refuse_fields(raw: Raw) -> None:
    for name, (harmless, hint) in _REFUSED.items():
        if name in raw and raw[name] not in harmless:
            raise BadRequest(f"`{name}` is not supported.", hint=hint, param=name)
    for index, message in enumerate(raw["messages"] if isinstance(raw.get("messages"), list) else ()):
        for name in ("function_call", "audio"):
            if isinstance(message, dict) and message.get(name):
                raise BadRequest(
                    f"`messages[{index}].{name}` is not supported.",
                    hint="Send calls as `tool_calls`, and the rest as text.",
                    param=f"messages[{index}].{name}",
                )


# --- shape of an answer -----------------------------------------------------------------------------------


def _schema(body: _Common) -> str:
    schema = schema_of(body.response_format, "response_format") if body.response_format is not None else ""
    if body.json_schema:
        if schema:
            raise BadRequest(
                "`json_schema` and `response_format` both ask for JSON.", hint="Send one.", param="json_schema"
            )
        schema = json_text(body.json_schema)
    if schema and body.grammar:
        raise BadRequest(
            "`grammar` and a JSON format cannot both hold for one answer.", hint="Send one.", param="grammar"
        )
    return schema


def _shape(body: ChatBody) -> AnswerShape:
    return answer_shape(
        tools=[_tool(index, spec) for index, spec in enumerate(body.tools)],
        choice=_choice(body.tool_choice),
        parallel_tool_calls=body.parallel_tool_calls,
        json_schema=_schema(body),
        reasoning=reasoning_of(body.reasoning_effort),
        reasoning_budget=body.reasoning_budget,
        template_values=json_text(body.chat_template_kwargs) if body.chat_template_kwargs else "",
    )


def _tool(index: int, spec: _ToolSpec) -> Tool:
    where = f"tools[{index}]"
    if spec.type != "function":
        raise only_functions(spec.type, where)
    if spec.function is None:
        raise BadRequest(f"`{where}.function` is missing.", hint="Add it.", param=f"{where}.function")
    return function_tool(spec.function, f"{where}.function")


def _choice(given: str | _ChoiceSpec) -> Choice:
    if given == "auto":
        return Choice()
    if given in ("none", "required"):
        return Choice("none" if given == "none" else "required")
    if isinstance(given, _ChoiceSpec):
        if given.type == "function" and given.function is not None and given.function.name:
            return Choice("required", given.function.name)
        if given.type == "allowed_tools" and given.allowed_tools is not None:
            return Choice(
                given.allowed_tools.mode, allowed=tuple(tool.function.name for tool in given.allowed_tools.tools)
            )
    raise BadRequest(
        "`tool_choice` is not understood.",
        hint='Write "auto", "none", "required" or {"type": "function", "function": {"name": ...}}.',
        param="tool_choice",
    )


# --- parts ------------------------------------------------------------------------------------------------


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
        "lora": body.lora,
        "sampling": sampling,
    }
    return _typed(raw, GenerateOptions)


def _typed(raw: Raw, kind: type[B]) -> B:
    # OpenAI's seeds are signed 64-bit.
    return typed({**raw, "seed": seed_of(raw["seed"])} if "seed" in raw else raw, kind)
