"""The contract between the front of a worker (text, templates, IPC) and its engine (tokens, batches).

The front builds an `EngineRequest` and reads `EngineOutput`s; it never sees a sequence id, a batch or logits.
Outputs of one step arrive together, in one tuple, so one step is one hand-off.
"""

from dataclasses import dataclass, field
from typing import Literal

from runtime.errors import Failure
from runtime.grammar.answer import FREE_ANSWER, AnswerPlan
from runtime.messages.shared import FinishReason, PositionLogprobs, Timings, Usage
from runtime.options import GenerateOptions
from runtime.scheduler.adapters import AdapterSet
from runtime.scheduler.media import MediaSpan


@dataclass(frozen=True, slots=True)
class PooledTask:
    """Texts that become numbers instead of being gone on from.

    Attributes:
        inputs: tokens of each text; at least one text, none empty.
        kind: a vector (float32 [n_embd], L2 norm 1) of each, or a score (one float32) from the model's classifier.
    """

    inputs: tuple[tuple[int, ...], ...]
    kind: Literal["vector", "score"] = "vector"


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One request in tokens.

    Attributes:
        request_id: name for outputs and cancelling; unique among live requests.
        prompt: token ids, at least one, special tokens included; placeholders where rows of pictures stand
            (`runtime.scheduler.media`). Empty with `pooled`.
        options: sampling, stops, n, limits. `max_tokens` 0 only reads the prompt.
        from_window: may take the reserved place in the queue.
        save_points: prompt lengths at which reuse is worth most (end of the system part, start of the last
            turn's generation prompt), ascending; what models that cannot roll back keep checkpoints at.
        pooled: texts to read into vectors or scores instead of generating.
        plan: what the answer may be; made by `runtime.grammar.plan.plan_answer`.
        media: the pictures and sounds of the prompt, in order.
        adapters: what is applied to the model for it; made by `runtime.scheduler.adapters.adapter_set`.
    """

    request_id: str
    prompt: tuple[int, ...]
    options: GenerateOptions = field(default_factory=GenerateOptions)
    from_window: bool = False
    save_points: tuple[int, ...] = ()
    pooled: PooledTask | None = None
    plan: AnswerPlan = FREE_ANSWER
    media: tuple[MediaSpan, ...] = ()
    adapters: AdapterSet | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """The request waits; `position` counts from 1. Sent when it changes."""

    request_id: str
    position: int


@dataclass(frozen=True, slots=True)
class PromptRead:
    """Progress through the prompt; sent once per step in which it moved."""

    request_id: str
    done: int
    total: int
    cached: int


@dataclass(slots=True)
class Text:
    """New text of one choice: whole UTF-8, stop strings already held back.

    `text` may be empty when only `logprobs` or `n_tokens` move. One is made for each token, so it is
    not frozen, which would cost a call for each field; it is never changed all the same.
    """

    request_id: str
    choice: int
    text: str
    n_tokens: int
    logprobs: tuple[PositionLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class Done:
    """The request ended well (also when cancelled). Index i of each tuple belongs to choice i.

    `vectors` are what `pooled` texts came to, little-endian float32, in order; none when it was cancelled.
    """

    request_id: str
    reasons: tuple[FinishReason, ...]
    stop_strings: tuple[str, ...]
    usage: Usage
    timings: Timings
    vectors: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """The request ended with an error."""

    request_id: str
    failure: Failure


EngineOutput = Waiting | PromptRead | Text | Done | Ended

MemoryKind = Literal["shared", "sequence", "points"]
"""How a model's memory can be reused: cells shared between sequences and cut anywhere (`shared`), cut
anywhere but not shared (`sequence`), or only as it was at a saved point (`points`: recurrent, hybrid and
sliding-window caches)."""


@dataclass(slots=True)
class EngineFigures:
    """Running totals of the engine, read by the health thread. Durations in monotonic seconds."""

    active: int = 0
    waiting: int = 0
    kv_used: int = 0
    kv_total: int = 0
    host_cache_bytes: int = 0
    decode_s: float = 0.0
    busy_s: float = 0.0
    generated_tokens: int = 0
    prompt_tokens: int = 0
    draft_tokens: int = 0
    draft_accepted: int = 0
    last_step_at: float = 0.0
    step_limit_s: float = field(default=30.0)
