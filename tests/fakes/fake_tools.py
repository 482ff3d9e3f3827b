"""The tool servers of a pretended host: states that tests set, calls whose results tests choose."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from runtime.errors import BadRequest, Failure, ToolNotFound, ToolServerFault, to_failure
from runtime.messages.api import ToolsChanged
from runtime.messages.tools import (
    ResultText,
    SignInBegun,
    ToolCallEvent,
    ToolCallFailed,
    ToolCallRequest,
    ToolInfo,
    ToolResult,
    ToolReturned,
    ToolServerChange,
    ToolServerConfig,
    ToolServerInfo,
    ToolServerLog,
    ToolServerRequest,
    ToolServersText,
    ToolsState,
)
from runtime.tool_servers.paste import checked, read_pasted

if TYPE_CHECKING:
    from tests.fakes.fake_host import FakeHost

POLL_S = 0.02
SIGN_IN_URL = "https://login.example.org/authorize?state=1"

READING = ToolInfo(
    "read_file",
    "files__read_file",
    "Read a file",
    "Reads a text file of the folder.",
    '{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}',
    read_only=True,
    fingerprint="f1",
)
WRITING = ToolInfo(
    "write_file",
    "files__write_file",
    "",
    "Writes a text file.",
    '{"type":"object","properties":{"path":{"type":"string"},"text":{"type":"string"}}}',
    destructive=True,
    fingerprint="f2",
)


def files_server(**changes: object) -> ToolServerInfo:
    """A server with two tools, as it stands in the list."""
    config = ToolServerConfig("files", command="files-server", args=("--folder", "notes"), env={"TOKEN": ""})
    info = ToolServerInfo(config, "ready", tools=(READING, WRITING), product="Files 1.0", pid=77, secrets="keyring")
    return msgspec.structs.replace(info, **changes)


def returned(text: str, **changes: object) -> ToolReturned:
    """A result of plain text."""
    return ToolReturned(msgspec.structs.replace(ToolResult((ResultText(text),), duration_s=0.25), **changes))


@dataclass
class Script:
    """What a call gets: events, and whether it waits for `FakeTools.release` before the last one."""

    events: tuple[ToolCallEvent, ...]
    held: bool = False


@dataclass
class FakeTools:
    """Set before use, or through `show`. Calls without a script return their arguments."""

    servers: list[ToolServerInfo] = field(default_factory=list)
    scripts: deque[Script] = field(default_factory=deque)
    calls: list[ToolCallRequest] = field(default_factory=list)
    tried: list[ToolServerConfig] = field(default_factory=list)
    n_cancelled: int = 0
    test_failure: Failure | None = None
    log: tuple[str, ...] = ("server started",)
    is_removal_held: bool = False
    """Whether removing a server waits for `released`."""

    def __post_init__(self) -> None:
        self.released = threading.Event()

    def show(self, host: "FakeHost", *servers: ToolServerInfo) -> None:
        """These are the servers now; readers are told."""
        self.servers = list(servers)
        host.emit(ToolsChanged(tuple(servers)))

    def set(self, host: "FakeHost", name: str, **changes: object) -> None:
        """A server changes."""
        self.show(
            host,
            *(msgspec.structs.replace(one, **changes) if one.config.name == name else one for one in self.servers),
        )

    def answer(self, host: "FakeHost", method: str, path: str, body: bytes) -> tuple[int, object]:  # noqa: C901, PLR0911 - a table
        """Every route but the call."""
        match method, path.removeprefix("/admin/tools"):
            case "GET", "":
                return 200, ToolsState(tuple(self.servers))
            case "POST", "/servers":
                config = checked(msgspec.json.decode(body, type=ToolServerConfig))
                if any(one.config.name == config.name for one in self.servers):
                    raise BadRequest(f'There is a server "{config.name}" already.', hint="Choose another name.")
                self.show(host, *self.servers, made := _made(config))
                return 201, made
            case "PUT", "/servers":
                change = msgspec.json.decode(body, type=ToolServerChange)
                made = _made(checked(change.config))
                self.show(host, *(made if one.config.name == change.name else one for one in self.servers))
                return 200, made
            case "DELETE", "/servers":
                name = self._named(msgspec.json.decode(body, type=ToolServerRequest).name).config.name
                while self.is_removal_held and not self.released.wait(POLL_S) and not host.is_closing:
                    pass
                self.show(host, *(one for one in self.servers if one.config.name != name))
                return 204, None
            case "POST", "/import":
                added = [_made(one) for one in read_pasted(msgspec.json.decode(body, type=ToolServersText).text)]
                self.show(host, *self.servers, *added)
                return 201, ToolsState(tuple(added))
            case "POST", "/test":
                self.tried.append(config := checked(msgspec.json.decode(body, type=ToolServerConfig)))
                if self.test_failure is not None:
                    return 502, self.test_failure
                return 200, _made(config)
            case "POST", "/start" | "/restart":
                return 200, self._named(msgspec.json.decode(body, type=ToolServerRequest).name)
            case "POST", "/sign-in":
                self._named(named := msgspec.json.decode(body, type=ToolServerRequest).name)
                self.set(host, named, state="signing_in", sign_in_url=SIGN_IN_URL)
                return 200, SignInBegun(SIGN_IN_URL)
            case "POST", "/sign-in/cancel":
                named = msgspec.json.decode(body, type=ToolServerRequest).name
                self.set(host, named, state="failed", problem="The sign-in was stopped.", sign_in_url="")
                return 204, None
            case "POST", "/sign-out":
                named = msgspec.json.decode(body, type=ToolServerRequest).name
                config = msgspec.structs.replace(self._named(named).config, signed_in=False)
                self.set(host, named, config=config, state="failed", needs_sign_in=True, tools=())
                return 200, self._named(named)
            case "POST", "/log":
                return 200, ToolServerLog(self.log)
        raise BadRequest(f"{method} {path}")

    def begin(self, body: bytes) -> Script:
        """A call came."""
        request = msgspec.json.decode(body, type=ToolCallRequest)
        self.calls.append(request)
        if all(one.config.name != request.server for one in self.servers):
            return Script((ToolCallFailed(to_failure(ToolServerFault("The server is gone.", server=request.server))),))
        return self.scripts.popleft() if self.scripts else Script((returned(request.arguments),))

    def stream(
        self, body: bytes, write: Callable[[Sequence[ToolCallEvent]], None], is_gone: Callable[[], bool]
    ) -> bool:
        """Answer a call; False when whoever called left first."""
        script = self.begin(body)
        if script.events[:-1]:
            write(script.events[:-1])
        while script.held and not self.released.wait(POLL_S):
            if is_gone():
                self.n_cancelled += 1
                return False
        write(script.events[-1:])
        return True

    def _named(self, name: str) -> ToolServerInfo:
        for one in self.servers:
            if one.config.name == name:
                return one
        raise ToolNotFound(f'There is no tool server "{name}".', server=name)


def _made(config: ToolServerConfig) -> ToolServerInfo:
    bare = msgspec.structs.replace(config, env=dict.fromkeys(config.env, ""), headers=dict.fromkeys(config.headers, ""))
    return files_server(config=bare, state="ready" if config.enabled else "off")
