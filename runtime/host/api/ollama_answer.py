"""Ollama's answer shapes: what the worker says in, JSON lines out. Durations are nanoseconds."""

import datetime
from typing import Any

import msgspec

from runtime.errors import RuntimeFault
from runtime.host.api.public_errors import sentences_for_programs
from runtime.messages.ipc import Delta, Finished
from runtime.messages.shared import FinishReason, PositionLogprobs, Timings, TokenLogprob, ToolCallHead, Usage

_encode = msgspec.json.Encoder().encode
NDJSON = "application/x-ndjson"
_NS = 1_000_000_000

_REASONS: dict[FinishReason, str] = {"stop": "stop", "length": "length", "tool_calls": "stop", "cancelled": "length"}


class OllamaError(msgspec.Struct, frozen=True):
    """Ollama's error object."""

    error: str


class OllamaFunction(msgspec.Struct, frozen=True):
    """What is called, with what."""

    index: int
    name: str
    arguments: dict[str, Any]


class OllamaToolCall(msgspec.Struct, frozen=True):
    """A call, always whole."""

    id: str
    function: OllamaFunction


class OllamaMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer, or a piece of it."""

    role: str
    content: str
    thinking: str = ""
    tool_calls: tuple[OllamaToolCall, ...] = ()


class OllamaTop(msgspec.Struct, frozen=True):
    """A token with its natural-log probability."""

    token: str
    logprob: float
    bytes: tuple[int, ...]


class OllamaLogprob(msgspec.Struct, frozen=True):
    """The token that was chosen and its likeliest alternatives."""

    token: str
    logprob: float
    bytes: tuple[int, ...]
    top_logprobs: tuple[OllamaTop, ...]


class OllamaFigures(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the last line tells."""

    done_reason: str = ""
    total_duration: int = 0
    load_duration: int = 0
    prompt_eval_count: int = 0
    prompt_eval_duration: int = 0
    eval_count: int = 0
    eval_duration: int = 0


class OllamaChatAnswer(OllamaFigures, frozen=True, omit_defaults=True, kw_only=True):
    """One line of /api/chat, or the whole answer."""

    model: str
    created_at: str
    message: OllamaMessage
    done: bool
    logprobs: tuple[OllamaLogprob, ...] = ()


class OllamaTextAnswer(OllamaFigures, frozen=True, omit_defaults=True, kw_only=True):
    """One line of /api/generate, or the whole answer."""

    model: str
    created_at: str
    response: str
    done: bool
    thinking: str = ""
    logprobs: tuple[OllamaLogprob, ...] = ()


class OllamaEmbedAnswer(msgspec.Struct, frozen=True):
    """/api/embed."""

    model: str
    embeddings: tuple[list[float], ...]
    total_duration: int
    load_duration: int
    prompt_eval_count: int


class OllamaEmbeddingsAnswer(msgspec.Struct, frozen=True):
    """/api/embeddings."""

    embedding: list[float]


def ollama_error(error: RuntimeFault) -> OllamaError:
    """An error of ours in Ollama's shape; the hint is part of it."""
    return OllamaError(sentences_for_programs(error))


def line(value: object) -> bytes:
    """One line of a stream."""
    return _encode(value) + b"\n"


def timestamp(at_s: float) -> str:
    """Seconds since 1970 as RFC 3339 in UTC."""
    moment = datetime.datetime.fromtimestamp(at_s, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def nanoseconds(duration_s: float) -> int:
    """Seconds as Ollama counts them."""
    return round(duration_s * _NS)


class Piece(msgspec.Struct, frozen=True):
    """A part of an answer."""

    content: str = ""
    thinking: str = ""
    calls: tuple[OllamaToolCall, ...] = ()
    logprobs: tuple[OllamaLogprob, ...] = ()


class Pieces:
    """Collects deltas into pieces: a call is told when it is whole."""

    def __init__(self) -> None:
        self._head: ToolCallHead | None = None
        self._arguments: list[str] = []

    def add(self, delta: Delta) -> list[Piece]:
        """Take one delta; what is complete by now."""
        if delta.kind == "tool_call":
            closed = self.close() if delta.tool_call != self._head else []
            self._head = delta.tool_call
            self._arguments.append(delta.text)
            return closed
        pieces = self.close()
        logprobs = tuple(map(_logprob, delta.logprobs))
        if delta.kind == "reasoning":
            if delta.text:
                pieces.append(Piece(thinking=delta.text))
        elif delta.text or logprobs:
            pieces.append(Piece(content=delta.text, logprobs=logprobs))
        return pieces

    def close(self) -> list[Piece]:
        """The call that was open, if there was one."""
        head, text = self._head, "".join(self._arguments)
        self._head = None
        self._arguments.clear()
        if head is None:
            return []
        try:
            arguments = msgspec.json.decode(text or "{}")
        except (msgspec.DecodeError, RecursionError):
            arguments = None
        if not isinstance(arguments, dict):
            arguments = {"arguments": text}
        return [Piece(calls=(OllamaToolCall(head.id, OllamaFunction(head.index, head.name, arguments)),))]


def joined(pieces: list[Piece]) -> Piece:
    """All of an answer as one piece."""
    return Piece(
        "".join(piece.content for piece in pieces),
        "".join(piece.thinking for piece in pieces),
        tuple(call for piece in pieces for call in piece.calls),
        tuple(entry for piece in pieces for entry in piece.logprobs),
    )


class Lines:
    """Answers of one request, of /api/chat or /api/generate."""

    def __init__(self, model: str, *, chat: bool) -> None:
        self._model = model
        self._chat = chat

    def answer(self, piece: Piece, at_s: float, figures: OllamaFigures | None = None) -> msgspec.Struct:
        """One line; with `figures` the last one, or the whole answer."""
        model, made_at, is_done = self._model, timestamp(at_s), figures is not None
        answer: OllamaChatAnswer | OllamaTextAnswer
        if self._chat:
            message = OllamaMessage("assistant", piece.content, piece.thinking, piece.calls)
            answer = OllamaChatAnswer(
                model=model, created_at=made_at, message=message, done=is_done, logprobs=piece.logprobs
            )
        else:
            answer = OllamaTextAnswer(
                model=model,
                created_at=made_at,
                response=piece.content,
                done=is_done,
                thinking=piece.thinking,
                logprobs=piece.logprobs,
            )
        return msgspec.structs.replace(answer, **msgspec.structs.asdict(figures)) if figures is not None else answer


def figures_of(finished: Finished, total_s: float, load_s: float) -> OllamaFigures:
    """What the last line tells."""
    usage: Usage = finished.usage
    timings: Timings = finished.timings
    return OllamaFigures(
        done_reason=_REASONS[finished.reasons[0]],
        total_duration=nanoseconds(total_s),
        load_duration=nanoseconds(load_s),
        prompt_eval_count=usage.prompt_tokens,
        prompt_eval_duration=nanoseconds(timings.prompt_s),
        eval_count=usage.completion_tokens,
        eval_duration=nanoseconds(timings.generation_s),
    )


def _logprob(position: PositionLogprobs) -> OllamaLogprob:
    chosen = position.chosen
    top = tuple(OllamaTop(_text(one), one.logprob, tuple(one.token_bytes)) for one in position.top)
    return OllamaLogprob(_text(chosen), chosen.logprob, tuple(chosen.token_bytes), top)


def _text(token: TokenLogprob) -> str:
    return token.token_bytes.decode("utf-8", "replace")
