"""What the tests of the models page share."""

from collections.abc import Callable

import pytest
from PySide6.QtWidgets import QAbstractButton, QWidget
from pytestqt.qtbot import QtBot

from app.ui.models.page import ModelsPage
from app.ui.window import MainWindow
from tests.app.ui.conftest import WAIT_MS

Until = Callable[[Callable[[], object]], None]


def button(root: QWidget, name: str) -> QAbstractButton:
    """The button with this accessible name or text."""
    for each in root.findChildren(QAbstractButton):
        if name in (each.accessibleName(), each.text()) and each.isVisibleTo(root):
            return each
    raise AssertionError(f"no button is called {name!r}")


@pytest.fixture
def page(live_window: MainWindow) -> ModelsPage:
    live_window.show_page("models")
    one = live_window.page_widget("models")
    assert isinstance(one, ModelsPage)
    return one


@pytest.fixture
def until(qtbot: QtBot) -> Until:
    def wait(condition: Callable[[], object]) -> None:
        qtbot.waitUntil(lambda: bool(condition()), timeout=WAIT_MS)

    return wait
