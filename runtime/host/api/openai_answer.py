"""OpenAI answer shapes: what the worker says in, bytes of JSON and server-sent events out.

A streamed token costs one string encoding and a few joins: the unchanging parts of a chunk are made once a request.
"""

from collections.abc import Iterable, Sequence

import msgspec

from runtime.errors import RuntimeFault
from runtime.host.api.http import event_bytes
from runtime.host.api.public_errors import sentences_for_programs
from runtime.messages.ipc import Delta, Finished
from runtime.messages.shared import FinishReason, PositionLogprobs, Timings, TokenLogprob, ToolCallHead, Usage

_encode = msgspec.json.Encoder().encode
DONE = b"data: [DONE]\n\n"

_REASONS: dict[FinishReason, str] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "cancelled": "length",  # cut off: OpenAI has no word for it, and "stop" would claim a whole answer
}


# --- shapes -----------------------------------------------------------------------------------------------


class _PromptDetails(msgspec.Struct, frozen=True):
    cached_tokens: int


class _CompletionDetails(msgspec.Struct, frozen=True):
    reasoning_tokens: int


class UsageShape(msgspec.Struct, frozen=True):
    """OpenAI's `usage`."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: _PromptDetails
    completion_tokens_details: _CompletionDetails


class TimingsShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """Extension `timings`, with the names llama.cpp's server uses, plus the waiting times.

    `draft_n` and `draft_n_accepted` are there only where tokens were guessed ahead.
    """

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_second: float
    queue_ms: float
    time_to_first_token_ms: float
    draft_n: int = 0
    draft_n_accepted: int = 0


class _TopLogprob(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    bytes: tuple[int, ...]


class ChatLogprob(msgspec.Struct, frozen=True):
    """A token of an answer with its alternatives."""

    token: str
    logprob: float
    bytes: tuple[int, ...]
    top_logprobs: tuple[_TopLogprob, ...]


class _ChatLogprobs(msgspec.Struct, frozen=True):
    content: tuple[ChatLogprob, ...]
    refusal: None = None


class _LegacyLogprobs(msgspec.Struct, frozen=True):
    tokens: tuple[str, ...]
    token_logprobs: tuple[float, ...]
    top_logprobs: tuple[dict[str, float], ...]
    text_offset: tuple[int, ...]


class _CalledFunction(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class _AnswerCall(msgspec.Struct, frozen=True):
    id: str
    type: str
    function: _CalledFunction


class _ChatAnswerMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """`content` is null where the answer is calls of tools alone."""

    role: str
    content: str | None
    refusal: None
    reasoning_content: str = ""
    tool_calls: tuple[_AnswerCall, ...] = ()


class ChatChoice(msgspec.Struct, frozen=True):
    """One choice of a chat answer."""

    index: int
    message: _ChatAnswerMessage
    logprobs: _ChatLogprobs | None
    finish_reason: str


class TextChoice(msgspec.Struct, frozen=True):
    """One choice of a legacy answer."""

    index: int
    text: str
    logprobs: _LegacyLogprobs | None
    finish_reason: str


class ChatCompletion(msgspec.Struct, frozen=True):
    """A whole answer of /v1/chat/completions."""

    id: str
    object: str
    created: int
    model: str
    choices: tuple[ChatChoice, ...]
    usage: UsageShape
    timings: TimingsShape
    system_fingerprint: str


class TextCompletion(msgspec.Struct, frozen=True):
    """A whole answer of /v1/completions."""

    id: str
    object: str
    created: int
    model: str
    choices: tuple[TextChoice, ...]
    usage: UsageShape
    timings: TimingsShape
    system_fingerprint: str


class ErrorBody(msgspec.Struct, frozen=True):
    """Inside of OpenAI's error object."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorShape(msgspec.Struct, frozen=True):
    """OpenAI's error object."""

    error: ErrorBody


FINGERPRINT = "deskside"


def error_shape(error: RuntimeFault) -> ErrorShape:
    """An error of ours in OpenAI's shape; the hint is part of the message, since clients show only that."""
    param = error.details.get("param")
    text = sentences_for_programs(error)
    return ErrorShape(ErrorBody(text, _error_type(error.status), str(param) if param else None, error.code))


def _error_type(status: int) -> str:
    named = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
    return named.get(status, "invalid_request_error" if status < 500 else "server_error")  # noqa: PLR2004


def error_event(error: RuntimeFault) -> bytes:
    """An error in the midst of a stream, as the official clients understand it."""
    return event_bytes(error_shape(error)) + DONE


