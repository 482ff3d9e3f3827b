"""`deskside tools`: list, add, remove, try and sign in to tool servers (MCP).

A host that runs on the data folder is asked; without one the settings are changed directly.
"""

import argparse
import asyncio
import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from runtime.cli import exit_codes
from runtime.cli.host_file import host_or
from runtime.cli.terminal import Terminal, neutralise, table
from runtime.errors import BadRequest, ToolServerFault
from runtime.messages.tools import ToolServerConfig, ToolServerInfo
from runtime.paths import DataFolder

if TYPE_CHECKING:
    from runtime.client import HostClient

_LOOK_S = 0.3
"""Pause between two looks whether the browser came back."""

_HEAD = ("NAME", "STATE", "TOOLS", "WHERE")


def run(parsed: argparse.Namespace, data: DataFolder, terminal: Terminal) -> int:
    """Do the action.

    Raises:
        RuntimeFault: what it could not do.
    """
    return asyncio.run(_run(parsed, data, terminal))


async def _run(parsed: argparse.Namespace, data: DataFolder, terminal: Terminal) -> int:
    action = parsed.action or "list"
    async with host_or(data, lambda data: contextlib.aclosing(_Offline(data))) as servers:
        if action == "add":
            info = await servers.add_tool_server(config_of(parsed))
            terminal.line(f"Added {info.config.name}. `deskside tools test {info.config.name}` tries it.")
        elif action == "remove":
            await servers.remove_tool_server(parsed.name)
            terminal.line(f"Removed {neutralise(parsed.name)}.")
        elif action == "sign-in":
            await _sign_in(servers, parsed.name, terminal)
        elif action == "sign-out":
            await servers.sign_out_of_tool_server(parsed.name)
            terminal.line(f"Signed out of {neutralise(parsed.name)}.")
        elif action == "test":
            found = _find(await servers.tool_servers(), parsed.name)
            _show_tools(await servers.test_tool_server(found.config), terminal)
        else:
            _list(await servers.tool_servers(), terminal, as_json=parsed.json)
    return exit_codes.OK


def config_of(parsed: argparse.Namespace) -> ToolServerConfig:
    """What was typed: an address, or a program with its arguments.

    Raises:
        BadRequest: neither, or both are mixed.
    """
    where: list[str] = [part for part in parsed.where if part != "--"]
    if not where:
        raise BadRequest("Neither a program nor an address is given.", hint="deskside tools add NAME -- PROGRAM ...")
    is_address = where[0].startswith(("http://", "https://"))
    given = {
        "name": parsed.name,
        "transport": ("sse" if parsed.sse else "http") if is_address else "stdio",
        "url": where[0] if is_address else "",
        "command": "" if is_address else _program(where[0], parsed.folder),
        "args": [] if is_address else where[1:],
        "env": _pairs(parsed.env, "="),
        "headers": _pairs(parsed.header, ":"),
        "folder": parsed.folder,
    }
    try:
        return msgspec.convert(given, ToolServerConfig)
    except msgspec.ValidationError as error:
        raise BadRequest(f"This tool server cannot be added: {error}.") from None


async def _sign_in(servers: "HostClient | _Offline", name: str, terminal: Terminal) -> None:
    """Print the address, and wait until the browser came back.

    Raises:
        ToolServerFault: nobody is signed in.
    """
    url = await servers.begin_tool_sign_in(name)
    terminal.line("Open this address in a browser of this computer:")
    terminal.line(f"  {neutralise(url)}")
    terminal.line("Waiting for it. Ctrl-C stops.")
    try:
        while (info := _find(await servers.tool_servers(), name)).state == "signing_in":  # noqa: ASYNC110 - a host's
            await asyncio.sleep(_LOOK_S)
    except asyncio.CancelledError:
        await servers.cancel_tool_sign_in(name)
        raise
    if not info.config.signed_in or info.needs_sign_in:
        raise ToolServerFault(info.problem or "Nobody is signed in.", hint=info.hint, server=name)
    terminal.line(f"Signed in. `deskside tools test {name}` tries it.")


