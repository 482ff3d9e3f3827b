"""Takes the pictures of one size; see `tests.pictures`."""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from PySide6.QtWidgets import QApplication

from app.context import AppContext
from app.ui.appearance import Appearance
from app.ui.window import MainWindow
from runtime.messages.api import ApiChanged, ApiKeyInfo, ApiState, HardwareChanged, LoadedModel, ModelChanged
from runtime.messages.hardware import GpuSample
from runtime.options import ApiOptions
from runtime.paths import DataFolder
from tests.fakes.answers import Reply, hardware_sample, installed_model, words, worker_dies
from tests.fakes.fake_host import FakeHost

ANSWER = (Path(__file__).parent / "answer.md").read_text(encoding="utf-8")
REASONING = (
    "The person wants a worked answer with code.\n\n1. State the formula\n2. Show a function\n3. Mention complex roots"
)
TITLES = (
    "Why is the sky blue at noon and red in the evening?",
    "Packing list for a weekend of hiking in the Alps",
    "Translate a letter into French",
    "Explain the difference between a process and a thread",
    "Recipe for sourdough with a long cold proof",
)

SETTLE_S = 3.0


class Shooter:
    """Holds the window and saves pictures of it."""

    def __init__(self, out: Path, size: str, width: int, height: int, only: list[str]) -> None:
        self.out, self.size, self.only = out, size, only
        self.app = QApplication.instance() or QApplication([])
        assert isinstance(self.app, QApplication)
        self.appearance = Appearance(self.app)
        self.width, self.height = width, height

    def wait(self, condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
        """Let the window work until the condition holds."""
        end_s = time.monotonic() + timeout_s
        while not condition() and time.monotonic() < end_s:
            self.app.processEvents()
            time.sleep(0.002)
        if not condition():
            sys.stderr.write(f"{self.size}: gave up waiting\n")

    def rest(self, seconds: float = 0.25) -> None:
        """Let the window work for a while."""
        end_s = time.monotonic() + seconds
        self.wait(lambda: time.monotonic() > end_s)

    def wants(self, name: str) -> bool:
        """Whether this picture was asked for: by the beginning of its name, or all are."""
        return not self.only or any(name.startswith(one) for one in self.only)

    def shoot(self, window: MainWindow, name: str) -> None:
        """Save the window in light and dark."""
        if not self.wants(name):
            return
        for theme in ("light", "dark"):
            window.choose_theme(theme)
            self.rest(0.2)
            self._settle(window)
            window.grab().save(str(self.out / f"{name}-{theme}-{self.size}.png"))

    def _settle(self, window: MainWindow) -> None:
        """Let the transcript be drawn again in its new colours; an answer that is still being written never is."""
        end_s = time.monotonic() + SETTLE_S
        while not window.chat.transcript.is_settled and time.monotonic() < end_s:
            self.app.processEvents()
            time.sleep(0.002)

    def run(self, host: FakeHost, folder: DataFolder) -> None:
        """Go through the pages."""
        context = AppContext(folder)
        window = MainWindow(context, self.appearance)
        window.close_wanted.connect(context.close)
        window.resize(self.width, self.height)
        window.show()
        self.rest()
        self.shoot(window, "0-starting")
        context.link.attach(host.host_file)
        self.wait(lambda: context.link.is_connected)
        self.rest()
        self.shoot(window, "1-empty")
        for title in TITLES:
            host.replies.append(Reply(words("A short answer to begin with.")))
            self.ask(context, window, title)
        host.replies.append(Reply(words(ANSWER, reasoning=REASONING), events_per_write=8))
        self.ask(context, window, "How do I solve a quadratic equation in Python?")
        self.wait(lambda: window.chat.transcript.is_settled)
        self.rest(1.0)
        self.shoot(window, "2-chat-end")
        window.chat.transcript.verticalScrollBar().setValue(0)
        first = context.session.messages()[-1].id
        window.chat.transcript.toggle_fold(first)
        self.rest()
        self.shoot(window, "3-chat-top")
        window.chat.transcript.toggle_fold(first)
        host.replies.append(worker_dies("Complex roots come in pairs, "))
        window.chat.send("And complex roots?")
        self.wait(lambda: not context.session.is_busy)
        host.replies.append(Reply(words("They are written with the imaginary unit, " * 6), hold_after=30))
        window.chat.send("Please try once more, with an example that has a negative discriminant.")
        self.rest(1.0)
        window.chat.composer.set_text("I am already writing the next question")
        self.shoot(window, "4-chat-streaming")
        host.release()
        self.wait(lambda: not context.session.is_busy)
        if self.width > 1000:
            window.chat.toggle_inspector()
            self.rest()
            self.shoot(window, "5-inspector")
            window.chat.toggle_inspector()
        window.open_palette()
        self.rest()
        self.shoot(window, "6-palette")
        window.palette_box.close_palette()
        self.pages(host, context, window)
        window.close()
        self.wait(lambda: context.is_closed)

    def ask(self, context: AppContext, window: MainWindow, text: str) -> None:
        """Ask in a new chat and wait for the answer."""
        window.chat.new_chat()
        self.wait(lambda: not context.session.is_loading)
        window.chat.send(text)
        self.wait(lambda: bool(context.session.messages()) and not context.session.is_busy)

    def pages(self, host: FakeHost, context: AppContext, window: MainWindow) -> None:
        """The pages beside the chat."""
        host.emit(ModelChanged(LoadedModel("qwen3-8b-q4_k_m", "Qwen3 8B", "loading", 0.62)))
        for name in ("models", "benchmark", "settings"):
            window.show_page(name)
            self.rest()
            self.shoot(window, f"7-{name}")
        window.show_page("server")
        self.shoot(window, "8-server-off")
        host.emit(
            ApiChanged(
                ApiState(
                    ApiOptions(enabled=True, host="0.0.0.0"),
                    True,
                    ("http://127.0.0.1:1234/v1", "http://192.168.1.20:1234/v1"),
                    (ApiKeyInfo("Editor", 0.0),),
                )
            )
        )
        self.rest()
        self.shoot(window, "8-server-on")
        window.show_page("hardware")
        for at in range(40):
            host.emit(HardwareChanged(msgspec.structs.replace(hardware_sample(), cpu=varied(at))))
            self.rest(0.02)
        self.rest()
        self.shoot(window, "9-hardware-cpu")
        for at in range(60):
            host.emit(HardwareChanged(msgspec.structs.replace(hardware_sample(), cpu=varied(at), gpus=(gpu(at),))))
            self.rest(0.02)
        self.rest()
        self.shoot(window, "9-hardware-gpu")
        del context


def varied(at: int) -> object:
    """A processor whose load moves."""
    return msgspec.structs.replace(
        hardware_sample().cpu, utilisation_percent=30 + 25 * ((at * 37) % 11) / 11, temperature_c=45 + at % 9
    )


def gpu(at: int) -> GpuSample:
    """A graphics processor that is slowed down by its power limit."""
    return GpuSample(
        0,
        "NVIDIA GeForce RTX 4070",
        "nvidia",
        memory_total_bytes=12_282_000_000,
        memory_used_bytes=6_900_000_000 + at * 10_000_000,
        memory_ours_bytes=6_100_000_000,
        memory_others_bytes=800_000_000,
        utilisation_percent=70 + at % 30,
        temperature_c=60 + at / 5,
        temperature_limit_c=83,
        power_w=170 + (at * 7) % 30,
        power_limit_w=200,
        clock_mhz=2400 + (at * 13) % 200,
        clock_max_mhz=3105,
        throttle_reasons=("Power limit reached",),
        throttled=True,
    )


def main() -> int:
    """Shoot one size: OUT NAME WIDTH HEIGHT [page ...]."""
    out, size, width, height, *only = sys.argv[1:]
    installed = [
        installed_model(),
        installed_model(
            "qwen3-8b-q4_k_m",
            "Qwen3 8B",
            publisher="Qwen",
            architecture="qwen3",
            quantization="Q4_K_M",
            n_params=8_190_735_360,
            size_bytes=5_027_783_488,
            n_ctx_train=40_960,
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
    with tempfile.TemporaryDirectory() as data, FakeHost(installed=installed) as host:
        Shooter(Path(out), size, int(width), int(height), only).run(host, DataFolder(Path(data)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
