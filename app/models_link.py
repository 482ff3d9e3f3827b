"""The window's requests about models on disk, on the hub and on the way; answers come by callback.

The state that changes by itself (installed, loaded, downloads, jobs, nodes) is the mirror of `app.link`.
"""

from collections.abc import Callable

import msgspec

from app.asking import Asking, Done
from app.call import Call
from app.link import Failed
from runtime.messages.api import ModelSettings
from runtime.messages.fit import LoadRecord, Machine, MemoryPlan, NodeInfo, NodeRequest, PlanRequest
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


class ModelsLink(Asking):
    """Home thread: main."""

    ANSWER_TIMEOUT_MS = 300_000
    """For answers that wait for the hub, for files on a slow disk, or for a measurement."""

    # --- plans and settings

    def plan(self, request: PlanRequest, done: Done[MemoryPlan], *, failed: Failed | None = None) -> Call | None:
        """Where a model would go under these options."""
        return self._ask("/admin/plan", request, MemoryPlan, done, failed)

    def machine(self, done: Done[Machine], *, failed: Failed | None = None) -> Call | None:
        """The devices, and how fast they are."""
        return self._ask("/admin/machine", None, Machine, done, failed, method="GET")

    def measure_machine(self, done: Done[Machine], *, failed: Failed | None = None) -> Call | None:
        """Measure the speed of the devices anew: a few seconds."""
        return self._ask("/admin/machine", None, Machine, done, failed)

    def settings(self, model: str, done: Done[LoadOptions], *, failed: Failed | None = None) -> Call | None:
        """The load options remembered for a model; automatic stays automatic."""
        return self._ask("/admin/models/settings", ModelRequest(model), LoadOptions, done, failed)

    def remember(
        self, model: str, options: LoadOptions, done: Callable[[], None] | None = None, *, failed: Failed | None = None
    ) -> Call | None:
        """Remember load options for a model without loading it."""
        return self._tell("/admin/models/settings", ModelSettings(model, options), done, failed, method="PUT")

    def record(self, model: str, done: Done[LoadRecord | None], *, failed: Failed | None = None) -> Call | None:
        """Planned against actual of a model's last load; `None` when it was never loaded."""
        decode = msgspec.json.Decoder(LoadRecord | None).decode
        return self._link.send("POST", "/admin/models/record", ModelRequest(model), decode, done, failed, owner=self)

    def options(self, done: Done[ModelsOptions], *, failed: Failed | None = None) -> Call | None:
        """What holds for all models."""
        return self._ask("/admin/models/options", None, ModelsOptions, done, failed, method="GET")

    def set_options(
        self, options: ModelsOptions, done: Done[ModelsOptions] | None = None, *, failed: Failed | None = None
    ) -> Call | None:
        """Change what holds for all models."""
        return self._ask("/admin/models/options", options, ModelsOptions, done, failed, method="PUT")

    # --- nodes

    def add_node(
        self, address: str, done: Done[tuple[NodeInfo, ...]] | None = None, *, failed: Failed | None = None
    ) -> Call | None:
        """Use the memory of another machine, `host:port`."""
        return self._ask("/admin/nodes", NodeRequest(address), tuple[NodeInfo, ...], done, failed)

    def remove_node(
        self, address: str, done: Done[tuple[NodeInfo, ...]] | None = None, *, failed: Failed | None = None
    ) -> Call | None:
        """Use it no longer."""
        return self._ask("/admin/nodes", NodeRequest(address), tuple[NodeInfo, ...], done, failed, method="DELETE")

    # --- the library

    def library(self, done: Done[LibraryState], *, failed: Failed | None = None) -> Call | None:
        """Where models are, and how much room they take."""
        return self._ask("/admin/library", None, LibraryState, done, failed, method="GET")

    def add_folder(self, path: str, done: Done[LibraryState], *, failed: Failed | None = None) -> Call | None:
        """Search one more folder; nothing on disk is touched."""
        return self._ask("/admin/library/folders", FolderRequest(path), LibraryState, done, failed)

    def remove_folder(self, path: str, done: Done[LibraryState], *, failed: Failed | None = None) -> Call | None:
        """Search a folder no longer; nothing on disk is touched."""
        return self._ask("/admin/library/folders", FolderRequest(path), LibraryState, done, failed, method="DELETE")

    def move_folder(self, path: str, done: Done[Job] | None = None, *, failed: Failed | None = None) -> Call | None:
        """Move the main folder with its models."""
        return self._ask("/admin/library/move", MoveRequest(path), Job, done, failed)

    def import_models(
        self, request: ImportRequest, done: Done[Job] | None = None, *, failed: Failed | None = None
    ) -> Call | None:
        """Bring a file, or every model below a folder, into the library."""
        return self._ask("/admin/library/import", request, Job, done, failed)

    def verify(self, model: str, done: Done[Job] | None = None, *, failed: Failed | None = None) -> Call | None:
        """Check a model's files against the hashes they should have."""
        return self._ask("/admin/library/verify", ModelRequest(model), Job, done, failed)

    def remove(
        self, model: str, done: Done[RemoveAnswer] | None = None, *, failed: Failed | None = None
    ) -> Call | None:
        """Move a model's files to the trash."""
        return self._ask("/admin/library/remove", ModelRequest(model), RemoveAnswer, done, failed)

    def preview_quantize(
        self, request: QuantizeRequest, done: Done[QuantizePreview], *, failed: Failed | None = None
    ) -> Call | None:
        """What a smaller file of a model would be."""
        return self._ask("/admin/library/quantize/preview", request, QuantizePreview, done, failed)

    def quantize(
        self, request: QuantizeRequest, done: Done[Job] | None = None, *, failed: Failed | None = None
    ) -> Call | None:
        """Make a smaller file of a model."""
        return self._ask("/admin/library/quantize", request, Job, done, failed)

    def cancel_job(self, job_id: str, *, failed: Failed | None = None) -> Call | None:
        """Stop work on files; what it had not finished is taken back."""
        return self._tell("/admin/jobs/cancel", JobRequest(job_id), None, failed)

    # --- the hub

    def search(self, request: HubSearch, done: Done[HubPage], *, failed: Failed | None = None) -> Call | None:
        """Search the hub."""
        return self._ask("/admin/hub/search", request, HubPage, done, failed)

    def picks(self, done: Done[HubPage], *, failed: Failed | None = None) -> Call | None:
        """The catalogue that came with the program."""
        return self._ask("/admin/hub/picks", None, HubPage, done, failed, method="GET")

    def hub_model(self, repo: str, done: Done[HubModel], *, failed: Failed | None = None) -> Call | None:
        """One repository with its files."""
        return self._ask("/admin/hub/model", HubModelRequest(repo), HubModel, done, failed)

    def verdicts(self, request: VerdictRequest, done: Done[Verdicts], *, failed: Failed | None = None) -> Call | None:
        """Judge every quantization of a repository."""
        return self._ask("/admin/hub/verdicts", request, Verdicts, done, failed)

    def account(self, done: Done[HubAccount], *, failed: Failed | None = None) -> Call | None:
        """Who is signed in at the hub."""
        return self._ask("/admin/hub/account", None, HubAccount, done, failed, method="GET")

    def sign_in(self, token: str, done: Done[HubAccount], *, failed: Failed | None = None) -> Call | None:
        """Sign in with an access token; an empty one signs out."""
        return self._ask("/admin/hub/account", HubToken(token), HubAccount, done, failed, method="PUT")

    # --- downloads

    def download(
        self, request: DownloadRequest, done: Done[Download] | None = None, *, failed: Failed | None = None
    ) -> Call | None:
        """Fetch one quantization."""
        return self._ask("/admin/downloads", request, Download, done, failed)

    def pause(self, download_id: str, *, failed: Failed | None = None) -> Call | None:
        """Pause a download; what was fetched stays."""
        return self._tell("/admin/downloads/pause", JobRequest(download_id), None, failed)

    def resume(self, download_id: str, *, failed: Failed | None = None) -> Call | None:
        """Go on, or try again after a failure."""
        return self._tell("/admin/downloads/resume", JobRequest(download_id), None, failed)

    def cancel(self, download_id: str, *, failed: Failed | None = None) -> Call | None:
        """Stop a download and delete what was fetched."""
        return self._tell("/admin/downloads/cancel", JobRequest(download_id), None, failed)

    def clear(self, download_id: str, *, failed: Failed | None = None) -> Call | None:
        """Take an ended download off the list."""
        return self._tell("/admin/downloads/clear", JobRequest(download_id), None, failed)
