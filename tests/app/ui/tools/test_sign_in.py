"""Signing in to a tool server from Settings: the browser opens, the row waits, and the window comes back."""

import msgspec
import pytest
from PySide6.QtCore import QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication
from pytestqt.qtbot import QtBot

from app.context import AppContext
from app.ui.pages.settings import SettingsPage
from app.ui.pages.tool_server_row import ServerRow
from app.ui.pages.tool_servers import ServersCard
from app.ui.window import MainWindow
from runtime.messages.tools import ToolServerConfig, ToolServerInfo
from tests.app.ui.conftest import WAIT_MS
from tests.fakes.fake_host import FakeHost
from tests.fakes.fake_tools import SIGN_IN_URL, files_server

ASKS = ToolServerInfo(
    ToolServerConfig("notes", "http", url="https://notes.example.org/mcp"),
    "failed",
    "The server asks who you are (401).",
    "Sign in under Settings, or with `deskside tools sign-in`.",
    needs_sign_in=True,
)


class Browser:
    """Takes the addresses that would be opened."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.is_there = True

    def open(self, url: QUrl) -> bool:
        self.opened.append(url.toString())
        return self.is_there


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> Browser:
    made = Browser()
    monkeypatch.setattr(QDesktopServices, "openUrl", made.open)
    return made


@pytest.fixture
def card(live_window: MainWindow, context: AppContext, fake_host: FakeHost, qtbot: QtBot) -> ServersCard:
    """The section of Settings with a server that asks for a sign-in, unfolded."""
    fake_host.tools.show(fake_host, ASKS)
    qtbot.waitUntil(lambda: bool(context.tools.servers), timeout=WAIT_MS)
    live_window.show_page("settings")
    page = live_window.findChild(SettingsPage)
    assert page is not None
    page.tool_servers.rows["notes"].set_open(True)
    return page.tool_servers


def says(row: ServerRow, qtbot: QtBot, words: str) -> None:
    qtbot.waitUntil(lambda: words in row.accessibleName(), timeout=WAIT_MS)


def test_when_a_server_asks_who_you_are_then_one_button_signs_in_and_the_window_comes_back(
    card: ServersCard, browser: Browser, fake_host: FakeHost, qtbot: QtBot
) -> None:
    row = card.rows["notes"]
    says(row, qtbot, "Needs a sign-in")
    assert "Press Sign in" in row._problem.text()
    assert not row.sign_out.isVisibleTo(row)
    row.sign_in.click()
    says(row, qtbot, "Waits for your browser")
    qtbot.waitUntil(lambda: browser.opened == [SIGN_IN_URL], timeout=WAIT_MS)
    assert not row.sign_in.isVisibleTo(row)
    assert "Finish the sign-in in your browser" in row._problem.text()
    row.page.click()
    assert browser.opened == [SIGN_IN_URL] * 2
    row.address.click()
    assert QGuiApplication.clipboard().text() == SIGN_IN_URL

    signed_in = msgspec.structs.replace(ASKS.config, signed_in=True)
    fake_host.tools.set(
        fake_host, "notes", config=signed_in, state="ready", problem="", hint="", needs_sign_in=False, sign_in_url="",
        tools=files_server().tools,
    )  # fmt: skip
    says(row, qtbot, "Ready")
    assert card.message.text == "You are signed in to notes."
    assert row.sign_out.isVisibleTo(row)
    assert "you are signed in" in row._about.text()
    row.sign_out.click()
    says(row, qtbot, "Needs a sign-in")
    assert not row.sign_out.isVisibleTo(row)


def test_when_the_wait_is_stopped_then_the_row_says_so_and_offers_it_again(
    card: ServersCard, browser: Browser, qtbot: QtBot
) -> None:
    row = card.rows["notes"]
    row.sign_in.click()
    qtbot.waitUntil(lambda: row.stop.isVisibleTo(row) and bool(browser.opened), timeout=WAIT_MS)
    row.stop.click()
    says(row, qtbot, "Needs a sign-in")
    assert row._problem.text().startswith("The sign-in was stopped.")
    assert row.sign_in.isVisibleTo(row)


def test_when_no_browser_opens_then_the_address_can_be_copied(
    card: ServersCard, browser: Browser, qtbot: QtBot
) -> None:
    browser.is_there = False
    card.rows["notes"].sign_in.click()
    qtbot.waitUntil(lambda: "No browser" in card.message.text, timeout=WAIT_MS)
    card.message._button.click()
    assert QGuiApplication.clipboard().text() == SIGN_IN_URL


def test_when_the_address_is_no_page_then_nothing_is_opened(card: ServersCard, browser: Browser) -> None:
    card._open_page("file:///etc/passwd")
    assert browser.opened == []
    assert "No browser" in card.message.text
