"""Tool servers (Model Context Protocol) between the host and its own clients: settings, states, calls, results.

What a server says of itself and of its tools (titles, descriptions, hints) is text of a stranger: it is shown as plain
text and trusted in nothing.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from runtime.errors import Failure
from runtime.messages.shared import MediaPart

MAX_SERVERS = 64
MAX_TOOLS_PER_SERVER = 128
"""Further ones are left out and counted; models get lost among far fewer."""

MAX_TOOL_SCHEMA_CHARS = 65_536
"""Of one tool's arguments; every request carries it."""

MAX_DESCRIPTION_CHARS = 8_192
MAX_RESULT_CHARS = 65_536
"""Text of one result, and its structured content, each; what is over is cut, with a mark."""

MAX_RESULT_PARTS = 64
MAX_RESULT_IMAGES = 8
MAX_IMAGE_BYTES = 8 * 1024 * 1024
MAX_ARGUMENTS_CHARS = 1024 * 1024
MAX_PASTED_CHARS = 1024 * 1024
MAX_ENTRIES = 256
"""Arguments, variables or headers of one server."""

Transport = Literal["stdio", "http", "sse"]
"""`stdio`: a program that is started here; `http`: streamable HTTP; `sse`: the older HTTP form."""

ServerState = Literal["off", "idle", "starting", "ready", "waiting", "failed", "signing_in"]
"""`idle`: starts when it is needed; `waiting`: starts again in a moment; `failed`: given up until asked again;
`signing_in`: the person's browser is waited for."""

SecretsPlace = Literal["", "keyring", "file"]

ServerName = Annotated[str, Meta(min_length=1, max_length=48, pattern=r"^[A-Za-z0-9][\w .-]*$")]
_Value = Annotated[str, Meta(max_length=32_768)]
_Key = Annotated[str, Meta(min_length=1, max_length=256)]


class ToolServerConfig(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One server as a person set it up.

    Values of `env` and `headers` are secrets: they are kept in the system's keyring and never told again, so they
    come back as "". Sent back as "", a value stays what it is.

    Attributes:
        name: unique among the servers.
        transport: how it is reached.
        command: program of a `stdio` server; found on PATH.
        args: its arguments.
        env: variables it gets besides the few every program needs.
        folder: where it is started; "" is the person's home.
        url: address of an `http` or `sse` server.
        headers: sent with each request, for example `Authorization`.
        enabled: whether it may run.
        at_start: started with the host; otherwise when it is first needed.
        timeout_s: a call that tells no progress for so long is given up.
        signed_in: the person signed in at this address by browser, and the tokens are kept. Written by the host
            alone: what a client sends here is passed over.
    """

    name: ServerName
    transport: Transport = "stdio"
    command: Annotated[str, Meta(max_length=4096)] = ""
    args: Annotated[tuple[_Value, ...], Meta(max_length=MAX_ENTRIES)] = ()
    env: Annotated[dict[_Key, _Value], Meta(max_length=MAX_ENTRIES)] = {}
    folder: Annotated[str, Meta(max_length=4096)] = ""
    url: Annotated[str, Meta(max_length=4096)] = ""
    headers: Annotated[dict[_Key, _Value], Meta(max_length=MAX_ENTRIES)] = {}
    enabled: bool = True
    at_start: bool = True
    timeout_s: Annotated[float, Meta(ge=1, le=3600)] = 120.0
    signed_in: bool = False


class ToolInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool of a server.

    Attributes:
        name: what the server calls it.
        call_name: what models call it: unique among all servers, letters, digits, `_` and `-`, at most 64.
        title: for people; "" where the server gives none.
        description: the server's words.
        parameters: JSON schema of its arguments, as text.
        read_only: the server says that it changes nothing. A hint, not a promise.
        destructive: the server says that it may destroy something.
        fingerprint: changes when the server, the description or the schema does; a permission holds for one.
        problem: why models are not offered it; "" when they are.
    """

    name: str
    call_name: str
    title: str = ""
    description: str = ""
    parameters: str = ""
    read_only: bool = False
    destructive: bool = False
    fingerprint: str = ""
    problem: str = ""


class ToolServerInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A server as it is now. The secret values of `config` are "".

    `product` is what it calls itself, `left_out` how many tools were over `MAX_TOOLS_PER_SERVER`; `secrets` says where
    its secrets are kept; `restarts` counts since the host began. `needs_sign_in`: a sign-in by browser would help;
    while one is under way, `sign_in_url` is the address to open for it ("" until it is known).
    """

    config: ToolServerConfig
    state: ServerState = "idle"
    problem: str = ""
    hint: str = ""
    tools: tuple[ToolInfo, ...] = ()
    left_out: int = 0
    product: str = ""
    pid: int | None = None
    restarts: int = 0
    secrets: SecretsPlace = ""
    needs_sign_in: bool = False
    sign_in_url: str = ""


class ToolsState(msgspec.Struct, frozen=True):
    """All tool servers, in the order they were added."""

    servers: tuple[ToolServerInfo, ...]


class ToolServerRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server by name."""

    name: str


class SignInBegun(msgspec.Struct, frozen=True):
    """The person is to open `url` in a browser of this computer; the rest comes by the server's state."""

    url: str


class ToolServerChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Change the server `name`; `config.name` may be a new name."""

    name: str
    config: ToolServerConfig


class ToolServersText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `mcpServers` JSON of other programs, as it stands in their files."""

    text: Annotated[str, Meta(max_length=MAX_PASTED_CHARS)]


class ToolServerLog(msgspec.Struct, frozen=True):
    """The newest lines a server wrote, oldest first."""

    lines: tuple[str, ...]


# --- calls ------------------------------------------------------------------------------------------------


class ToolCallRequest(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Run a tool. `arguments` is JSON text of an object ("" is none); `call_id` is the caller's own, for logs."""

    server: str
    tool: str
    arguments: Annotated[str, Meta(max_length=MAX_ARGUMENTS_CHARS)] = ""
    call_id: Annotated[str, Meta(max_length=128)] = ""


class ResultText(msgspec.Struct, frozen=True, tag="text"):
    """Text of a result."""

    text: str


class ResultMedia(msgspec.Struct, frozen=True, tag="media"):
    """A picture or sound of a result."""

    media: MediaPart


class ResultLink(msgspec.Struct, frozen=True, tag="link", omit_defaults=True):
    """An address that a result names; nothing opens it by itself."""

    uri: str
    name: str = ""
    description: str = ""
    mime: str = ""


ResultPart = ResultText | ResultMedia | ResultLink


class ToolResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a tool answered.

    Attributes:
        parts: in the server's order.
        structured: JSON text of its structured content; "" where there is none.
        is_error: the tool says that it failed; its words are in `parts`.
        cut: sentences about what was left out, for people and models alike.
        duration_s: how long the call took.
    """

    parts: tuple[ResultPart, ...] = ()
    structured: str = ""
    is_error: bool = False
    cut: tuple[str, ...] = ()
    duration_s: float = 0.0


class ToolProgress(msgspec.Struct, frozen=True, tag="progress", omit_defaults=True):
    """How far a call is, in the tool's own words; `fraction` is 0..1 where it is known."""

    fraction: float | None = None
    text: str = ""


class ToolReturned(msgspec.Struct, frozen=True, tag="returned"):
    """The call is over; a tool that failed says so in the result."""

    result: ToolResult


class ToolCallFailed(msgspec.Struct, frozen=True, tag="failed"):
    """The call could not be made, or its server was lost on the way."""

    failure: Failure


ToolCallEvent = ToolProgress | ToolReturned | ToolCallFailed
