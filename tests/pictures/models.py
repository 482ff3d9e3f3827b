"""Pictures of every state of the Models page: `python -m tests.pictures.models OUT NAME WIDTH HEIGHT [state ...]`."""

import sys
import tempfile
from pathlib import Path

import msgspec
from PySide6.QtGui import QPixmap

from app.context import AppContext
from app.ui.models.page import ModelsPage
from app.ui.models.plan_page import PlanPage
from app.ui.pages.base import ScrolledColumn
from app.ui.window import MainWindow
from runtime.errors import DiskFull, HubOffline, HubRefused, to_failure
from runtime.messages.api import HardwareChanged, InstalledChanged, InstalledModel, LoadedModel, ModelChanged, ModelGone
from runtime.messages.fit import NodeInfo
from runtime.messages.library import Download, HubAccount, Job, ModelFolder
from runtime.options import LoadOptions
from runtime.paths import DataFolder
from runtime.units import now
from tests.fakes.answers import hardware_sample, installed_model
from tests.fakes.fake_host import FakeHost
from tests.fakes.fake_models import CPU, GB, GPU, NODE, SMALL_GPU, main_folder
from tests.pictures.shoot import Shooter


def library() -> list[InstalledModel]:
    """Models of every kind and origin."""
    day_s = 86_400
    return [
        installed_model(used_s=now() - 60, bits_per_weight=5.9, verified="ok", origin="starter"),
        installed_model(
            "qwen3-8b-q4_k_m",
            "Qwen3 8B",
            publisher="Qwen",
            architecture="qwen3",
            quantization="Q4_K_M",
            n_params=8_190_735_360,
            size_bytes=5_027_783_488,
            n_ctx_train=40_960,
            licence="apache-2.0",
            bits_per_weight=4.9,
            used_s=now() - 3 * 3600,
        ),
        installed_model(
            "gemma-3-12b-it-q4_0",
            "Gemma 3 12B Instruct",
            publisher="google",
            architecture="gemma3",
            quantization="Q4_0",
            n_params=11_766_034_176,
            size_bytes=8_074_000_000,
            n_ctx_train=131_072,
            licence="gemma",
            is_vision=True,
            projector="mmproj-model-f16.gguf",
            n_files=2,
            bits_per_weight=4.5,
            used_s=now() - 5 * day_s,
        ),
        installed_model(
            "gpt-oss-120b-mxfp4",
            "GPT-OSS 120B",
            publisher="ggml-org",
            architecture="gpt-oss",
            quantization="MXFP4",
            n_params=116_829_156_672,
            size_bytes=63_400_000_000,
            n_ctx_train=131_072,
            n_files=3,
            bits_per_weight=4.3,
        ),
        installed_model(
            "llama-3.2-3b-f16",
            "Llama 3.2 3B Instruct",
            publisher="meta-llama",
            quantization="F16",
            n_params=3_212_749_888,
            size_bytes=6_433_687_776,
            n_ctx_train=131_072,
            licence="llama3.2",
            bits_per_weight=16.0,
            origin="ollama",
        ),
        installed_model(
            "nomic-embed",
            "Nomic Embed Text v1.5",
            publisher="nomic-ai",
            architecture="nomic-bert",
            quantization="F16",
            kind="embedding",
            n_params=136_731_648,
            size_bytes=274_290_560,
            n_ctx_train=2048,
            origin="lm_studio",
        ),
        installed_model(
            "broken",
            "mistral-7b-part",
            publisher="",
            architecture="",
            quantization="",
            n_params=None,
            n_ctx_train=None,
            size_bytes=1_200_000_000,
            problem="The file ends before its tensors do: the download was not completed.",
        ),
    ]


