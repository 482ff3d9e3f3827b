"""One call of a tool on its way."""

import msgspec
from PySide6.QtCore import QCoreApplication, QObject, Signal, Slot
from PySide6.QtNetwork import QNetworkReply

from app.event_stream import EventStream, unreachable
from runtime.errors import Failure
from runtime.messages.tools import ToolCallEvent, ToolCallFailed, ToolProgress, ToolResult, ToolReturned

_decoder: "msgspec.json.Decoder[ToolCallEvent]" = msgspec.json.Decoder(ToolCallEvent)


class ToolRun(QObject):
    """Home thread: main. Ends with exactly one of `returned` and `failed`, unless it is cancelled; deletes itself."""

    progressed = Signal(object)
    """`ToolProgress`."""

    returned = Signal(object)
    """`ToolResult`; a tool that failed says so in it."""

    failed = Signal(object)
    """`Failure`: it could not be run, or its server was lost."""

    def __init__(self, reply: QNetworkReply, parent: QObject) -> None:
        super().__init__(parent)
        self._has_ended = False
        self._stream: EventStream[ToolCallEvent] = EventStream(reply, _decoder, self)
        self._stream.arrived.connect(self._take)
        self._stream.closed.connect(self._close)

    def cancel(self) -> None:
        """Stop the tool; nothing is told any more."""
        self._end()
        self._stream.abort()

    @Slot(list)
    def _take(self, events: list[ToolCallEvent]) -> None:
        for event in events:
            if self._has_ended:
                return
            match event:
                case ToolProgress():
                    self.progressed.emit(event)
                case ToolReturned(result):
                    self._tell_result(result)
                case ToolCallFailed(failure):
                    self._tell_failure(failure)

    @Slot(object)
    def _close(self, failure: Failure | None) -> None:
        if not self._has_ended:
            cut = QCoreApplication.translate("ToolRun", "the tool's result was cut off")
            self._tell_failure(failure or unreachable(cut))

    def _tell_result(self, result: ToolResult) -> None:
        self._end()
        self.returned.emit(result)

    def _tell_failure(self, failure: Failure) -> None:
        self._end()
        self.failed.emit(failure)

    def _end(self) -> None:
        self._has_ended = True
        self.deleteLater()
