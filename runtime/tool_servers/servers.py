"""All tool servers of a host: settings, secrets, names, calls."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial

import msgspec

from runtime.errors import BadRequest, ToolNotFound, ToolServerFault
from runtime.messages.tools import (
    MAX_SERVERS,
    SecretsPlace,
    ToolCallRequest,
    ToolInfo,
    ToolProgress,
    ToolResult,
    ToolServerConfig,
    ToolServerInfo,
)
from runtime.tool_servers.configs import arguments_of, bare, filled, free_name, keeps_sign_in, takes_sign_in
from runtime.tool_servers.faults import Lost
from runtime.tool_servers.names import call_names
from runtime.tool_servers.paste import checked, read_pasted
from runtime.tool_servers.secrets import Secrets, SecretStore
from runtime.tool_servers.server import ServerPolicy, ToolServer
from runtime.tool_servers.sign_in_store import SignInStore
from runtime.tool_servers.sign_ins import SIGN_IN_S, SignIns
from runtime.tool_servers.tokens import TokenAuth

log = logging.getLogger(__name__)

START_DELAY_S = 2.0
"""After the host's start: the first window comes first."""

TELL_EVERY_S = 0.1
"""Several changes within this time are told once."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Where the settings are: without secret values."""

    read: Callable[[], tuple[ToolServerConfig, ...]]
    write: Callable[[tuple[ToolServerConfig, ...]], object]


