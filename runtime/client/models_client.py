"""The models part of the private API: plans, the library, jobs, nodes, the hub and downloads."""

from runtime.client.connection import HostConnection
from runtime.messages.api import ModelSettings
from runtime.messages.fit import (
    LoadRecord,
    Machine,
    MemoryPlan,
    NodeInfo,
    NodeRequest,
    PlanRequest,
)
from runtime.messages.library import (
    Download,
    DownloadRequest,
    FolderRequest,
    HubAccount,
    HubModel,
    HubModelRequest,
    HubPage,
    HubSearch,
    HubToken,
    ImportRequest,
    Job,
    JobRequest,
    LibraryState,
    ModelRequest,
    MoveRequest,
    QuantizePreview,
    QuantizeRequest,
    RemoveAnswer,
    VerdictRequest,
    Verdicts,
)
from runtime.options import LoadOptions, ModelsOptions

WORK_TIMEOUT_S = 300.0
"""For calls behind which there is a slow network or a dry run for each file of a repository."""


class ModelsClient(HostConnection):
    """Home: one event loop. Every method raises what the host raised, as its own class of `runtime.errors`."""

    # --- settings -----------------------------------------------------------------------------------------

    async def models_options(self) -> ModelsOptions:
        """What holds for all models."""
        return await self._ask("GET", "/admin/models/options", ModelsOptions)

    async def set_models_options(self, options: ModelsOptions) -> ModelsOptions:
        """Change what holds for all models."""
        return await self._ask("PUT", "/admin/models/options", ModelsOptions, options)

    async def model_settings(self, model_id: str) -> LoadOptions:
        """The load options remembered for a model; automatic ones stay automatic."""
        return await self._ask("POST", "/admin/models/settings", LoadOptions, ModelRequest(model_id))

    async def set_model_settings(self, model_id: str, options: LoadOptions) -> None:
        """Remember load options for an installed model."""
        await self._tell("PUT", "/admin/models/settings", ModelSettings(model_id, options))

    # --- plans --------------------------------------------------------------------------------------------

    async def plan(self, request: PlanRequest) -> MemoryPlan:
        """Plan a load; with `exact` it may take seconds (a header is fetched, llama.cpp is asked)."""
        return await self._ask("POST", "/admin/plan", MemoryPlan, request, timeout_s=WORK_TIMEOUT_S)

    async def load_record(self, model_id: str) -> LoadRecord | None:
        """Planned against actual of a model's last load; None when it never was loaded."""
        answer: type[LoadRecord | None] = LoadRecord | None  # type: ignore[assignment]
        return await self._ask("POST", "/admin/models/record", answer, ModelRequest(model_id))

    async def machine(self) -> Machine:
        """What can be planned with now."""
        return await self._ask("GET", "/admin/machine", Machine, timeout_s=WORK_TIMEOUT_S)

    async def measure_machine(self) -> Machine:
        """Measure the machine's speed anew."""
        return await self._ask("POST", "/admin/machine", Machine, timeout_s=WORK_TIMEOUT_S)

    async def nodes(self) -> tuple[NodeInfo, ...]:
        """Machines that lend their memory."""
        return await self._ask("GET", "/admin/nodes", tuple[NodeInfo, ...])

    async def add_node(self, address: str) -> tuple[NodeInfo, ...]:
        """Add one by `host:port`; it need not be reachable now."""
        return await self._ask("POST", "/admin/nodes", tuple[NodeInfo, ...], NodeRequest(address))

    async def remove_node(self, address: str) -> tuple[NodeInfo, ...]:
        """Forget one."""
        return await self._ask("DELETE", "/admin/nodes", tuple[NodeInfo, ...], NodeRequest(address))

    # --- the library --------------------------------------------------------------------------------------

    async def library(self) -> LibraryState:
        """Where models are, and how much room they take."""
        return await self._ask("GET", "/admin/library", LibraryState)

    async def add_folder(self, path: str) -> LibraryState:
        """Search one more folder."""
        return await self._ask("POST", "/admin/library/folders", LibraryState, FolderRequest(path))

    async def remove_folder(self, path: str) -> LibraryState:
        """Search it no more; nothing on disk is touched."""
        return await self._ask("DELETE", "/admin/library/folders", LibraryState, FolderRequest(path))

    async def move_main_folder(self, path: str) -> Job:
        """Begin to move the main models folder."""
        return await self._ask("POST", "/admin/library/move", Job, MoveRequest(path))

    async def import_files(self, request: ImportRequest) -> Job:
        """Begin to bring files into the library."""
        return await self._ask("POST", "/admin/library/import", Job, request)

    async def verify(self, model_id: str) -> Job:
        """Begin to check a model's hash."""
        return await self._ask("POST", "/admin/library/verify", Job, ModelRequest(model_id))

    async def remove(self, model_id: str) -> RemoveAnswer:
        """Move a model's files to the trash."""
        return await self._ask(
            "POST", "/admin/library/remove", RemoveAnswer, ModelRequest(model_id), timeout_s=WORK_TIMEOUT_S
        )

    async def quantize(self, request: QuantizeRequest) -> Job:
        """Begin to make a smaller file of a model."""
        return await self._ask("POST", "/admin/library/quantize", Job, request)

    async def quantize_preview(self, request: QuantizeRequest) -> QuantizePreview:
        """What quantizing would give."""
        return await self._ask(
            "POST", "/admin/library/quantize/preview", QuantizePreview, request, timeout_s=WORK_TIMEOUT_S
        )

    async def jobs(self) -> tuple[Job, ...]:
        """Running and lately ended jobs, newest last."""
        return await self._ask("GET", "/admin/jobs", tuple[Job, ...])

    async def cancel_job(self, job_id: str) -> None:
        """Cancel a job; an unknown or ended one is no error."""
        await self._tell("POST", "/admin/jobs/cancel", JobRequest(job_id))

    # --- the hub ------------------------------------------------------------------------------------------

    async def search(self, request: HubSearch) -> HubPage:
        """Search the hub."""
        return await self._ask("POST", "/admin/hub/search", HubPage, request, timeout_s=WORK_TIMEOUT_S)

    async def picks(self) -> HubPage:
        """The built-in catalogue; works offline."""
        return await self._ask("GET", "/admin/hub/picks", HubPage)

    async def hub_model(self, request: HubModelRequest) -> HubModel:
        """One repository with its files."""
        return await self._ask("POST", "/admin/hub/model", HubModel, request, timeout_s=WORK_TIMEOUT_S)

    async def verdicts(self, request: VerdictRequest) -> Verdicts:
        """Judge every quantization of a repository."""
        return await self._ask("POST", "/admin/hub/verdicts", Verdicts, request, timeout_s=WORK_TIMEOUT_S)

    async def hub_account(self) -> HubAccount:
        """Who is signed in."""
        return await self._ask("GET", "/admin/hub/account", HubAccount, timeout_s=WORK_TIMEOUT_S)

    async def sign_in(self, token: str) -> HubAccount:
        """Sign in with an access token; an empty one signs out."""
        return await self._ask("PUT", "/admin/hub/account", HubAccount, HubToken(token), timeout_s=WORK_TIMEOUT_S)

    # --- downloads ----------------------------------------------------------------------------------------

    async def downloads(self) -> tuple[Download, ...]:
        """All downloads that were not cleared."""
        return await self._ask("GET", "/admin/downloads", tuple[Download, ...])

    async def download(self, request: DownloadRequest) -> Download:
        """Begin to fetch one quantization."""
        return await self._ask("POST", "/admin/downloads", Download, request, timeout_s=WORK_TIMEOUT_S)

    async def pause_download(self, download_id: str) -> Download:
        """Pause; what was fetched stays."""
        return await self._ask("POST", "/admin/downloads/pause", Download, JobRequest(download_id))

    async def resume_download(self, download_id: str) -> Download:
        """Go on with a paused or failed one."""
        return await self._ask("POST", "/admin/downloads/resume", Download, JobRequest(download_id))

    async def cancel_download(self, download_id: str) -> Download:
        """Cancel and delete what was fetched."""
        return await self._ask("POST", "/admin/downloads/cancel", Download, JobRequest(download_id))

    async def clear_download(self, download_id: str) -> Download:
        """Take an ended one off the list; its files stay."""
        return await self._ask("POST", "/admin/downloads/clear", Download, JobRequest(download_id))
