"""One answer in the making: from the question's last word to the last token, whatever happens on the way."""

import dataclasses
import time

from PySide6.QtCore import QCoreApplication, QObject, QTimer, Signal, Slot

from app.answer_form import form_of
from app.link import ChatStream, HostLink
from app.saver import Saver
from app.speed import SlidingRate, Speed
from app.store.records import AnswerStats
from app.transcript import Node, Transcript
from runtime.errors import Failure
from runtime.messages.api import (
    ChatDelta,
    ChatEvent,
    ChatFailed,
    ChatFinished,
    ChatProgress,
    ChatQueued,
    ChatRequest,
)
from runtime.messages.shared import ToolCall, ToolCallHead

SAVE_MS = 1000
"""Longest time that streamed text is only in memory."""

SPEED_MS = 500


class Answer(QObject):
    """Writes one node of a transcript. Home thread: main. Deletes itself after `finished`.

    The node's state goes queued -> reading -> generating -> done, stopped or failed; `finished` is emitted once.
    """

    appended = Signal(str, str, str)
    """Message id, new reasoning, new content."""

    changed = Signal(str)
    """Message id: its state, figures, progress or notice changed."""

    context_used = Signal(str, int)
    """Message id, tokens of prompt and answer so far."""

    speed_changed = Signal(str, object)
    """Message id and `float | None`: tokens a second now; `None` at the end."""

    finished = Signal()
    """The node is in its final state and handed to the saver."""

    def __init__(
        self, transcript: Transcript, node: Node, saver: Saver, speed: Speed, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self.transcript = transcript
        self.node = node
        self.continues = len(node.content) > 0
        self._saver = saver
        self._speed = speed
        self._stream: ChatStream | None = None
        self._model = ""
        self._form = ""
        self._began_s = time.monotonic()
        self._first_s: float | None = None
        self._last_s: float | None = None
        self._reasoning_from_s: float | None = None
        self._n_earlier = node.stats.n_tokens if node.stats and self.continues else 0
        self._n_tokens = 0
        self._prompt_tokens: int | None = None
        self._is_over = False
        self._rate = SlidingRate()
        self._save_timer = QTimer(self)
        self._save_timer.setInterval(SAVE_MS)
        self._save_timer.timeout.connect(self._save)
        self._speed_timer = QTimer(self)
        self._speed_timer.setInterval(SPEED_MS)
        self._speed_timer.timeout.connect(self._tell_speed)
        node.state = "queued"
        node.failure = None
        node.notice = ""
        node.queue_position = None

    @property
    def is_waiting(self) -> bool:
        """Whether no model was ready yet."""
        return self._stream is None and not self._is_over

    @property
    def is_over(self) -> bool:
        """Whether the node is in its final state."""
        return self._is_over

    @property
    def time_to_first_token_s(self) -> float | None:
        """Seconds from asking the host to the first token; waiting for a model to load is not counted."""
        return None if self._first_s is None else self._first_s - self._began_s

    def wait(self, notice: str) -> None:
        """There is no model yet: say what is waited for."""
        if self.node.notice != notice:
            self.note(notice)

    def note(self, notice: str) -> None:
        """Say something about this answer."""
        self.node.notice = notice
        self.changed.emit(self.node.id)

    def begin(self, link: HostLink, request: ChatRequest) -> None:
        """Ask the host."""
        self._model = request.model
        form = form_of(request.shape, request.options)
        self._form = "" if form == "text" else form
        if self._form:
            self.node.stats = self._stats()
        self._began_s = time.monotonic()
        if self.node.notice:
            self.node.notice = ""
            self.changed.emit(self.node.id)
        self._stream = link.chat(request)
        self._stream.events.connect(self._take)
        self._save_timer.start()

    def stop(self) -> None:
        """Stop; what came stays. Idempotent."""
        if self._stream is not None:
            self._stream.cancel()
        elif not self._is_over:
            self._end("stopped", AnswerStats(n_tokens=self._n_earlier, reason="cancelled"))

    def finish_now(self) -> None:
        """Stop without waiting for the stream's last events: its window or message goes away."""
        if self._is_over:
            return
        if self._stream is not None:
            self._stream.events.disconnect(self._take)
            self._stream.cancel()
        self._end("stopped", dataclasses.replace(self._stats(), reason="cancelled"))

    def fail(self, failure: Failure) -> None:
        """It cannot be answered."""
        if self._is_over:
            return
        if self._stream is not None:
            self._stream.fail(failure)
            return
        self.node.failure = failure
        self._end("failed", self.node.stats)

    @Slot(list)
    def _take(self, events: list[ChatEvent]) -> None:
        reasoning: list[str] = []
        content: list[str] = []
        has_changed = False
        for event in events:
            match event:
                case ChatDelta(kind, text, choice, n_tokens):
                    if choice == 0 and event.tool_call is not None:
                        self._add_to_call(event.tool_call, text)
                        has_changed = True
                    elif choice == 0:
                        (reasoning if kind == "reasoning" else content).append(text)
                    self._count(n_tokens)
                    has_changed |= self._note_text(is_reasoning=kind == "reasoning")
                case ChatQueued(position):
                    self.node.queue_position = position
                    has_changed = True
                case ChatProgress():
                    has_changed = True
                    self._note_progress(event)
                case ChatFinished():
                    self._append(reasoning, content)
                    self._finish(event)
                    return
                case ChatFailed(failure):
                    self._append(reasoning, content)
                    self.node.failure = failure
                    self._end("failed", self._stats())
                    return
        self._append(reasoning, content)
        if has_changed:
            self.changed.emit(self.node.id)
        if self._prompt_tokens is not None:
            self.context_used.emit(self.node.id, self._prompt_tokens + self._n_tokens)

    def _add_to_call(self, head: ToolCallHead, arguments: str) -> None:
        calls = list(self.node.tool_calls)
        at = next((at for at, call in enumerate(calls) if call.id == head.id), None)
        if at is None:
            calls.append(ToolCall(head.id, head.name, arguments))
        else:
            calls[at] = ToolCall(head.id, head.name, calls[at].arguments + arguments)
        self.node.tool_calls = tuple(calls)

    def _append(self, reasoning: list[str], content: list[str]) -> None:
        """Into the node first, then told: who reads the node on hearing it finds it whole."""
        new_reasoning, new_content = "".join(reasoning), "".join(content)
        if new_reasoning or new_content:
            self.node.reasoning.append(new_reasoning)
            self.node.content.append(new_content)
            self.appended.emit(self.node.id, new_reasoning, new_content)

    def _count(self, n_tokens: int) -> None:
        now_s = time.monotonic()
        if self._first_s is None:
            self._first_s = now_s
            self._speed_timer.start()
        self._last_s = now_s
        self._n_tokens += n_tokens
        self._rate.add(now_s, n_tokens)
        self._speed.add(n_tokens)

    def _note_text(self, *, is_reasoning: bool) -> bool:
        """Keep state and reasoning time; True when a view must know."""
        has_changed = False
        now_s = time.monotonic()
        if self.node.state != "generating":
            self.node.state = "generating"
            self.node.stats = self._stats()
            has_changed = True
        if is_reasoning:
            if self._reasoning_from_s is None:
                self._reasoning_from_s = now_s
        elif self._reasoning_from_s is not None and self.node.reasoning_s is None:
            self.node.reasoning_s = now_s - self._reasoning_from_s
            has_changed = True
        return has_changed

    def _note_progress(self, event: ChatProgress) -> None:
        if self.node.state == "queued":
            self.node.state = "reading"
        self._prompt_tokens = event.total
        self.node.progress = event.done / event.total if event.total else None
        if event.dropped_turns:
            if event.dropped_turns == 1:
                text = QCoreApplication.translate("Answer", "The oldest turn was left out to fit the context.")
            else:
                text = QCoreApplication.translate(
                    "Answer", "The {count} oldest turns were left out to fit the context."
                )
            self.node.notice = text.format(count=event.dropped_turns)

    def _finish(self, event: ChatFinished) -> None:
        reason = event.reasons[0] if event.reasons else "stop"
        measured = self._stats()
        timings, usage = event.timings, event.usage
        stats = AnswerStats(
            n_tokens=self._n_earlier + max(usage.completion_tokens, self._n_tokens),
            generation_tps=timings.generation_tps or measured.generation_tps,
            # Measured here: it includes the way through the host, which is what the person waited for.
            time_to_first_token_s=measured.time_to_first_token_s,
            prompt_tokens=usage.prompt_tokens or measured.prompt_tokens,
            cached_tokens=usage.cached_tokens if usage.prompt_tokens else None,
            prompt_tps=timings.prompt_tps or None,
            queue_s=timings.queue_s if usage.prompt_tokens else None,
            total_s=timings.generation_s or measured.total_s,
            reason=reason,
            model=event.model or self._model,
            form=self._form,
        )
        self._end("stopped" if reason == "cancelled" else "done", stats)

    def _stats(self) -> AnswerStats:
        """Figures as measured here, so far."""
        span_s = self._last_s - self._first_s if self._first_s is not None and self._last_s is not None else 0.0
        return AnswerStats(
            n_tokens=self._n_earlier + self._n_tokens,
            generation_tps=(self._n_tokens - 1) / span_s if span_s > 0 and self._n_tokens > 1 else None,
            time_to_first_token_s=self.time_to_first_token_s,
            prompt_tokens=self._prompt_tokens,
            total_s=span_s if self._first_s is not None else None,
            model=self._model,
            form=self._form,
        )

    def _end(self, state: str, stats: AnswerStats | None) -> None:
        self._is_over = True
        self._save_timer.stop()
        self._speed_timer.stop()
        self.node.state = "failed" if state == "failed" else "stopped" if state == "stopped" else "done"
        self.node.stats = stats
        self.node.progress = None
        self.node.queue_position = None
        if self._reasoning_from_s is not None and self.node.reasoning_s is None:
            self.node.reasoning_s = (self._last_s or time.monotonic()) - self._reasoning_from_s
        self._saver.put(self.node.record(self.transcript.conversation_id))
        used = (stats.prompt_tokens or 0) + self._n_tokens if stats else 0
        if used:
            self.context_used.emit(self.node.id, used)
        self.changed.emit(self.node.id)
        self.speed_changed.emit(self.node.id, None)
        self.finished.emit()
        self.deleteLater()

    @Slot()
    def _save(self) -> None:
        if self.node.state == "generating":
            self.node.stats = self._stats()
            self.changed.emit(self.node.id)
        self._saver.put(self.node.record(self.transcript.conversation_id))

    @Slot()
    def _tell_speed(self) -> None:
        self.speed_changed.emit(self.node.id, self._rate.rate(time.monotonic()))
