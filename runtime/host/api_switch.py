"""The public API: on or off, where, with which keys. The one owner of those facts.

An address that other machines reach is only served when there is a key: without one, everyone in the network could
use the models and read what is asked.
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec
from starlette.types import ASGIApp

from runtime.errors import BadRequest, RuntimeFault, WorldFault
from runtime.host.access import AccessPolicy, is_loopback, own_addresses, own_names
from runtime.host.caller import Caller
from runtime.host.key_book import KeyBook, revoked
from runtime.host.listener import Listener, base_url
from runtime.host.settings import SettingsFile
from runtime.messages.api import ApiChanged, ApiKeyInfo, ApiState, Dialect, HostEvent, NewKeyAnswer
from runtime.options import ApiOptions, KeyLimits

log = logging.getLogger(__name__)
DIALECTS: tuple[Dialect, ...] = ("openai", "responses", "anthropic", "ollama", "llama.cpp")
_ANY = ("0.0.0.0", "::", "")  # noqa: S104 - recognised here, bound only with a key

EndRequests = Callable[[Callable[[Caller], bool], RuntimeFault], None]
"""Ends the running requests of some callers with an error."""


class ApiSwitch:
    """Opens, closes and moves the public listener. Home: the event loop."""

    def __init__(
        self,
        settings: SettingsFile,
        *,
        options: ApiOptions,
        keys: KeyBook,
        end_requests: EndRequests,
        send: Callable[[HostEvent], None],
    ) -> None:
        """Options are those of this run: what the settings say, with what the command line said instead."""
        self._settings = settings
        self._options = options
        self._keys = keys
        self._end_requests = end_requests
        self._send = send
        self._app: ASGIApp | None = None
        self._listener: Listener | None = None
        self._bound: tuple[str, int] | None = None
        self._problem = ""
        self._policy = AccessPolicy(frozenset())
        self._changing = asyncio.Lock()

    def attach(self, app: ASGIApp) -> None:
        """The app that is served."""
        self._app = app

    def policy(self) -> AccessPolicy:
        """What the public listener demands of a request now."""
        return self._policy

    def state(self) -> ApiState:
        """The switch as others see it."""
        return ApiState(
            options=self._options,
            running=self._listener is not None,
            addresses=self._addresses(),
            keys=self._keys.infos(),
            problem=self._problem,
            dialects=DIALECTS,
        )

    async def start(self) -> None:
        """Bring the listener to what the options say."""
        async with self._changing:
            await self._settle()

    async def set_options(self, options: ApiOptions) -> ApiState:
        """Take and save new options, and act on them. A port that cannot be had is told in `problem`.

        Raises:
            BadRequest: an origin or host that cannot be meant.
            StorageFault: they could not be saved; they hold for this run.
        """
        _check(options)
        async with self._changing:
            self._options = options
            try:
                self._settings.change(api=options)
            finally:
                await self._settle()
        return self.state()

    async def add_key(self, name: str, limits: KeyLimits) -> NewKeyAnswer:
        """Make a key.

        Raises:
            RuntimeFault: as `KeyBook.add`.
        """
        async with self._changing:
            answer = self._keys.add(name, limits)
            await self._settle()
        return answer

    async def limit_key(self, name: str, limits: KeyLimits) -> ApiKeyInfo:
        """Change what a key's holder may take.

        Raises:
            RuntimeFault: as `KeyBook.limit`.
        """
        async with self._changing:
            answer = self._keys.limit(name, limits)
            self._send(ApiChanged(self.state()))
        return answer

    async def delete_key(self, name: str) -> None:
        """Delete a key, and end what runs with it.

        Raises:
            RuntimeFault: as `KeyBook.delete`.
        """
        async with self._changing:
            try:
                self._keys.delete(name)
            finally:
                await self._settle()
                self._end_requests(lambda caller: caller.key == name, revoked(name))

    def stop_accepting(self) -> None:
        """Refuse new connections; the host is ending."""
        if self._listener is not None:
            self._listener.stop_accepting()

    async def close(self) -> None:
        """Close the listener; the options stay as they are."""
        async with self._changing:
            await self._close()

    # --- acting -------------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        options = self._options
        keys = self._keys.names()
        wanted = (options.host, options.port) if options.enabled else None
        self._problem = ""
        if wanted is not None and not keys and not is_loopback(options.host):
            self._problem = (
                f"{options.host} can be reached from other machines, and there is no API key. "
                "Make a key first, or use 127.0.0.1."
            )
            wanted = None
        if wanted is not None and options.tls != "off":
            self._problem = "This version cannot encrypt yet."
            wanted = None
        hosts = await asyncio.to_thread(own_names, options.host)
        self._policy = AccessPolicy(
            hosts=hosts | {name.lower() for name in options.allowed_hosts},
            origins=frozenset(options.allowed_origins),
            keys=keys,
        )
        if wanted != self._bound or (wanted is not None and self._listener is None):
            await self._close()
            if wanted is not None:
                await self._open(*wanted)
        self._send(ApiChanged(self.state()))

    async def _open(self, host: str, port: int) -> None:
        if self._app is None:
            return
        listener = Listener(self._app, host, port)
        try:
            await listener.open()
        except WorldFault as error:
            self._problem = f"{error.message} {error.hint}".strip()
            log.warning("the API is not on: %s", error.message)
            return
        self._listener = listener
        self._bound = (host, port)
        log.info("the API is on at %s", ", ".join(self._addresses()))

    async def _close(self) -> None:
        listener, self._listener, self._bound = self._listener, None, None
        if listener is not None:
            await listener.close()
            log.info("the API is off")

    def _addresses(self) -> tuple[str, ...]:
        if self._listener is None or self._bound is None:
            return ()
        host = self._bound[0]
        hosts = ("127.0.0.1", *own_addresses()) if host in _ANY else (host,)
        return tuple(base_url(name, self._listener.port) for name in hosts)


def _check(options: ApiOptions) -> None:
    for origin in options.allowed_origins:
        scheme, mark, rest = origin.partition("://")
        if not (scheme and mark and rest) or "/" in rest or "*" in origin:
            raise BadRequest(
                f"{origin!r} is not a web origin.",
                hint="Write it as https://example.org, without a path; * is not allowed.",
                param="allowed_origins",
            )
    for host in options.allowed_hosts:
        if not host or "/" in host or ":" in host or "*" in host:
            raise BadRequest(
                f"{host!r} is not a host name.", hint="Write it as pc.local, without a port.", param="allowed_hosts"
            )


def with_overrides(options: ApiOptions, *, enabled: bool | None, host: str | None, port: int | None) -> ApiOptions:
    """The saved options with what one run says instead.

    Raises:
        BadRequest: a port out of range.
    """
    changes = {
        name: value for name, value in (("enabled", enabled), ("host", host), ("port", port)) if value is not None
    }
    raw = {**msgspec.to_builtins(options), **changes}
    try:
        return msgspec.convert(raw, ApiOptions)
    except msgspec.ValidationError as error:
        raise BadRequest(f"The API options are not valid: {error}.") from None
