"""The server page in a live window."""

import pytest

from app.ui.server.page import ServerPage
from app.ui.window import MainWindow


@pytest.fixture
def page(live_window: MainWindow) -> ServerPage:
    one = live_window.page_widget("server")
    assert isinstance(one, ServerPage)
    live_window.show_page("server")
    return one
