"""One open stream of server-sent events, read in slices so that a burst never holds the event loop."""

import logging
from typing import Generic, TypeVar

import msgspec
from PySide6.QtCore import QCoreApplication, QObject, QTimer, Signal, Slot
from PySide6.QtNetwork import QNetworkReply, QNetworkRequest

from app.sse import EventTooLong, SseParser
from runtime.errors import BugFault, Failure, HostUnreachable, to_failure
from runtime.unreadable import UNREADABLE

E = TypeVar("E")

SLICE_BYTES = 32 * 1024
"""Most bytes parsed in one turn of the event loop: some 400 deltas, 2 to 3 ms on the development machine."""

BUFFER_BYTES = 256 * 1024
"""Most bytes Qt holds for us; beyond it the host is slowed down by TCP."""

MAX_ERROR_BYTES = 64 * 1024
"""Most bytes read of an error's body."""

HTTP_OK = range(200, 300)

_log = logging.getLogger(__name__)


def reply_status(reply: QNetworkReply) -> int:
    """The HTTP status of a reply; 0 when there was none."""
    status = reply.attribute(QNetworkRequest.Attribute.HttpStatusCodeAttribute)
    return status if isinstance(status, int) else 0


def reply_failure(reply: QNetworkReply, body: bytes) -> Failure:
    """Why a reply failed: the host's own `Failure` if it sent one, else what the network says."""
    status = reply_status(reply)
    if status and status not in HTTP_OK:
        try:
            return msgspec.json.decode(body, type=Failure)
        except UNREADABLE:
            return to_failure(BugFault(f"The host answered with HTTP status {status} and no reason."))
    return unreachable(reply.errorString())


def unreachable(reason: str) -> Failure:
    """The host does not answer."""
    text = QCoreApplication.translate("HostLink", "Deskside's engine does not answer: {reason}.")
    hint = QCoreApplication.translate("HostLink", "It is started again by itself; try once more in a moment.")
    return to_failure(HostUnreachable(text.format(reason=reason.rstrip(".")), hint=hint))


class EventStream(QObject, Generic[E]):
    """Reads one reply and deletes it afterwards. Home thread: main."""

    arrived = Signal(list)
    """Decoded events, in order."""

    closed = Signal(object)
    """Once: `Failure`, or `None` when the stream ended in order. Nothing arrives after it."""

    def __init__(self, reply: QNetworkReply, decoder: "msgspec.json.Decoder[E]", parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._decoder = decoder
        self._parser = SseParser()
        self._error_body = b""
        self._is_paused = False
        self._is_closed = False
        self._reply = reply
        reply.setReadBufferSize(BUFFER_BYTES)
        self._next_slice = QTimer(self)
        self._next_slice.setSingleShot(True)
        self._next_slice.setInterval(0)
        self._next_slice.timeout.connect(self._read)
        reply.readyRead.connect(self._read)
        reply.finished.connect(self._read)

    def set_paused(self, paused: bool) -> None:
        """Stop reading for a while (the consumer is full), or go on."""
        if self._is_paused != paused:
            self._is_paused = paused
            if not paused:
                self._next_slice.start()

    def abort(self) -> None:
        """Close the stream without a word: `closed` is not emitted."""
        if self._is_closed:
            return
        self._is_closed = True
        self._next_slice.stop()
        self._reply.abort()
        self._reply.deleteLater()

    @Slot()
    def _read(self) -> None:
        if self._is_closed or self._is_paused:
            return
        raw = bytes(self._reply.read(SLICE_BYTES).data())
        if raw and not self._take(raw):
            return
        if self._reply.bytesAvailable() > 0:
            self._next_slice.start()
        elif self._reply.isFinished():
            self._finish()

    def _take(self, raw: bytes) -> bool:
        """Emit what these bytes complete; False when the stream was closed meanwhile."""
        if reply_status(self._reply) not in HTTP_OK:
            self._error_body = (self._error_body + raw)[:MAX_ERROR_BYTES]
            return True
        try:
            payloads = self._parser.feed(raw)
        except EventTooLong as error:
            self._reply.abort()
            self._close(unreachable(str(error)))
            return False
        events = []
        for payload in payloads:
            try:
                events.append(self._decoder.decode(payload))
            except UNREADABLE as error:
                # A newer host may tell things this window does not know yet.
                _log.warning("an event was passed over: %s", error)
        if events:
            self.arrived.emit(events)
        return not self._is_closed

    def _finish(self) -> None:
        is_error = self._reply.error() != QNetworkReply.NetworkError.NoError
        self._close(reply_failure(self._reply, self._error_body) if is_error else None)

    def _close(self, failure: Failure | None) -> None:
        self._is_closed = True
        self._reply.deleteLater()
        self.closed.emit(failure)
