"""Anthropic answer shapes: what the worker says in, messages and streaming events out.

A stream is `message_start`, then for each block `content_block_start`, its deltas and `content_block_stop`, then
`message_delta` with the reason and exact counts, and `message_stop`. Thought, text and tool calls are blocks.
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from runtime.errors import RuntimeFault
from runtime.host.api.public_errors import sentences_for_programs
from runtime.host.desk import Ticket
from runtime.messages.ipc import Delta, Finished, PromptProgress
from runtime.messages.shared import FinishReason, ToolCallHead, Usage

_encode = msgspec.json.Encoder().encode

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"]

_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}

PING = b'event: ping\ndata: {"type":"ping"}\n\n'


class OutputDetails(msgspec.Struct, frozen=True):
    """What of the answer was thought."""

    thinking_tokens: int


class MessageUsage(msgspec.Struct, frozen=True):
    """Exact counts; `input_tokens` are those that were read anew, the cached ones stand beside them."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int
    output_tokens_details: OutputDetails


class TextBlock(msgspec.Struct, frozen=True, tag="text"):
    """A part of the answer."""

    text: str
    citations: None = None


class ThinkingBlock(msgspec.Struct, frozen=True, tag="thinking"):
    """What the model thought. The signature is opaque and not checked when it comes back."""

    thinking: str
    signature: str


class ToolUseBlock(msgspec.Struct, frozen=True, tag="tool_use"):
    """A call of a tool."""

    id: str
    name: str
    input: dict[str, Any]


AnswerBlock = TextBlock | ThinkingBlock | ToolUseBlock


class MessageAnswer(msgspec.Struct, frozen=True):
    """A whole answer of /v1/messages."""

    id: str
    type: str
    role: str
    model: str
    content: tuple[AnswerBlock, ...]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessageUsage


class TokenCount(msgspec.Struct, frozen=True):
    """/v1/messages/count_tokens."""

    input_tokens: int


class AnthropicErrorBody(msgspec.Struct, frozen=True):
    """Inside of Anthropic's error object."""

    type: str
    message: str


class AnthropicError(msgspec.Struct, frozen=True):
    """Anthropic's error object."""

    type: str
    error: AnthropicErrorBody
    request_id: str | None = None


def anthropic_error(error: RuntimeFault) -> AnthropicError:
    """An error of ours in Anthropic's shape; the hint is part of the message."""
    kind = _ERROR_TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")  # noqa: PLR2004
    return AnthropicError("error", AnthropicErrorBody(kind, sentences_for_programs(error)))


def error_event(error: RuntimeFault) -> bytes:
    """An error in the midst of a stream."""
    return b"event: error\ndata: " + _encode(anthropic_error(error)) + b"\n\n"


def message_id(ticket: Ticket) -> str:
    """The answer's id."""
    return f"msg_{ticket.request_id.rpartition('-')[2]}"


def usage_shape(usage: Usage) -> MessageUsage:
    """Exact counts in Anthropic's shape."""
    return MessageUsage(
        usage.prompt_tokens - usage.cached_tokens,
        usage.completion_tokens,
        usage.cached_tokens,
        0,
        OutputDetails(usage.reasoning_tokens),
    )


def stop_of(finished: Finished, max_tokens: int, stops: Sequence[str]) -> tuple[StopReason, str | None]:
    """Why the answer ended, and by which of the caller's stop sequences."""
    reason: FinishReason = finished.reasons[0]
    stop = finished.stop_strings[0] if finished.stop_strings else ""
    if reason == "stop" and stop in stops:
        return "stop_sequence", stop
    if reason == "tool_calls":
        return "tool_use", None
    if reason == "length" and finished.usage.completion_tokens < max_tokens:
        return "model_context_window_exceeded", None
    return ("end_turn" if reason == "stop" else "max_tokens"), None


def input_of(arguments: str) -> dict[str, Any]:
    """A call's arguments as an object; ones that are none are kept as text, not lost."""
    try:
        value = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"arguments": arguments}


