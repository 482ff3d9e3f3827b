"""Host <-> worker. A worker is one process that runs one model.

Order: the worker connects and sends `Hello`; the host answers `Load`; the worker sends `LoadProgress` and then
`Ready` or `LoadFailed` (and ends). Every request ends with exactly one of `Finished`, `Failed`, `Embedded`,
`Counted`, `Reranked` or a `TextAnswer`; when the worker dies the supervisor makes the `Failed`. `Cancel` is
idempotent and may come late.
"""

import msgspec

from runtime.errors import Failure
from runtime.messages.load import ResolvedLoad
from runtime.messages.shared import (
    AnswerShape,
    DeltaKind,
    FinishReason,
    Message,
    ModelFacts,
    PositionLogprobs,
    Timings,
    ToolCallHead,
    Usage,
)
from runtime.options import AdapterScale, GenerateOptions, LoadOptions

PROTOCOL_VERSION = 1


# --- host -> worker ---------------------------------------------------------------------------------------


class Load(msgspec.Struct, frozen=True, tag=True):
    """Load this file; the only message that may follow `Hello`.

    `resolved` is the plan to follow; without one the worker works it out by `runtime.fit.defaults`. `states_folder`
    is where prompts are stored across restarts; empty stores none. `draft_path` is the file of the draft model, empty
    without one, and `draft` its plan. `projector` is the path of the part that reads pictures or sound; "" is none.
    `model_id` is what callers call the model; "" takes the name of its file.
    """

    path: str
    options: LoadOptions = LoadOptions()
    resolved: ResolvedLoad | None = None
    states_folder: str = ""
    draft_path: str = ""
    draft: ResolvedLoad | None = None
    projector: str = ""
    model_id: str = ""


