"""The models side of a host in a test: files that are only names, a hub and downloads that are lists."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from runtime.errors import BadRequest, FolderSilent, HashMismatch, HubNotFound, ModelLoadFailed, ModelNotFound
from runtime.gguf.facts import read_facts
from runtime.host.hub_service import DownloadsTold, HubParts
from runtime.host.library_service import ImportHow
from runtime.host.parts import LibraryParts
from runtime.host.subjects import Remote
from runtime.library.catalogue import Catalogue
from runtime.library.progress import Cancelled, IsCancelled, Progress, Report
from runtime.library.records import Records
from runtime.messages.api import InstalledModel
from runtime.messages.fit import Measured
from runtime.messages.library import (
    Download,
    DownloadRequest,
    HubAccount,
    HubEntry,
    HubFile,
    HubModel,
    HubModelRequest,
    HubPage,
    HubSearch,
    LibraryState,
    ModelFolder,
    RemoveAnswer,
)
from runtime.messages.load import ComputeDevice
from runtime.options import ModelsOptions
from runtime.probe.report import DryRun, EngineReport
from tests.fakes.tiny_gguf import write_transformer

REPO = "someone/fake-GGUF"
FILE = HubFile("fake-Q4_K_M", ("fake-Q4_K_M.gguf",), (1000,), ("",), "Q4_K_M", 1000)


class FakeFiles:
    """Models by name, each a tiny file with a real header. `slow-*` are worked on until `go` is set."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder = folder
        self.options = ModelsOptions()
        self.go = threading.Event()
        self.moved_to = ""
        self.silent = ""
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            write_transformer(folder / f"{name}.gguf")
        self._models = {
            name: InstalledModel(id=name, name=name, path=str(folder / f"{name}.gguf"), size_bytes=1000, created_s=1.0)
            for name in names
        }

    def installed(self) -> tuple[InstalledModel, ...]:
        return tuple(self._models.values())

    @property
    def main(self) -> Path:
        return Path(self.options.main_folder) if self.options.main_folder else self.folder

    def find(self, name: str) -> InstalledModel:
        for model in self._models.values():
            if name in (model.id, model.path):
                return model
        raise ModelNotFound(f"No model named {name!r} is on disk.", model=name)

    def check_silent(self, name: str) -> None:
        if self.silent:
            raise FolderSilent(
                f"No model called {name!r} is found, but {self.silent} does not answer.", retry_after_s=10
            )

    def resolve(self, name: str) -> InstalledModel:
        model = self.find(name)
        read_facts(Path(model.path))  # says what is wrong with a damaged file
        return model

    def state(self) -> LibraryState:
        used = sum(model.size_bytes for model in self._models.values())
        main = ModelFolder(str(self.folder), "deskside", used, 5000, len(self._models), is_main=True)
        others = tuple(ModelFolder(path, "folder", 0, 5000, 0) for path in self.options.folders)
        return LibraryState((main, *others), used, 5000)

    def set_options(self, options: ModelsOptions) -> None:
        self.options = options

    def verify(self, model_id: str, report: Report, is_cancelled: IsCancelled) -> str:
        self._work(model_id, report, is_cancelled)
        if model_id == "refuse":
            raise HashMismatch("The file is damaged.", hint="Download it again.", path=model_id)
        return "The file is whole."

    def remove(self, model_id: str) -> RemoveAnswer:
        model = self._models.pop(model_id)
        return RemoveAnswer(model.size_bytes, (model.path,), in_trash=True)

    def import_path(self, path: str, how: ImportHow, report: Report, is_cancelled: IsCancelled) -> str:
        stem = Path(path).stem
        self._work(stem, report, is_cancelled)
        self._models[stem] = InstalledModel(id=stem, name=stem, path=path, size_bytes=1000, created_s=2.0)
        return f"{stem} was brought in ({how})."

    def move_main(self, path: str, report: Report, is_cancelled: IsCancelled) -> str:
        self._work("move", report, is_cancelled)
        self.moved_to = path
        return f"Moved to {path}."

    def record_arrival(self, paths: Sequence[Path], sha256: Sequence[str], repo: str = "") -> str:
        assert len(paths) == len(sha256)
        for path in paths:
            self._models[path.stem] = InstalledModel(
                id=path.stem, name=path.stem, path=str(path), size_bytes=path.stat().st_size, publisher=repo
            )
        return paths[0].stem

    def _work(self, name: str, report: Report, is_cancelled: IsCancelled) -> None:
        report(Progress(250, 1000, "working"))
        while name.startswith("slow") and not self.go.wait(0.01):
            if is_cancelled():
                raise Cancelled


