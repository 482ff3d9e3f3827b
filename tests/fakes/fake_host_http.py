"""What a pretended host answers over HTTP: the routes, and the streams of chats, events and tools."""

import contextlib
import select
import socket
import sys
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from runtime.errors import (
    BadRequest,
    ModelNotFound,
    NoSuchRoute,
    NotAuthorized,
    RuntimeFault,
    to_failure,
)
from runtime.messages.api import (
    ApiChanged,
    ApiKeyInfo,
    CancelRequest,
    ChatEvent,
    ChatRequest,
    CountAnswer,
    CountRequest,
    HostEvent,
    LoadRequest,
    ModelGone,
    NewKey,
    NewKeyAnswer,
    UnloadRequest,
)
from runtime.messages.shared import Message
from runtime.messages.tools import ToolCallEvent
from runtime.options import ApiOptions, KeyLimits
from tests.fakes.answers import Reply, hardware_sample

if TYPE_CHECKING:
    from tests.fakes.fake_host import FakeHost

TOKEN = "fake-token"
POLL_S = 0.02
"""How often a held or slow stream looks whether its reader is gone."""


class FakeHostServer(ThreadingHTTPServer):
    """Listens for a `FakeHost`."""

    daemon_threads = False
    block_on_close = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], host: "FakeHost") -> None:
        self.host = host
        super().__init__(address, _Handler)

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: Any) -> None:
        # Before the handler's thread begins, so that `close` finds every connection.
        if isinstance(request, socket.socket):
            with self.host.changed:
                self.host._sockets.add(request)
        super().process_request(request, client_address)

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeHostServer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def finish(self) -> None:
        with self.server.host.changed:
            self.server.host._sockets.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            super().handle()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def _answer(self) -> None:
        host = self.server.host
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        host.paths.append(f"{self.command} {self.path}")
        try:
            self._route(host, body)
        except OSError:
            self.close_connection = True
        except msgspec.MsgspecError as error:
            self._send(400, to_failure(BadRequest(str(error))))
        except RuntimeFault as error:
            self._send(error.status, to_failure(error))

    def _check_token(self) -> None:
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise NotAuthorized("The token is wrong.")

    def _route(self, host: "FakeHost", body: bytes) -> None:
        self._check_token()
        match self.command, self.path:
            case "GET", "/admin/status":
                self._send(200, host.status())
            case "GET", "/admin/events":
                self._events(host)
            case "GET", "/admin/models":
                self._send(200, host.installed)
            case "POST", "/admin/models/load":
                request = msgspec.json.decode(body, type=LoadRequest)
                host.loads.append(request)
                self._send(202, host.load(request))
            case "POST", "/admin/models/unload":
                host.emit(ModelGone(msgspec.json.decode(body, type=UnloadRequest).model))
                self._send(204)
            case method, path:
                answer = host.library.answer(host, method, path, body)
                if answer is None:
                    self._route_rest(host, method, path, body)
                else:
                    self._send(*answer)

    def _route_rest(self, host: "FakeHost", method: str, path: str, body: bytes) -> None:  # noqa: C901 - a table
        match method, path:
            case "POST", "/admin/chat":
                self._chat(host, msgspec.json.decode(body, type=ChatRequest))
            case "POST", "/admin/count":
                counted = msgspec.json.decode(body, type=CountRequest)
                host.counts.append(counted)
                self._send(200, CountAnswer(n_tokens=count_words(counted.messages), n_ctx=4096))
            case "POST", "/admin/tools/call":
                self._begin_stream()
                self.close_connection = True
                if host.tools.stream(body, self._write_events, lambda: host.is_closing or is_gone(self.connection)):
                    self.wfile.write(b"0\r\n\r\n")
            case _ if path.startswith("/admin/tools"):
                self._send(*host.tools.answer(host, method, path, body))
            case "GET", "/admin/hardware":
                self._send(200, hardware_sample())
            case "GET", "/admin/api":
                self._send(200, host.api)
            case "GET", "/admin/requests":
                self._send(200, host.requests)
            case "POST", "/admin/requests/cancel":
                host.cancelled.append(msgspec.json.decode(body, type=CancelRequest).request_id)
                self._send(204)
            case "PUT", "/admin/api":
                self._send(200, host.set_api(msgspec.json.decode(body, type=ApiOptions)))
            case "POST", "/admin/keys":
                wanted = msgspec.json.decode(body, type=NewKey)
                name = wanted.name
                with host.changed:  # two may come at once
                    keys = (*host.api.keys, ApiKeyInfo(name, 1.0, wanted.limits))
                    host.emit(ApiChanged(msgspec.structs.replace(host.api, keys=keys)))
                self._send(200, NewKeyAnswer(name, f"sk-{name}"))
            case "PUT", _ if path.startswith("/admin/keys/"):
                name = unquote(path.removeprefix("/admin/keys/"))
                limits = msgspec.json.decode(body, type=KeyLimits)
                keys = tuple(
                    msgspec.structs.replace(key, limits=limits) if key.name == name else key for key in host.api.keys
                )
                host.emit(ApiChanged(msgspec.structs.replace(host.api, keys=keys)))
                self._send(200, next(key for key in keys if key.name == name))
            case "DELETE", _ if path.startswith("/admin/keys/"):
                gone = unquote(path.removeprefix("/admin/keys/"))
                keys = tuple(key for key in host.api.keys if key.name != gone)
                host.emit(ApiChanged(msgspec.structs.replace(host.api, keys=keys)))
                self._send(200, host.api)
            case "POST", "/admin/shutdown":
                self._send(204)
                host.shutdown_asked.set()
            case _:
                raise NoSuchRoute(f"There is nothing at {path}.")

    def _send(self, status: int, value: object = None) -> None:
        raw = b"" if status == 204 else msgspec.json.encode(value)
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _write_events(self, events: Sequence[ChatEvent | HostEvent | ToolCallEvent]) -> None:
        raw = b"".join(b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events)
        self.wfile.write(f"{len(raw):x}\r\n".encode() + raw + b"\r\n")
        self.wfile.flush()

    def _events(self, host: "FakeHost") -> None:
        self._begin_stream()
        self.close_connection = True
        with host.reading() as queue:
            while not is_gone(self.connection):
                with host.changed:
                    if host.is_closing or not any(queue is one for one in host._readers):
                        return
                    if not queue:
                        host.changed.wait(POLL_S)
                    events = [queue.popleft() for _ in range(len(queue))]
                if events:
                    self._write_events(events)

    def _chat(self, host: "FakeHost", request: ChatRequest) -> None:
        if all(model.id != request.model for model in host.models):
            raise ModelNotFound(f"No model named '{request.model}' is loaded.", model=request.model)
        reply = host.next_reply(request)
        if reply.refuse is not None:
            self._send(reply.refuse.status, reply.refuse)
            return
        self._begin_stream()
        self.close_connection = True
        try:
            whole = self._chat_events(host, reply)
        except OSError:
            whole = False
            with host.changed:
                host.n_cancelled += 1
                host.changed.notify_all()
        if whole:
            self.wfile.write(b"0\r\n\r\n")

    def _chat_events(self, host: "FakeHost", reply: Reply) -> bool:
        """Send the events; False when the connection is cut on purpose."""
        pending: list[ChatEvent] = []
        for index, event in enumerate(reply.events):
            if index == reply.cut_after:
                self._flush(pending)
                self.connection.shutdown(socket.SHUT_RDWR)
                return False
            if index == reply.hold_after:
                self._flush(pending)
                if not host.wait_release(self.connection):
                    raise ConnectionResetError
            pending.append(event)
            if len(pending) >= reply.events_per_write:
                self._flush(pending)
                if reply.pace_s:
                    self._pause(host, reply.pace_s)
        self._flush(pending)
        return True

    def _flush(self, pending: list[ChatEvent]) -> None:
        if pending:
            self._write_events(pending)
            pending.clear()

    def _pause(self, host: "FakeHost", pace_s: float) -> None:
        if host.is_closing or is_gone(self.connection, pace_s):
            raise ConnectionResetError


def count_words(messages: Sequence[Message]) -> int:
    """The fake tokenizer: one token a word, three a turn."""
    return sum(len(message.content.split()) + 3 for message in messages)


def is_gone(connection: socket.socket, wait_s: float = 0.0) -> bool:
    """Whether the reader closed its side, looked at for up to `wait_s`."""
    try:
        readable, _, _ = select.select([connection], [], [], wait_s)
        return bool(readable) and connection.recv(1, socket.MSG_PEEK) == b""
    except (OSError, ValueError):
        return True