class Generate(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Generate from a conversation (`messages`) or from plain text or tokens.

    Exactly one of `messages`, `prompt`, `prompt_tokens` is set. `from_window` takes the reserved place in the
    queue, so that a flood of API requests cannot lock the person out. `continue_last` goes on writing the last
    assistant message instead of opening a new turn.
    """

    request_id: str
    messages: tuple[Message, ...] | None = None
    prompt: str | None = None
    prompt_tokens: tuple[int, ...] | None = None
    options: GenerateOptions = GenerateOptions()
    from_window: bool = False
    continue_last: bool = False
    shape: AnswerShape = AnswerShape()


class Embed(msgspec.Struct, frozen=True, tag=True):
    """Embed each input (text or tokens), in order. `truncate` cuts what is too long at its end.

    `lora` are scales of adapters, as in `GenerateOptions`.
    """

    request_id: str
    inputs: tuple[str | tuple[int, ...], ...]
    truncate: bool = False
    lora: tuple[AdapterScale, ...] | None = None


class Count(msgspec.Struct, frozen=True, tag=True):
    """Count the tokens of a rendered conversation, without generating. `shape` has the tools it would show."""

    request_id: str
    messages: tuple[Message, ...]
    shape: AnswerShape = AnswerShape()


class Rerank(msgspec.Struct, frozen=True, tag=True):
    """Score how well each document answers the query, with a model made for it. `lora` as in `Embed`."""

    request_id: str
    query: str
    documents: tuple[str, ...]
    lora: tuple[AdapterScale, ...] | None = None


class Tokenize(msgspec.Struct, frozen=True, tag=True):
    """Text to tokens. `add_special` adds the start token where the model wants it.

    `parse_special` reads control tokens written out in the text as such.
    """

    request_id: str
    text: str
    add_special: bool = False
    parse_special: bool = True


class Detokenize(msgspec.Struct, frozen=True, tag=True):
    """Tokens to text, control tokens shown."""

    request_id: str
    token_ids: tuple[int, ...]


class ApplyTemplate(msgspec.Struct, frozen=True, tag=True):
    """Render a conversation as it would be asked, as text."""

    request_id: str
    messages: tuple[Message, ...]
    shape: AnswerShape = AnswerShape()
    continue_last: bool = False


class InfillPrompt(msgspec.Struct, frozen=True, tag=True):
    """Tokens that ask a code model for what stands between `prefix` and `suffix`.

    `prompt` is the beginning of what is asked for; `files` are (name, text) pairs of the same repository.
    """

    request_id: str
    prefix: str
    suffix: str
    prompt: str = ""
    files: tuple[tuple[str, str], ...] = ()


TextAsk = Tokenize | Detokenize | ApplyTemplate | InfillPrompt
"""Asked of the tokenizer and the template alone, never of the engine."""


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """Stop a request between two steps; its sequence stays reusable. Unknown ids are ignored."""

    request_id: str


class Shutdown(msgspec.Struct, frozen=True, tag=True):
    """End the process: finish what runs for at most `drain_s`, then end the rest as cancelled."""

    drain_s: float = 0.0


ToWorker = (
    Load | Generate | Embed | Count | Rerank | Tokenize | Detokenize | ApplyTemplate | InfillPrompt | Cancel | Shutdown
)


# --- worker -> host ---------------------------------------------------------------------------------------


class Hello(msgspec.Struct, frozen=True, tag=True):
    """First message: who connects. A wrong token or version ends the connection."""

    token: str
    pid: int
    protocol_version: int = PROTOCOL_VERSION


class LoadProgress(msgspec.Struct, frozen=True, tag=True):
    """`fraction` in 0..1, as llama.cpp's own progress callback reports it; at most 20 a second."""

    stage: str
    fraction: float


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The model is loaded and takes requests."""

    facts: ModelFacts


class LoadFailed(msgspec.Struct, frozen=True, tag=True):
    """The load failed; the process ends after this."""

    failure: Failure


class Queued(msgspec.Struct, frozen=True, tag=True):
    """The request waits; `position` counts from 1."""

    request_id: str
    position: int


class PromptProgress(msgspec.Struct, frozen=True, tag=True):
    """The prompt is being read: `done` of `total` tokens, `cached` of them without decoding.

    `dropped_turns` says how many of the oldest turns were left out by the context policy.
    """

    request_id: str
    done: int
    total: int
    cached: int
    dropped_turns: int = 0


class Delta(msgspec.Struct, frozen=True, array_like=True):
    """New text of one choice of one request. Always whole UTF-8."""

    request_id: str
    choice: int
    kind: DeltaKind
    text: str
    n_tokens: int = 0
    logprobs: tuple[PositionLogprobs, ...] = ()
    tool_call: ToolCallHead | None = None


class Step(msgspec.Struct, frozen=True, tag=True):
    """All new text of one engine step."""

    deltas: tuple[Delta, ...]


class Finished(msgspec.Struct, frozen=True, tag=True):
    """The request is done. `reasons[i]` and `stop_strings[i]` belong to choice i; "" is no stop string."""

    request_id: str
    reasons: tuple[FinishReason, ...]
    usage: Usage
    timings: Timings
    stop_strings: tuple[str, ...] = ()


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The request ended with an error."""

    request_id: str
    failure: Failure


class Embedded(msgspec.Struct, frozen=True, tag=True):
    """One vector an input, float32 little-endian [n_embd], L2-normalised."""

    request_id: str
    vectors: tuple[bytes, ...]
    usage: Usage


class Counted(msgspec.Struct, frozen=True, tag=True):
    """Answer to `Count`."""

    request_id: str
    n_tokens: int
    n_ctx: int


class Reranked(msgspec.Struct, frozen=True, tag=True):
    """Answer to `Rerank`: a score for each document, in their order; the higher, the better it fits."""

    request_id: str
    scores: tuple[float, ...]
    usage: Usage


class Tokenized(msgspec.Struct, frozen=True, tag=True):
    """Answer to `Tokenize` and `InfillPrompt`. `pieces[i]` are the bytes of token i, maybe half a character."""

    request_id: str
    token_ids: tuple[int, ...]
    pieces: tuple[bytes, ...]


class Rendered(msgspec.Struct, frozen=True, tag=True):
    """Answer to `Detokenize` and `ApplyTemplate`."""

    request_id: str
    text: str


TextAnswer = Tokenized | Rendered


class Health(msgspec.Struct, frozen=True, tag=True):
    """Sent once a second by a thread of its own, so that a stuck engine still reports its age.

    `step_age_s` is the time since the engine thread last finished a step or an idle tick;
    `step_limit_s` the age above which it counts as stuck (grows with the batch). Of the `draft_tokens` guessed since
    the load, `draft_accepted` were what came.
    """

    step_age_s: float
    step_limit_s: float
    active: int
    waiting: int
    kv_used: int
    kv_total: int
    resident_bytes: int
    host_cache_bytes: int
    decode_share: float
    generated_tokens: int
    prompt_tokens: int
    draft_tokens: int = 0
    draft_accepted: int = 0


FromWorker = (
    Hello
    | LoadProgress
    | Ready
    | LoadFailed
    | Queued
    | PromptProgress
    | Step
    | Finished
    | Failed
    | Embedded
    | Counted
    | Reranked
    | Tokenized
    | Rendered
    | Health
)
