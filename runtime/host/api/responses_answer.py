"""Answers of the Responses API: what the worker says in, items and streaming events out.

A stream is `response.created`, `response.in_progress`, then for each item `response.output_item.added`, its parts and
deltas, and `response.output_item.done`, then `response.completed`, `.incomplete` or `.failed`; all are numbered. An
answer that is sent whole is made the same way.
"""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from runtime.errors import Busy, CallerFault, RuntimeFault
from runtime.host.api.openai_answer import TimingsShape, chat_logprobs, error_shape, timings_shape
from runtime.host.api.responses_items import (
    CallItem,
    MessageItem,
    OutputItem,
    OutputText,
    ReasoningItem,
    ReasoningText,
    SummaryText,
    sealed,
)
from runtime.host.api.responses_request import (
    SEALED_THOUGHT,
    ReasoningSpec,
    ResponseChoice,
    ResponsesAsk,
    ResponseTool,
)
from runtime.host.desk import Ticket
from runtime.messages.ipc import Delta, Finished
from runtime.messages.shared import PositionLogprobs, ToolCallHead, Usage
from runtime.units import now

_encode = msgspec.json.Encoder().encode


class InputDetails(msgspec.Struct, frozen=True):
    """What of the prompt was not read anew. Nothing is ever charged for writing a cache."""

    cached_tokens: int
    cache_write_tokens: int


class OutputDetails(msgspec.Struct, frozen=True):
    """What of the answer was thought."""

    reasoning_tokens: int


class ResponseUsage(msgspec.Struct, frozen=True):
    """Exact counts."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class ResponseProblem(msgspec.Struct, frozen=True):
    """Why an answer failed."""

    code: str
    message: str


class Incomplete(msgspec.Struct, frozen=True):
    """Why an answer is not whole."""

    reason: str


class TextFormat(msgspec.Struct, frozen=True, omit_defaults=True):
    """The format that was asked for."""

    type: str
    name: str = ""
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class TextShape(msgspec.Struct, frozen=True):
    """What was asked of the text."""

    format: TextFormat


class ResponseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer, with what was asked. `timings` is an extension."""

    id: str
    object: str = "response"
    created_at: int
    completed_at: int | None = None
    status: str
    background: bool = False
    error: ResponseProblem | None = None
    incomplete_details: Incomplete | None = None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    output: tuple[OutputItem, ...]
    parallel_tool_calls: bool
    previous_response_id: str | None
    reasoning: ReasoningSpec
    store: bool
    temperature: float
    text: TextShape
    tool_choice: str | ResponseChoice
    tools: tuple[ResponseTool, ...]
    top_logprobs: int
    top_p: float
    truncation: str
    usage: ResponseUsage | None = None
    timings: TimingsShape | None = None


class InputTokens(msgspec.Struct, frozen=True):
    """/v1/responses/input_tokens."""

    object: str
    input_tokens: int


class Deleted(msgspec.Struct, frozen=True):
    """DELETE /v1/responses/{id}."""

    id: str
    object: str
    deleted: bool


def usage_shape(usage: Usage) -> ResponseUsage:
    """Exact counts in this API's shape."""
    return ResponseUsage(
        usage.prompt_tokens,
        InputDetails(usage.cached_tokens, 0),
        usage.completion_tokens,
        OutputDetails(usage.reasoning_tokens),
        usage.prompt_tokens + usage.completion_tokens,
    )


@dataclass
class _Run:
    """The item that is being written."""

    kind: str
    call: ToolCallHead | None
    item_id: str
    texts: list[str] = field(default_factory=list)
    logprobs: list[PositionLogprobs] = field(default_factory=list)


