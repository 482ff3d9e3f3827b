"""Composition root of the host: builds its parts, connects them, runs until told to end."""

import asyncio
import contextlib
import functools
import importlib.metadata
import logging
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterator

import msgspec

from runtime.errors import HostUnreachable
from runtime.host.access import LOOPBACK_NAMES, AccessPolicy
from runtime.host.api.admin import AdminParts, AdminRoutes
from runtime.host.api.admin_tools import ToolsRoutes
from runtime.host.api.anthropic import AnthropicRoutes
from runtime.host.api.app import admin_routes, build_app, shared_routes
from runtime.host.api.health import HealthRoutes
from runtime.host.api.native import NativeRoutes
from runtime.host.api.ollama import OllamaRoutes
from runtime.host.api.ollama_models import OllamaModelRoutes
from runtime.host.api.openai import OpenAiRoutes
from runtime.host.api.openapi import OpenApiRoutes
from runtime.host.api.picture_fetch import PictureFetcher
from runtime.host.api.responses import ResponsesRoutes
from runtime.host.api_certificate import ApiCertificate
from runtime.host.api_switch import ApiSwitch, with_overrides
from runtime.host.config import HostConfig, HostReady
from runtime.host.events import EventHub
from runtime.host.key_book import KeyBook
from runtime.host.listener import Listener, base_url
from runtime.host.logs import HostLogs
from runtime.host.model_slot import RestartPolicy
from runtime.host.models_side import ModelsSide
from runtime.host.ownership import Ownership
from runtime.host.parts import HostParts
from runtime.host.request_log import RequestLog
from runtime.host.settings import SettingsFile
from runtime.host.telemetry import Telemetry
from runtime.messages.api import HostFile, InstalledModel, Notice, Snapshot, Status, ToolsChanged
from runtime.tool_servers.secrets import SecretStore
from runtime.tool_servers.servers import Kept, ToolServers
from runtime.tool_servers.sign_in_store import SignInStore

log = logging.getLogger(__name__)

DRAIN_S = 5.0
"""Running answers may take so long to finish after the host was asked to end."""
_LAST_WORDS_S = 1.0
"""Then they get an error, and so long to send it."""


@functools.cache
def version() -> str:
    """Deskside's version, as installed."""
    return importlib.metadata.version("deskside")


