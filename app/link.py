"""The window's client of the host: the private API over QtNetwork, and a mirror of what the host tells.

Types are those of `runtime.messages.api`. Nothing here blocks; answers come by callback or signal.
"""

import logging
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import quote

import msgspec
from PySide6.QtCore import QByteArray, QCoreApplication, QObject, QTimer, QUrl, Signal, Slot
from PySide6.QtNetwork import QNetworkAccessManager, QNetworkProxy, QNetworkReply, QNetworkRequest

from app.call import Call
from app.chat_stream import ChatStream
from app.event_stream import HTTP_OK, EventStream, reply_failure, reply_status, unreachable
from app.mirror import Mirror, Part
from app.tool_run import ToolRun
from runtime.errors import BugFault, Failure, to_failure
from runtime.messages.api import (
    ApiKeyInfo,
    ApiState,
    CancelRequest,
    ChatRequest,
    CountAnswer,
    CountRequest,
    HostEvent,
    HostFile,
    InstalledModel,
    LoadedModel,
    LoadRequest,
    NewKey,
    NewKeyAnswer,
    Notice,
    RequestInfo,
    Snapshot,
    Status,
    UnloadRequest,
)
from runtime.messages.fit import NodeInfo
from runtime.messages.hardware import HardwareSample
from runtime.messages.library import Download, Job
from runtime.messages.shared import AnswerShape, Message
from runtime.messages.tools import ToolCallRequest, ToolServerInfo
from runtime.options import ApiOptions, KeyLimits, LoadOptions
from runtime.unreadable import UNREADABLE

__all__ = ["ChatStream", "Failed", "HostLink"]

A = TypeVar("A")
Failed = Callable[[Failure], None]

REQUEST_TIMEOUT_MS = 30_000
"""A short request without a byte for so long has failed."""

SILENCE_MS = 30_000
"""The event stream brings a hardware reading every second; so long without any means the host hangs."""

RETRY_MS = (100, 250, 500, 1000, 2000, 4000)
"""Pauses before trying again after a loss; the last one repeats."""

_event_decoder: "msgspec.json.Decoder[HostEvent]" = msgspec.json.Decoder(HostEvent)
_log = logging.getLogger(__name__)