class ResponseMaker:
    """One answer in the making; every method gives the events of its step as bytes of server-sent events."""

    def __init__(self, ask: ResponsesAsk, ticket: Ticket) -> None:
        self._ask = ask
        self._ticket = ticket
        self._tail = ticket.request_id.rpartition("-")[2]
        self._n_events = 0
        self._output: list[OutputItem] = []
        self._run: _Run | None = None
        self._head = b""
        self._has_begun = False
        self._is_queued = False
        self._as_summary = ask.body.reasoning.summary is not None
        self.answer: ResponseAnswer | None = None
        """The whole answer, once it has ended."""

    @property
    def response_id(self) -> str:
        """What the program calls the answer."""
        return f"resp_{self._tail}"

    def shown(self, status: str) -> ResponseAnswer:
        """The answer as it is now, with the items that are whole."""
        return self._answer(status)

    def queued(self) -> bytes:
        """The first events of an answer in the background; `response.in_progress` follows when it is being written."""
        self._has_begun = self._is_queued = True
        answer = b'"response":' + _encode(self._answer("queued"))
        return self._event("response.created", answer) + self._event("response.queued", answer)

    def begin(self) -> bytes:
        """The first events; nothing when they were given before."""
        if self._is_queued:
            self._is_queued = False
            return self._event("response.in_progress", b'"response":' + _encode(self._answer("in_progress")))
        if self._has_begun:
            return b""
        self._has_begun = True
        answer = b'"response":' + _encode(self._answer("in_progress"))
        return self._event("response.created", answer) + self._event("response.in_progress", answer)

    def delta(self, delta: Delta) -> bytes:
        """New text, thought or arguments."""
        data = self.begin()
        run = self._run
        if run is None or run.kind != delta.kind or run.call != delta.tool_call:
            if not delta.text and not delta.logprobs and delta.tool_call is None:
                return data  # tokens whose text is still held back
            data += self._close("completed")
            run, opened = self._open(delta)
            data += opened
        if not delta.text and not delta.logprobs:
            return data
        run.texts.append(delta.text)
        body = self._head + b',"delta":' + _encode(delta.text)
        if delta.kind == "content":
            run.logprobs.extend(delta.logprobs)
            body += b',"logprobs":' + (_encode(chat_logprobs(delta.logprobs).content) if delta.logprobs else b"[]")
        return data + self._event(_DELTAS[self._family(run)], body)

    def end(self, finished: Finished) -> bytes:
        """The last events."""
        reason = finished.reasons[0]
        status = {"length": "incomplete", "cancelled": "cancelled"}.get(reason, "completed")
        data = self.begin() + self._close("completed" if status == "completed" else "incomplete")
        self.answer = msgspec.structs.replace(
            self._answer(status),
            completed_at=int(now()) if status == "completed" else None,
            incomplete_details=Incomplete("max_output_tokens") if status == "incomplete" else None,
            usage=usage_shape(finished.usage),
            timings=timings_shape(finished.usage, finished.timings),
        )
        kind = "response.completed" if status == "completed" else "response.incomplete"
        return data + self._event(kind, b'"response":' + _encode(self.answer))

    def failed(self, error: RuntimeFault) -> bytes:
        """An error in the midst of a stream."""
        told = error_shape(error).error
        if not self._has_begun:
            return error_bytes(error, self._n_events)
        code = "server_error"
        if isinstance(error, CallerFault):
            code = "rate_limit_exceeded" if isinstance(error, Busy) else "invalid_prompt"
        data = self._close("incomplete")
        self.answer = msgspec.structs.replace(self._answer("failed"), error=ResponseProblem(code, told.message))
        return data + self._event("response.failed", b'"response":' + _encode(self.answer))

    def cancelled(self) -> bytes:
        """The last events of an answer that was cancelled from outside."""
        data = self._close("incomplete")
        self.answer = self._answer("cancelled")
        return data + self._event("response.incomplete", b'"response":' + _encode(self.answer))

    # --- items --------------------------------------------------------------------------------------------

    def _family(self, run: _Run) -> str:
        return "summary" if run.kind == "reasoning" and self._as_summary else run.kind

    def _open(self, delta: Delta) -> tuple[_Run, bytes]:
        index = len(self._output)
        prefix = {"content": "msg", "reasoning": "rs"}.get(delta.kind, "fc")
        run = _Run(delta.kind, delta.tool_call, f"{prefix}_{self._tail}_{index}")
        self._run = run
        family = self._family(run)
        part = {"tool_call": b"", "summary": b',"summary_index":0'}.get(family, b',"content_index":0')
        self._head = b'"item_id":%b,"output_index":%d%b' % (_encode(run.item_id), index, part)
        added = b'"output_index":%d,"item":%b' % (index, _encode(self._item(run, "in_progress", is_empty=True)))
        data = self._event("response.output_item.added", added)
        if family != "tool_call":
            data += self._event(_PART_EVENTS[family] + ".added", self._head + b',"part":' + _encode(_part(family, "")))
        return run, data

    def _close(self, status: str) -> bytes:
        run = self._run
        if run is None:
            return b""
        self._run = None
        family, text = self._family(run), "".join(run.texts)
        item = self._item(run, status)
        done = self._head + (b',"arguments":' if family == "tool_call" else b',"text":') + _encode(text)
        if family == "content":
            done += b',"logprobs":' + _encode(chat_logprobs(run.logprobs).content)
        elif run.call is not None:
            done += b',"name":' + _encode(run.call.name)
        data = self._event(_DELTAS[family].removesuffix("delta") + "done", done)
        if family != "tool_call":
            part = _encode(item.content[0] if isinstance(item, MessageItem) else _part(family, text))
            data += self._event(_PART_EVENTS[family] + ".done", self._head + b',"part":' + part)
        index = len(self._output)
        self._output.append(item)
        return data + self._event("response.output_item.done", b'"output_index":%d,"item":%b' % (index, _encode(item)))

    def _item(self, run: _Run, status: str, *, is_empty: bool = False) -> OutputItem:
        text = "".join(run.texts)
        if run.call is not None:
            return CallItem(run.item_id, run.call.id, run.call.name, text, status)
        if run.kind == "content":
            part = OutputText(text, (), chat_logprobs(run.logprobs).content)
            return MessageItem(run.item_id, "assistant", status, () if is_empty else (part,))
        if is_empty:
            return ReasoningItem(run.item_id, status, ())
        kept = sealed(text) if SEALED_THOUGHT in self._ask.body.include else None
        if self._as_summary:
            return ReasoningItem(run.item_id, status, (SummaryText(text),), (), kept)
        return ReasoningItem(run.item_id, status, (), (ReasoningText(text),), kept)

    # --- the answer as a whole ----------------------------------------------------------------------------

    def _answer(self, status: str) -> ResponseAnswer:
        body, options = self._ask.body, self._ask.options
        form = body.text.format
        told = TextFormat("text")
        if form is not None and form.type == "json_schema":
            told = TextFormat("json_schema", form.name or "schema", form.schema, form.description, form.strict)
        elif form is not None:
            told = TextFormat(form.type)
        return ResponseAnswer(
            id=self.response_id,
            created_at=self._ticket.created_s,
            status=status,
            background=body.background,
            instructions=body.instructions or None,
            max_output_tokens=body.max_output_tokens,
            metadata=body.metadata,
            model=self._ticket.model,
            output=tuple(self._output),
            parallel_tool_calls=body.parallel_tool_calls,
            previous_response_id=body.previous_response_id or None,
            reasoning=body.reasoning,
            store=body.store,
            temperature=options.sampling.temperature,
            text=TextShape(told),
            tool_choice=body.tool_choice,
            tools=body.tools,
            top_logprobs=options.top_logprobs,
            top_p=options.sampling.top_p,
            truncation=body.truncation,
        )

    def _event(self, kind: str, body: bytes) -> bytes:
        number = self._n_events
        self._n_events += 1
        return _event_bytes(kind, number, body)


def _event_bytes(kind: str, number: int, body: bytes) -> bytes:
    name = kind.encode()
    return b'event: %b\ndata: {"type":"%b","sequence_number":%d,%b}\n\n' % (name, name, number, body)


def error_bytes(error: RuntimeFault, number: int) -> bytes:
    """An error that belongs to no answer, as event `number` of a stream."""
    told = error_shape(error).error
    body = b'"code":%b,"message":%b,"param":%b' % (_encode(told.code), _encode(told.message), _encode(told.param))
    return _event_bytes("error", number, body)


_DELTAS = {
    "content": "response.output_text.delta",
    "reasoning": "response.reasoning_text.delta",
    "summary": "response.reasoning_summary_text.delta",
    "tool_call": "response.function_call_arguments.delta",
}
_PART_EVENTS = {
    "content": "response.content_part",
    "reasoning": "response.content_part",
    "summary": "response.reasoning_summary_part",
}


def _part(family: str, text: str) -> OutputText | ReasoningText | SummaryText:
    if family == "content":
        return OutputText(text, (), ())
    return SummaryText(text) if family == "summary" else ReasoningText(text)