def usage_shape(usage: Usage) -> UsageShape:
    """Exact counts in OpenAI's shape."""
    return UsageShape(
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.prompt_tokens + usage.completion_tokens,
        _PromptDetails(usage.cached_tokens),
        _CompletionDetails(usage.reasoning_tokens),
    )


def timings_shape(usage: Usage, timings: Timings) -> TimingsShape:
    """Where the time went, in llama.cpp's names."""
    return TimingsShape(
        cache_n=usage.cached_tokens,
        prompt_n=usage.prompt_tokens - usage.cached_tokens,
        prompt_ms=_ms(timings.prompt_s),
        prompt_per_second=round(timings.prompt_tps, 3),
        predicted_n=usage.completion_tokens,
        predicted_ms=_ms(timings.generation_s),
        predicted_per_second=round(timings.generation_tps, 3),
        queue_ms=_ms(timings.queue_s),
        time_to_first_token_ms=_ms(timings.time_to_first_token_s),
        draft_n=timings.draft_tokens,
        draft_n_accepted=timings.draft_accepted,
    )


def _ms(duration_s: float) -> float:
    return round(duration_s * 1000, 3)


# --- logprobs ---------------------------------------------------------------------------------------------


def _text_of(token: TokenLogprob) -> str:
    return token.token_bytes.decode("utf-8", "replace")


def chat_logprobs(positions: Iterable[PositionLogprobs]) -> _ChatLogprobs:
    """The chat form: each token with its bytes and alternatives."""
    return _ChatLogprobs(
        tuple(
            ChatLogprob(
                _text_of(position.chosen),
                position.chosen.logprob,
                tuple(position.chosen.token_bytes),
                tuple(_TopLogprob(_text_of(top), top.logprob, tuple(top.token_bytes)) for top in position.top),
            )
            for position in positions
        )
    )


def _legacy_text(token: TokenLogprob) -> str:
    r"""OpenAI's legacy form writes a token that is no whole UTF-8 as `bytes:\xe2\x80`."""
    try:
        return token.token_bytes.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.token_bytes)


def legacy_logprobs(positions: Sequence[PositionLogprobs], offset: int) -> _LegacyLogprobs:
    """The legacy form: parallel lists. `offset` is the length in characters of the text before."""
    offsets: list[int] = []
    for position in positions:
        offsets.append(offset)
        offset += len(position.chosen.token_bytes.decode("utf-8", "ignore"))
    return _LegacyLogprobs(
        tuple(_legacy_text(position.chosen) for position in positions),
        tuple(position.chosen.logprob for position in positions),
        tuple({_legacy_text(top): top.logprob for top in position.top} for position in positions),
        tuple(offsets),
    )


# --- whole answers ----------------------------------------------------------------------------------------


class Gathered:
    """One choice's text as it comes in, for an answer that is sent whole."""

    def __init__(self) -> None:
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.logprobs: list[PositionLogprobs] = []
        self.calls: dict[ToolCallHead, list[str]] = {}

    def add(self, delta: Delta) -> None:
        """Take one delta."""
        if delta.tool_call is not None:
            self.calls.setdefault(delta.tool_call, []).append(delta.text)
        elif delta.kind == "content":
            self.content.append(delta.text)
            self.logprobs.extend(delta.logprobs)
        else:
            self.reasoning.append(delta.text)

    def chat_choice(self, index: int, reason: FinishReason, *, logprobs: bool) -> ChatChoice:
        """As a chat choice."""
        calls = tuple(
            _AnswerCall(head.id, "function", _CalledFunction(head.name, "".join(pieces)))
            for head, pieces in self.calls.items()
        )
        content = "".join(self.content)
        message = _ChatAnswerMessage(
            "assistant", None if calls and not content else content, None, "".join(self.reasoning), calls
        )
        return ChatChoice(index, message, chat_logprobs(self.logprobs) if logprobs else None, _REASONS[reason])

    def text_choice(self, index: int, reason: FinishReason, *, logprobs: bool) -> TextChoice:
        """As a legacy choice."""
        told = legacy_logprobs(self.logprobs, 0) if logprobs else None
        return TextChoice(index, "".join(self.content), told, _REASONS[reason])


def added_up(finished: Sequence[Finished]) -> tuple[Usage, Timings]:
    """Usage of several prompts in one call is added up; of the timings those of the slowest prompt are told."""
    usage = Usage(
        sum(part.usage.prompt_tokens for part in finished),
        sum(part.usage.cached_tokens for part in finished),
        sum(part.usage.completion_tokens for part in finished),
        sum(part.usage.reasoning_tokens for part in finished),
    )
    slowest = max(finished, key=lambda part: part.timings.queue_s + part.timings.prompt_s + part.timings.generation_s)
    return usage, slowest.timings