def _find(servers: tuple[ToolServerInfo, ...], name: str) -> ToolServerInfo:
    found = next((info for info in servers if info.config.name == name), None)
    if found is None:
        raise BadRequest(f"There is no tool server {name}.", hint="deskside tools lists them.")
    return found


def _program(typed: str, folder: str) -> str:
    """A program by its path is started from anywhere, so the path is made whole; by its name it is looked up."""
    path = Path(typed).expanduser()
    has_folder = len(path.parts) > 1
    return str(path.absolute()) if has_folder and not folder and path.is_file() else typed


def _pairs(texts: list[str], separator: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, mark, value = text.partition(separator)
        if not mark:
            raise BadRequest(f"{text!r} has no {separator!r}.", hint=f"Write NAME{separator}VALUE.")
        found[name.strip()] = value.strip()
    return found


def _list(servers: tuple[ToolServerInfo, ...], terminal: Terminal, *, as_json: bool) -> None:
    if as_json:
        terminal.line(json.dumps(msgspec.to_builtins(servers), indent=2))
        return
    if not servers:
        terminal.line("No tool server yet. `deskside tools add NAME -- PROGRAM ...` adds one.")
        return
    head, *lines = table([_HEAD, *(_row(info) for info in servers)], right=frozenset({2}))
    terminal.line(head, "bold")
    for info, line in zip(servers, lines, strict=True):
        terminal.line(line)
        if info.problem:
            terminal.line(f"  {neutralise(info.problem)}", "red")


def _row(info: ToolServerInfo) -> tuple[str, ...]:
    config = info.config
    where = config.url or " ".join((config.command, *config.args))
    cells = (config.name, info.state, str(len(info.tools)), where)
    return tuple(" ".join(neutralise(cell).split()) for cell in cells)


def _show_tools(info: ToolServerInfo, terminal: Terminal) -> None:
    terminal.line(f"{neutralise(info.product)} works and has {len(info.tools)} tools:")
    for tool in info.tools:
        description = " ".join(neutralise(tool.description).split())
        terminal.line(f"  {neutralise(tool.name)}  {description[:100]}")
        if tool.problem:
            terminal.line(f"    Not offered to models. {neutralise(tool.problem)}", "yellow")


class _Offline:
    """The settings without a host: what `HostClient` offers, as far as it is used here."""

    def __init__(self, data: DataFolder) -> None:
        from runtime.host.settings import SettingsFile
        from runtime.tool_servers.secrets import SecretStore
        from runtime.tool_servers.servers import Kept, ToolServers
        from runtime.tool_servers.sign_in_store import SignInStore

        settings = SettingsFile(data.settings_file)
        kept = Kept(lambda: settings.current.tool_servers, lambda configs: settings.change(tool_servers=configs))
        stores = SecretStore(data.root), SignInStore(data.root)
        self._servers = ToolServers(kept, *stores, lambda _servers: None, starts=False)

    async def tool_servers(self) -> tuple[ToolServerInfo, ...]:
        return self._servers.list()

    async def add_tool_server(self, config: ToolServerConfig) -> ToolServerInfo:
        return await self._servers.add(config)

    async def remove_tool_server(self, name: str) -> None:
        await self._servers.remove(name)

    async def test_tool_server(self, config: ToolServerConfig) -> ToolServerInfo:
        return await self._servers.test(config)

    async def begin_tool_sign_in(self, name: str) -> str:
        return await self._servers.sign_in(name)

    async def cancel_tool_sign_in(self, name: str) -> None:
        await self._servers.cancel_sign_in(name)

    async def sign_out_of_tool_server(self, name: str) -> ToolServerInfo:
        return await self._servers.sign_out(name)

    async def aclose(self) -> None:
        await self._servers.close()
