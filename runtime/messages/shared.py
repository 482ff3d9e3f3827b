"""Values that both borders carry: transcript, deltas, usage, timings."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from runtime.messages.load import DeviceMemory
from runtime.options import MAX_INT

Role = Literal["system", "developer", "user", "assistant", "tool"]

FinishReason = Literal["stop", "length", "cancelled", "tool_calls"]
"""`stop`: end of turn or a stop string; `length`: max_tokens or the context; `cancelled`: asked to."""

DeltaKind = Literal["content", "reasoning", "tool_call"]
"""`tool_call`: the text is a piece of the call's arguments (JSON); the delta's `tool_call` says of which call."""

ToolChoice = Literal["auto", "none", "required"]
ReasoningMode = Literal["auto", "off", "on"]
ReasoningEffort = Literal["", "minimal", "low", "medium", "high"]
MAX_TOOLS = 256
MAX_SCHEMA_CHARS = 1024 * 1024
MAX_MEDIA = 64
"""Pictures and sounds of one request: each costs a pass through the projector and hundreds of tokens."""


class MediaPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """A picture or sound inside a message: the encoded file, as it came."""

    kind: Literal["image", "audio"]
    data: bytes
    mime: str = ""


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    """Text beside pictures or sounds."""

    text: str


class PicturePart(msgspec.Struct, frozen=True, tag="media"):
    """A picture or sound at this place of the message."""

    media: MediaPart


Part = TextPart | PicturePart


class ToolCall(msgspec.Struct, frozen=True):
    """A call the model made. `arguments` is JSON text, as the model wrote it."""

    id: str
    name: str
    arguments: str


class ToolCallHead(msgspec.Struct, frozen=True):
    """Which call a delta belongs to; `index` counts the calls of one answer from 0."""

    index: int
    id: str
    name: str


class Tool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A function the model may call. `parameters` is a JSON schema as text; "" takes no arguments."""

    name: Annotated[str, Meta(min_length=1, max_length=256)]
    description: str = ""
    parameters: Annotated[str, Meta(max_length=MAX_SCHEMA_CHARS)] = ""


class AnswerShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an answer may look like.

    Attributes:
        tools: functions the model may call.
        tool_choice: `required` forces a call of any of them; `tool_name` of this one.
        parallel_tool_calls: more than one call in an answer.
        json_schema: the answer is JSON that fits this schema (as text); "{}" is any JSON; "" is free text.
        reasoning: whether the model thinks first; `auto` leaves it to the model.
        reasoning_effort: for models whose template takes one.
        reasoning_budget: most tokens of thought, after which it is closed; None is no bound.
        template_values: further variables for the model's chat template, as JSON text of an object.
    """

    tools: Annotated[tuple[Tool, ...], Meta(max_length=MAX_TOOLS)] = ()
    tool_choice: ToolChoice = "auto"
    tool_name: str = ""
    parallel_tool_calls: bool = True
    json_schema: Annotated[str, Meta(max_length=MAX_SCHEMA_CHARS)] = ""
    reasoning: ReasoningMode = "auto"
    reasoning_effort: ReasoningEffort = ""
    reasoning_budget: Annotated[int, Meta(ge=0, le=MAX_INT)] | None = None
    template_values: Annotated[str, Meta(max_length=65_536)] = ""


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One turn of a transcript. `reasoning` is what the model thought before `content`.

    `parts` holds the content with its pictures and sounds in their places; `content` is then its text alone.
    `tool_calls` are the calls an assistant made; a `tool` message answers the one of `tool_call_id`.
    """

    role: Role
    content: str = ""
    reasoning: str = ""
    name: str = ""
    parts: tuple[Part, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    """A token with its natural-log probability. `token_bytes` may be a part of a UTF-8 character."""

    token_id: int
    token_bytes: bytes
    logprob: float


class PositionLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """The chosen token of one position and its most likely alternatives, likeliest first."""

    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...] = ()


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Exact token counts of one request, all its choices added up."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0


class Timings(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the time of one request went. Durations are monotonic-clock seconds, measured in the worker.

    `prompt_tps` counts only tokens that were decoded (not cached ones); `generation_tps` counts from the
    first generated token to the last, so one token has none (0). `draft_accepted` of `draft_tokens` guessed ones
    were what came (speculative decoding).
    """

    queue_s: float = 0.0
    prompt_s: float = 0.0
    time_to_first_token_s: float = 0.0
    generation_s: float = 0.0
    prompt_tps: float = 0.0
    generation_tps: float = 0.0
    draft_tokens: int = 0
    draft_accepted: int = 0


class AdapterFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """A loaded LoRA adapter. `key` names its content, `file_name` is without folders; `scale` is as it was loaded."""

    name: str
    file_name: str
    scale: float
    rank: int
    size_bytes: int
    key: str


class ModelFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a loaded model is, as llama.cpp reports it.

    `resolved` holds the values automatic load options came to, by option name. `memory` is what llama.cpp then
    allocated on each device, `n_layer_on` the layers it put there (output layer included). `projector` is the name of
    the file it sees or hears with; "" without one.
    """

    name: str
    architecture: str
    quantization: str
    n_params: int
    size_bytes: int
    n_layer: int
    n_vocab: int
    n_ctx: int
    n_ctx_train: int
    n_parallel: int
    has_chat_template: bool
    can_embed: bool
    reasoning: bool
    device_names: tuple[str, ...]
    n_gpu_layers: int
    kv_bytes: int
    compute_bytes: int
    load_s: float
    engine: str
    resolved: dict[str, str | int] = {}
    memory: tuple[DeviceMemory, ...] = ()
    can_use_tools: bool = False
    can_see: bool = False
    can_hear: bool = False
    can_rerank: bool = False
    adapters: tuple[AdapterFacts, ...] = ()
    n_layer_on: dict[str, int] = {}
    projector: str = ""