# --- streams ----------------------------------------------------------------------------------------------


class Chunks:
    """Chunks of one streamed answer as bytes of server-sent events."""

    def __init__(self, answer_id: str, created_s: int, model: str, *, chat: bool, include_usage: bool) -> None:
        kind = "chat.completion.chunk" if chat else "text_completion"
        self._chat = chat
        self._include_usage = include_usage
        self._head = (
            b'data: {"id":' + _encode(answer_id) + b',"object":"' + kind.encode() + b'","created":' + _encode(created_s)
            + b',"model":' + _encode(model) + b',"system_fingerprint":"' + FINGERPRINT.encode() + b'","choices":['
        )  # fmt: skip
        self._tail = b'],"usage":null}\n\n' if include_usage else b"]}\n\n"
        self._offsets: dict[int, int] = {}
        self._begun: set[tuple[int, int]] = set()

    def opening(self, n_choices: int) -> bytes:
        """The first chunk of each choice, which tells the role; the legacy form has none.

        Its content is null: clients would open a text block for "", also where calls alone follow.
        """
        if not self._chat:
            return b""
        return b"".join(
            self._head
            + b'{"index":%d,"delta":{"role":"assistant","content":null},"logprobs":null,"finish_reason":null}' % index
            + self._tail
            for index in range(n_choices)
        )

    def delta(self, index: int, delta: Delta) -> bytes:
        """New text of one choice."""
        if delta.tool_call is not None and self._chat:
            return self._call(index, delta.tool_call, delta.text)
        if not delta.text and not delta.logprobs:
            return b""
        text = _encode(delta.text)
        if not self._chat:
            logprobs = b"null"
            if delta.logprobs:
                logprobs = _encode(legacy_logprobs(delta.logprobs, self._offsets.get(index, 0)))
            self._offsets[index] = self._offsets.get(index, 0) + len(delta.text)
            body = b'{"index":%d,"text":%b,"logprobs":%b,"finish_reason":null}' % (index, text, logprobs)
        elif delta.kind == "content":
            logprobs = _encode(chat_logprobs(delta.logprobs)) if delta.logprobs else b"null"
            body = b'{"index":%d,"delta":{"content":%b},"logprobs":%b,"finish_reason":null}' % (index, text, logprobs)
        else:
            body = b'{"index":%d,"delta":{"reasoning_content":%b},"logprobs":null,"finish_reason":null}' % (index, text)
        return self._head + body + self._tail

    def _call(self, index: int, head: ToolCallHead, text: str) -> bytes:
        """A piece of a call's arguments; the first one of a call tells its id and name."""
        key = (index, head.index)
        if key in self._begun:
            if not text:
                return b""
            call = b'{"index":%d,"function":{"arguments":%b}}' % (head.index, _encode(text))
        else:
            self._begun.add(key)
            call = b'{"index":%d,"id":%b,"type":"function","function":{"name":%b,"arguments":%b}}' % (
                head.index,
                _encode(head.id),
                _encode(head.name),
                _encode(text),
            )
        body = b'{"index":%d,"delta":{"tool_calls":[%b]},"logprobs":null,"finish_reason":null}' % (index, call)
        return self._head + body + self._tail

    def closing(self, index: int, reason: FinishReason) -> bytes:
        """The last chunk of one choice, with its finish reason."""
        return self._closing(index, reason, self._tail)

    def last(self, index: int, reason: FinishReason, usage: Usage, timings: Timings) -> bytes:
        """The closing chunk of the last choice that ends; it also tells the timings (an extension)."""
        told = b',"timings":' + _encode(timings_shape(usage, timings))
        return self._closing(index, reason, self._tail.replace(b"]", b"]" + told, 1))

    def _closing(self, index: int, reason: FinishReason, tail: bytes) -> bytes:
        empty = b'"delta":{}' if self._chat else b'"text":""'
        body = b'{"index":%d,%b,"logprobs":null,"finish_reason":"%b"}' % (index, empty, _REASONS[reason].encode())
        return self._head + body + tail

    def end(self, usage: Usage) -> bytes:
        """Usage where it was asked for, and the end mark."""
        if not self._include_usage:
            return DONE
        return self._head + b'],"usage":' + _encode(usage_shape(usage)) + b"}\n\n" + DONE
