"""One connection to a tool server: the official client's session with our bounds around it.

Importing this costs half a second; `server` does it in a thread when the first server starts.
"""

import asyncio
import contextlib
import importlib.metadata
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import httpx
import mcp.types as mcp
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.session import ClientSession
from mcp.shared.exceptions import McpError
from mcp.shared.message import SessionMessage
from mcp.shared.session import RequestResponder
from pydantic import ValidationError

from runtime.messages.tools import MAX_TOOLS_PER_SERVER, ToolProgress, ToolResult, ToolServerConfig
from runtime.tool_servers.faults import Lost, first_cause
from runtime.tool_servers.http import http_streams, in_words
from runtime.tool_servers.log import ServerLog
from runtime.tool_servers.results import error_result, to_result
from runtime.tool_servers.stdio import Streams, stdio_streams

MAX_CALL_S = 3600.0
"""A call that tells progress for ever ends here."""

MAX_PAGES = 64
MAX_PROGRESS_CHARS = 500
_CANCEL_GRACE_S = 1.0
_KNOWN_NOTICES = frozenset(
    {"notifications/progress", "notifications/tools/list_changed", "notifications/message", "notifications/cancelled"}
)

OnProgress = Callable[[ToolProgress], None]

# The client library logs what servers send, whole; our own log of a server is bounded.
logging.getLogger("mcp").setLevel(logging.CRITICAL)


class _Session(ClientSession):
    """Knows the number of a request while it runs, so that a call that is given up can be cancelled."""

    async def call(
        self, tool: str, arguments: dict[str, Any], timeout_s: float, on_progress: OnProgress
    ) -> mcp.CallToolResult:
        """Run a tool; `timeout_s` counts from the last progress.

        Raises:
            TimeoutError: it is over.
            McpError: the server refused.
        """
        request_id = self._request_id
        loop = asyncio.get_running_loop()
        last = loop.time() + MAX_CALL_S
        request = mcp.CallToolRequest(params=mcp.CallToolRequestParams(name=tool, arguments=arguments))
        try:
            async with asyncio.timeout(timeout_s) as deadline:

                async def progressed(progress: float, total: float | None, message: str | None) -> None:
                    deadline.reschedule(min(last, loop.time() + timeout_s))
                    fraction = min(1.0, max(0.0, progress / total)) if total else None
                    on_progress(ToolProgress(fraction, (message or "")[:MAX_PROGRESS_CHARS]))

                return await self.send_request(
                    mcp.ClientRequest(request), mcp.CallToolResult, progress_callback=progressed
                )
        except (TimeoutError, asyncio.CancelledError):
            await self._tell_cancelled(request_id)
            raise

    async def _tell_cancelled(self, request_id: int) -> None:
        notice = mcp.CancelledNotification(
            params=mcp.CancelledNotificationParams(requestId=request_id, reason="The person stopped it.")
        )
        closed = (anyio.BrokenResourceError, anyio.ClosedResourceError)
        with anyio.move_on_after(_CANCEL_GRACE_S, shield=True), contextlib.suppress(*closed):
            await self.send_notification(mcp.ClientNotification(notice))


class Connection:
    """A server that answers. Home: the event loop."""

    def __init__(self, session: _Session, lists_changed: asyncio.Event, product: str, pid: int | None) -> None:
        self._session = session
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.lists_changed = lists_changed
        """Set when the server says that its tools changed; whoever reads them anew clears it."""
        self.product = product
        self.pid = pid

    def end(self) -> None:
        """The connection is gone: calls that wait end."""
        if not self._lost.done():
            self._lost.set_result(None)

    async def until_lost(self) -> None:
        """Wait for `end`."""
        await asyncio.shield(self._lost)

    async def tools(self, timeout_s: float) -> tuple[list[mcp.Tool], int]:
        """The server's tools, and how many more it has than are taken.

        Raises:
            Lost: the list does not come, or is none.
        """
        found: list[mcp.Tool] = []
        n_over = 0
        cursor: str | None = None
        try:
            async with asyncio.timeout(timeout_s):
                for _ in range(MAX_PAGES):
                    page = await self._session.list_tools(params=mcp.PaginatedRequestParams(cursor=cursor))
                    room = MAX_TOOLS_PER_SERVER - len(found)
                    found += page.tools[:room]
                    n_over += len(page.tools[room:])
                    cursor = page.nextCursor
                    if not cursor:
                        break
        except TimeoutError:
            raise Lost(f"It did not list its tools within {timeout_s:.0f} s.") from None
        except McpError as error:
            raise Lost(f"It does not list its tools: {error.error.message[:500]}") from None
        except ValidationError as error:
            raise Lost(f"Its list of tools breaks the protocol: {_first_line(error)}.", is_final=True) from None
        return found, n_over

    async def call(self, tool: str, arguments: dict[str, Any], timeout_s: float, on_progress: OnProgress) -> ToolResult:
        """Run a tool; what the tool or the server has against it is a result with `is_error`.

        Raises:
            Lost: the connection ended, or the answer is none of the protocol's.
        """
        began_at = asyncio.get_running_loop().time()
        calling = asyncio.create_task(self._session.call(tool, arguments, timeout_s, on_progress))
        try:
            waited: set[asyncio.Future[Any]] = {calling, self._lost}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not calling.done():
                calling.cancel()
                await asyncio.wait({calling})
        duration_s = asyncio.get_running_loop().time() - began_at
        try:
            return await asyncio.to_thread(to_result, calling.result(), duration_s)
        except TimeoutError:
            return error_result(f"The tool gave no answer within {timeout_s:.0f} s and was stopped.", duration_s)
        except McpError as error:
            if error.error.code == mcp.CONNECTION_CLOSED:
                raise Lost("The connection ended.") from None
            return error_result(error.error.message or "The server refused without a word.", duration_s)
        except ValidationError as error:
            raise Lost(f"Its answer breaks the protocol: {_first_line(error)}.") from None
        except (asyncio.CancelledError, anyio.ClosedResourceError, anyio.BrokenResourceError):
            raise Lost("The connection ended.") from None


