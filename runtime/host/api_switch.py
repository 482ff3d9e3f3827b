"""The public API: on or off, where, with which keys. The one owner of those facts.

An address that other machines reach is only served when there is a key: without one, everyone in the network could
use the models and read what is asked.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Collection

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from runtime.errors import BadRequest, HostUnreachable, RuntimeFault, WorldFault
from runtime.host.access import AccessPolicy, is_loopback, own_addresses, own_names
from runtime.host.api_certificate import ApiCertificate
from runtime.host.caller import LISTENER_IN_SCOPE, Caller
from runtime.host.key_book import KeyBook, revoked, without_key
from runtime.host.listener import Listener, base_url
from runtime.host.settings import SettingsFile
from runtime.messages.api import ApiChanged, ApiKeyInfo, ApiState, Dialect, HostEvent, NewKeyAnswer, Notice
from runtime.options import ApiOptions, KeyLimits, with_named

log = logging.getLogger(__name__)
DIALECTS: tuple[Dialect, ...] = ("openai", "responses", "anthropic", "ollama", "llama.cpp")
DRAIN_S = 10.0
"""Answers that run when the API is switched off or moved may take so long to finish."""
_LAST_WORDS_S = 2.0
MAX_DRAINING = 4
"""Closed listeners whose answers still run; one more, and they are all ended."""
CERTIFICATE_CHECK_S = 3600.0
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
        certificate: ApiCertificate,
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
        self._bound: tuple[str, int, bool] | None = None
        """Address, port and whether it is encrypted, as asked for."""
        self._n_listeners = 0
        self._draining: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._certificate = certificate
        self._problem = ""
        self._policy = AccessPolicy(frozenset())
        self._changing = asyncio.Lock()

    def attach(self, app: ASGIApp) -> None:
        """The app that is served."""
        self._app = app

    def policy(self) -> AccessPolicy:
        """What the public listener demands of a request now."""
        return self._policy

    @property
    def options(self) -> ApiOptions:
        """What is chosen now."""
        return self._options

    def state(self) -> ApiState:
        """The switch as others see it."""
        return ApiState(
            options=self._options,
            running=self._listener is not None,
            addresses=self._addresses(),
            keys=self._keys.infos(),
            problem=self._problem,
            certificate=self._certificate.shown if self._listener is not None else None,
            dialects=DIALECTS,
        )

    async def start(self) -> None:
        """Bring the listener to what the options say."""
        async with self._changing:
            await self._settle()
        self._watching = asyncio.create_task(self._watch_certificate(), name="watch the certificate")

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

    async def delete_key(self, name: str) -> ApiState:
        """Delete a key, and end what runs with it; without any key, other machines are served no more.

        That is told by a notice and by `problem` of the answer.

        Raises:
            RuntimeFault: as `KeyBook.delete`.
        """
        was_running = self._listener is not None
        async with self._changing:
            try:
                self._keys.delete(name)
            finally:
                await self._settle()
                self._end_requests(lambda caller: caller.key == name, revoked(name))
                if was_running and self._listener is None and self._problem:
                    self._send(Notice("warning", f"The last API key was removed. {self._problem}"))
            return self.state()

    def stop_accepting(self) -> None:
        """Refuse new connections; the host is ending."""
        if self._listener is not None:
            self._listener.stop_accepting()

    async def close(self) -> None:
        """Close the listener, now that requests have ended; the options stay as they are."""
        if self._watching is not None:
            self._watching.cancel()
        async with self._changing:
            self._leave()
        self._end_requests(lambda caller: caller.listener != 0, _switched_off())
        if self._draining:
            await asyncio.wait(self._draining)

    # --- acting -------------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        options = self._options
        keys = self._keys.names()
        wanted = (options.host, options.port, options.tls != "off") if options.enabled else None
        self._problem = ""
        if wanted is not None and not keys and not is_loopback(options.host):
            self._problem = without_key(options.host)
            wanted = None
        tls: ssl.SSLContext | None = None
        if wanted is not None:
            try:
                tls = await self._certificate.open(options)
            except WorldFault as error:
                self._problem = f"{error.message} {error.hint}".strip()
                log.warning("the API is not on: %s", error.message)
                wanted = None
        hosts = await asyncio.to_thread(own_names, options.host)
        self._policy = AccessPolicy(
            hosts=hosts | {name.lower() for name in options.allowed_hosts},
            origins=frozenset(options.allowed_origins),
            keys=keys,
        )
        if wanted != self._bound or (wanted is not None and self._listener is None):
            self._leave()
            if wanted is not None:
                await self._open(options, tls)
        elif tls is not None and self._listener is not None:
            self._listener.renew(tls)
        self._send(ApiChanged(self.state()))

    async def _open(self, options: ApiOptions, tls: ssl.SSLContext | None) -> None:
        if self._app is None:
            return
        self._n_listeners += 1
        app = _numbered(self._app, self._n_listeners)
        listener = Listener(app, options.host, options.port, grace_s=DRAIN_S + _LAST_WORDS_S, tls=tls)
        try:
            await listener.open()
        except WorldFault as error:
            self._problem = f"{error.message} {error.hint}".strip()
            log.warning("the API is not on: %s", error.message)
            return
        self._listener = listener
        self._bound = (options.host, options.port, options.tls != "off")
        log.info("the API is on at %s", ", ".join(self._addresses()))

    def _leave(self) -> None:
        """Take no more requests at this address; what runs may finish for `DRAIN_S` and is then ended."""
        listener, self._listener, self._bound = self._listener, None, None
        if listener is None:
            return
        log.info("the API is off")
        listener.stop_accepting()
        if len(self._draining) >= MAX_DRAINING:
            self._end_requests(lambda caller: caller.listener != 0, _switched_off())
        task = asyncio.create_task(self._drain(listener, self._n_listeners), name="answers of a closed API")
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)

    async def _drain(self, listener: Listener, number: int) -> None:
        closing = asyncio.create_task(listener.close())
        await asyncio.wait({closing}, timeout=DRAIN_S)
        self._end_requests(lambda caller: caller.listener == number, _switched_off())
        await closing

    async def _watch_certificate(self) -> None:
        while True:
            await asyncio.sleep(CERTIFICATE_CHECK_S)
            async with self._changing:
                try:
                    tls = await self._certificate.renewed()
                except WorldFault as error:  # what is shown may be good for a while yet
                    log.warning("the certificate could not be renewed: %s", error.message)
                    continue
                if tls is not None and self._listener is not None:
                    self._listener.renew(tls)
                    self._send(ApiChanged(self.state()))

    def _addresses(self) -> tuple[str, ...]:
        if self._listener is None or self._bound is None:
            return ()
        host = self._bound[0]
        hosts = ("127.0.0.1", *own_addresses()) if host in _ANY else (host,)
        port, is_encrypted = self._listener.port, self._bound[2]
        # Programs on this machine may speak either; theirs comes first.
        plain = tuple(base_url(name, port) for name in hosts if not is_encrypted or is_loopback(name))
        return (*plain, *(base_url(name, port, "https") for name in hosts)) if is_encrypted else plain


def _numbered(app: ASGIApp, number: int) -> ASGIApp:
    async def numbered(scope: Scope, receive: Receive, send: Send) -> None:
        scope[LISTENER_IN_SCOPE] = number
        await app(scope, receive, send)

    return numbered


def _switched_off() -> HostUnreachable:
    return HostUnreachable("The API was switched off or moved.", hint="Look in Deskside where it is.", address="")


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


def with_overrides(
    options: ApiOptions,
    given: ApiOptions,
    only: Collection[str],
    *,
    enabled: bool | None,
    host: str | None,
    port: int | None,
) -> ApiOptions:
    """The saved options with what one run says instead; of `given`, the options named by `only`.

    Raises:
        BadRequest: a port out of range, an origin or a host that cannot be meant.
    """
    changes = {
        name: value for name, value in (("enabled", enabled), ("host", host), ("port", port)) if value is not None
    }
    _check(given)
    raw = {**msgspec.to_builtins(with_named(options, given, only)), **changes}
    try:
        return msgspec.convert(raw, ApiOptions)
    except msgspec.ValidationError as error:
        raise BadRequest(f"The API options are not valid: {error}.") from None
