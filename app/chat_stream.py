"""One answer on its way from the host, in batches that a window can paint."""

import time
from collections import deque

import msgspec
from PySide6.QtCore import QCoreApplication, QObject, Qt, QTimer, Signal, Slot
from PySide6.QtNetwork import QNetworkReply

from app.event_stream import EventStream, unreachable
from runtime.errors import Failure
from runtime.messages.api import ChatDelta, ChatEvent, ChatFailed, ChatFinished, ChatProgress, ChatRequest
from runtime.messages.shared import Timings, ToolCallHead, Usage

BATCH_MS = 33
"""Pause between batches: painting more often than about 30 times a second costs and shows nothing."""

MAX_BATCH_CHARS = 8 * 1024
"""Most characters of one batch, so that what a window does with it stays short."""

MAX_PENDING_CHARS = 1024 * 1024
"""Most characters waiting here; beyond it nothing is read, and the host is slowed down."""

_decoder: "msgspec.json.Decoder[ChatEvent]" = msgspec.json.Decoder(ChatEvent)


class ChatStream(QObject):
    """One answer on its way. Home thread: main. Deletes itself after `ended`."""

    events = Signal(list)
    """`list[ChatEvent]` in order, at most about 30 times a second; neighbouring deltas of one kind are joined. The
    very last event of a stream is always a `ChatFinished` or a `ChatFailed`, also when the host died or `cancel` was
    called."""

    ended = Signal()
    """After the last `events`."""

    def __init__(self, request: ChatRequest, reply: QNetworkReply, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._request = request
        self._pending: deque[ChatEvent] = deque()
        self._pending_chars = 0
        self._n_tokens = 0
        self._has_last = False
        self._has_ended = False
        self._flushed_at_s = 0.0
        self._stream: EventStream[ChatEvent] = EventStream(reply, _decoder, self)
        self._stream.arrived.connect(self._take)
        self._stream.closed.connect(self._close)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._flush)

    @property
    def request(self) -> ChatRequest:
        """What was asked."""
        return self._request

    def cancel(self) -> None:
        """Stop the answer. The last event is then a `ChatFinished` with the reason `cancelled`. Idempotent."""
        if self._has_last:
            return
        self._stream.abort()
        self._put_last(
            ChatFinished(reasons=("cancelled",), usage=Usage(completion_tokens=self._n_tokens), timings=Timings())
        )

    def fail(self, failure: Failure) -> None:
        """End the answer with this failure: its host is gone."""
        if not self._has_last:
            self._stream.abort()
            self._put_last(ChatFailed(failure))

    @Slot(list)
    def _take(self, events: list[ChatEvent]) -> None:
        for event in events:
            if self._has_last:
                return
            if isinstance(event, ChatDelta):
                self._pending_chars += len(event.text)
                self._n_tokens += event.n_tokens
            self._has_last = isinstance(event, ChatFinished | ChatFailed)
            self._pending.append(event)
        if self._pending_chars > MAX_PENDING_CHARS:
            self._stream.set_paused(True)
        self._schedule()

    @Slot(object)
    def _close(self, failure: Failure | None) -> None:
        if not self._has_last:
            cut = QCoreApplication.translate("ChatStream", "the answer was cut off")
            self._put_last(ChatFailed(failure or unreachable(cut)))

    def _put_last(self, event: ChatEvent) -> None:
        self._has_last = True
        self._pending.append(event)
        self._schedule()

    def _schedule(self) -> None:
        if not self._timer.isActive() and not self._has_ended:
            since_ms = (time.monotonic() - self._flushed_at_s) * 1000
            self._timer.start(max(0, round(BATCH_MS - since_ms)))

    @Slot()
    def _flush(self) -> None:
        batch = self._next_batch()
        self._flushed_at_s = time.monotonic()
        if self._pending_chars <= MAX_PENDING_CHARS // 2:
            self._stream.set_paused(False)
        if self._pending:
            self._schedule()
        elif self._has_last:
            self._has_ended = True
        if batch:
            self.events.emit(batch)
        if self._has_ended:
            self.ended.emit()
            self._stream.abort()
            self.deleteLater()

    def _next_batch(self) -> list[ChatEvent]:
        batch: list[ChatEvent] = []
        run: list[ChatDelta] = []
        n_chars = 0
        while self._pending and n_chars < MAX_BATCH_CHARS:
            event = self._pending.popleft()
            if isinstance(event, ChatDelta):
                n_chars += len(event.text)
                if run and _strand(run[-1]) != _strand(event):
                    batch.append(_join(run))
                    run = []
                run.append(event)
                continue
            if run:
                batch.append(_join(run))
                run = []
            before = batch[-1] if batch else None
            if isinstance(event, ChatProgress) and isinstance(before, ChatProgress):
                dropped_turns = max(before.dropped_turns, event.dropped_turns)
                batch[-1] = msgspec.structs.replace(event, dropped_turns=dropped_turns)
            else:
                batch.append(event)
        if run:
            batch.append(_join(run))
        self._pending_chars -= n_chars
        return batch


def _strand(delta: ChatDelta) -> tuple[str, int, ToolCallHead | None]:
    """What neighbouring deltas must share to be joined."""
    return delta.kind, delta.choice, delta.tool_call


def _join(run: list[ChatDelta]) -> ChatDelta:
    if len(run) == 1:
        return run[0]
    return ChatDelta(
        kind=run[0].kind,
        text="".join(delta.text for delta in run),
        choice=run[0].choice,
        n_tokens=sum(delta.n_tokens for delta in run),
        tool_call=run[0].tool_call,
    )