@contextlib.asynccontextmanager
async def connect(
    config: ToolServerConfig, log: ServerLog, timeout_s: float, auth: httpx.Auth | None = None
) -> AsyncIterator[Connection]:
    """Reach a server and shake hands; leaving the block ends it.

    Args:
        config: with its secrets.
        log: gets what it writes beside the protocol.
        timeout_s: for its first answer.
        auth: puts the tokens of a sign-in on requests by HTTP.

    Raises:
        Lost: why it cannot be used, or any more.
    """
    try:
        async with contextlib.AsyncExitStack() as stack:
            pid: int | None = None
            if config.transport == "stdio":
                streams, process = await stack.enter_async_context(stdio_streams(config, log))
                pid = process.pid
            else:
                streams = await stack.enter_async_context(http_streams(config, auth))
            connection = await stack.enter_async_context(_talking(streams, log, timeout_s, pid))
            stack.callback(connection.end)
            yield connection
    except Lost:
        raise
    except Exception as error:
        cause = first_cause(error)
        if isinstance(cause, Lost):
            raise cause from error
        if isinstance(cause, httpx.HTTPError):
            raise in_words(cause, config) from error
        if isinstance(cause, httpx.InvalidURL):
            raise Lost(f"{config.url} is no address ({cause}).", is_final=True) from error
        raise


@contextlib.asynccontextmanager
async def _talking(streams: Streams, log: ServerLog, timeout_s: float, pid: int | None) -> AsyncIterator[Connection]:
    from_server, to_server = streams
    lists_changed = asyncio.Event()
    connection: Connection | None = None

    async def heard(
        message: RequestResponder[mcp.ServerRequest, mcp.ClientResult] | mcp.ServerNotification | Exception,
    ) -> None:
        if isinstance(message, mcp.ServerNotification):
            if isinstance(message.root, mcp.ToolListChangedNotification):
                lists_changed.set()
            elif isinstance(message.root, mcp.LoggingMessageNotification):
                log.add(f"({message.root.params.level}) {str(message.root.params.data)[:4096]}")
        elif isinstance(message, Exception):
            log.add(f"(not understood) {str(message)[:500]}")

    to_session, for_session = anyio.create_memory_object_stream[SessionMessage | Exception](0)

    def gone() -> None:
        if connection is not None:
            connection.end()

    client = mcp.Implementation(name="Deskside", version=importlib.metadata.version("deskside"))
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_pump, from_server, to_session, gone)
            async with _Session(for_session, to_server, message_handler=heard, client_info=client) as session:
                greeting = await _initialized(session, timeout_s)
                product = f"{greeting.serverInfo.title or greeting.serverInfo.name} {greeting.serverInfo.version}"
                connection = Connection(session, lists_changed, product.strip()[:200], pid)
                yield connection
            group.cancel_scope.cancel()
    finally:
        for stream in (from_server, to_server, to_session, for_session):
            stream.close()


async def _initialized(session: _Session, timeout_s: float) -> mcp.InitializeResult:
    try:
        async with asyncio.timeout(timeout_s):
            return await session.initialize()
    except TimeoutError:
        raise Lost(f"It did not answer within {timeout_s:.0f} s.", hint="Its log may say why.") from None
    except McpError as error:
        if error.error.code == mcp.CONNECTION_CLOSED:
            raise Lost("The connection ended before it answered.") from None
        raise Lost(f"It refused to begin: {error.error.message[:500]}", is_final=True) from None
    except ValidationError as error:
        raise Lost(f"Its greeting breaks the protocol: {_first_line(error)}.", is_final=True) from None
    except RuntimeError as error:  # a version that the client library does not know
        raise Lost(f"{error}.", hint="Is there a newer version of it?", is_final=True) from None


async def _pump(
    from_server: MemoryObjectReceiveStream[SessionMessage | Exception],
    to_session: MemoryObjectSendStream[SessionMessage | Exception],
    gone: Callable[[], None],
) -> None:
    """Hands messages on, without notices nobody here reads; tells when no more come."""
    async with to_session:
        async for message in from_server:
            if isinstance(message, SessionMessage):
                root = message.message.root
                if isinstance(root, mcp.JSONRPCNotification) and root.method not in _KNOWN_NOTICES:
                    continue
            await to_session.send(message)
    gone()


def _first_line(error: ValidationError) -> str:
    first = error.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:300]