class ToolServers:
    """Home: the event loop."""

    def __init__(
        self,
        kept: Kept,
        secrets: SecretStore,
        sign_ins: SignInStore,
        on_change: Callable[[tuple[ToolServerInfo, ...]], None],
        policy: ServerPolicy | None = None,
        *,
        start_delay_s: float = START_DELAY_S,
        starts: bool = True,
        sign_in_s: float = SIGN_IN_S,
    ) -> None:
        """`on_change` hears of every change of a state or a list; without `starts` none runs unless it is needed."""
        self._kept = kept
        self._secrets = secrets
        self._kept_sign_ins = sign_ins
        self._sign_ins = SignIns(sign_ins, self._changed, self._sign_in_ended, limit_s=sign_in_s)
        self._on_change = on_change
        self._policy = policy or ServerPolicy()
        self._start_delay_s = start_delay_s
        self._starts = starts
        self._servers: dict[str, ToolServer] = {}
        self._places: dict[str, SecretsPlace] = {}
        self._lock = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()
        self._tells = False
        self._is_closed = False

    # --- life ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start those that start with the host, a moment later."""
        if any(config.enabled and config.at_start for config in self._kept.read()):
            self._in_background(self._start_first())

    async def close(self) -> None:
        """End all of them."""
        self._is_closed = True
        for task in self._background:
            task.cancel()
        await self._sign_ins.close()
        await asyncio.gather(*(server.close() for server in self._servers.values()))

    # --- reading ------------------------------------------------------------------------------------------

    def list(self) -> tuple[ToolServerInfo, ...]:
        """All servers, in the order they were added."""
        configs = self._kept.read()
        pairs: list[tuple[str, ToolInfo]] = []
        for config in configs:
            server = self._servers.get(config.name)
            pairs += [(config.name, tool) for tool in (server.tools if server is not None else ())]
        names = call_names((name, tool.name) for name, tool in pairs)
        tools: dict[str, list[ToolInfo]] = {}
        for (name, tool), call_name in zip(pairs, names, strict=True):
            tools.setdefault(name, []).append(msgspec.structs.replace(tool, call_name=call_name))
        return tuple(self._info(config, tuple(tools.get(config.name, ()))) for config in configs)

    def log_lines(self, name: str) -> tuple[str, ...]:
        """The newest lines of a server's log.

        Raises:
            ToolNotFound: there is no such server.
        """
        self._config(name)
        server = self._servers.get(name)
        return server.log.lines() if server is not None else ()

    # --- changing -----------------------------------------------------------------------------------------

    async def add(self, config: ToolServerConfig) -> ToolServerInfo:
        """Add a server, and start it where it is to.

        Raises:
            BadRequest: it is not whole, its name is taken, or there are too many.
            StorageFault: it could not be saved.
        """
        async with self._lock:
            config = checked(config)
            self._check_free(config.name)
            await self._put(config, None)
        return self._named(config.name)

    async def add_pasted(self, text: str) -> tuple[ToolServerInfo, ...]:
        """Add all servers of a pasted `mcpServers` text; taken names get a number.

        Raises:
            BadRequest: it cannot be read; nothing is added then.
            StorageFault: it could not be saved.
        """
        configs = await asyncio.to_thread(read_pasted, text)
        async with self._lock:
            taken = {known.name for known in self._kept.read()}
            if len(taken) + len(configs) > MAX_SERVERS:
                raise BadRequest(f"{MAX_SERVERS} servers are the most.", hint="Remove some first.", param="text")
            added: list[str] = []
            for config in configs:
                name = free_name(config.name, taken)
                taken.add(name)
                await self._put(msgspec.structs.replace(config, name=name), None)
                added.append(name)
        return tuple(self._named(name) for name in added)

    async def change(self, name: str, config: ToolServerConfig) -> ToolServerInfo:
        """Replace a server's settings; it is ended and started anew. Empty secret values stay what they are.

        Raises:
            ToolNotFound: there is no such server.
            BadRequest: it is not whole, or the new name is taken.
            StorageFault: it could not be saved.
        """
        async with self._lock:
            before = self._config(name)
            config = checked(config)
            if config.name != name:
                self._check_free(config.name)
            await self._sign_ins.cancel(name)
            await self._put(config, before)
        return self._named(config.name)

    async def remove(self, name: str) -> None:
        """End a server and forget it with its secrets.

        Raises:
            ToolNotFound: there is no such server.
            StorageFault: it could not be saved.
        """
        async with self._lock:
            config = self._config(name)
            await self._sign_ins.cancel(name)
            await self._end(name)
            self._kept.write(tuple(known for known in self._kept.read() if known.name != name))
            await asyncio.to_thread(self._secrets.forget, name)
            if config.signed_in:
                await asyncio.to_thread(self._kept_sign_ins.forget, name)
            self._places.pop(name, None)
        self._changed()

    async def restart(self, name: str) -> ToolServerInfo:
        """Start a server anew, and wait until it can be used.

        Raises:
            ToolNotFound: there is no such server.
            ToolServerFault: why it cannot be used.
        """
        async with self._lock:
            self._config(name)
            await self._end(name)
            server = await self._server(name)
        await server.ready()
        return self._named(name)

    async def wake(self, name: str) -> ToolServerInfo:
        """Start a server that is not running, and wait until it can be used; errors as `restart`."""
        server = await self._server(name)
        await server.ready()
        return self._named(name)

    async def test(self, config: ToolServerConfig) -> ToolServerInfo:
        """Try a server's settings without keeping them. Empty secrets are taken from the kept one of its name.

        Raises:
            BadRequest: they are not whole.
            ToolServerFault: why it cannot be used.
        """
        config = checked(msgspec.structs.replace(config, enabled=True))
        secrets, _ = await asyncio.to_thread(self._secrets.get, config.name)
        kept = next((one for one in self._kept.read() if one.name == config.name), None)
        config = msgspec.structs.replace(config, signed_in=keeps_sign_in(config, kept))
        auth = await self._auth(config)
        server = ToolServer(filled(config, secrets), lambda: None, self._policy, auth)
        try:
            await server.ready()
            names = call_names((config.name, tool.name) for tool in server.tools)
            tools = tuple(
                msgspec.structs.replace(tool, call_name=name) for tool, name in zip(server.tools, names, strict=True)
            )
            return ToolServerInfo(
                bare(config), "ready", tools=tools, left_out=server.left_out, product=server.product, pid=server.pid
            )
        finally:
            await server.close()

    # --- signing in ---------------------------------------------------------------------------------------

    async def sign_in(self, name: str) -> str:
        """Begin a sign-in by browser; the answer is the address that the person is to open.

        How it ends is told by the server's state: it starts anew with its tokens, or says why there are none.

        Raises:
            ToolNotFound: there is no such server.
            BadRequest: it is no server that takes a sign-in.
            ToolServerFault: why there is nothing to open.
        """
        config = self._config(name)
        if not takes_sign_in(config):
            raise BadRequest(
                f'The tool server "{name}" takes no sign-in by browser.',
                hint="Only servers at an address do, and those without a header Authorization of yours.",
                param="name",
            )
        secrets, _ = await asyncio.to_thread(self._secrets.get, name) if config.headers else (Secrets(), "")
        try:
            return await self._sign_ins.begin(filled(config, secrets))
        except Lost as lost:
            raise ToolServerFault(
                f'The sign-in to "{name}" came to nothing: {lost.message}', hint=lost.hint, server=name
            ) from lost

    async def cancel_sign_in(self, name: str) -> None:
        """Wait no longer for the person's browser.

        Raises:
            ToolNotFound: there is no such server.
        """
        self._config(name)
        if await self._sign_ins.cancel(name):
            (await self._server(name)).note_sign_in(Lost("The sign-in was stopped."))

    async def sign_out(self, name: str) -> ToolServerInfo:
        """Forget the tokens of a sign-in here; the server starts anew without them.

        Raises:
            ToolNotFound: there is no such server.
            StorageFault: they could not be forgotten.
        """
        async with self._lock:
            config = self._config(name)
            await self._sign_ins.cancel(name)
            await asyncio.to_thread(self._kept_sign_ins.forget, name)
            await self._mark(config, signed_in=False)
        return self._named(name)

    async def _sign_in_ended(self, name: str, lost: Lost | None) -> None:
        if self._is_closed:
            return
        async with self._lock:
            config = next((one for one in self._kept.read() if one.name == name), None)
            if config is None:  # removed at the last moment
                await asyncio.to_thread(self._kept_sign_ins.forget, name)
            elif lost is None:
                await self._mark(config, signed_in=True)
            else:
                (await self._server(name)).note_sign_in(lost)

    async def _mark(self, config: ToolServerConfig, *, signed_in: bool) -> None:
        """Note whether there are tokens, and start the server anew with or without them."""
        marked = msgspec.structs.replace(config, signed_in=signed_in)
        self._kept.write(tuple(marked if one.name == config.name else one for one in self._kept.read()))
        await self._end(config.name)
        if config.enabled and self._starts and not self._is_closed:
            (await self._server(config.name)).start()
        self._changed()

    async def _auth(self, config: ToolServerConfig) -> TokenAuth | None:
        if not config.signed_in:
            return None
        kept = await asyncio.to_thread(self._kept_sign_ins.get, config.name)
        if kept is None or kept.url != config.url:
            return None
        return TokenAuth(kept, partial(self._kept_sign_ins.keep, config.name))

    async def _move_sign_in(self, before: ToolServerConfig, config: ToolServerConfig) -> None:
        """A server's settings changed: its tokens go with its name, or go if they are for another address."""
        if not before.signed_in or (config.signed_in and config.name == before.name):
            return
        if config.signed_in:
            kept = await asyncio.to_thread(self._kept_sign_ins.get, before.name)
            if kept is not None:
                await asyncio.to_thread(self._kept_sign_ins.keep, config.name, kept)
        await asyncio.to_thread(self._kept_sign_ins.forget, before.name)

    # --- calling ------------------------------------------------------------------------------------------

    async def call(self, request: ToolCallRequest, on_progress: Callable[[ToolProgress], None]) -> ToolResult:
        """Run a tool; cancelling the caller cancels the call.

        Raises:
            BadRequest: the arguments are no JSON object.
            ToolNotFound: there is no such server or tool.
            ToolServerFault: the server cannot be used, or was lost meanwhile.
        """
        arguments = arguments_of(request.arguments)
        server = await self._server(request.server)
        await server.ready()
        if all(tool.name != request.tool for tool in server.tools):
            raise ToolNotFound(
                f'The server "{request.server}" has no tool "{request.tool}".',
                hint="Its tools may have changed.",
                server=request.server,
                tool=request.tool,
            )
        log.info("tool call %s: %s of %s", request.call_id, request.tool, request.server)
        return await server.call(request.tool, arguments, on_progress)

    # --- small steps --------------------------------------------------------------------------------------

    def _config(self, name: str) -> ToolServerConfig:
        found = next((config for config in self._kept.read() if config.name == name), None)
        if found is None:
            raise ToolNotFound(f'There is no tool server "{name}".', hint="Add it under Settings.", server=name)
        return found

    def _check_free(self, name: str) -> None:
        if any(known.name == name for known in self._kept.read()):
            raise BadRequest(f'There is a server "{name}" already.', hint="Choose another name.", param="name")

    def _named(self, name: str) -> ToolServerInfo:
        return next(info for info in self.list() if info.config.name == name)

    def _info(self, config: ToolServerConfig, tools: tuple[ToolInfo, ...]) -> ToolServerInfo:
        server = self._servers.get(config.name)
        place = self._places.get(config.name, "")
        address = self._sign_ins.address(config.name)
        if address is not None:
            return ToolServerInfo(bare(config), "signing_in", secrets=place, needs_sign_in=True, sign_in_url=address)
        if server is None:
            return ToolServerInfo(bare(config), "idle" if config.enabled else "off", secrets=place)
        return ToolServerInfo(
            bare(config),
            server.state,
            server.problem,
            server.hint,
            tools if server.state != "off" else (),
            server.left_out,
            server.product,
            server.pid,
            server.restarts,
            place,
            server.needs_sign_in,
        )

    async def _server(self, name: str) -> ToolServer:
        config = self._config(name)
        known = self._servers.get(name)
        if known is not None:
            return known
        secrets, place = Secrets(), self._places.get(name, "")
        if config.env or config.headers:
            secrets, place = await asyncio.to_thread(self._secrets.get, name)
        self._places[name] = place
        auth = await self._auth(config)
        # Another caller may have made it meanwhile.
        return self._servers.setdefault(name, ToolServer(filled(config, secrets), self._changed, self._policy, auth))

    async def _put(self, config: ToolServerConfig, before: ToolServerConfig | None) -> None:
        """Keep a config and its secrets, in the place of another, and start it."""
        configs = self._kept.read()
        if before is None and len(configs) >= MAX_SERVERS:
            raise BadRequest(f"{MAX_SERVERS} servers are the most.", hint="Remove one first.", param="name")
        config = msgspec.structs.replace(config, signed_in=keeps_sign_in(config, before))
        old = Secrets()
        if before is not None and (before.env or before.headers):
            old, _ = await asyncio.to_thread(self._secrets.get, before.name)
        whole = filled(config, old)
        secrets = Secrets(dict(whole.env), dict(whole.headers))
        if secrets.env or secrets.headers or old.env or old.headers:
            self._places[config.name] = await asyncio.to_thread(self._secrets.keep, config.name, secrets)
        shown = bare(config)
        if before is None:
            self._kept.write((*configs, shown))
        else:
            self._kept.write(tuple(shown if known.name == before.name else known for known in configs))
            await self._move_sign_in(before, config)
            await self._end(before.name)
            if before.name != config.name:
                await asyncio.to_thread(self._secrets.forget, before.name)
                self._places.pop(before.name, None)
        if config.enabled and config.at_start and self._starts and not self._is_closed:
            (await self._server(config.name)).start()
        self._changed()

    async def _end(self, name: str) -> None:
        server = self._servers.pop(name, None)
        if server is not None:
            await server.close()

    async def _start_first(self) -> None:
        await asyncio.sleep(self._start_delay_s)
        for config in self._kept.read():
            if config.enabled and config.at_start:
                (await self._server(config.name)).start()

    def _changed(self) -> None:
        if self._tells or self._is_closed:
            return
        self._tells = True
        self._in_background(self._tell_soon())

    async def _tell_soon(self) -> None:
        await asyncio.sleep(TELL_EVERY_S)
        self._tells = False
        self._on_change(self.list())

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
