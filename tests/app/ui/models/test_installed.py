from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel, QWidget
from pytestqt.qtbot import QtBot

from app.context import AppContext
from app.ui.models.page import ModelsPage
from app.ui.window import MainWindow
from runtime.messages.api import InstalledChanged
from tests.app.ui.conftest import WAIT_MS
from tests.fakes.answers import installed_model
from tests.fakes.fake_host import FakeHost


def texts(widget: QWidget) -> str:
    return "\n".join(label.text() for label in widget.findChildren(QLabel) if not label.isHidden())


def test_when_models_are_installed_then_each_is_listed_with_its_facts(
    qtbot: QtBot, live_window: MainWindow, fake_host: FakeHost, context: AppContext
) -> None:
    page = live_window.page_widget("models")
    assert isinstance(page, ModelsPage)
    broken = installed_model("broken", "Broken", problem="The file ends too early.")
    fake_host.emit(InstalledChanged((installed_model(), broken)))
    qtbot.waitUntil(lambda: len(page.installed._cards) == 2, timeout=WAIT_MS)
    shown = texts(page)
    for fact in (
        "SmolLM2 135M Instruct",
        "HuggingFaceTB",
        "135M parameters",
        "Q4_1",
        "98.4 MB",
        "8,192 tokens context",
    ):
        assert fact in shown
    assert "The file ends too early." in shown
    assert "2 models on this computer" in shown
    assert page.installed._cards["broken"]._buttons["load"].isHidden()
    del context


def test_when_a_model_is_unloaded_and_loaded_from_its_card_then_the_host_does_it(
    qtbot: QtBot, live_window: MainWindow, fake_host: FakeHost, context: AppContext
) -> None:
    page = live_window.page_widget("models")
    assert isinstance(page, ModelsPage)
    live_window.show_page("models")
    (card,) = page.installed._cards.values()
    QTest.mouseClick(card._buttons["unload"], Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: not context.link.loaded, timeout=WAIT_MS)
    assert not card._buttons["load"].isHidden()
    QTest.mouseClick(card._buttons["load"], Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: bool(context.link.loaded) and context.link.loaded[0].state == "ready", timeout=WAIT_MS)
    assert fake_host.loads
    assert "Loaded" in texts(card)
    assert context.settings.values.last_model == card.model.id


def test_when_no_model_is_installed_then_the_page_says_what_to_do(
    qtbot: QtBot, live_window: MainWindow, fake_host: FakeHost
) -> None:
    page = live_window.page_widget("models")
    fake_host.emit(InstalledChanged(()))
    qtbot.waitUntil(lambda: "Choose one under Discover" in texts(page), timeout=WAIT_MS)


def test_when_words_are_typed_into_the_filter_then_only_models_with_them_stay(live_window: MainWindow) -> None:
    page = live_window.page_widget("models")
    assert isinstance(page, ModelsPage)
    QTest.keyClicks(page.installed._filter, "smol q4")
    (card,) = page.installed._cards.values()
    assert not card.isHidden()
    QTest.keyClicks(page.installed._filter, " qwen")
    assert card.isHidden()
    assert "No model has these words" in texts(page)
