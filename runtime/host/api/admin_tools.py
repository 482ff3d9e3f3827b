"""Admin routes for tool servers (`runtime.messages.api` has the table). Never on the public listener."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Send

from runtime.errors import RuntimeFault, to_failure
from runtime.host.api.http import (
    COMMENT,
    KEEP_ALIVE_S,
    EventStream,
    WatchedResponse,
    event_bytes,
    json_answer,
    read_struct,
)
from runtime.messages.tools import (
    SignInBegun,
    ToolCallEvent,
    ToolCallFailed,
    ToolCallRequest,
    ToolProgress,
    ToolReturned,
    ToolServerChange,
    ToolServerConfig,
    ToolServerLog,
    ToolServerRequest,
    ToolServersText,
    ToolsState,
)
from runtime.tool_servers.servers import ToolServers

CREATED = 201
_PROGRESS_EVERY_S = 0.2


class ToolsRoutes:
    """The handlers."""

    def __init__(self, servers: ToolServers) -> None:
        self._servers = servers

    def routes(self) -> list[Route]:
        """Their addresses."""
        return [
            Route("/admin/tools", self.state, methods=["GET"]),
            Route("/admin/tools/servers", self.servers, methods=["POST", "PUT", "DELETE"]),
            Route("/admin/tools/import", self.import_servers, methods=["POST"]),
            Route("/admin/tools/test", self.test, methods=["POST"]),
            Route("/admin/tools/start", self.start, methods=["POST"]),
            Route("/admin/tools/restart", self.restart, methods=["POST"]),
            Route("/admin/tools/sign-in", self.sign_in, methods=["POST"]),
            Route("/admin/tools/sign-in/cancel", self.cancel_sign_in, methods=["POST"]),
            Route("/admin/tools/sign-out", self.sign_out, methods=["POST"]),
            Route("/admin/tools/log", self.log, methods=["POST"]),
            Route("/admin/tools/call", self.call, methods=["POST"]),
        ]

    async def state(self, _request: Request) -> Response:
        """GET /admin/tools."""
        return json_answer(ToolsState(self._servers.list()))

    async def servers(self, request: Request) -> Response:
        """POST, PUT and DELETE /admin/tools/servers."""
        if request.method == "POST":
            return json_answer(await self._servers.add(await read_struct(request, ToolServerConfig)), CREATED)
        if request.method == "PUT":
            wanted = await read_struct(request, ToolServerChange)
            return json_answer(await self._servers.change(wanted.name, wanted.config))
        await self._servers.remove((await read_struct(request, ToolServerRequest)).name)
        return Response(status_code=204)

    async def import_servers(self, request: Request) -> Response:
        """POST /admin/tools/import: the answer has the added ones."""
        added = await self._servers.add_pasted((await read_struct(request, ToolServersText)).text)
        return json_answer(ToolsState(added), CREATED)

    async def test(self, request: Request) -> Response:
        """POST /admin/tools/test."""
        return json_answer(await self._servers.test(await read_struct(request, ToolServerConfig)))

    async def start(self, request: Request) -> Response:
        """POST /admin/tools/start."""
        return json_answer(await self._servers.wake((await read_struct(request, ToolServerRequest)).name))

    async def restart(self, request: Request) -> Response:
        """POST /admin/tools/restart."""
        return json_answer(await self._servers.restart((await read_struct(request, ToolServerRequest)).name))

    async def sign_in(self, request: Request) -> Response:
        """POST /admin/tools/sign-in: the address to open; how it ends is told by the server's state."""
        name = (await read_struct(request, ToolServerRequest)).name
        return json_answer(SignInBegun(await self._servers.sign_in(name)))

    async def cancel_sign_in(self, request: Request) -> Response:
        """POST /admin/tools/sign-in/cancel."""
        await self._servers.cancel_sign_in((await read_struct(request, ToolServerRequest)).name)
        return Response(status_code=204)

    async def sign_out(self, request: Request) -> Response:
        """POST /admin/tools/sign-out."""
        return json_answer(await self._servers.sign_out((await read_struct(request, ToolServerRequest)).name))

    async def log(self, request: Request) -> Response:
        """POST /admin/tools/log."""
        name = (await read_struct(request, ToolServerRequest)).name
        return json_answer(ToolServerLog(self._servers.log_lines(name)))

    async def call(self, request: Request) -> Response:
        """POST /admin/tools/call: a stream of `ToolCallEvent`; a client that leaves cancels the call."""
        wanted = await read_struct(request, ToolCallRequest)

        async def work(send: Send) -> None:
            await _stream_call(self._servers, wanted, EventStream(send))

        return WatchedResponse(work)


async def _stream_call(servers: ToolServers, wanted: ToolCallRequest, stream: EventStream) -> None:
    latest: list[ToolProgress] = []
    told = asyncio.Event()

    def progressed(progress: ToolProgress) -> None:
        latest[:] = [progress]  # only the newest is worth telling
        told.set()

    calling = asyncio.create_task(servers.call(wanted, progressed))
    try:
        while not calling.done():
            telling = asyncio.create_task(told.wait())
            await asyncio.wait({calling, telling}, timeout=KEEP_ALIVE_S, return_when=asyncio.FIRST_COMPLETED)
            telling.cancel()
            if calling.done():
                break
            told.clear()
            await stream.write(b"".join(map(event_bytes, latest)) or COMMENT)
            latest.clear()
            await asyncio.wait({calling}, timeout=_PROGRESS_EVERY_S)
    finally:
        if not calling.done():
            calling.cancel()
            await asyncio.wait({calling})
    try:
        event: ToolCallEvent = ToolReturned(calling.result())
    except RuntimeFault as error:
        event = ToolCallFailed(to_failure(error))
    await stream.end(event_bytes(event))