class Host:
    """One running host. Home: the event loop."""

    def __init__(self, config: HostConfig, parts: HostParts, *, policy: RestartPolicy | None = None) -> None:
        self._config = config
        self._started_at = time.monotonic()
        self._token = secrets.token_hex(32)
        self._ending = asyncio.Event()
        self._end_at_once = asyncio.Event()
        self._settings = SettingsFile(config.data.settings_file)
        self._hub = EventHub()
        if config.on_event is not None:
            self._hub.observe(config.on_event)
        self._telemetry = Telemetry(lambda: parts.make_sampler(self._our_pids), self._hub.send)
        self._keys = KeyBook(self._settings, config.data.key_use_file, config.api_key)
        self._request_log = RequestLog(config.data.request_log_file, lambda: self._switch.options.request_log)
        self._models = ModelsSide(
            config,
            parts,
            self._settings,
            self._hub,
            keys=self._keys,
            request_log=self._request_log,
            telemetry=lambda: self._telemetry.latest,
            policy=policy,
        )
        self._switch = ApiSwitch(
            self._settings,
            options=with_overrides(
                self._settings.current.api,
                config.api_options,
                config.api_only,
                enabled=config.api_enabled,
                host=config.api_host,
                port=config.api_port,
            ),
            keys=self._keys,
            certificate=ApiCertificate(config.data.tls),
            end_requests=self._models.desk.end_where,
            send=self._hub.send,
        )
        self._tools = ToolServers(
            Kept(
                lambda: self._settings.current.tool_servers,
                lambda configs: self._settings.change(tool_servers=configs),
            ),
            SecretStore(config.data.root, parts.keyring),
            SignInStore(config.data.root, parts.keyring),
            lambda servers: self._hub.send(ToolsChanged(servers)),
        )
        self._private = self._build_apps()

    def _build_apps(self) -> Listener:
        models = self._models
        pictures = PictureFetcher(lambda: self._switch.options.fetch_pictures)
        openai = OpenAiRoutes(
            models.desk, models.supervisor, models.library.installed, lambda: self._settings.current.aliases, pictures
        )
        anthropic = AnthropicRoutes(models.desk, models.supervisor, models.library.installed, pictures)
        ollama = OllamaRoutes(models.desk, models.supervisor, self._settings, models.library.installed)
        ollama_models = OllamaModelRoutes(models.supervisor, models.library, models.hub_service, self._settings)
        native = NativeRoutes(models.desk, models.supervisor, self._settings.meant_by)
        openapi = OpenApiRoutes(version())
        health = HealthRoutes(models.supervisor, models.desk, models.metrics, lambda: self._telemetry.latest)
        admin = AdminRoutes(
            AdminParts(
                desk=models.desk,
                supervisor=models.supervisor,
                hub=self._hub,
                switch=self._switch,
                telemetry=self._telemetry,
                installed=models.library.installed,
                snapshot=self._snapshot,
                status=self.status,
                end_host=self.end,
            )
        )
        shared = [
            *shared_routes(openai, anthropic, health, openapi),
            *ResponsesRoutes(models.desk, pictures).routes(),
            *anthropic.routes(),
            *ollama.routes(),
            *ollama_models.routes(),
            *native.routes(),
        ]
        private = [*shared, *admin_routes(admin, openapi), *models.routes(), *ToolsRoutes(self._tools).routes()]
        private_policy = AccessPolicy(LOOPBACK_NAMES, token=self._token)
        self._switch.attach(build_app(shared, self._switch.policy))
        return Listener(build_app(private, lambda: private_policy), "127.0.0.1", 0)

    # --- run ----------------------------------------------------------------------------------------------

    async def run(self, ownership: Ownership) -> None:
        """Serve until `end`.

        Raises:
            RuntimeFault: no loopback port is free, or the data folder cannot be written.
        """
        await self._models.supervisor.open()
        await self._private.open()
        address = base_url("127.0.0.1", self._private.port)
        try:
            ownership.publish(HostFile(address, self._token, os.getpid(), version()))
            self._telemetry.start()
            self._models.start()
            self._tools.start()
            for problem in self._settings.problems:
                self._hub.send(Notice("warning", problem))
            await self._switch.start()
            log.info("version %s, process %d, private address %s", version(), os.getpid(), address)
            if self._config.on_ready is not None:
                self._config.on_ready(HostReady(address, version(), self._switch.state()))
            first = self._config.model or (self._settings.current.last_model if self._config.load_last else "")
            if first:
                await self._models.load_first(first, self._config.load_options, self._config.load_only)
            await self._ending.wait()
        finally:
            await self._close()

    def end(self) -> None:
        """End: running answers may finish for `DRAIN_S`; asked again, at once. Call it in the event loop."""
        if self._ending.is_set():
            self._end_at_once.set()
        self._ending.set()

    def parent_is_gone(self) -> None:
        """The window closed or died."""
        api = self._switch.state()
        if api.options.keep_when_window_closes and api.running:
            log.info("the window is gone; the API stays on")
            return
        log.info("the window is gone")
        self.end()

    async def _close(self) -> None:
        log.info("ending")
        self._switch.stop_accepting()
        draining = asyncio.create_task(self._models.supervisor.close(DRAIN_S + _LAST_WORDS_S))
        loop = asyncio.get_running_loop()
        bound = loop.call_later(DRAIN_S, self._end_requests)
        hurry = asyncio.create_task(self._end_at_once.wait())
        await asyncio.wait({draining, hurry}, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        bound.cancel()
        if not draining.done():
            self._end_requests()
            draining.cancel()
            await asyncio.wait({draining})
            await self._models.supervisor.close(0.0)
        self._hub.close()
        self._telemetry.close()
        await self._models.close()
        await asyncio.gather(self._switch.close(), self._private.close(), self._tools.close())
        self._keys.save()
        await asyncio.to_thread(self._request_log.close)

    def _end_requests(self) -> None:
        error = HostUnreachable("Deskside is ending.", hint="Start it again.", address="")
        self._models.desk.end_where(lambda _caller: True, error)

    # --- facts --------------------------------------------------------------------------------------------

    def status(self) -> Status:
        """The host at a glance."""
        return Status(
            version=version(),
            pid=os.getpid(),
            uptime_s=round(time.monotonic() - self._started_at, 3),
            data_dir=str(self._config.data.root),
            models=self._models.supervisor.loaded(),
            api=self._switch.state(),
        )

    def _snapshot(self, installed: tuple[InstalledModel, ...]) -> Snapshot:
        snapshot = self._models.snapshot(self.status(), installed, self._telemetry.latest)
        return msgspec.structs.replace(snapshot, tool_servers=self._tools.list())

    def _our_pids(self) -> tuple[int, ...]:
        parent = (os.getppid(),) if self._config.with_parent else ()
        return (os.getpid(), *parent, *self._models.supervisor.pids())


# --- the process ------------------------------------------------------------------------------------------


def run_host(config: HostConfig) -> int:
    """Run a host in this process until it is told to end; the answer is the exit code.

    Raises:
        AlreadyRunning: another host uses the data folder.
        StorageFault: the data folder cannot be used.
        RuntimeFault: no loopback port is free, or an option is not valid.
    """
    with Ownership(config.data) as ownership, contextlib.closing(_logs(config)) as logs:
        asyncio.run(_run(config, ownership, logs))
    return 0


def _logs(config: HostConfig) -> HostLogs:
    return HostLogs(config.data.logs, to_stderr=config.log_to_stderr)


async def _run(config: HostConfig, ownership: Ownership, logs: HostLogs) -> None:
    # Late: each of these costs start-up time, and the lock comes first.
    from runtime.host.parts import real_parts

    host = Host(config, real_parts(config, logs))
    with _signals_to(host):
        if config.with_parent:
            _watch_parent(host)
        await host.run(ownership)


@contextlib.contextmanager
def _signals_to(host: Host) -> Iterator[None]:
    """Ctrl-C and a polite end become `Host.end`."""
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():  # a test: signals belong to the main thread
        yield
        return
    numbers = [signal.SIGINT, signal.SIGTERM]
    if sys.platform == "win32":
        numbers.append(signal.SIGBREAK)
    before = {number: signal.signal(number, lambda *_: loop.call_soon_threadsafe(host.end)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch_parent(host: Host) -> None:
    loop = asyncio.get_running_loop()

    def watch() -> None:
        # os.read, not sys.stdin: a daemon thread inside a buffered reader breaks the interpreter's end.
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        with contextlib.suppress(RuntimeError):  # the loop has just closed
            loop.call_soon_threadsafe(host.parent_is_gone)

    threading.Thread(target=watch, name="watch parent", daemon=True).start()
