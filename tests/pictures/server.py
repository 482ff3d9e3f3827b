"""The server page of one size; see `tests.pictures`."""

import sys
import tempfile
from pathlib import Path

import msgspec

from app.context import AppContext
from app.ui.server.keys_card import KeyDialog
from app.ui.server.page import ServerPage
from app.ui.window import MainWindow
from runtime import units
from runtime.messages.api import (
    ApiChanged,
    ApiKeyInfo,
    ApiState,
    Certificate,
    EngineSample,
    ModelChanged,
    RequestInfo,
    RequestState,
)
from runtime.options import ApiOptions, KeyLimits
from runtime.paths import DataFolder
from tests.fakes.answers import MODEL_ID, ready_model
from tests.fakes.fake_host import FakeHost
from tests.pictures.shoot import Shooter


def api(**options: object) -> ApiState:
    """A served API with keys."""
    now_s = units.now()
    return ApiState(
        msgspec.structs.replace(ApiOptions(enabled=True), **options),
        True,
        ("https://127.0.0.1:1234", "https://192.168.1.20:1234") if options else ("http://127.0.0.1:1234",),
        (
            ApiKeyInfo("Editor", now_s, KeyLimits(60, 4, 2_000_000), now_s - 95, 1_204, 2, 3_420_118, 220_410),
            ApiKeyInfo("Phone of Maria", now_s - 9_000_000),
        )
        if options
        else (),
        dialects=("openai", "responses", "anthropic", "ollama", "llama.cpp"),
        certificate=Certificate(
            ":".join(f"{(at * 37) % 256:02X}" for at in range(32)),
            now_s + 30_000_000,
            ("localhost", "127.0.0.1", "192.168.1.20"),
            "/home/maria/deskside/certificate.pem",
            is_own=True,
        )
        if options
        else None,
    )


def requests() -> tuple[RequestInfo, ...]:
    """Some of every state."""
    now_s = units.now()
    states: tuple[RequestState, ...] = (
        "generating",
        "generating",
        "prompt",
        "queued",
        "loading",
        "finished",
        "failed",
        "cancelled",
        "finished",
    )
    return tuple(
        RequestInfo(
            f"r{at}",
            "/v1/chat/completions",
            MODEL_ID if at % 3 else "qwen3-8b-q4_k_m",
            "window" if at == 1 else f"192.168.1.{20 + at}",
            state,
            now_s - at * 7,
            1_200 * at % 5_000,
            (at * 331) % 900 if at not in (2, 3, 4) else 0,
            0.12 * at if at not in (2, 3, 4) else 0.0,
            41.5 - at * 2 if at not in (2, 3, 4) else 0.0,
            "The model's process ended." if state == "failed" else "",
            "Editor" if at % 2 else "",
        )
        for at, state in enumerate(states)
    )


class ServerShooter(Shooter):
    """Takes the states of the server page."""

    def run(self, host: FakeHost, folder: DataFolder) -> None:
        """Go through them."""
        context = AppContext(folder)
        window = MainWindow(context, self.appearance)
        window.close_wanted.connect(context.close)
        window.resize(self.width, self.height)
        window.show()
        context.link.attach(host.host_file)
        self.wait(lambda: context.link.is_connected and not context.session.is_loading)
        window.show_page("server")
        page = window.page_widget("server")
        assert isinstance(page, ServerPage)
        self.rest()
        self.shoot(window, "s-off")
        host.emit(ApiChanged(api()))
        busy = msgspec.structs.replace(
            ready_model(), engine=EngineSample(active=2, waiting=1, generation_tps=78.2, resident_bytes=612_000_000)
        )
        host.emit(ModelChanged(busy))
        idle = ready_model("qwen3-8b-q4_k_m", "Qwen3 8B")
        host.emit(ModelChanged(msgspec.structs.replace(idle, unload_at_s=units.now() + 2_500)))
        host.requests = requests()
        self.wait(lambda: page.requests.model.rowCount() > 1)
        page.requests.table.selectRow(0)
        self.rest()
        self.shoot(window, "s-activity")
        host.emit(
            ApiChanged(api(host="0.0.0.0", tls="own", request_log="metadata", allowed_origins=("https://a.org",)))
        )
        self.rest()
        for name in ("Python", "Claude Code", "Zed"):
            page.show_tab("connect")
            page.connect_card.choose(name)
            self.rest()
            self.shoot(window, f"s-connect-{name.lower().replace(' ', '-')}")
        page.show_tab("keys")
        page.keys.make_key("Scripts")
        self.wait(page.keys.new_key.isVisible)
        host.emit(ApiChanged(api(host="0.0.0.0", tls="own")))
        self.rest()
        self.shoot(window, "s-keys")
        dialog = KeyDialog("Limits of Editor", "Editor", KeyLimits(60, 4, 2_000_000), page)
        dialog.show()
        self.rest()
        if self.wants("s-key-limits"):
            dialog.grab().save(str(self.out / f"s-key-limits-{self.size}.png"))
        dialog.close()
        page.show_tab("settings")
        self.rest()
        self.shoot(window, "s-settings")
        page.area.verticalScrollBar().setValue(page.area.verticalScrollBar().maximum())
        self.rest()
        self.shoot(window, "s-settings-end")
        window.close()
        self.wait(lambda: context.is_closed)


def main() -> int:
    """Shoot one size: OUT NAME WIDTH HEIGHT [page ...]."""
    out, size, width, height, *only = sys.argv[1:]
    shooter = ServerShooter(Path(out), size, int(width), int(height), only)
    if only and not any(one.startswith("s") for one in only):
        return 0
    with tempfile.TemporaryDirectory() as data, FakeHost() as host:
        shooter.run(host, DataFolder(Path(data)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
