"""The HTTP transports, with bounds on what a server may send and words for what goes wrong."""

import contextlib
from collections.abc import AsyncIterator

import anyio
import httpx
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from runtime.messages.tools import ToolServerConfig
from runtime.tool_servers.child import MAX_MESSAGE_BYTES
from runtime.tool_servers.configs import takes_sign_in
from runtime.tool_servers.faults import Lost
from runtime.tool_servers.stdio import Streams

CONNECT_S = 15.0
_SILENCE_S = 3600.0
"""A stream of events may be silent; calls have a deadline of their own."""

_GRACE_S = 2.0
_UNAUTHORIZED = 401
_FORBIDDEN = 403
_NOT_FOUND = 404


class _Bounded(httpx.AsyncByteStream):
    """A body that must have an empty line (the end of an event) or an end within `MAX_MESSAGE_BYTES`."""

    def __init__(self, inner: httpx.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size_bytes = 0
        async for chunk in self._inner:
            ends_at = max(chunk.rfind(b"\n\n"), chunk.rfind(b"\r\n\r\n"))
            size_bytes = len(chunk) - ends_at if ends_at >= 0 else size_bytes + len(chunk)
            if size_bytes > MAX_MESSAGE_BYTES:
                raise Lost(f"It sent a message of more than {MAX_MESSAGE_BYTES // 1024**2} MiB.")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _bound(response: httpx.Response) -> None:
    # A small compressed body may unpack to any size before the bound sees it; it was not asked for.
    if response.headers.get("content-encoding", "identity") != "identity":
        raise Lost("It sent a compressed answer, which was not asked for.", is_final=True)
    if isinstance(response.stream, httpx.AsyncByteStream):
        response.stream = _Bounded(response.stream)


def plain_client(
    headers: dict[str, str] | None = None,
    timeout: httpx.Timeout | None = None,
    auth: httpx.Auth | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> httpx.AsyncClient:
    """A client whose answers are bounded and not compressed."""
    plain = {**(headers or {}), "accept-encoding": "identity"}
    silence = timeout or httpx.Timeout(CONNECT_S, read=_SILENCE_S)
    hooks = {"response": [_bound]}
    return httpx.AsyncClient(headers=plain, timeout=silence, auth=auth, transport=transport, event_hooks=hooks)


@contextlib.asynccontextmanager
async def http_streams(config: ToolServerConfig, auth: httpx.Auth | None = None) -> AsyncIterator[Streams]:
    """Talk to a server by HTTP; the session is ended when the block is left. `auth` puts tokens on requests.

    Raises:
        Lost: as it is raised by a stream; other errors as the client library raises them (`in_words` explains them).
    """
    if config.transport == "sse":
        async with sse_client(
            config.url,
            config.headers,
            timeout=CONNECT_S,
            sse_read_timeout=_SILENCE_S,
            httpx_client_factory=plain_client,
            auth=auth,
        ) as (read, write):
            yield read, write
        return
    async with plain_client(config.headers, auth=auth) as client:
        session_id = ""
        try:
            # The session is ended below: the library would wait for the answer without a bound.
            async with streamable_http_client(config.url, http_client=client, terminate_on_close=False) as (
                read,
                write,
                get_session_id,
            ):
                try:
                    yield read, write
                finally:
                    session_id = get_session_id() or ""
        finally:
            if session_id:
                with anyio.move_on_after(_GRACE_S, shield=True), contextlib.suppress(httpx.HTTPError, Lost):
                    await client.delete(config.url, headers={"mcp-session-id": session_id})


def in_words(error: httpx.HTTPError, config: ToolServerConfig) -> Lost:
    """What an error of HTTP means to a person."""
    url = config.url
    if isinstance(error, httpx.HTTPStatusError):
        status = error.response.status_code
        if status in {_UNAUTHORIZED, _FORBIDDEN}:
            return _refused(status, config)
        if status == _NOT_FOUND:
            return Lost(
                f"Nothing is at {url} (404).", hint="Check the address; it often ends with /mcp.", is_final=True
            )
        return Lost(f"The server answered {status} {error.response.reason_phrase}.".replace(" .", "."))
    if isinstance(error, httpx.TimeoutException):
        return Lost(f"{url} did not answer in time.", hint="Is the server running?")
    if isinstance(error, httpx.ConnectError):
        return Lost(f"{url} cannot be reached ({str(error) or type(error).__name__}).", hint="Is the server running?")
    return Lost(f"The connection to {url} broke ({str(error) or type(error).__name__}).")


def _refused(status: int, config: ToolServerConfig) -> Lost:
    """The server wants to know who asks, or knows it and does not want."""
    if not takes_sign_in(config):
        return Lost(
            f"The server refused to let Deskside in ({status}).",
            hint="Put a valid token into the header Authorization, or remove that header to sign in by browser.",
            is_final=True,
        )
    if config.signed_in and status == _FORBIDDEN:
        message = "The server refused what you are signed in as (403)."
    elif config.signed_in:
        message = "Your sign-in there has ended."
    else:
        message = f"The server asks who you are ({status})."
    return Lost(message, hint="Sign in under Settings, or with `deskside tools sign-in`.", needs_sign_in=True)
