"""Sign-ins that are under way: begun by the person, waited for, cancelled, ended."""

import asyncio
import importlib
import logging
from collections.abc import Awaitable, Callable

from runtime import units
from runtime.errors import StorageFault
from runtime.messages.tools import ToolServerConfig
from runtime.tool_servers.faults import Lost
from runtime.tool_servers.sign_in_store import SignIn, SignInStore

SIGN_IN_S = 300.0
"""A person has so long to find the password."""

PRESS_AGAIN = "Press Sign in to try again."

log = logging.getLogger(__name__)


class SignIns:
    """Home: the event loop."""

    def __init__(
        self,
        store: SignInStore,
        on_change: Callable[[], None],
        on_end: Callable[[str, Lost | None], Awaitable[None]],
        *,
        limit_s: float = SIGN_IN_S,
    ) -> None:
        """`on_end` hears of each that ended by itself: the server's name, and why nobody is signed in."""
        self._store = store
        self._on_change = on_change
        self._on_end = on_end
        self._limit_s = limit_s
        self._addresses: dict[str, str] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    def address(self, name: str) -> str | None:
        """The address the person is to open; "" while it is not known yet, `None` where nobody signs in."""
        return self._addresses.get(name)

    async def begin(self, config: ToolServerConfig) -> str:
        """Begin to sign in, and answer the address to open. One that is under way there is begun anew.

        Raises:
            Lost: it ended before there was an address.
        """
        await self.cancel(config.name)
        told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._addresses[config.name] = ""
        task = asyncio.create_task(self._run(config, told), name=f"sign-in to {config.name}")
        self._running[config.name] = task
        self._on_change()
        try:
            return await asyncio.shield(told)
        except asyncio.CancelledError:
            if task.cancelled() or not told.done():
                await self.cancel(config.name)
            raise

    async def cancel(self, name: str) -> bool:
        """Stop one; False where there is none."""
        task = self._running.pop(name, None)
        self._addresses.pop(name, None)
        if task is None or task.done():
            return False
        task.cancel()
        await asyncio.wait({task})
        self._on_change()
        return True

    async def close(self) -> None:
        """Stop all."""
        for name in tuple(self._running):
            await self.cancel(name)

    async def _run(self, config: ToolServerConfig, told: "asyncio.Future[str]") -> None:
        name = config.name

        def tell(address: str) -> None:
            self._addresses[name] = address
            if not told.done():
                told.set_result(address)
            self._on_change()

        lost: Lost | None = None
        try:
            # Half a second of importing, in a thread so that the host answers meanwhile.
            oauth = await asyncio.to_thread(importlib.import_module, "runtime.tool_servers.oauth")
            before = await asyncio.to_thread(self._store.get, name)
            async with asyncio.timeout(self._limit_s):
                signed_in: SignIn = await oauth.sign_in(config, _of(config, before), tell)
            await asyncio.to_thread(self._store.keep, name, signed_in)
        except asyncio.CancelledError:
            if not told.done():
                told.set_exception(Lost("The sign-in was stopped."))
            raise
        except Lost as error:
            lost = error
        except TimeoutError:
            limit = units.format_duration(self._limit_s).removesuffix(" 0 s")
            lost = Lost(f"Nobody signed in within {limit}.", hint=PRESS_AGAIN)
        except StorageFault as error:
            lost = Lost(f"You are signed in, but that cannot be kept. {error.message}", hint=error.hint)
        except Exception as error:  # what a server says must never end the host
            log.exception("sign-in to %s", name)
            lost = Lost(f"Something unexpected happened ({type(error).__name__}: {str(error)[:300]}).")
        if self._running.get(name) is asyncio.current_task():
            del self._running[name]
            self._addresses.pop(name, None)
        if lost is not None and not told.done():
            told.set_exception(lost)
        await self._on_end(name, lost)
        self._on_change()


def _of(config: ToolServerConfig, before: SignIn | None) -> SignIn | None:
    return before if before is not None and before.url == config.url else None