class Gathered:
    """Blocks of an answer that is sent whole."""

    def __init__(self, signature: str) -> None:
        self._signature = signature
        self._runs: list[tuple[str, ToolCallHead | None, list[str]]] = []

    def add(self, delta: Delta) -> None:
        """Take one delta."""
        key = (delta.kind, delta.tool_call)
        if not self._runs or self._runs[-1][:2] != key:
            if not delta.text and delta.tool_call is None:
                return
            self._runs.append((*key, []))
        self._runs[-1][2].append(delta.text)

    def blocks(self) -> tuple[AnswerBlock, ...]:
        """All of them, in order."""
        return tuple(self._block(kind, call, "".join(texts)) for kind, call, texts in self._runs)

    def _block(self, kind: str, call: ToolCallHead | None, text: str) -> AnswerBlock:
        if call is not None:
            return ToolUseBlock(call.id, call.name, input_of(text))
        return ThinkingBlock(text, self._signature) if kind == "reasoning" else TextBlock(text)


class Events:
    """Streaming events of one answer as bytes of server-sent events."""

    def __init__(self, ticket: Ticket) -> None:
        self._ticket = ticket
        self._index = -1
        self._open: tuple[str, ToolCallHead | None] | None = None
        self._prompt = Usage()
        self.has_started = False

    def progress(self, message: PromptProgress) -> None:
        """How long the prompt is, for the first event."""
        self._prompt = Usage(prompt_tokens=message.total, cached_tokens=message.cached)

    def start(self) -> bytes:
        """The first event; nothing when it was sent before."""
        if self.has_started:
            return b""
        self.has_started = True
        answer = MessageAnswer(
            message_id(self._ticket),
            "message",
            "assistant",
            self._ticket.model,
            (),
            None,
            None,
            usage_shape(self._prompt),
        )
        return _event("message_start", b'"message":' + _encode(answer))

    def delta(self, delta: Delta) -> bytes:
        """New text, thought or arguments, in the block they belong to."""
        key = (delta.kind, delta.tool_call)
        data = self.start()
        if self._open != key:
            if not delta.text and delta.tool_call is None:
                return data  # tokens whose text is still held back
            data += self._close() + self._begin(delta)
            self._open = key
        if not delta.text:
            return data
        text = _encode(delta.text)
        if delta.kind == "tool_call":
            inner = b'{"type":"input_json_delta","partial_json":' + text
        elif delta.kind == "reasoning":
            inner = b'{"type":"thinking_delta","thinking":' + text
        else:
            inner = b'{"type":"text_delta","text":' + text
        return data + self._block_event("content_block_delta", b',"delta":' + inner + b"}")

    def end(self, finished: Finished, max_tokens: int, stops: Sequence[str]) -> bytes:
        """The last events."""
        reason, stop = stop_of(finished, max_tokens, stops)
        told = b'"delta":{"stop_reason":%b,"stop_sequence":%b},"usage":%b' % (
            _encode(reason),
            _encode(stop),
            _encode(usage_shape(finished.usage)),
        )
        return (
            self.start()
            + self._close()
            + _event("message_delta", told)
            + b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
        )

    def _begin(self, delta: Delta) -> bytes:
        self._index += 1
        call = delta.tool_call
        block: AnswerBlock
        if call is not None:
            block = ToolUseBlock(call.id, call.name, {})
        else:
            block = ThinkingBlock("", "") if delta.kind == "reasoning" else TextBlock("")
        return self._block_event("content_block_start", b',"content_block":' + _encode(block))

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        kind, _ = self._open
        self._open = None
        data = b""
        if kind == "reasoning":
            signature = _encode(message_id(self._ticket))
            inner = b',"delta":{"type":"signature_delta","signature":' + signature + b"}"
            data = self._block_event("content_block_delta", inner)
        return data + self._block_event("content_block_stop", b"")

    def _block_event(self, kind: str, rest: bytes) -> bytes:
        return _event(kind, b'"index":%d' % self._index + rest)


def _event(kind: str, body: bytes) -> bytes:
    name = kind.encode()
    return b"event: " + name + b'\ndata: {"type":"' + name + b'",' + body + b"}\n\n"
