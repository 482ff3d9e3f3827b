"""Values that both borders carry: transcript, deltas, usage, timings."""

from typing import Literal

import msgspec

from runtime.messages.load import DeviceMemory

Role = Literal["system", "developer", "user", "assistant", "tool"]

FinishReason = Literal["stop", "length", "cancelled", "tool_calls"]
"""`stop`: end of turn or a stop string; `length`: max_tokens or the context; `cancelled`: asked to."""

DeltaKind = Literal["content", "reasoning"]


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One turn of a transcript. `reasoning` is what the model thought before `content`."""

    role: Role
    content: str = ""
    reasoning: str = ""
    name: str = ""


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
    first generated token to the last, so one token has none (0).
    """

    queue_s: float = 0.0
    prompt_s: float = 0.0
    time_to_first_token_s: float = 0.0
    generation_s: float = 0.0
    prompt_tps: float = 0.0
    generation_tps: float = 0.0


class ModelFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a loaded model is, as llama.cpp reports it.

    `resolved` holds the values automatic load options came to, by option name. `memory` is what llama.cpp then
    allocated on each device, `n_layer_on` the layers it put there (output layer included).
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
    n_layer_on: dict[str, int] = {}
