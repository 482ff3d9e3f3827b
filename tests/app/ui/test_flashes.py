"""No widget is shown before it has a place: it would be a window of its own for a moment."""

import traceback
from collections.abc import Callable, Iterator

import pytest
from PySide6.QtCore import QEvent, QObject
from PySide6.QtWidgets import QApplication, QDialog, QMainWindow, QMenu, QWidget
from pytestqt.qtbot import QtBot

from app.call import Call
from app.context import AppContext
from app.ui.appearance import Appearance
from app.ui.models.hub_page import HubPage
from app.ui.models.page import ModelsPage
from app.ui.window import MainWindow
from runtime.messages.api import InstalledChanged
from runtime.messages.library import Download, Job
from tests.app.ui.conftest import WAIT_MS
from tests.fakes.answers import installed_model
from tests.fakes.fake_host import FakeHost

WINDOWS = (QMainWindow, QMenu, QDialog)


class Watch(QObject):
    """Notes every widget that is shown as a window though it is none."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        is_shown = event.type() == QEvent.Type.Show and isinstance(watched, QWidget) and watched.isWindow()
        if is_shown and not isinstance(watched, WINDOWS):
            where = [frame for frame in traceback.extract_stack() if "/app/" in frame.filename][-1:]
            self.found.append(f"{type(watched).__name__}: {where}")
        return False


@pytest.fixture
def watch(qapp: QApplication) -> Iterator[Watch]:
    one = Watch()
    qapp.installEventFilter(one)
    yield one
    qapp.removeEventFilter(one)


def test_when_pages_are_opened_and_filled_then_no_part_of_them_flashes_as_a_window(
    watch: Watch, qtbot: QtBot, context: AppContext, appearance: Appearance, fake_host: FakeHost
) -> None:
    fake_host.library.downloads = [Download("d", "org/repo", "a.gguf", "Q8_0", "paused", 1, 2)]
    fake_host.library.jobs = [Job("j", "verify", "m", "Check", "done", result="Right.")]
    window = MainWindow(context, appearance)
    window.show()
    with qtbot.waitSignal(context.link.connected, timeout=WAIT_MS):
        context.link.attach(fake_host.host_file)
    for name in ("models", "server", "benchmark", "hardware", "settings", "chat"):
        window.show_page(name)
    page = window.page_widget("models")
    assert isinstance(page, ModelsPage)
    window.show_page("models")
    fake_host.emit(InstalledChanged((installed_model(), installed_model("f", "F", quantization="F16"))))
    qtbot.waitUntil(lambda: len(page.installed._cards) == 2, timeout=WAIT_MS)
    page.show_tab("downloads")
    page.show_tab("discover")
    qtbot.waitUntil(lambda: bool(page.discover._shown_picks), timeout=WAIT_MS)
    page.open_hub_model("Qwen/Qwen3-8B-GGUF")
    cover = page.cover
    assert isinstance(cover, HubPage)
    qtbot.waitUntil(lambda: cover._verdicts is not None and not cover._build.is_running, timeout=WAIT_MS)
    next(iter(cover.rows.values())).set_open(True)
    page.show_tab("installed")
    models = {model.id: model for model in context.link.installed}
    shows: tuple[Callable[[], None], ...] = (
        lambda: page.open_plan(models["f"]),
        lambda: page.open_quantize(models["f"]),
        page.open_folders,
    )
    for show in shows:
        show()
        assert page.cover is not None
        page.go_back()  # while its answers are on their way
        show()
        qtbot.waitUntil(lambda: not page.findChildren(Call), timeout=WAIT_MS)
        page.go_back()
    window.close()
    window.deleteLater()
    assert not watch.found
