"""The tool servers' part of the private API."""

import contextlib
from collections.abc import AsyncIterator

from runtime.client.connection import HostConnection
from runtime.messages.tools import (
    SignInBegun,
    ToolCallEvent,
    ToolCallRequest,
    ToolServerChange,
    ToolServerConfig,
    ToolServerInfo,
    ToolServerLog,
    ToolServerRequest,
    ToolServersText,
    ToolsState,
)

START_TIMEOUT_S = 180.0
"""A server may fetch itself before it answers."""


class ToolsClient(HostConnection):
    """Home: one event loop. Every method raises what the host raised, as its own class of `runtime.errors`."""

    async def tool_servers(self) -> tuple[ToolServerInfo, ...]:
        """All tool servers with their states and tools."""
        return (await self._ask("GET", "/admin/tools", ToolsState)).servers

    async def add_tool_server(self, config: ToolServerConfig) -> ToolServerInfo:
        """Add one; it starts in the background."""
        return await self._ask("POST", "/admin/tools/servers", ToolServerInfo, config)

    async def change_tool_server(self, name: str, config: ToolServerConfig) -> ToolServerInfo:
        """Change one; empty secret values stay what they are."""
        return await self._ask("PUT", "/admin/tools/servers", ToolServerInfo, ToolServerChange(name, config))

    async def remove_tool_server(self, name: str) -> None:
        """Forget one and its secrets."""
        await self._tell("DELETE", "/admin/tools/servers", ToolServerRequest(name))

    async def import_tool_servers(self, text: str) -> tuple[ToolServerInfo, ...]:
        """Add those of an `mcpServers` text; the answer has them."""
        return (await self._ask("POST", "/admin/tools/import", ToolsState, ToolServersText(text))).servers

    async def test_tool_server(self, config: ToolServerConfig) -> ToolServerInfo:
        """Try one without keeping it."""
        return await self._ask("POST", "/admin/tools/test", ToolServerInfo, config, timeout_s=START_TIMEOUT_S)

    async def start_tool_server(self, name: str, *, anew: bool = False) -> ToolServerInfo:
        """Start one, also one that runs if `anew`; returns once it can be used."""
        path = "/admin/tools/restart" if anew else "/admin/tools/start"
        return await self._ask("POST", path, ToolServerInfo, ToolServerRequest(name), timeout_s=START_TIMEOUT_S)

    async def begin_tool_sign_in(self, name: str) -> str:
        """Begin a sign-in by browser; answers the address to open. The server's state tells how it ends."""
        path = "/admin/tools/sign-in"
        return (await self._ask("POST", path, SignInBegun, ToolServerRequest(name), timeout_s=START_TIMEOUT_S)).url

    async def cancel_tool_sign_in(self, name: str) -> None:
        """Wait no longer for the person's browser."""
        await self._tell("POST", "/admin/tools/sign-in/cancel", ToolServerRequest(name))

    async def sign_out_of_tool_server(self, name: str) -> ToolServerInfo:
        """Forget the tokens of a sign-in."""
        return await self._ask("POST", "/admin/tools/sign-out", ToolServerInfo, ToolServerRequest(name))

    async def tool_server_log(self, name: str) -> tuple[str, ...]:
        """What one wrote lately."""
        return (await self._ask("POST", "/admin/tools/log", ToolServerLog, ToolServerRequest(name))).lines

    @contextlib.asynccontextmanager
    async def call_tool(self, request: ToolCallRequest) -> AsyncIterator[AsyncIterator[ToolCallEvent]]:
        """Run a tool; leaving the block before its end cancels it."""
        async with self._stream("POST", "/admin/tools/call", request, ToolCallEvent) as events:
            yield events