class FakeHub:
    """One repository with one file."""

    def __init__(self) -> None:
        self.token = ""
        self.options = ModelsOptions()

    def search(self, request: HubSearch) -> HubPage:
        entries = self.picks().entries
        return HubPage(tuple(entry for entry in entries if request.text in entry.repo))

    def picks(self) -> HubPage:
        return HubPage((HubEntry(REPO, "fake", "someone"),))

    def model(self, request: HubModelRequest) -> HubModel:
        if request.repo != REPO:
            raise HubNotFound(f"There is no {request.repo} on the hub.", repo=request.repo)
        return HubModel(self.picks().entries[0], "c0ffee", (FILE,))

    def account(self) -> HubAccount:
        return HubAccount("https://hub.example", bool(self.token), "someone" if self.token else "")

    def sign_in(self, token: str) -> HubAccount:
        self.token = token
        return self.account()

    def configure(self, options: ModelsOptions) -> None:
        self.options = options

    def close(self) -> None:
        pass


class FakeDownloads:
    """A list of downloads that fetch nothing."""

    def __init__(self, told: Callable[[tuple[Download, ...]], None]) -> None:
        self._told = told
        self._downloads: dict[str, Download] = {}
        self.options = ModelsOptions()
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def configure(self, options: ModelsOptions) -> None:
        self.options = options

    def all(self) -> tuple[Download, ...]:
        return tuple(self._downloads.values())

    def add(self, request: DownloadRequest) -> Download:
        download = Download(f"d{len(self._downloads) + 1}", request.repo, request.file, "Q4_K_M", "running", 0, 1000)
        return self._put(download)

    def pause(self, download_id: str) -> Download:
        return self._put(msgspec.structs.replace(self._get(download_id), state="paused"))

    def resume(self, download_id: str) -> Download:
        return self._put(msgspec.structs.replace(self._get(download_id), state="running"))

    def cancel(self, download_id: str) -> None:
        self._downloads.pop(download_id, None)
        self._told(self.all())

    def clear(self, download_id: str) -> None:
        if self._get(download_id).state == "running":
            raise BadRequest("It is still on the way.")
        self.cancel(download_id)

    def hold(self) -> None:
        self.calls.append("hold")

    def release(self, *, moved_from: Path | None = None, moved_to: Path | None = None) -> None:
        self.calls.append(f"release {moved_from} {moved_to}")

    def close(self) -> None:
        self.calls.append("close")

    def arrive(self, download_id: str) -> None:
        self._put(msgspec.structs.replace(self._get(download_id), state="done"))

    def _get(self, download_id: str) -> Download:
        if download_id not in self._downloads:
            raise BadRequest("There is no such download.")
        return self._downloads[download_id]

    def _put(self, download: Download) -> Download:
        self._downloads[download.id] = download
        self._told(self.all())
        return download


class FakeHeaders:
    """No headers: a test of them has a real hub."""

    def fetch(self, repo: str, file: str, revision: str = "main") -> Remote:
        raise HubNotFound(f"There is no {file} in {repo} at {revision}.", repo=repo)


class FakeHubSide:
    """Makes the hub and the downloads, and remembers them."""

    def __init__(self) -> None:
        self.hub = FakeHub()
        self.downloads: FakeDownloads | None = None
        self.were_downloads = False

    def has_downloads(self) -> bool:
        return self.were_downloads

    def make(self, options: ModelsOptions, told: DownloadsTold) -> HubParts:
        self.downloads = FakeDownloads(told)
        self.hub.configure(options)
        self.downloads.configure(options)
        return HubParts(self.hub, self.downloads, FakeHeaders())


class FakeProbe:
    """A machine with one GPU, and no dry runs, so that plans are made by formula. Nodes on even ports answer."""

    def __init__(self) -> None:
        self.n_asked = 0

    async def devices(self, nodes: Sequence[str] = ()) -> EngineReport:
        self.n_asked += 1
        lent = tuple(ComputeDevice(f"RPC0[{node}]", "a node", "node", 8000, 7000, node=node) for node in nodes)
        gpu = ComputeDevice("FAKE0", "Fake GPU", "gpu", 16_000, 12_000)
        cpu = ComputeDevice("CPU", "Fake CPU", "cpu", 64_000, 32_000)
        return EngineReport("1.0", (), (), can_offload=True, compute=(*lent, gpu, cpu))

    async def dry_run(self, request: DryRun) -> Measured:
        raise ModelLoadFailed(f"Nothing can measure {request.path} here.")

    async def close(self) -> None:
        pass


def fake_library(files: FakeFiles, hub: FakeHubSide, options: ModelsOptions) -> LibraryParts:
    files.set_options(options)
    catalogue = Catalogue(None)
    return LibraryParts(files, Records(catalogue), hub.make, hub.has_downloads, catalogue.close)
