"""From engine outputs to messages: parses answers, joins the texts of a batch, ends requests. Writer thread only."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from runtime.chat.tool_parser import AnswerPiece, CallPiece
from runtime.messages.ipc import (
    Counted,
    Delta,
    Embedded,
    Failed,
    Finished,
    FromWorker,
    Health,
    LoadFailed,
    LoadProgress,
    PromptProgress,
    Queued,
    Ready,
    Rendered,
    Rerank,
    Reranked,
    Step,
    Tokenized,
)
from runtime.messages.shared import DeltaKind, FinishReason, PositionLogprobs, ToolCallHead
from runtime.scheduler.types import Done, Ended, PromptRead, Text, Waiting
from runtime.worker.live import Live, Registry
from runtime.worker.outbox import Item

_UNPACK = struct.Struct("<f").unpack
MAX_STEP_CHARS = 1024 * 1024
MAX_STEP_LOGPROBS = 4096
"""A step message that grew to this is sent, so that one frame stays far below its limit."""

_READY_MADE = (
    LoadProgress,
    Ready,
    LoadFailed,
    Finished,
    Failed,
    Embedded,
    Counted,
    Reranked,
    Tokenized,
    Rendered,
    Health,
)


@dataclass(slots=True)
class _Part:
    """A delta that may still grow."""

    request_id: str
    choice: int
    kind: DeltaKind
    texts: list[str]
    n_tokens: int
    logprobs: list[PositionLogprobs]
    call: ToolCallHead | None = None

    def delta(self) -> Delta:
        return Delta(
            self.request_id,
            self.choice,
            self.kind,
            "".join(self.texts),
            self.n_tokens,
            tuple(self.logprobs),
            self.call,
        )


class _StepBuilder:
    """Deltas of one step message; neighbours of one answer and kind are joined, calls stay apart."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._last: dict[tuple[str, int], _Part] = {}
        self._n_chars = 0
        self._n_logprobs = 0

    def add(self, new: _Part) -> None:
        self._n_chars += sum(map(len, new.texts))
        self._n_logprobs += len(new.logprobs)
        part = self._last.get((new.request_id, new.choice))
        if part is not None and part.kind == new.kind and new.call is None:
            part.texts += new.texts
            part.n_tokens += new.n_tokens
            part.logprobs += new.logprobs
            return
        self._last[new.request_id, new.choice] = new
        self._parts.append(new)

    @property
    def is_full(self) -> bool:
        return self._n_chars >= MAX_STEP_CHARS or self._n_logprobs >= MAX_STEP_LOGPROBS

    def build(self) -> list[FromWorker]:
        return [Step(tuple(part.delta() for part in self._parts))] if self._parts else []


class Delivery:
    """Turns batches of outbox items into messages.

    Args:
        registry: the live requests; those that end are taken out.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def translate(self, items: Iterable[Item]) -> list[FromWorker]:
        """Messages for these items, in order. Outputs of requests that ended already give none."""
        messages: list[FromWorker] = []
        step = _StepBuilder()
        for item in items:
            if isinstance(item, Text):
                live = self._registry.get(item.request_id)
                if live is not None:
                    self._text(live, item, step)
                if step.is_full:
                    messages += step.build()
                    step = _StepBuilder()
                continue
            if isinstance(item, Done):
                live = self._registry.get(item.request_id)
                if live is not None:
                    self._rest(live, item, step)
            if not isinstance(item, Waiting | PromptRead | LoadProgress | Health):
                # An ending comes after the last text of its request.
                messages += step.build()
                step = _StepBuilder()
            messages += self._message(item)
        return messages + step.build()

    def _message(self, item: Item) -> Iterable[FromWorker]:
        if isinstance(item, _READY_MADE):
            return (item,)
        if isinstance(item, Done):
            return self._finished(item)
        if isinstance(item, Ended):
            return (Failed(item.request_id, item.failure),) if self._registry.take(item.request_id) else ()
        live = self._registry.get(item.request_id)
        if live is None:
            return ()
        if isinstance(item, Waiting):
            return (Queued(item.request_id, item.position),)
        if isinstance(item, PromptRead):
            return (PromptProgress(item.request_id, item.done, item.total, item.cached, live.dropped_turns),)
        return ()

    def _text(self, live: Live, item: Text, step: _StepBuilder) -> None:
        choice = item.choice
        if live.echoes:
            self._echo(live, choice, step)
        parser = live.parsers.get(choice)
        if parser is None:
            step.add(_Part(item.request_id, choice, "content", [item.text], item.n_tokens, list(item.logprobs)))
            return
        n_tokens = item.n_tokens + live.carried_tokens.pop(choice, 0)
        pieces = parser.feed(item.text, item.n_tokens)
        if not pieces and item.logprobs:
            pieces = [("reasoning" if parser.in_reasoning else "content", "")]
        if not pieces:
            live.carried_tokens[choice] = n_tokens
        # All tokens are told with the first piece; which of them made which piece cannot be said.
        self._pieces(live, choice, pieces, n_tokens, item.logprobs, step)
        if parser.is_plain:
            live.reasoning_tokens += parser.reasoning_tokens
            live.parsers[choice] = None

    def _pieces(
        self,
        live: Live,
        choice: int,
        pieces: Sequence[AnswerPiece],
        n_tokens: int,
        logprobs: tuple[PositionLogprobs, ...],
        step: _StepBuilder,
    ) -> None:
        for piece in pieces:
            if isinstance(piece, CallPiece):
                live.called.add(choice)
                part = _Part(live.request_id, choice, "tool_call", [piece.text], n_tokens, list(logprobs), piece.head)
            else:
                part = _Part(live.request_id, choice, piece[0], [piece[1]], n_tokens, list(logprobs))
            step.add(part)
            n_tokens, logprobs = 0, ()

    def _echo(self, live: Live, choice: int, step: _StepBuilder) -> None:
        echo = live.echoes.pop(choice, "")
        if echo:
            step.add(_Part(live.request_id, choice, "content", [echo], 0, []))

    def _rest(self, live: Live, item: Done, step: _StepBuilder) -> None:
        """What is still to be said before the ending."""
        for choice in range(len(item.reasons)):
            self._echo(live, choice, step)
            parser = live.parsers.get(choice)
            n_tokens = live.carried_tokens.pop(choice, 0)
            pieces = parser.finish() if parser is not None else []
            if not pieces and n_tokens:
                pieces = [("content", "")]
            self._pieces(live, choice, pieces, n_tokens, (), step)
            if parser is not None:
                live.reasoning_tokens += parser.reasoning_tokens
                live.parsers[choice] = None

    def _finished(self, item: Done) -> Iterable[FromWorker]:
        live = self._registry.take(item.request_id)
        if live is None:
            return ()
        if item.vectors:
            if isinstance(live.request, Rerank):
                scores = tuple(float(_UNPACK(vector)[0]) for vector in item.vectors)
                return (Reranked(item.request_id, scores, item.usage),)
            return (Embedded(item.request_id, item.vectors, item.usage),)
        usage = replace(item.usage, reasoning_tokens=live.reasoning_tokens) if live.reasoning_tokens else item.usage
        reasons: tuple[FinishReason, ...] = tuple(
            "tool_calls" if reason == "stop" and choice in live.called else reason
            for choice, reason in enumerate(item.reasons)
        )
        return (Finished(item.request_id, reasons, usage, item.timings, item.stop_strings),)


def ready_made(items: Iterable[Item]) -> list[FromWorker]:
    """Those items that are messages already; for the time before there is an engine."""
    return [item for item in items if isinstance(item, _READY_MADE)]
