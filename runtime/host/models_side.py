"""Everything of a host that has to do with models: builds its parts and connects them.

`runtime.host.main` puts the listeners, the telemetry and the end of the process around it.
"""

import asyncio
import logging
from collections.abc import Callable, Collection

from starlette.routing import Route

from runtime.errors import RuntimeFault, StorageFault
from runtime.gguf.architecture import ModelShape
from runtime.host.api.admin_library import LibraryRoutes
from runtime.host.api.admin_models import ModelsRoutes
from runtime.host.config import HostConfig
from runtime.host.desk import Desk
from runtime.host.events import EventHub
from runtime.host.hub_service import HubService
from runtime.host.jobs import Jobs
from runtime.host.key_book import KeyBook
from runtime.host.library_service import LibraryService
from runtime.host.library_watch import LibraryWatch
from runtime.host.machine import MachineView
from runtime.host.metrics import Metrics
from runtime.host.model_slot import ModelSlot, RestartPolicy
from runtime.host.nodes import NodePing, Nodes
from runtime.host.parts import HostParts
from runtime.host.planner_service import HubAccess, PlannerService
from runtime.host.quantizing import Quantizing
from runtime.host.request_log import RequestLog
from runtime.host.settings import SettingsFile
from runtime.host.speed_log import Answer, SpeedLog
from runtime.host.supervisor import Supervisor, SupervisorHooks
from runtime.messages.api import InstalledModel, Notice, Snapshot, Status
from runtime.messages.hardware import HardwareSample
from runtime.messages.shared import Timings, Usage
from runtime.options import LoadOptions, ModelsOptions

log = logging.getLogger(__name__)


class ModelsSide:
    """Home: the event loop."""

    def __init__(
        self,
        config: HostConfig,
        parts: HostParts,
        settings: SettingsFile,
        hub: EventHub,
        *,
        keys: KeyBook,
        request_log: RequestLog,
        telemetry: Callable[[], HardwareSample | None],
        policy: RestartPolicy | None = None,
    ) -> None:
        """`telemetry` is the newest reading."""
        self._settings = settings
        self._hub = hub
        self._prober = parts.prober
        self._shelf = shelf = parts.make_library(settings.current.models_options)
        self.metrics = Metrics()
        self.jobs = Jobs(hub.send)
        self.nodes = Nodes(settings, hub, NodePing(parts.prober))
        self.machine = MachineView(
            parts.prober,
            nodes=self.nodes.reachable,
            telemetry=telemetry,
            speed_file=config.data.machine_file,
            measure=parts.measure,
            is_busy=lambda: self.supervisor.is_busy,
        )
        self.hub_service = HubService(
            shelf.make_hub,
            self._options,
            hub.send,
            has_downloads=shelf.has_downloads,
            on_done=self._note_arrival,
        )
        self.speed_log = SpeedLog(shelf.records, self._shape_of, lambda: self.machine.speed)
        self.planner = PlannerService(
            parts.prober,
            self.machine,
            shelf.files.find,
            HubAccess(self.hub_service.model, self.hub_service.headers),
            models_options=self._options,
            holdings=lambda: self.supervisor.holdings(),  # noqa: PLW0108 - made below
            history=self.speed_log,
        )
        self.supervisor = Supervisor(
            shelf.files,
            command=config.worker_command,
            options_for=settings.load_options,
            models_options=self._options,
            planner=self.planner,
            hooks=SupervisorHooks(
                send=hub.send,
                on_restart=self.metrics.worker_restarted,
                on_log_line=parts.on_worker_line,
                on_loaded=self._remember_load,
                on_ready=self._note_ready,
            ),
            policy=policy,
            states_folder=config.data.states,
        )
        self.desk = Desk(self.supervisor, self.metrics, keys, request_log, self._note_alone, settings.meant_by)
        self.library = LibraryService(
            shelf.files,
            settings,
            self.jobs,
            send=hub.send,
            let_go=self.supervisor.let_go,
            loaded=lambda: [slot.model for slot in self.supervisor.slots()],
            transfers=self.hub_service,
            on_options=self._options_changed,
        )
        self.quantizing = Quantizing(
            shelf.files,
            self.jobs,
            plan_scaled=self.planner.plan_scaled,
            tell_installed=self.library.tell_installed,
        )
        self._watch = LibraryWatch(self.library.installed, hub)
        self._background: set[asyncio.Task[None]] = set()

    def routes(self) -> list[Route]:
        """The models part of the admin API."""
        models = ModelsRoutes(self.library, self.planner, self.speed_log, self.nodes, self.jobs)
        return [*models.routes(), *LibraryRoutes(self.library, self.quantizing, self.hub_service).routes()]

    def snapshot(
        self, status: Status, installed: tuple[InstalledModel, ...], hardware: HardwareSample | None
    ) -> Snapshot:
        """All that events change."""
        return Snapshot(
            status,
            installed,
            hardware,
            downloads=self.hub_service.latest,
            jobs=self.jobs.list(),
            nodes=self.nodes.list(),
        )

    # --- life ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin what goes on in the background."""
        self._watch.start()
        self.nodes.start()
        self.hub_service.start()

    async def load_first(self, name: str, options: LoadOptions | None, only: Collection[str] = ()) -> None:
        """Load a model at the start, as `Supervisor.load`; why it cannot be is a notice."""
        try:
            await self.supervisor.load(name, options, replace=True, only=only)
        except RuntimeFault as error:
            self._hub.send(Notice("error", f"{error.message} {error.hint}".strip()))

    async def close(self) -> None:
        """End all of it; the models have been unloaded before."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(
            self._watch.close(),
            self.nodes.close(),
            self.jobs.close(),
            self.hub_service.close(),
            self.machine.close(),
            self.speed_log.close(),
        )
        await self._prober.close()
        await asyncio.to_thread(self._shelf.close)

    # --- what happens -------------------------------------------------------------------------------------

    def _options(self) -> ModelsOptions:
        return self._settings.current.models_options

    async def _options_changed(self) -> None:
        self.supervisor.options_changed()
        await self.hub_service.configure()
        await self.nodes.look()

    def _remember_load(self, model_id: str, options: LoadOptions | None) -> None:
        try:
            self._settings.remember_load(model_id, options)
        except StorageFault as error:  # the model works all the same
            self._hub.send(Notice("warning", f"{error.message} {error.hint}".strip()))

    def _note_ready(self, slot: ModelSlot) -> None:
        self.machine.forget()
        self.speed_log.loaded(slot)

    def _note_alone(self, slot: ModelSlot, usage: Usage, timings: Timings) -> None:
        self.speed_log.answered(slot, Answer(usage, timings))

    def _note_arrival(self) -> None:
        async def tell() -> None:
            try:
                await self.library.tell_installed()
            except RuntimeFault as error:
                log.warning("what arrived cannot be listed: %s", error.message)

        task = asyncio.create_task(tell(), name="tell what arrived")
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _shape_of(self, model: InstalledModel) -> ModelShape:
        return await self.planner.shape_of(model)
