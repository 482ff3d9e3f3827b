"""One tool server under supervision: started, asked, started again when it dies, and given up in the end."""

import asyncio
import contextlib
import importlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runtime.errors import ToolServerFault
from runtime.messages.tools import ServerState, ToolInfo, ToolProgress, ToolResult, ToolServerConfig
from runtime.tool_servers.faults import Lost
from runtime.tool_servers.log import ServerLog
from runtime.tool_servers.tokens import TokenAuth

if TYPE_CHECKING:
    from runtime.tool_servers.session import Connection

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerPolicy:
    """How patient the supervisor is.

    Attributes:
        start_s: for the first answer and for the list of tools; a program may fetch itself first.
        backoff_s: waits before each start again; after the last one it is given up.
        steady_s: who ran so long begins with the first wait again.
        relist_s: least time between two readings of the tools.
    """

    start_s: float = 60.0
    backoff_s: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0)
    steady_s: float = 60.0
    relist_s: float = 1.0


CLOSE_S = 8.0
"""Ending a process takes at most two graces."""


class ToolServer:
    """Home: the event loop. `config` has its secrets."""

    def __init__(
        self,
        config: ToolServerConfig,
        on_change: Callable[[], None],
        policy: ServerPolicy,
        auth: TokenAuth | None = None,
    ) -> None:
        """`auth` has the tokens of the person's sign-in there."""
        self.config = config
        self._auth = auth
        self.needs_sign_in = False
        """Whether the person must sign in before it can be used."""
        self.log = ServerLog()
        self.state: ServerState = "idle" if config.enabled else "off"
        self.problem = ""
        self.hint = ""
        self.tools: tuple[ToolInfo, ...] = ()
        self.left_out = 0
        self.product = ""
        self.pid: int | None = None
        self.restarts = 0
        self._on_change = on_change
        self._policy = policy
        self._connection: Connection | None = None
        self._runner: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()

    # --- life ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to start it, unless it runs or is off."""
        if self.config.enabled and (self._runner is None or self._runner.done()):
            self._set("starting")
            self._runner = asyncio.create_task(self._run(), name=f"tool server {self.config.name}")

    async def ready(self) -> None:
        """Start it where needed, and wait until it can be used.

        Raises:
            ToolServerFault: it is off, or why it did not start.
        """
        self.start()
        while self.state in {"starting", "waiting"}:
            self._settled.clear()
            await self._settled.wait()
            if self.state == "waiting":  # it was tried: whoever asks hears why, and it goes on trying
                break
        if self.state != "ready":
            raise self._fault(self.problem or "It is switched off.", self.hint)

    async def call(
        self, tool: str, arguments: dict[str, Any], on_progress: Callable[[ToolProgress], None]
    ) -> ToolResult:
        """Run a tool.

        Raises:
            ToolServerFault: the server is not ready, or was lost meanwhile.
        """
        connection = self._connection
        if connection is None:
            raise self._fault(self.problem or "It does not run.", self.hint)
        try:
            return await connection.call(tool, arguments, self.config.timeout_s, on_progress)
        except Lost as lost:
            # The runner knows how the connection ended; it needs a moment to hear of it.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2.0):
                    while self._connection is connection:
                        self._settled.clear()
                        await self._settled.wait()
            reason = self.problem if self._connection is not connection and self.problem else lost.message
            raise self._fault(f"It was lost while the tool ran. {reason}", lost.hint) from lost

    async def close(self) -> None:
        """End it; nothing of it is left when this returns."""
        if self._runner is None or self._runner.done():
            return
        self._runner.cancel()
        await asyncio.wait({self._runner}, timeout=CLOSE_S)
        if not self._runner.done():  # it waits for a polite goodbye
            self._runner.cancel()
            await asyncio.wait({self._runner}, timeout=CLOSE_S)

    def note_sign_in(self, lost: Lost) -> None:
        """A sign-in came to nothing: say why, unless it runs all the same."""
        if self.state != "ready":
            self.needs_sign_in = True
            self._set("failed" if self.config.enabled else "off", lost.message, lost.hint)

    def _fault(self, problem: str, hint: str) -> ToolServerFault:
        name = self.config.name
        return ToolServerFault(f'The tool server "{name}" cannot be used: {problem}', hint=hint, server=name)

    def _set(self, state: ServerState, problem: str = "", hint: str = "") -> None:
        self.state, self.problem, self.hint = state, problem, hint
        self.needs_sign_in = self.needs_sign_in and state != "ready"
        self._settled.set()
        self._on_change()

    # --- supervision --------------------------------------------------------------------------------------

    async def _run(self) -> None:
        n_failed = 0
        loop = asyncio.get_running_loop()
        while True:
            began_at = loop.time()
            lost = await self._live()
            self._connection = None
            self.pid = None
            if loop.time() - began_at > self._policy.steady_s:
                n_failed = 0
            self.log.note_end(lost.message)
            self.needs_sign_in = lost.needs_sign_in
            if lost.is_final or n_failed >= len(self._policy.backoff_s):
                self._set("failed", lost.message, lost.hint)
                return
            self._set("waiting", lost.message, lost.hint)
            await asyncio.sleep(self._policy.backoff_s[n_failed])
            n_failed += 1
            self.restarts += 1
            self._set("starting", lost.message, lost.hint)

    async def _live(self) -> Lost:
        """One run of it; the answer is how it ended."""
        try:
            # Half a second of importing, in a thread so that the host answers meanwhile.
            session = await asyncio.to_thread(importlib.import_module, "runtime.tool_servers.session")
            async with session.connect(self.config, self.log, self._policy.start_s, self._auth) as connection:
                await self._read_tools(connection)
                self._connection = connection
                self.product, self.pid = connection.product, connection.pid
                self._set("ready")
                await self._watch(connection)
        except Lost as lost:
            return lost
        except Exception as error:  # a server must never end the host
            log.exception("tool server %s", self.config.name)
            return Lost(f"Something unexpected happened ({type(error).__name__}: {str(error)[:300]}).")
        return Lost("The connection ended.")

    async def _watch(self, connection: "Connection") -> None:
        """Until the connection ends: read the tools anew when the server says so."""
        ended = asyncio.create_task(connection.until_lost())
        try:
            while True:
                changed = asyncio.create_task(connection.lists_changed.wait())
                try:
                    await asyncio.wait({ended, changed}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    changed.cancel()
                if ended.done():
                    return
                connection.lists_changed.clear()
                await self._read_tools(connection)
                self._on_change()
                await asyncio.sleep(self._policy.relist_s)
        finally:
            ended.cancel()

    async def _read_tools(self, connection: "Connection") -> None:
        from runtime.tool_servers.schemas import to_tools

        found, self.left_out = await connection.tools(self._policy.start_s)
        self.tools = await asyncio.to_thread(to_tools, self.config, found)
