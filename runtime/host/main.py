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

from runtime.errors import RuntimeFault, StorageFault
from runtime.gguf.architecture import ModelShape
from runtime.host.access import LOOPBACK_NAMES, AccessPolicy
from runtime.host.api.admin import AdminParts, AdminRoutes
from runtime.host.api.admin_library import LibraryRoutes
from runtime.host.api.admin_models import ModelsRoutes
from runtime.host.api.app import admin_routes, build_app, shared_routes
from runtime.host.api.health import HealthRoutes
from runtime.host.api.openai import OpenAiRoutes
from runtime.host.api.openapi import OpenApiRoutes
from runtime.host.api_switch import ApiSwitch, with_overrides
from runtime.host.config import HostConfig, HostReady
from runtime.host.desk import Desk
from runtime.host.events import EventHub
from runtime.host.hub_service import HubService
from runtime.host.jobs import Jobs
from runtime.host.library_service import LibraryService
from runtime.host.library_watch import LibraryWatch
from runtime.host.listener import Listener, base_url
from runtime.host.logs import HostLogs
from runtime.host.machine import MachineView
from runtime.host.metrics import Metrics
from runtime.host.model_slot import ModelSlot, RestartPolicy
from runtime.host.nodes import NodePing, Nodes
from runtime.host.ownership import Ownership
from runtime.host.parts import HostParts
from runtime.host.planner_service import HubAccess, PlannerService
from runtime.host.quantizing import Quantizing
from runtime.host.settings import SettingsFile
from runtime.host.speed_log import Answer, SpeedLog
from runtime.host.supervisor import Supervisor, SupervisorHooks
from runtime.host.telemetry import Telemetry
from runtime.messages.api import HostFile, InstalledModel, Notice, Snapshot, Status
from runtime.messages.shared import Timings, Usage
from runtime.options import LoadOptions, ModelsOptions

log = logging.getLogger(__name__)

DRAIN_S = 5.0
"""Running answers may take so long to finish after the host was asked to end."""


@functools.cache
def version() -> str:
    """Deskside's version, as installed."""
    return importlib.metadata.version("deskside")


