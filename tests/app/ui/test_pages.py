import msgspec
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel, QWidget
from pytestqt.qtbot import QtBot

from app.context import AppContext
from app.ui.appearance import Appearance
from app.ui.pages.benchmark import RUNS, BenchmarkPage
from app.ui.pages.hardware import HISTORY, HardwarePage
from app.ui.pages.settings import SettingsPage
from app.ui.window import MainWindow
from runtime.messages.api import HardwareChanged
from tests.app.ui.conftest import WAIT_MS
from tests.app.ui.test_status_bar import GPU
from tests.fakes.answers import hardware_sample
from tests.fakes.fake_host import FakeHost


def texts(widget: QWidget) -> str:
    return "\n".join(label.text() for label in widget.findChildren(QLabel) if not label.isHidden())


def test_when_readings_come_then_cards_show_them_and_the_history_is_bounded(
    qtbot: QtBot, live_window: MainWindow, fake_host: FakeHost
) -> None:
    page = live_window.page_widget("hardware")
    assert isinstance(page, HardwarePage)
    hot = msgspec.structs.replace(GPU, throttled=True, throttle_reasons=("Too hot",))
    sample = msgspec.structs.replace(hardware_sample(), gpus=(hot,), notes=("A sensor is missing.",))
    for _ in range(HISTORY + 10):
        page._show_sample(sample)
    shown = texts(page)
    for fact in (
        "71 °C",
        "6.0 / 8.0 GB",
        "180 / 200 W",
        "Slowed down",
        "Too hot",
        "A sensor is missing.",
        "not available",
    ):
        assert fact in shown
    (card,) = page._gpu_cards.values()
    assert all(len(tile.history) == HISTORY for tile in card._tiles)
    fake_host.emit(HardwareChanged(hardware_sample()))
    qtbot.waitUntil(lambda: "No graphics processor was found" in texts(page), timeout=WAIT_MS)


def test_when_the_benchmark_is_started_then_it_measures_and_its_table_can_be_copied(
    qtbot: QtBot, live_window: MainWindow, fake_host: FakeHost
) -> None:
    page = live_window.page_widget("benchmark")
    assert isinstance(page, BenchmarkPage)
    live_window.show_page("benchmark")
    QTest.mouseClick(page._start, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: len(page.results) == 1, timeout=WAIT_MS)
    assert len(fake_host.chats) == RUNS
    assert len({chat.messages[0].content.split(".")[0] for chat in fake_host.chats}) == RUNS
    (result,) = page.results
    assert result.generation_tps == 50.0
    assert result.prompt_tps == 120.0
    qtbot.waitUntil(lambda: "50.0 tok/s" in texts(page), timeout=WAIT_MS)  # the row shows at the next layout
    assert page.markdown().count("\n") == 2


def test_when_no_model_is_loaded_then_the_benchmark_says_what_to_do(window: MainWindow) -> None:
    page = window.page_widget("benchmark")
    assert isinstance(page, BenchmarkPage)
    assert not page._start.isEnabled()
    assert "Load a model first" in texts(page)


def test_when_settings_are_changed_then_they_count_at_once(
    qtbot: QtBot, live_window: MainWindow, context: AppContext, appearance: Appearance
) -> None:
    page = live_window.page_widget("settings")
    assert isinstance(page, SettingsPage)
    page._theme.activated.emit(page._theme.findData("dark"))
    assert appearance.tokens.dark
    page._theme.activated.emit(page._theme.findData("system"))
    model = context.link.installed[0]
    page._model.activated.emit(page._model.findData(model.id))
    assert context.settings.values.last_model == model.id
    assert str(context.folder.root) in texts(page)
    del qtbot
