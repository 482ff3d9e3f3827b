"""A small real host: HTTP and server-sent events as `runtime.messages.api` says, deterministic and controllable.

In a test::

    with FakeHost() as host:
        host.replies.append(Reply(words("Hello there")))
        link.attach(host.host_file)

As a process, for tests of what starts and watches a host::

    python -m tests.fakes.fake_host --data-dir D --with-parent [--crash-after-start]
"""

import argparse
import contextlib
import os
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import msgspec

from runtime.errors import (
    Failure,
    ModelNotFound,
)
from runtime.messages.api import (
    ApiChanged,
    ApiState,
    ChatRequest,
    CountRequest,
    HostEvent,
    HostFile,
    InstalledChanged,
    InstalledModel,
    LoadedModel,
    LoadRequest,
    ModelChanged,
    ModelGone,
    RequestInfo,
    Snapshot,
    Status,
)
from runtime.options import ApiOptions, LoadOptions
from runtime.paths import DataFolder
from tests.fakes.answers import Reply, hardware_sample, installed_model, ready_model, words
from tests.fakes.fake_host_http import POLL_S, TOKEN, FakeHostServer, is_gone
from tests.fakes.fake_models import FakeModels
from tests.fakes.fake_tools import FakeTools


@dataclass
class FakeHost:
    """The server. Its fields may be changed at any time; `emit` tells the change to the readers of events.

    Attributes:
        replies: what the next chats get; when empty a chat gets "You said: " and the last message.
        load_steps: load progress told by a load before the model is ready.
        load_failure: when set, loads fail with it.
        hold_load: when set, a load stays at its last step until `release`.
        api_problem: when set, the API cannot be switched on for this reason.
        chats: requests received.
        n_cancelled: streams whose reader went away before their end.
        paths: every request line, "GET /admin/status".
        requests: the live table; `cancelled` has the ids asked to be cancelled.
        library: the pretended library, hub, plans and downloads.
        tools: the pretended tool servers.
    """

    models: list[LoadedModel] = field(default_factory=lambda: [ready_model()])
    installed: list[InstalledModel] = field(default_factory=lambda: [installed_model()])
    api: ApiState = field(default_factory=lambda: ApiState(options=ApiOptions(), running=False))
    replies: deque[Reply] = field(default_factory=deque)
    load_steps: tuple[float, ...] = (0.25, 0.5, 0.75)
    load_failure: Failure | None = None
    hold_load: bool = False
    api_problem: str = ""
    data_dir: str = "."
    chats: list[ChatRequest] = field(default_factory=list)
    counts: list[CountRequest] = field(default_factory=list)
    loads: list[LoadRequest] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    requests: tuple[RequestInfo, ...] = ()
    cancelled: list[str] = field(default_factory=list)
    n_cancelled: int = 0
    port: int = 0
    library: FakeModels = field(default_factory=FakeModels)
    tools: FakeTools = field(default_factory=FakeTools)

    def __post_init__(self) -> None:
        self.changed = threading.Condition()
        self.is_closing = False
        self.shutdown_asked = threading.Event()
        self._releases = 0
        self._readers: list[deque[HostEvent]] = []
        self._sockets: set[socket.socket] = set()
        self._server: FakeHostServer | None = None
        self._thread: threading.Thread | None = None

    # --- life

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Listen; on the same port again after `close`."""
        self.is_closing = False
        self._server = FakeHostServer(("127.0.0.1", self.port), self)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="fake host")
        self._thread.start()

    def close(self) -> None:
        """Die: cut every connection and listen no more."""
        with self.changed:
            self.is_closing = True
            self._readers.clear()
            self.changed.notify_all()
        server, thread = self._server, self._thread
        if server is None or thread is None:
            return
        server.shutdown()
        thread.join(5)
        self.cut_connections()
        server.server_close()  # waits for the handlers
        self._server = self._thread = None

    def cut_connections(self) -> None:
        """Cut every open connection, as a dying process or a sleeping machine does."""
        with self.changed:
            sockets = list(self._sockets)
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def cut_event_streams(self) -> None:
        """End the event streams only; answers go on."""
        with self.changed:
            self._readers.clear()
            self.changed.notify_all()

    @property
    def host_file(self) -> HostFile:
        """What a client needs."""
        return HostFile(address=f"http://127.0.0.1:{self.port}", token=TOKEN, pid=os.getpid(), version="0.1.0")

    # --- control

    def emit(self, event: HostEvent) -> None:
        """Tell all readers of `/admin/events`; also keeps `models` and `api` in step."""
        with self.changed:
            match event:
                case ModelChanged(model):
                    self.models = [one for one in self.models if one.id != model.id] + [model]
                case ModelGone(model_id):
                    self.models = [one for one in self.models if one.id != model_id]
                case ApiChanged(api):
                    self.api = api
                case InstalledChanged(installed):
                    self.installed = list(installed)
                case _:
                    pass
            for reader in self._readers:
                reader.append(event)
            self.changed.notify_all()

    def release(self) -> None:
        """Let one held stream or load go on (a release before the hold counts too)."""
        with self.changed:
            self._releases += 1
            self.changed.notify_all()

    def wait_release(self, connection: socket.socket | None = None) -> bool:
        """Wait for `release`; False if the reader or the server went away."""
        while True:
            with self.changed:
                if self.is_closing:
                    return False
                if self._releases:
                    self._releases -= 1
                    return True
                self.changed.wait(POLL_S)
            if connection is not None and is_gone(connection):
                return False

    def status(self) -> Status:
        """The host at a glance."""
        return Status(
            version="0.1.0",
            pid=os.getpid(),
            uptime_s=1.0,
            data_dir=self.data_dir,
            models=tuple(self.models),
            api=self.api,
        )

    def snapshot(self) -> Snapshot:
        """First event of a reader."""
        return Snapshot(
            status=self.status(),
            installed=tuple(self.installed),
            hardware=hardware_sample(),
            downloads=tuple(self.library.downloads),
            jobs=tuple(self.library.jobs),
            nodes=tuple(self.library.nodes),
            tool_servers=tuple(self.tools.servers),
        )

    @contextlib.contextmanager
    def reading(self) -> Iterator[deque[HostEvent]]:
        """Be a reader of events."""
        queue: deque[HostEvent] = deque()
        with self.changed:
            queue.append(self.snapshot())
            self._readers.append(queue)
        try:
            yield queue
        finally:
            with self.changed:
                self._readers = [one for one in self._readers if one is not queue]

    @property
    def n_readers(self) -> int:
        """Open event streams."""
        with self.changed:
            return len(self._readers)

    def next_reply(self, request: ChatRequest) -> Reply:
        """What this chat gets."""
        with self.changed:
            self.chats.append(request)
            if self.replies:
                return self.replies.popleft()
        if request.continue_last:
            return Reply(words(" and so on."))
        return Reply(words(f"You said: {request.messages[-1].content}"))

    def load(self, request: LoadRequest) -> LoadedModel:
        """Load a model: progress on its own thread."""
        known = next((one for one in self.installed if request.model in (one.id, one.path)), None)
        if known is None:
            raise ModelNotFound(f"No model named '{request.model}' is on this machine.", model=request.model)
        first = LoadedModel(
            id=known.id, name=known.name, state="loading", options=request.options or LoadOptions(), stage="tensors"
        )
        if request.replace:
            for other in list(self.models):
                if other.id != known.id:
                    self.emit(ModelGone(other.id))
        self.emit(ModelChanged(first))
        thread = threading.Thread(target=self._finish_load, args=(first,), name="fake load", daemon=True)
        thread.start()
        return first

    def _finish_load(self, model: LoadedModel) -> None:
        for fraction in self.load_steps:
            self.emit(ModelChanged(msgspec.structs.replace(model, fraction=fraction)))
        if self.hold_load and not self.wait_release():
            return
        if self.load_failure is not None:
            self.emit(ModelChanged(msgspec.structs.replace(model, state="failed", failure=self.load_failure)))
        else:
            ready = ready_model(model.id, model.name, n_ctx=model.options.n_ctx or 4096)
            known = next(one for one in self.installed if one.id == model.id)
            record = self.library.record(known, model.options)
            self.emit(
                ModelChanged(
                    msgspec.structs.replace(ready, options=model.options, plan=record.plan, actual=record.actual)
                )
            )

    def set_api(self, options: ApiOptions) -> ApiState:
        """Switch the pretended API."""
        running = options.enabled and not self.api_problem
        state = ApiState(
            options=options,
            running=running,
            addresses=(f"http://{options.host}:{options.port}/v1",) if running else (),
            keys=self.api.keys,
            problem=self.api_problem if options.enabled else "",
            dialects=self.api.dialects,
        )
        self.emit(ApiChanged(state))
        return state


def main(argv: Sequence[str] | None = None) -> int:
    """Run as a process: write `run/host.json`, serve until standard input closes or a shutdown is asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--with-parent", action="store_true")
    parser.add_argument("--crash-after-start", action="store_true", help="write host.json, then die")
    parser.add_argument("--crash-at-once", action="store_true", help="complain and die before host.json")
    chosen = parser.parse_args(argv)
    folder = DataFolder(Path(chosen.data_dir))
    folder.ensure()
    if chosen.crash_at_once:
        sys.stderr.write("fake host: cannot start\n")
        return 3
    with FakeHost(data_dir=chosen.data_dir) as host:
        draft = folder.host_file.with_suffix(".new")
        draft.write_bytes(msgspec.json.encode(host.host_file))
        draft.replace(folder.host_file)
        sys.stderr.write("fake host: ready\n")
        sys.stderr.flush()
        if chosen.crash_after_start:
            os.kill(os.getpid(), signal.SIGKILL)
        if chosen.with_parent:
            threading.Thread(target=_watch_parent, args=(host,), daemon=True).start()
        host.shutdown_asked.wait()
        folder.host_file.unlink(missing_ok=True)
    return 0


def _watch_parent(host: FakeHost) -> None:
    while os.read(0, 4096):
        pass
    keep = host.api.running and host.api.options.keep_when_window_closes
    if not keep:
        host.shutdown_asked.set()


if __name__ == "__main__":
    raise SystemExit(main())