class Host:
    """One running host. Home: the event loop."""

    def __init__(self, config: HostConfig, parts: HostParts, *, policy: RestartPolicy | None = None) -> None:
        self._config = config
        self._parts = parts
        self._started_at = time.monotonic()
        self._token = secrets.token_hex(32)
        self._ending = asyncio.Event()
        self._end_at_once = asyncio.Event()
        self._settings = SettingsFile(config.data.settings_file)
        self._hub = EventHub()
        if config.on_event is not None:
            self._hub.observe(config.on_event)
        self._metrics = Metrics()
        self._telemetry = Telemetry(lambda: parts.make_sampler(self._our_pids), self._hub.send)
        self._switch = ApiSwitch(
            self._settings,
            options=with_overrides(
                self._settings.current.api, enabled=config.api_enabled, host=config.api_host, port=config.api_port
            ),
            run_key=config.api_key,
            send=self._hub.send,
        )
        self._jobs = Jobs(self._hub.send)
        self._nodes = Nodes(self._settings, self._hub, NodePing(parts.prober), in_use=self._nodes_in_use)
        self._machine = MachineView(
            parts.prober,
            nodes=self._nodes.reachable,
            telemetry=lambda: self._telemetry.latest,
            speed_file=config.data.machine_file,
            measure=parts.measure,
        )
        self._hub_service = HubService(parts.make_hub, self._models_options, self._hub.send)
        self._speed_log = SpeedLog(parts.records, self._shape_of, lambda: self._machine.speed)
        self._planner = PlannerService(
            parts.prober,
            self._machine,
            parts.files.find,
            HubAccess(self._hub_service.model, self._hub_service.headers),
            models_options=self._models_options,
            holdings=lambda: self._supervisor.holdings(),
            history=self._speed_log,
        )
        self._supervisor = Supervisor(
            parts.files,
            command=config.worker_command,
            options_for=self._settings.load_options,
            models_options=self._models_options,
            planner=self._planner,
            hooks=SupervisorHooks(
                send=self._hub.send,
                on_restart=self._metrics.worker_restarted,
                on_log_line=parts.on_worker_line,
                on_loaded=self._remember_load,
                on_ready=self._note_ready,
            ),
            policy=policy,
        )
        self._desk = Desk(self._supervisor, self._metrics, self._note_alone)
        self._library = LibraryService(
            parts.files,
            self._settings,
            self._jobs,
            send=self._hub.send,
            let_go=self._supervisor.let_go,
            on_options=self._options_changed,
        )
        self._library_watch = LibraryWatch(self._library.installed, self._hub)
        self._private = self._build_apps()

    def _build_apps(self) -> Listener:
        openai = OpenAiRoutes(self._desk, self._supervisor, self._library.installed)
        health = HealthRoutes(self._supervisor, self._desk, self._metrics, lambda: self._telemetry.latest)
        admin = AdminRoutes(
            AdminParts(
                desk=self._desk,
                supervisor=self._supervisor,
                hub=self._hub,
                switch=self._switch,
                telemetry=self._telemetry,
                installed=self._library.installed,
                snapshot=self._snapshot,
                status=self.status,
                end_host=self.end,
            )
        )
        shared = shared_routes(openai, health)
        private = [
            *shared,
            *admin_routes(admin, OpenApiRoutes(version())),
            *ModelsRoutes(self._library, self._planner, self._speed_log, self._nodes, self._jobs).routes(),
            *LibraryRoutes(self._library, Quantizing(), self._hub_service).routes(),
        ]
        private_policy = AccessPolicy(LOOPBACK_NAMES, token=self._token)
        self._switch.attach(build_app(shared, self._switch.policy))
        return Listener(build_app(private, lambda: private_policy), "127.0.0.1", 0)

    # --- run ----------------------------------------------------------------------------------------------

    async def run(self, ownership: Ownership) -> None:
        """Serve until `end`.

        Raises:
            RuntimeFault: no loopback port is free, or the data folder cannot be written.
        """
        await self._supervisor.open()
        await self._private.open()
        address = base_url("127.0.0.1", self._private.port)
        try:
            ownership.publish(HostFile(address, self._token, os.getpid(), version()))
            self._telemetry.start()
            self._library_watch.start()
            self._nodes.start()
            self._hub_service.start()
            for problem in self._settings.problems:
                self._hub.send(Notice("warning", problem))
            await self._switch.start()
            log.info("version %s, process %d, private address %s", version(), os.getpid(), address)
            if self._config.on_ready is not None:
                self._config.on_ready(HostReady(address, version(), self._switch.state()))
            await self._load_first_model()
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

    async def _load_first_model(self) -> None:
        name = self._config.model or (self._settings.current.last_model if self._config.load_last else "")
        if not name:
            return
        try:
            await self._supervisor.load(name, self._config.load_options, replace=True)
        except RuntimeFault as error:
            self._hub.send(Notice("error", f"{error.message} {error.hint}".strip()))

    def _note_ready(self, slot: ModelSlot) -> None:
        self._machine.forget()
        self._speed_log.loaded(slot)

    def _note_alone(self, slot: ModelSlot, usage: Usage, timings: Timings) -> None:
        self._speed_log.answered(slot, Answer(usage, timings))

    async def _shape_of(self, model: InstalledModel) -> ModelShape:
        return await self._planner.shape_of(model)

    async def _options_changed(self) -> None:
        self._supervisor.options_changed()
        await self._hub_service.configure()
        await self._nodes.look()

    def _remember_load(self, model_id: str, options: LoadOptions | None) -> None:
        try:
            self._settings.remember_load(model_id, options)
        except StorageFault as error:  # the model works all the same
            self._hub.send(Notice("warning", f"{error.message} {error.hint}".strip()))

    async def _close(self) -> None:
        log.info("ending")
        self._switch.stop_accepting()
        draining = asyncio.create_task(self._supervisor.close(DRAIN_S))
        hurry = asyncio.create_task(self._end_at_once.wait())
        await asyncio.wait({draining, hurry}, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not draining.done():
            draining.cancel()
            await asyncio.wait({draining})
            await self._supervisor.close(0.0)
        self._hub.close()
        self._telemetry.close()
        await asyncio.gather(
            self._library_watch.close(),
            self._nodes.close(),
            self._jobs.close(),
            self._hub_service.close(),
            self._machine.close(),
            self._speed_log.close(),
        )
        await self._parts.prober.close()
        await asyncio.gather(self._switch.close(), self._private.close())

    # --- facts --------------------------------------------------------------------------------------------

    def status(self) -> Status:
        """The host at a glance."""
        return Status(
            version=version(),
            pid=os.getpid(),
            uptime_s=round(time.monotonic() - self._started_at, 3),
            data_dir=str(self._config.data.root),
            models=self._supervisor.loaded(),
            api=self._switch.state(),
        )

    def _snapshot(self, installed: tuple[InstalledModel, ...]) -> Snapshot:
        return Snapshot(
            self.status(),
            installed,
            self._telemetry.latest,
            downloads=self._hub_service.latest,
            jobs=self._jobs.list(),
            nodes=self._nodes.list(),
        )

    def _models_options(self) -> ModelsOptions:
        return self._settings.current.models_options

    def _nodes_in_use(self) -> tuple[str, ...]:
        return tuple(node for one in self._supervisor.holdings() for node in one.nodes)

    def _our_pids(self) -> tuple[int, ...]:
        parent = (os.getppid(),) if self._config.with_parent else ()
        return (os.getpid(), *parent, *self._supervisor.pids())


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