def some_downloads() -> list[Download]:
    """A download in every state."""
    size = 5_027_783_488
    return [
        Download("d1", "ggml-org/gpt-oss-20b-GGUF", "gpt-oss-20b-mxfp4.gguf", "MXFP4", "queued", 0, 12_109_566_560),
        Download(
            "d2",
            "Qwen/Qwen3-8B-GGUF",
            "Qwen3-8B-Q4_K_M.gguf",
            "Q4_K_M",
            "running",
            size // 3,
            size,
            24_600_000.0,
            136.0,
        ),
        Download("d3", "Qwen/Qwen3-4B-GGUF", "Qwen3-4B-Q8_0.gguf", "Q8_0", "running", size // 5, size, 0.0, None, 21.0),
        Download("d4", "bartowski/Llama-3.2-3B-GGUF", "Llama-3.2-3B-Q6_K.gguf", "Q6_K", "paused", size // 2, size),
        Download("d5", "google/gemma-3-4b-it-GGUF", "gemma-3-4b-it-Q4_0.gguf", "Q4_0", "verifying", size, size),
        Download(
            "d6",
            "unsloth/Qwen3-30B-A3B-GGUF",
            "Qwen3-30B-A3B-UD-Q4_K_XL.gguf",
            "UD-Q4_K_XL",
            "failed",
            size // 4,
            17_690_000_000,
            failure=to_failure(
                DiskFull(
                    "The disk is full: 12.7 GB are still to come, 1.1 GB are free.",
                    hint="Make room or move the models folder, then try again; what was fetched is kept.",
                )
            ),
        ),
        Download(
            "d7",
            "Qwen/Qwen3-0.6B-GGUF",
            "Qwen3-0.6B-Q8_0.gguf",
            "Q8_0",
            "done",
            639_446_688,
            639_446_688,
            model_id="qwen3-8b-q4_k_m",
        ),
    ]


def some_jobs() -> list[Job]:
    """Work of every kind."""
    return [
        Job(
            "j1",
            "verify",
            "qwen3-8b-q4_k_m",
            "Check Qwen3 8B",
            "done",
            1.0,
            result="Every byte is as it was published.",
        ),
        Job("j2", "import", "", "Import tiny-story.gguf", "cancelled", 0.3),
        Job("j3", "move", "", "Move the models to /mnt/big/models", "running", 0.42, "copying Qwen3 8B", 412e6, 93.0),
        Job("j4", "quantize", "llama-3.2-3b-f16", "Make Q4_K_M of Llama 3.2 3B", "running", 0.17, "blk.4", 0.0, 71.0),
    ]


class ModelShooter(Shooter):
    """Goes through the states of the Models page."""

    def run_models(self, host: FakeHost, folder: DataFolder) -> None:
        """Every state, light and dark."""
        context = AppContext(folder)
        window = MainWindow(context, self.appearance)
        window.close_wanted.connect(context.close)
        window.resize(self.width, self.height)
        window.show()
        window.show_page("models")
        page = window.page_widget("models")
        assert isinstance(page, ModelsPage)
        self.window, self.page, self.host = window, page, host
        self.rest()
        self.shoot(window, "m00-starting")
        context.link.attach(host.host_file)
        self.wait(lambda: context.link.is_connected and bool(context.link.loaded))
        host.emit(ModelGone(host.models[0].id))
        host.emit(InstalledChanged(()))
        self.rest(0.5)
        self.shoot(window, "m01-empty")
        page.show_tab("downloads")
        self.state("m50-downloads-empty")
        page.show_tab("installed")
        host.emit(InstalledChanged(tuple(library())))
        self.rest(0.8)
        self.installed(context)
        self.discover()
        self.hub_model()
        self.plan(context)
        self.transfers(context)
        self.others()
        window.close()
        self.wait(lambda: context.is_closed)

    def state(self, name: str, seconds: float = 0.5) -> None:
        """Let it come to rest and take the pictures."""
        self.host.emit(HardwareChanged(hardware_sample()))  # a silent host counts as a lost one
        self.rest(seconds if self.wants(name) else min(seconds, 0.3))
        self.shoot(self.window, name)

    def installed(self, context: AppContext) -> None:
        """The list, a filter without results, a removal that can be undone, a menu."""
        self.state("m02-installed")
        card = self.page.installed._cards["qwen3-8b-q4_k_m"]
        if self.wants("m03-menu"):
            menu = card.make_menu()
            menu.popup(card.more.mapToGlobal(card.more.rect().bottomLeft()))
            self.rest()
            self.with_popup(menu, "m03-menu")
            menu.close()
        self.page.installed._filter.setText("does not exist")
        self.state("m04-nothing-found")
        self.page.installed._filter.clear()
        self.page.act("qwen3-8b-q4_k_m", "remove")
        self.state("m05-removed-undo")
        context.removals.undo("qwen3-8b-q4_k_m")
        self.host.emit(ModelChanged(LoadedModel("qwen3-8b-q4_k_m", "Qwen3 8B", "loading", 0.62)))
        self.host.library.put_job(self.host, some_jobs()[3])
        self.state("m06-loading")
        self.host.emit(
            ModelChanged(
                LoadedModel(
                    "qwen3-8b-q4_k_m",
                    "Qwen3 8B",
                    "failed",
                    failure=to_failure(HubOffline("Memory ran out while loading.", hint="Choose a shorter context.")),
                )
            )
        )
        self.state("m07-failed")
        if self.wants("m08-import"):
            from app.ui.models.import_dialog import ImportDialog

            dialog = ImportDialog(context.link, "/home/ada/Downloads/Größe 7B (neu).gguf", self.page)
            dialog.open()
            self.rest()
            self.dialog(dialog, "m08-import")
            dialog.reject()
        self.host.emit(ModelGone("qwen3-8b-q4_k_m"))

    def with_popup(self, popup: object, name: str) -> None:
        """The window with a popup painted where it stands (a screen grab is not possible offscreen)."""
        from PySide6.QtGui import QPainter
        from PySide6.QtWidgets import QWidget

        assert isinstance(popup, QWidget)
        for theme in ("light", "dark"):
            self.window.choose_theme(theme)
            self.rest(0.3)
            picture = self.window.grab()
            painter = QPainter(picture)
            painter.drawPixmap(self.window.mapFromGlobal(popup.pos()), popup.grab())
            painter.end()
            self.save(picture, f"{name}-{theme}")

    def dialog(self, dialog: object, name: str) -> None:
        """A dialog by itself."""
        from PySide6.QtWidgets import QWidget

        assert isinstance(dialog, QWidget)
        if self.wants(name):
            for theme in ("light", "dark"):
                self.window.choose_theme(theme)
                self.rest(0.3)
                self.save(dialog.grab(), f"{name}-{theme}")

    def save(self, picture: QPixmap, name: str) -> None:
        """Write a picture."""
        picture.save(str(self.out / f"{name}-{self.size}.png"))

    def discover(self) -> None:
        """Picks, results, nothing, offline, an error."""
        models = self.host.library
        models.cursor = "next"
        self.page.show_tab("discover")
        self.state("m10-discover")
        models.held = {"/admin/hub/search"}
        self.page.discover.field.setText("qwen")
        self.state("m11-searching", 0.9)
        models.held = set()
        self.host.release()
        self.state("m12-results")
        self.page.discover.field.setText("xyzzy")
        self.state("m13-nothing", 0.9)
        models.offline = "The hub cannot be reached: no route to it."
        self.page.discover.clear()
        self.state("m14-offline", 0.9)
        models.offline = ""
        models.failures["/admin/hub/search"] = to_failure(
            HubOffline("The hub answered with an error (status 503).", hint="Try again in a while.")
        )
        self.page.discover.search()
        self.state("m15-error")
        models.failures.clear()

    def hub_model(self) -> None:
        """A model's page in its states."""
        models = self.host.library
        repo = "Qwen/Qwen3-8B-GGUF"
        models.held = {"/admin/hub/model"}
        self.page.open_hub_model(repo)
        self.state("m20-model-waiting")
        models.held = {"/admin/hub/verdicts"}
        self.host.release()
        self.state("m21-model-judging", 0.8)
        models.held = set()
        self.host.release()
        self.state("m22-model")
        cover = self.page.cover
        assert cover is not None
        row = cover.rows["Qwen3-8B-Q4_K_M.gguf"]  # type: ignore[attr-defined]
        row.set_open(True)
        self.state("m23-model-details")
        cover.area.verticalScrollBar().setValue(10_000)
        self.state("m24-model-end")
        row.set_open(False)
        cover.area.verticalScrollBar().setValue(0)
        models.devices = (SMALL_GPU, CPU)
        cover.controls.context.edited.emit(32_768)  # type: ignore[attr-defined]
        self.state("m25-model-long-context", 0.8)
        cover.download("Qwen3-8B-Q8_0.gguf")  # type: ignore[attr-defined]
        self.state("m26-model-downloading", 0.8)
        models.failures["/admin/downloads"] = to_failure(
            DiskFull("There is not enough room: 8.7 GB are needed, 3.2 GB are free.", hint="Make room first.")
        )
        cover.download("Qwen3-8B-Q6_K.gguf")  # type: ignore[attr-defined]
        self.state("m27-model-no-room")
        models.failures.clear()
        self.page.go_back()
        self.page.open_hub_model("google/gemma-3-12b-it-qat-q4_0-gguf")
        self.state("m28-model-gated", 0.8)
        self.page.go_back()
        models.devices = (CPU,)
        self.page.open_hub_model("ggml-org/gpt-oss-120b-GGUF")
        self.state("m29-model-too-large", 0.8)
        self.page.go_back()
        models.failures["/admin/hub/model"] = to_failure(
            HubRefused("The publisher gives this model only to people it knows.", hint="Sign in with a token.")
        )
        self.page.open_hub_model(repo)
        self.state("m30-model-refused")
        models.failures.clear()
        self.page.go_back()
        models.devices = (GPU, CPU)

    def plan(self, context: AppContext) -> None:
        """The load plan in its states."""
        models = self.host.library
        known = {one.id: one for one in library()}
        models.held = {"/admin/plan"}
        self.page.open_plan(known["qwen3-8b-q4_k_m"])
        self.state("m40-plan-waiting", 0.6)
        models.held = set()
        for _ in range(3):
            self.host.release()
        self.state("m41-plan", 0.9)
        cover = self.page.cover
        assert isinstance(cover, PlanPage)
        self.page.load_wanted.emit("qwen3-8b-q4_k_m")
        self.wait(lambda: any(one.state == "ready" for one in context.link.loaded))
        self.rest(0.6)
        cover.begin()
        self.rest(0.6)
        cover.area.verticalScrollBar().setValue(10_000)
        self.state("m42-plan-actual")
        self.page.go_back()
        models.devices = (SMALL_GPU, CPU)
        models.settings["gemma-3-12b-it-q4_0"] = LoadOptions(n_ctx=32_768, n_gpu_layers=24, type_k="q8_0")
        self.page.open_plan(known["gemma-3-12b-it-q4_0"])
        self.state("m43-plan-partial", 0.9)
        cover = self.page.cover
        assert isinstance(cover, PlanPage)
        cover.controls._fold.set_open(True)
        self.rest(0.3)
        cover.area.verticalScrollBar().setValue(10_000)
        self.state("m44-plan-experts")
        self.page.go_back()
        self.page.open_plan(known["gpt-oss-120b-mxfp4"])
        self.state("m45-plan-too-large", 0.9)
        self.page.go_back()
        models.devices = (GPU, NODE, CPU)
        self.page.open_plan(known["gemma-3-12b-it-q4_0"])
        cover = self.page.cover
        assert isinstance(cover, PlanPage)
        cover._reset()
        self.state("m46-plan-node", 0.9)
        models.failures["/admin/plan"] = to_failure(
            HubOffline("The planner did not answer in time.", hint="Try again; it starts anew by itself.")
        )
        cover.controls.context.edited.emit(65_536)
        self.state("m47-plan-error", 0.9)
        models.failures.clear()
        self.page.go_back()
        models.devices = (CPU,)
        self.page.open_plan(known["qwen3-8b-q4_k_m"])
        self.state("m48-plan-cpu", 0.9)
        self.page.go_back()
        models.devices = (GPU, CPU)

    def transfers(self, context: AppContext) -> None:
        """Downloads and jobs."""
        models = self.host.library
        models.downloads, models.jobs = [], []
        for one in context.link.downloads:
            models._drop_download(self.host, msgspec.convert({"id": one.id}, type=_JobId))  # type: ignore[arg-type]
        self.page.show_tab("downloads")
        for one in some_downloads():
            models.put_download(self.host, one)
        self.state("m51-downloads", 0.8)
        for job in some_jobs():
            models.put_job(self.host, job)
        self.rest(0.5)
        area = self.page.transfers.findChild(ScrolledColumn)
        assert isinstance(area, ScrolledColumn)
        area.verticalScrollBar().setValue(10_000)
        self.state("m52-jobs", 0.8)

    def others(self) -> None:
        """Folders, quantize, nodes, the account."""
        models = self.host.library
        known = {one.id: one for one in library()}
        models.folders = [
            main_folder(),
            ModelFolder("/mnt/big/llm", "folder", 212 * GB, 640 * GB, 11),
            ModelFolder("/media/usb/Modèles à garder", "folder", 0, 0, 0, problem="This drive is not connected."),
            ModelFolder("/home/ada/.ollama/models", "ollama", 31 * GB, 120 * GB, 4),
        ]
        self.page.open_folders()
        self.state("m60-folders", 0.8)
        self.page.go_back()
        self.page.open_quantize(known["llama-3.2-3b-f16"])
        self.state("m61-quantize", 1.2)
        self.page.go_back()
        models.nodes = [
            NodeInfo("192.168.1.30:50052", "reachable", 16 * GB, 14 * GB, 0.0008),
            NodeInfo("192.168.1.31:50052", "unreachable", problem="It does not answer: the connection was refused."),
        ]
        from runtime.messages.api import NodesChanged

        self.host.emit(NodesChanged(tuple(models.nodes)))
        self.window.show_page("hardware")
        self.rest(0.5)
        area = self.window.page_widget("hardware").area  # type: ignore[attr-defined]
        area.verticalScrollBar().setValue(10_000)
        self.state("m62-nodes")
        self.window.show_page("settings")
        self.rest(0.5)
        area = self.window.page_widget("settings").area  # type: ignore[attr-defined]
        area.verticalScrollBar().setValue(10_000)
        self.state("m63-settings")
        models.account = HubAccount("https://hub.example", True, "ada")
        self.window.page_widget("settings").hub.refresh()  # type: ignore[attr-defined]
        self.state("m64-signed-in")


class _JobId(msgspec.Struct):
    id: str


def main() -> int:
    """Shoot one size: OUT NAME WIDTH HEIGHT [state ...]."""
    out, size, width, height, *only = sys.argv[1:]
    with tempfile.TemporaryDirectory() as data, FakeHost(installed=library(), models=[]) as host:
        shooter = ModelShooter(Path(out), size, int(width), int(height), only)
        shooter.run_models(host, DataFolder(Path(data)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
