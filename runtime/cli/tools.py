"""`deskside tools`: list, add, remove and try tool servers (MCP).

A host that runs on the data folder is asked; without one the settings are changed directly.
"""

import argparse
import asyncio
import contextlib
import json
from pathlib import Path

import msgspec

from runtime.cli import exit_codes
from runtime.cli.host_file import host_or
from runtime.cli.terminal import Terminal, neutralise, table
from runtime.errors import BadRequest
from runtime.messages.tools import ToolServerConfig, ToolServerInfo
from runtime.paths import DataFolder

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
        elif action == "test":
            known = {info.config.name: info.config for info in await servers.tool_servers()}
            if parsed.name not in known:
                raise BadRequest(f"There is no tool server {parsed.name}.", hint="deskside tools lists them.")
            _show_tools(await servers.test_tool_server(known[parsed.name]), terminal)
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

        settings = SettingsFile(data.settings_file)
        kept = Kept(lambda: settings.current.tool_servers, lambda configs: settings.change(tool_servers=configs))
        self._servers = ToolServers(kept, SecretStore(data.root), lambda _servers: None, starts=False)

    async def tool_servers(self) -> tuple[ToolServerInfo, ...]:
        return self._servers.list()

    async def add_tool_server(self, config: ToolServerConfig) -> ToolServerInfo:
        return await self._servers.add(config)

    async def remove_tool_server(self, name: str) -> None:
        await self._servers.remove(name)

    async def test_tool_server(self, config: ToolServerConfig) -> ToolServerInfo:
        return await self._servers.test(config)

    async def aclose(self) -> None:
        await self._servers.close()