class HostLink(QObject):
    """Home thread: main."""

    connected = Signal()
    """The event stream is open and the mirror holds a fresh snapshot."""

    disconnected = Signal(str)
    """The host no longer answers; the sentence says why. The link tries again by itself, with growing pauses."""

    models_changed = Signal()
    """`loaded` changed: a model was loaded, unloaded, failed, or made progress."""

    installed_changed = Signal()
    """`installed` changed."""

    hardware_changed = Signal(object)
    """`HardwareSample`, once a second."""

    api_changed = Signal(object)
    """`ApiState`: the public API went on, off or elsewhere."""

    downloads_changed = Signal()
    """`downloads` changed: at most four times a second while one runs."""

    jobs_changed = Signal()
    """`jobs` changed: one moved on or ended."""

    nodes_changed = Signal()
    """`nodes` changed, or whether they can be reached."""

    tools_changed = Signal()
    """`tool_servers` changed: a server's state, or its tools."""

    notice = Signal(str, str)
    """Level ("info", "warning", "error") and text of something the host wants said."""

    request_failed = Signal(object)
    """`Failure` of a request whose caller passed no `failed`."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._mirror = Mirror()
        self._host: HostFile | None = None
        self._is_connected = False
        # Qt opens at most six connections a manager: one for events, one a chat (`app.session.MAX_RUNNING`); short
        # requests have a manager of their own so that they never wait for a stream to end.
        self._streams = _manager(self)
        self._requests = _manager(self)
        self._tool_streams = _manager(self)
        self._events: EventStream[HostEvent] | None = None
        self._chats: set[ChatStream] = set()
        self._count_call: Call | None = None
        self._n_retries = 0
        self._retry = QTimer(self)
        self._retry.setSingleShot(True)
        self._retry.timeout.connect(self._open_events)
        self._silence = QTimer(self)
        self._silence.setSingleShot(True)
        self._silence.setInterval(SILENCE_MS)
        self._silence.timeout.connect(self._give_up_silent)

    # --- the mirror

    @property
    def is_connected(self) -> bool:
        """Whether the mirror is live."""
        return self._is_connected

    @property
    def status(self) -> Status | None:
        """The host at a glance, kept up to date by events; `None` before the first connection."""
        return self._mirror.status

    @property
    def installed(self) -> tuple[InstalledModel, ...]:
        """Models on disk."""
        return self._mirror.installed

    @property
    def loaded(self) -> tuple[LoadedModel, ...]:
        """Models that have, get or had a worker."""
        return self._mirror.loaded

    @property
    def hardware(self) -> HardwareSample | None:
        """The last reading."""
        return self._mirror.hardware

    @property
    def api(self) -> ApiState | None:
        """The public API switch."""
        return self._mirror.api

    @property
    def downloads(self) -> tuple[Download, ...]:
        """Downloads that wait, run, were paused, failed or just ended."""
        return self._mirror.downloads

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Work on files, newest last."""
        return self._mirror.jobs

    @property
    def nodes(self) -> tuple[NodeInfo, ...]:
        """Machines that lend their memory."""
        return self._mirror.nodes

    @property
    def tool_servers(self) -> tuple[ToolServerInfo, ...]:
        """Programs that offer models tools."""
        return self._mirror.tool_servers

    def model(self, model_id: str) -> LoadedModel | None:
        """The loaded model of this id."""
        return next((model for model in self.loaded if model.id == model_id), None)

    # --- connection

    def attach(self, host: HostFile) -> None:
        """Talk to this host from now on; answers of an earlier one end. The same host is only tried again at once."""
        if host != self._host:
            self.detach()
            self._host = host
        if self._events is None:
            self._n_retries = 0
            self._retry.stop()
            self._open_events()

    def detach(self) -> None:
        """Talk to no host; streams end with `ChatFailed`."""
        self._host = None
        self._retry.stop()
        self._lose(QCoreApplication.translate("HostLink", "not connected"))

    @Slot()
    def _open_events(self) -> None:
        if self._host is None:
            return
        self._drop_events()
        reply = self._streams.get(self._request("/admin/events", timeout_ms=0))
        stream: EventStream[HostEvent] = EventStream(reply, _event_decoder, self)
        stream.arrived.connect(self._take_events)
        stream.closed.connect(self._events_closed)
        self._events = stream
        self._silence.start()

    def _drop_events(self) -> None:
        self._silence.stop()
        if self._events is not None:
            self._events.abort()
            self._events.deleteLater()
            self._events = None

    @Slot(list)
    def _take_events(self, events: list[HostEvent]) -> None:
        self._silence.start()
        changed = Part.NONE
        is_new = False
        notices = []
        for event in events:
            changed |= self._mirror.apply(event)
            if isinstance(event, Snapshot):
                is_new = not self._is_connected
                self._is_connected = True
                self._n_retries = 0
            elif isinstance(event, Notice):
                notices.append(event)
        if is_new:
            self.connected.emit()
        self._tell(changed)
        for note in notices:
            self.notice.emit(note.level, note.text)

    def _tell(self, changed: Part) -> None:
        if Part.INSTALLED in changed:
            self.installed_changed.emit()
        if Part.MODELS in changed:
            self.models_changed.emit()
        if Part.API in changed and self.api is not None:
            self.api_changed.emit(self.api)
        if Part.HARDWARE in changed and self.hardware is not None:
            self.hardware_changed.emit(self.hardware)
        for part, signal in (
            (Part.DOWNLOADS, self.downloads_changed),
            (Part.JOBS, self.jobs_changed),
            (Part.NODES, self.nodes_changed),
            (Part.TOOLS, self.tools_changed),
        ):
            if part in changed:
                signal.emit()

    @Slot(object)
    def _events_closed(self, failure: Failure | None) -> None:
        reason = QCoreApplication.translate("HostLink", "the connection was closed")
        self._lose(failure.message if failure else unreachable(reason).message)

    @Slot()
    def _give_up_silent(self) -> None:
        self._lose(unreachable(QCoreApplication.translate("HostLink", "it has been silent for too long")).message)

    def _lose(self, reason: str) -> None:
        """Chats of this window are not ended here: each has its own connection and learns of its own end."""
        self._drop_events()
        was_connected, self._is_connected = self._is_connected, False
        if self._host is None:
            for chat in tuple(self._chats):
                chat.fail(unreachable(reason))
        else:
            self._retry.start(RETRY_MS[min(self._n_retries, len(RETRY_MS) - 1)])
            self._n_retries += 1
        if was_connected:
            self.disconnected.emit(reason)

    # --- requests; without `failed`, a failure comes as `request_failed`

    def load_model(
        self,
        model_id: str,
        options: LoadOptions | None = None,
        *,
        replace: bool = True,
        anyway: bool = False,
        failed: Failed | None = None,
    ) -> None:
        """Load a model; progress comes as `models_changed`. With `replace` the others are unloaded first.

        `options` are remembered by the host for this model; `None` takes those remembered, or automatic ones. With
        `anyway` it is tried also where the plan says that it does not fit.
        """
        self.send(
            "POST",
            "/admin/models/load",
            LoadRequest(model_id, options, replace, anyway=anyway),
            msgspec.json.Decoder(LoadedModel).decode,
            None,
            failed,
        )

    def unload_model(self, model_id: str, *, failed: Failed | None = None) -> None:
        """Unload a model."""
        self.send("POST", "/admin/models/unload", UnloadRequest(model_id), _nothing, None, failed)

    def set_api(self, options: ApiOptions, *, failed: Failed | None = None) -> None:
        """Turn the public API on or off or move it; `api_changed` follows."""
        self.send("PUT", "/admin/api", options, msgspec.json.Decoder(ApiState).decode, None, failed)

    def ask_api(self, done: Callable[[ApiState], None], *, failed: Failed | None = None) -> None:
        """The public API as it is now, with the use of its keys, of which no event tells."""
        self.send("GET", "/admin/api", None, msgspec.json.Decoder(ApiState).decode, done, failed)

    def new_key(
        self,
        name: str,
        done: Callable[[NewKeyAnswer], None],
        *,
        limits: KeyLimits | None = None,
        failed: Failed | None = None,
    ) -> None:
        """Make an API key; it is shown this once."""
        wanted = NewKey(name, limits or KeyLimits())
        self.send("POST", "/admin/keys", wanted, msgspec.json.Decoder(NewKeyAnswer).decode, done, failed)

    def set_key_limits(
        self, name: str, limits: KeyLimits, done: Callable[[], None] | None = None, *, failed: Failed | None = None
    ) -> None:
        """Change what the holder of a key may take."""
        tell = (lambda _key: done()) if done is not None else None
        path = f"/admin/keys/{quote(name, safe='')}"
        self.send("PUT", path, limits, msgspec.json.Decoder(ApiKeyInfo).decode, tell, failed)

    def delete_key(self, name: str, *, failed: Failed | None = None) -> None:
        """Delete an API key; `api_changed` follows."""
        path = f"/admin/keys/{quote(name, safe='')}"
        self.send("DELETE", path, None, msgspec.json.Decoder(ApiState).decode, None, failed)

    def list_requests(self, done: Callable[[tuple[RequestInfo, ...]], None], *, failed: Failed | None = None) -> None:
        """The running requests of all clients and the last finished ones, newest last."""
        self.send("GET", "/admin/requests", None, msgspec.json.Decoder(tuple[RequestInfo, ...]).decode, done, failed)

    def cancel_request(self, request_id: str, *, failed: Failed | None = None) -> None:
        """Cancel a request of any client; an unknown or finished one is no error."""
        self.send("POST", "/admin/requests/cancel", CancelRequest(request_id), _nothing, None, failed)

    def count_tokens(
        self,
        model_id: str,
        messages: tuple[Message, ...],
        done: Callable[[CountAnswer], None],
        *,
        shape: AnswerShape | None = None,
        failed: Failed | None = None,
    ) -> None:
        """Count the tokens of a conversation. Only the newest count is answered; older ones are dropped."""
        if self._count_call is not None:
            self._count_call.drop()
        self._count_call = self.send(
            "POST",
            "/admin/count",
            CountRequest(model_id, messages, shape or AnswerShape()),
            msgspec.json.Decoder(CountAnswer).decode,
            done,
            failed,
        )

    def chat(self, request: ChatRequest) -> ChatStream:
        """Begin an answer; connect to the stream's signals before returning to the event loop."""
        body = QByteArray(msgspec.json.encode(request))
        reply = self._streams.post(self._request("/admin/chat", timeout_ms=0), body)
        stream = ChatStream(request, reply, self)
        self._chats.add(stream)
        stream.ended.connect(self._forget_chat)
        if self._host is None:
            stream.fail(unreachable(QCoreApplication.translate("HostLink", "not connected")))
        return stream

    def call_tool(self, request: ToolCallRequest) -> ToolRun:
        """Run a tool; connect to the signals of what is returned before going back to the event loop."""
        body = QByteArray(msgspec.json.encode(request))
        reply = self._tool_streams.post(self._request("/admin/tools/call", timeout_ms=0), body)
        return ToolRun(reply, self)

    @Slot()
    def _forget_chat(self) -> None:
        self._chats = {chat for chat in self._chats if chat is not self.sender()}

    def shut_host_down(self, done: Callable[[], None]) -> None:
        """Ask the host to end; `done` when it agreed or no longer answers."""
        self.send("POST", "/admin/shutdown", None, _nothing, lambda _: done(), lambda _: done())

    # --- HTTP

    def _request(self, path: str, *, timeout_ms: int = REQUEST_TIMEOUT_MS) -> QNetworkRequest:
        address = self._host.address if self._host else "http://127.0.0.1:1"
        token = self._host.token if self._host else ""
        request = QNetworkRequest(QUrl(address.rstrip("/") + path))
        request.setRawHeader(b"Authorization", b"Bearer " + token.encode())
        request.setRawHeader(b"Accept-Encoding", b"identity")
        request.setHeader(QNetworkRequest.KnownHeaders.ContentTypeHeader, "application/json")
        request.setAttribute(
            QNetworkRequest.Attribute.CacheLoadControlAttribute, QNetworkRequest.CacheLoadControl.AlwaysNetwork
        )
        request.setAttribute(
            QNetworkRequest.Attribute.RedirectPolicyAttribute, QNetworkRequest.RedirectPolicy.ManualRedirectPolicy
        )
        request.setTransferTimeout(timeout_ms)
        return request

    def send(
        self,
        method: str,
        path: str,
        body: msgspec.Struct | None,
        decode: Callable[[bytes], A],
        done: Callable[[A], None] | None,
        failed: Failed | None,
        *,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
        owner: QObject | None = None,
    ) -> Call | None:
        """Send one short request; `None` when there is no host (which is told as a failure).

        `timeout_ms` bounds the silence, not the whole request. Once `owner` is gone, nothing is told.
        """
        tell_failed = failed or self.request_failed.emit
        if self._host is None:
            failure = unreachable(QCoreApplication.translate("HostLink", "not connected"))
            QTimer.singleShot(0, owner or self, lambda: tell_failed(failure))
            return None
        raw = QByteArray(b"" if body is None else msgspec.json.encode(body))
        reply = self._requests.sendCustomRequest(
            self._request(path, timeout_ms=timeout_ms), QByteArray(method.encode()), raw
        )

        def take(reply: QNetworkReply) -> None:
            raw_answer = bytes(reply.readAll().data())
            if reply_status(reply) not in HTTP_OK:
                tell_failed(reply_failure(reply, raw_answer))
                return
            try:
                answer = decode(raw_answer)
            except UNREADABLE as error:
                _log.warning("the answer to %s %s was not understood: %s", method, path, error)
                tell_failed(to_failure(BugFault(f"The engine's answer to {path} was not understood: {error}")))
                return
            if done is not None:
                done(answer)

        return Call(reply, take, owner or self)


def _nothing(raw: bytes) -> None:
    """The answer has no body."""


def _manager(parent: QObject) -> QNetworkAccessManager:
    manager = QNetworkAccessManager(parent)
    # The private listener is on this machine or on a trusted one: never through a proxy.
    manager.setProxy(QNetworkProxy(QNetworkProxy.ProxyType.NoProxy))
    return manager
