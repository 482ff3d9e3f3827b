"""What a pretended host tells of models: a machine, plans by a simple rule, a hub, downloads, jobs, folders.

The figures follow a rule and not llama.cpp; they are plausible, add up, and move with the options.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from runtime.errors import BadRequest, Failure, HubNotFound, ModelNotFound
from runtime.messages.api import (
    DownloadsChanged,
    InstalledChanged,
    InstalledModel,
    JobChanged,
    ModelSettings,
    NodesChanged,
)
from runtime.messages.fit import (
    DeviceBudget,
    LoadRecord,
    Machine,
    MemoryPlan,
    NodeInfo,
    NodeRequest,
    PlanRequest,
    SpeedRange,
    VerdictKind,
)
from runtime.messages.library import (
    Download,
    DownloadRequest,
    FolderRequest,
    HubAccount,
    HubEntry,
    HubFile,
    HubModel,
    HubModelRequest,
    HubPage,
    HubSearch,
    HubToken,
    ImportRequest,
    Job,
    JobKind,
    JobRequest,
    LibraryState,
    ModelFolder,
    ModelRequest,
    MoveRequest,
    QuantizePreview,
    QuantizeRequest,
    QuantVerdict,
    RemoveAnswer,
    VerdictRequest,
    Verdicts,
)
from runtime.messages.load import ComputeDevice, DeviceMemory, ResolvedLoad
from runtime.options import LoadOptions, ModelsOptions
from tests.fakes.hub_entries import QUANTS, hub_file, some_picks

if TYPE_CHECKING:
    from tests.fakes.fake_host import FakeHost

GB = 1_000_000_000
MARGIN_BYTES = GB // 2
N_LAYER = 37
KV_BYTES_PER_TOKEN = 147_456
KV_SCALE = {"f16": 1.0, "q8_0": 0.53, "q4_0": 0.28}
COMPUTE_BYTES = 310_000_000

CPU = ComputeDevice("CPU", "Fake CPU, 8 cores", "cpu", 32 * GB, 22 * GB)
GPU = ComputeDevice("CUDA0", "NVIDIA GeForce RTX 4070", "gpu", 12 * GB, int(10.9 * GB))
SMALL_GPU = ComputeDevice("CUDA0", "NVIDIA GeForce RTX 3060 Ti", "gpu", 8 * GB, int(7.2 * GB))
NODE = ComputeDevice("RPC0", "Lent by 192.168.1.30:50052", "node", 16 * GB, 14 * GB, node="192.168.1.30:50052")


@dataclass
class FakeModels:
    """State of the pretended library and hub; fields may be changed at any time.

    Attributes:
        failures: by path ("/admin/hub/search"), the failure that a request gets.
        held: paths whose answers wait for `FakeHost.release`.
        asked: requests received, by path.
        actual_share: what a load takes against its plan.
    """

    devices: tuple[ComputeDevice, ...] = (GPU, CPU)
    n_params: dict[str, int] = field(default_factory=dict)
    nodes: list[NodeInfo] = field(default_factory=list)
    folders: list[ModelFolder] = field(default_factory=lambda: [main_folder()])
    downloads: list[Download] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    picks: tuple[HubEntry, ...] = field(default_factory=some_picks)
    found: tuple[HubEntry, ...] = ()
    cursor: str = ""
    offline: str = ""
    account: HubAccount = field(default_factory=lambda: HubAccount("https://hub.example"))
    options: ModelsOptions = field(default_factory=ModelsOptions)
    settings: dict[str, LoadOptions] = field(default_factory=dict)
    records: dict[str, LoadRecord] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    asked: dict[str, list[msgspec.Struct]] = field(default_factory=dict)
    actual_share: float = 1.002

    # --- plans

    def plan(
        self, model: str, size_bytes: int, options: LoadOptions, *, n_ctx_train: int = 40_960, exact: bool = True
    ) -> MemoryPlan:
        """Fill the devices one after another; the processor takes the rest."""
        n_ctx = options.n_ctx or min(8192, n_ctx_train)
        slots = options.n_parallel or 1
        scale = (KV_SCALE.get(options.type_k, 1.0) + KV_SCALE.get(options.type_v, 1.0)) / 2
        layer = size_bytes / N_LAYER
        kv = n_ctx * slots * KV_BYTES_PER_TOKEN * scale / N_LAYER * min(1.0, size_bytes / (4.9 * GB))
        left = N_LAYER if options.n_gpu_layers is None else min(N_LAYER, options.n_gpu_layers)
        budgets, n_gpu, needed = [], 0, 0
        for device in self.devices:
            is_cpu = device.kind == "cpu"
            room = device.free_bytes - MARGIN_BYTES - COMPUTE_BYTES
            wanted = left if not is_cpu else N_LAYER - n_gpu
            n = wanted if is_cpu or options.n_gpu_layers is not None else min(wanted, max(0, int(room / (layer + kv))))
            memory = DeviceMemory(
                device.name,
                weight_bytes=int(n * layer) + (int(layer / 4) if is_cpu else 0),
                context_bytes=int(n * kv),
                compute_bytes=COMPUTE_BYTES if n else 20_000_000,
                output_bytes=600_000 if is_cpu else 0,
            )
            others = device.total_bytes - device.free_bytes
            free = device.free_bytes - MARGIN_BYTES - memory.total_bytes
            budgets.append(DeviceBudget(device, memory, n, others, MARGIN_BYTES, free))
            needed += memory.total_bytes
            if not is_cpu:
                left -= n
                n_gpu += n
        free_bytes = sum(max(0, one.free_bytes - MARGIN_BYTES) for one in self.devices)
        return MemoryPlan(
            model=model,
            options=options,
            resolved=ResolvedLoad(
                n_ctx=n_ctx,
                n_parallel=slots,
                n_seq_max=slots,
                n_cells=n_ctx * slots,
                n_batch=options.n_batch or 2048,
                n_ubatch=options.n_ubatch or 512,
                n_threads=options.n_threads or 8,
                n_gpu_layers=n_gpu,
                type_k=options.type_k,
                type_v=options.type_v,
                devices=tuple(one.name for one in self.devices if one.kind != "cpu"),
            ),
            budgets=tuple(budgets),
            needed_bytes=needed,
            free_bytes=free_bytes,
            n_layer=N_LAYER,
            n_layer_gpu=n_gpu,
            method="dry_run" if exact else "formula",
            **self._judge(tuple(budgets), n_gpu, needed, free_bytes),  # type: ignore[arg-type]
            speed=self._speed(size_bytes, n_gpu, n_ctx),
        )

    def _judge(
        self, budgets: tuple[DeviceBudget, ...], n_gpu: int, needed: int, free_bytes: int
    ) -> dict[str, str | VerdictKind]:
        if any(one.free_bytes < 0 for one in budgets):
            sentence = f"Too large: needs {needed / GB:.0f} GB, {free_bytes / GB:.0f} GB free"
            problem = "GPU and system memory together are too small. Choose a smaller quantization or a smaller model."
            return {"verdict": "too_large", "sentence": sentence, "reason": "", "problem": problem}
        gpu = budgets[0]
        if n_gpu == N_LAYER:
            used = gpu.memory.total_bytes / GB
            sentence = f"All on GPU, {used:.1f} of {gpu.device.total_bytes / GB:.1f} GB"
            return {"verdict": "gpu", "sentence": sentence, "reason": "It fits whole, with room for other programs."}
        if n_gpu:
            reason = "The GPU takes what fits beside other programs; the rest runs on the processor, which is slower."
            return {"verdict": "partial", "sentence": f"{n_gpu} of {N_LAYER} layers on GPU", "reason": reason}
        sentence = f"Runs on CPU, {needed / GB:.1f} of {budgets[-1].device.total_bytes / GB:.1f} GB"
        return {"verdict": "cpu", "sentence": sentence, "reason": "There is no GPU that it could use."}

    @staticmethod
    def _speed(size_bytes: int, n_gpu: int, depth: int) -> SpeedRange:
        seconds = size_bytes * (n_gpu / N_LAYER / (380 * GB) + (1 - n_gpu / N_LAYER) / (38 * GB))
        tps = 1 / seconds
        return SpeedRange(
            tps, tps * 0.87, tps * 1.12, tps * 21, tps * 15, tps * 25, depth // 2, "calibrated", tps * 0.9
        )

    def record(self, model: InstalledModel, options: LoadOptions) -> LoadRecord:
        """What a load then took."""
        plan = self.plan(model.id, model.size_bytes, options, n_ctx_train=model.n_ctx_train or 4096)
        actual = tuple(
            msgspec.structs.replace(
                budget.memory,
                context_bytes=int(budget.memory.context_bytes * self.actual_share),
                compute_bytes=int(budget.memory.compute_bytes * self.actual_share),
            )
            for budget in plan.budgets
        )
        record = LoadRecord(model.id, 1_780_000_000.0, plan, actual, generation_tps=41.7, prompt_tps=912.0)
        self.records[model.id] = record
        return record

    # --- the hub

    def hub_model(self, repo: str) -> HubModel:
        """The page of a repository."""
        entry = next((one for one in (*self.picks, *self.found) if one.repo == repo), None)
        if entry is None or entry.n_params is None:
            raise HubNotFound(f"There is no repository named '{repo}' on the hub.", hint="Look at the spelling.")
        projectors: tuple[HubFile, ...] = ()
        if entry.kind == "vision":
            name = "mmproj-model-f16.gguf"
            projectors = (HubFile(name, (name,), (851_251_104,), ("cd" * 32,), "F16", 851_251_104, is_projector=True),)
        projector = projectors[0].name if projectors else ""
        files = tuple(hub_file(repo, row[0], entry.n_params, projector=projector) for row in QUANTS)
        text = "A model that follows instructions, in many languages. It can think before it answers."
        return HubModel(entry, "0f" * 20, files, projectors, text, self.offline)

    def verdicts(self, request: VerdictRequest) -> Verdicts:
        """Judge every file; the best that fits on the GPU is recommended."""
        model = self.hub_model(request.repo)
        rows = [
            QuantVerdict(
                one.name,
                self.plan(
                    f"{request.repo}/{one.name}",
                    one.size_bytes,
                    request.options,
                    n_ctx_train=model.entry.n_ctx_train or 4096,
                ),
            )
            for one in model.files
        ]
        rule = "The best quality that fits with this context and answers at reading speed or faster."
        fast = [row for row in rows if row.plan.speed is not None and row.plan.speed.generation_tps >= 8]
        fits = [row for row in fast if row.plan.verdict in ("gpu", "partial", "cpu") and "BF16" not in row.name]
        if fits:
            best = fits[0]
            reason = "The best quality that fits, with room left for a longer conversation."
            rows[rows.index(best)] = msgspec.structs.replace(best, recommended=True, reason=reason)
        return Verdicts(request.repo, tuple(rows), rule, fetched_bytes=6_400_000)

    def search(self, request: HubSearch) -> HubPage:
        """Entries with the words in their names."""
        words = request.text.casefold().split()
        pool = self.found or self.picks
        entries = tuple(
            one
            for one in pool
            if all(word in f"{one.repo} {one.name}".casefold() for word in words)
            and request.kind in ("any", one.kind)
            and (not request.max_params or (one.n_params or 0) <= request.max_params)
        )
        return HubPage(entries, "" if request.cursor else self.cursor, self.offline)

    # --- routes

    def answer(self, host: "FakeHost", method: str, path: str, body: bytes) -> tuple[int, object] | None:
        """Answer one of the routes on models; `None` for any other."""
        take = self._routes().get((method, path))
        if take is None:
            return None
        kind, work = take
        request = msgspec.json.decode(body, type=kind) if kind is not None else None
        self.asked.setdefault(path, []).append(request)  # type: ignore[arg-type]
        if path in self.held:
            host.wait_release()
        failure = self.failures.get(path)
        if failure is not None:
            return failure.status, failure
        return work(host, request)

    def _routes(self) -> dict[tuple[str, str], tuple[type | None, Callable[..., tuple[int, object]]]]:
        return {
            ("POST", "/admin/plan"): (PlanRequest, self._plan),
            ("GET", "/admin/machine"): (None, self._machine),
            ("POST", "/admin/machine"): (None, self._machine),
            ("GET", "/admin/models/options"): (None, lambda _host, _: (200, self.options)),
            ("PUT", "/admin/models/options"): (ModelsOptions, self._set_options),
            ("POST", "/admin/models/settings"): (ModelRequest, self._settings),
            ("PUT", "/admin/models/settings"): (ModelSettings, self._remember),
            ("POST", "/admin/models/record"): (ModelRequest, lambda _host, it: (200, self.records.get(it.model))),
            ("GET", "/admin/nodes"): (None, lambda _host, _: (200, self.nodes)),
            ("POST", "/admin/nodes"): (NodeRequest, self._add_node),
            ("DELETE", "/admin/nodes"): (NodeRequest, self._remove_node),
            ("GET", "/admin/library"): (None, lambda _host, _: (200, self.library())),
            ("POST", "/admin/library/folders"): (FolderRequest, self._add_folder),
            ("DELETE", "/admin/library/folders"): (FolderRequest, self._remove_folder),
            ("POST", "/admin/library/move"): (MoveRequest, self._move),
            ("POST", "/admin/library/import"): (ImportRequest, self._import),
            ("POST", "/admin/library/verify"): (ModelRequest, self._verify),
            ("POST", "/admin/library/remove"): (ModelRequest, self._remove),
            ("POST", "/admin/library/quantize"): (QuantizeRequest, self._quantize),
            ("POST", "/admin/library/quantize/preview"): (QuantizeRequest, self._preview),
            ("GET", "/admin/jobs"): (None, lambda _host, _: (200, self.jobs)),
            ("POST", "/admin/jobs/cancel"): (JobRequest, self._cancel_job),
            ("POST", "/admin/hub/search"): (HubSearch, lambda _host, it: (200, self.search(it))),
            ("GET", "/admin/hub/picks"): (None, lambda _host, _: (200, HubPage(self.picks))),
            ("POST", "/admin/hub/model"): (HubModelRequest, lambda _host, it: (200, self.hub_model(it.repo))),
            ("POST", "/admin/hub/verdicts"): (VerdictRequest, lambda _host, it: (200, self.verdicts(it))),
            ("GET", "/admin/hub/account"): (None, lambda _host, _: (200, self.account)),
            ("PUT", "/admin/hub/account"): (HubToken, self._sign_in),
            ("GET", "/admin/downloads"): (None, lambda _host, _: (200, self.downloads)),
            ("POST", "/admin/downloads"): (DownloadRequest, self._download),
            ("POST", "/admin/downloads/pause"): (JobRequest, self._pause),
            ("POST", "/admin/downloads/resume"): (JobRequest, self._resume),
            ("POST", "/admin/downloads/cancel"): (JobRequest, self._drop_download),
            ("POST", "/admin/downloads/clear"): (JobRequest, self._drop_download),
        }

    def _plan(self, host: "FakeHost", request: PlanRequest) -> tuple[int, object]:
        target = request.target
        if target.model:
            model = self._installed(host, target.model)
            return 200, self.plan(
                model.id,
                model.size_bytes,
                request.options,
                n_ctx_train=model.n_ctx_train or 4096,
                exact=request.exact,
            )
        one = next(one for one in self.hub_model(target.repo).files if one.name == target.file)
        return 200, self.plan(f"{target.repo}/{one.name}", one.size_bytes, request.options, exact=request.exact)

    def _machine(self, _host: "FakeHost", _: None) -> tuple[int, object]:
        cpu = self.devices[-1]
        return 200, Machine(self.devices, 8, cpu.total_bytes, cpu.free_bytes)

    @staticmethod
    def _installed(host: "FakeHost", model_id: str) -> InstalledModel:
        model = next((one for one in host.installed if model_id in (one.id, one.path)), None)
        if model is None:
            raise ModelNotFound(f"No model named '{model_id}' is on this machine.", model=model_id)
        return model

    def _set_options(self, _host: "FakeHost", options: ModelsOptions) -> tuple[int, object]:
        self.options = options
        return 200, options

    def _settings(self, _host: "FakeHost", request: ModelRequest) -> tuple[int, object]:
        return 200, self.settings.get(request.model, LoadOptions())

    def _remember(self, _host: "FakeHost", request: ModelSettings) -> tuple[int, object]:
        self.settings[request.model] = request.options
        return 204, None

    # --- nodes and folders

    def _add_node(self, host: "FakeHost", request: NodeRequest) -> tuple[int, object]:
        if ":" not in request.address:
            raise BadRequest("A node is named as address:port.", param="address")
        self.nodes.append(NodeInfo(request.address, "reachable", 16 * GB, 14 * GB, 0.0008))
        host.emit(NodesChanged(tuple(self.nodes)))
        return 200, self.nodes

    def _remove_node(self, host: "FakeHost", request: NodeRequest) -> tuple[int, object]:
        self.nodes = [one for one in self.nodes if one.address != request.address]
        host.emit(NodesChanged(tuple(self.nodes)))
        return 200, self.nodes

    def library(self) -> LibraryState:
        """Folders and room."""
        used = sum(one.used_bytes for one in self.folders)
        return LibraryState(tuple(self.folders), used, self.folders[0].free_bytes)

    def _add_folder(self, _host: "FakeHost", request: FolderRequest) -> tuple[int, object]:
        self.folders.append(ModelFolder(request.path, "folder", 12 * GB, 210 * GB, 2))
        return 200, self.library()

    def _remove_folder(self, _host: "FakeHost", request: FolderRequest) -> tuple[int, object]:
        self.folders = [one for one in self.folders if one.path != request.path]
        return 200, self.library()

    # --- jobs

    def start_job(self, host: "FakeHost", kind: JobKind, model: str, title: str) -> Job:
        """A job that stays at 40 % until `end_job`."""
        job = Job(
            f"job{len(self.jobs) + 1}",
            kind,
            model,
            title,
            "running",
            0.4,
            "reading",
            412_000_000.0,
            12.0,
            1_780_000_000.0,
        )
        self.put_job(host, job)
        return job

    def put_job(self, host: "FakeHost", job: Job) -> None:
        """Tell a job."""
        self.jobs = [one for one in self.jobs if one.id != job.id] + [job]
        host.emit(JobChanged(job))

    def end_job(self, host: "FakeHost", job: Job, result: str) -> None:
        """A job is done."""
        self.put_job(host, msgspec.structs.replace(job, state="done", fraction=1.0, result=result, left_s=None))

    def _move(self, host: "FakeHost", request: MoveRequest) -> tuple[int, object]:
        return 202, self.start_job(host, "move", "", f"Move the models to {request.path}")

    def _import(self, host: "FakeHost", request: ImportRequest) -> tuple[int, object]:
        return 202, self.start_job(host, "import", "", f"Import {request.path}")

    def _verify(self, host: "FakeHost", request: ModelRequest) -> tuple[int, object]:
        model = self._installed(host, request.model)
        return 202, self.start_job(host, "verify", model.id, f"Check {model.name}")

    def _remove(self, host: "FakeHost", request: ModelRequest) -> tuple[int, object]:
        model = self._installed(host, request.model)
        host.installed = [one for one in host.installed if one.id != model.id]
        host.emit(InstalledChanged(tuple(host.installed)))
        return 200, RemoveAnswer(model.size_bytes, (model.path,), in_trash=True)

    def _quantize(self, host: "FakeHost", request: QuantizeRequest) -> tuple[int, object]:
        model = self._installed(host, request.model)
        return 202, self.start_job(host, "quantize", model.id, f"Make {request.quantization} of {model.name}")

    def _preview(self, host: "FakeHost", request: QuantizeRequest) -> tuple[int, object]:
        model = self._installed(host, request.model)
        row = next((one for one in QUANTS if one[0] == request.quantization), None)
        bits, note = (row[1], row[3]) if row else (5.0, "")
        size = int((model.n_params or 0) * bits / 8)
        path = f"models/{model.name}-{request.quantization}.gguf"
        plan = self.plan(path, size, LoadOptions())
        return 200, QuantizePreview(request.quantization, size, bits, note, self.folders[0].free_bytes, path, plan)

    def _cancel_job(self, host: "FakeHost", request: JobRequest) -> tuple[int, object]:
        job = next((one for one in self.jobs if one.id == request.id), None)
        if job is not None:
            self.put_job(host, msgspec.structs.replace(job, state="cancelled"))
        return 204, None

    # --- account and downloads

    def _sign_in(self, _host: "FakeHost", request: HubToken) -> tuple[int, object]:
        ok = request.token.startswith("hf_")
        problem = "" if ok or not request.token else "The hub does not know this token."
        self.account = HubAccount(self.account.endpoint, ok, "ada" if ok else "", problem)
        return 200, self.account

    def put_download(self, host: "FakeHost", download: Download) -> None:
        """Tell a download."""
        known = any(one.id == download.id for one in self.downloads)
        self.downloads = (
            [download if one.id == download.id else one for one in self.downloads]
            if known
            else [*self.downloads, download]
        )
        host.emit(DownloadsChanged(tuple(self.downloads)))

    def _download(self, host: "FakeHost", request: DownloadRequest) -> tuple[int, object]:
        one = next(one for one in self.hub_model(request.repo).files if one.name == request.file)
        download = Download(
            f"d{len(self.downloads) + 1}",
            request.repo,
            one.name,
            one.quantization,
            "running",
            int(one.size_bytes * 0.24),
            one.size_bytes,
            24_600_000.0,
            one.size_bytes * 0.76 / 24_600_000,
            started_s=1_780_000_000.0,
        )
        self.put_download(host, download)
        return 202, download

    def _change(self, host: "FakeHost", request: JobRequest, state: str) -> tuple[int, object]:
        one = next(one for one in self.downloads if one.id == request.id)
        one = msgspec.structs.replace(one, state=state, speed_bps=0.0, left_s=None, failure=None)
        self.put_download(host, one)
        return 200, one

    def _pause(self, host: "FakeHost", request: JobRequest) -> tuple[int, object]:
        return self._change(host, request, "paused")

    def _resume(self, host: "FakeHost", request: JobRequest) -> tuple[int, object]:
        return self._change(host, request, "running")

    def _drop_download(self, host: "FakeHost", request: JobRequest) -> tuple[int, object]:
        self.downloads = [one for one in self.downloads if one.id != request.id]
        host.emit(DownloadsChanged(tuple(self.downloads)))
        return 204, None


def main_folder(**fields: object) -> ModelFolder:
    """The folder downloads go to."""
    folder = ModelFolder("/home/ada/Deskside/models", "deskside", int(45.2 * GB), 120 * GB, 5, is_main=True)
    return msgspec.structs.replace(folder, **fields)
