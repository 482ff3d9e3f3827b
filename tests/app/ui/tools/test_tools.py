"""Tools in the window: the card of a call, the button of the composer, the section of Settings."""

from collections.abc import Callable

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMenu
from pytestqt.qtbot import QtBot

from app.context import AppContext
from app.store.records import ToolSetup
from app.tool_book import Found
from app.ui.pages.settings import SettingsPage
from app.ui.pages.tool_servers import ServersCard
from app.ui.transcript.tool_card import ToolCard
from app.ui.window import MainWindow
from runtime.errors import ToolServerFault, to_failure
from runtime.messages.tools import ToolServerConfig
from tests.app.ui.conftest import WAIT_MS
from tests.fakes.answers import Reply, calls
from tests.fakes.fake_host import FakeHost
from tests.fakes.fake_tools import Script, files_server, returned

READ = ("files__read_file", '{"path":"a.txt"}')


@pytest.fixture
def tooled(live_window: MainWindow, context: AppContext, fake_host: FakeHost, qtbot: QtBot) -> MainWindow:
    """A window whose chats use the tools of `files`."""
    fake_host.tools.show(fake_host, files_server())
    qtbot.waitUntil(lambda: bool(context.tools.servers), timeout=WAIT_MS)
    context.tools.set_default(ToolSetup(servers=("files",)))
    return live_window


Call = Callable[..., ToolCard]


@pytest.fixture
def call(tooled: MainWindow, context: AppContext, fake_host: FakeHost, qtbot: QtBot) -> Call:
    """Have the model call a tool; answers the card."""

    def make(made: tuple[str, str] = READ) -> ToolCard:
        qtbot.waitUntil(lambda: not context.session.is_loading, timeout=WAIT_MS)
        fake_host.replies.append(Reply(calls(made)))
        tooled.chat.send("do it")
        found: list[ToolCard] = []

        def look() -> bool:
            found[:] = [
                turn.parts.tool
                for turn in tooled.chat.transcript.turns
                if turn.parts is not None and turn.parts.tool is not None
            ]
            return bool(found)

        qtbot.waitUntil(look, timeout=WAIT_MS)
        return found[0]

    return make


def test_when_a_tool_asks_then_the_card_shows_all_of_it_and_the_keyboard_answers(
    call: Call, context: AppContext, fake_host: FakeHost, qtbot: QtBot
) -> None:
    card = call()
    assert "Asks for your permission" in card.accessibleName()
    assert "files · Read a file" in card.accessibleName()
    assert card.arguments.toPlainText() == '{\n  "path": "a.txt"\n}'
    assert card.allow_once.isVisibleTo(card)
    for button in (card.allow_once, card.allow_here, card.allow_always, card.deny):
        assert button.focusPolicy() & Qt.FocusPolicy.TabFocus
        assert "Read a file" in button.accessibleName()
    fake_host.tools.scripts.append(Script((returned('{"lines":2}'),)))
    card.allow_once.setFocus()
    QTest.keyClick(card.allow_once, Qt.Key.Key_Space)
    qtbot.waitUntil(lambda: not context.session.is_busy, timeout=WAIT_MS)
    qtbot.waitUntil(lambda: "Done" in card.accessibleName(), timeout=WAIT_MS)
    assert not card.allow_once.isVisibleTo(card)
    assert not card.result.isVisibleTo(card)
    height = card.height()
    card.result_fold.click()
    assert card.result.toPlainText() == '{\n  "lines": 2\n}'
    qtbot.waitUntil(lambda: card.height() > height, timeout=WAIT_MS)


def test_when_denied_then_the_card_says_so(call: Call, context: AppContext, qtbot: QtBot) -> None:
    card = call()
    card.deny.click()
    qtbot.waitUntil(lambda: not context.session.is_busy, timeout=WAIT_MS)
    qtbot.waitUntil(lambda: "Refused by you" in card.accessibleName(), timeout=WAIT_MS)


def test_when_the_text_of_a_stranger_has_markup_then_it_is_shown_as_it_stands(
    call: Call, context: AppContext, fake_host: FakeHost, qtbot: QtBot
) -> None:
    server = files_server()
    evil = msgspec.structs.replace(server.tools[0], title="<b>x</b>", description="<img src='http://x'>")
    fake_host.tools.show(fake_host, msgspec.structs.replace(server, tools=(evil,)))
    qtbot.waitUntil(lambda: context.tools.servers[0].tools[0].title == "<b>x</b>", timeout=WAIT_MS)
    card = call()
    assert "<b>x</b>" in card.accessibleName()
    assert card._about.text() == "<img src='http://x'>"
    assert card._about.textFormat() == Qt.TextFormat.PlainText
    context.session.stop()


def test_when_stopped_then_the_person_can_go_on(
    tooled: MainWindow, call: Call, context: AppContext, qtbot: QtBot
) -> None:
    call()
    context.session.stop()
    qtbot.waitUntil(lambda: not context.session.is_busy, timeout=WAIT_MS)
    parts = tooled.chat.transcript.turns[-1].parts
    assert parts is not None
    qtbot.waitUntil(parts.go_on.isVisible, timeout=WAIT_MS)
    parts.go_on.click()
    qtbot.waitUntil(lambda: len(context.session.messages()) == 4 and not context.session.is_busy, timeout=WAIT_MS)


def test_when_tools_are_chosen_then_the_button_counts_them(
    tooled: MainWindow, context: AppContext, qtbot: QtBot
) -> None:
    qtbot.waitUntil(lambda: not context.session.is_loading, timeout=WAIT_MS)
    button = tooled.chat.tools_button
    qtbot.waitUntil(lambda: button.text() == "2", timeout=WAIT_MS)
    menu = button.menu_now()
    server = next(action for action in menu.actions() if action.text().startswith("files"))
    assert server.isChecked()
    inner = next(one for one in menu.findChildren(QMenu) if one.actions())
    inner.actions()[1].setChecked(False)
    assert button.text() == "1"
    assert context.session.tools.setup.off == (("files", "write_file"),)
    server.setChecked(False)
    assert button.text() == ""
    assert "none" in button.accessibleName()
    menu.deleteLater()


@pytest.fixture
def servers(tooled: MainWindow, qtbot: QtBot) -> ServersCard:
    """The section of Settings."""
    tooled.show_page("settings")
    page = tooled.findChild(SettingsPage)
    assert page is not None
    qtbot.waitUntil(lambda: bool(page.tool_servers.rows), timeout=WAIT_MS)
    return page.tool_servers


def test_when_a_server_is_added_by_form_then_it_is_tried_and_stands_in_the_list(
    servers: ServersCard, fake_host: FakeHost, qtbot: QtBot
) -> None:
    dialog = servers.open_form(None)
    assert not dialog.save.isEnabled()
    dialog.name.setText("time")
    dialog.command.setText("uvx")
    dialog.arguments.setPlainText("mcp-server-time\n--local")
    dialog.variables.setPlainText("KEY=a=b\n\nOTHER=")
    fake_host.tools.test_failure = to_failure(ToolServerFault("It did not answer.", hint="Look at it.", server="time"))
    dialog.test.click()
    qtbot.waitUntil(lambda: "did not answer" in dialog.message.text, timeout=WAIT_MS)
    fake_host.tools.test_failure = None
    dialog.test.click()
    qtbot.waitUntil(lambda: "It works" in dialog.message.text, timeout=WAIT_MS)
    assert fake_host.tools.tried[-1] == ToolServerConfig(
        "time", command="uvx", args=("mcp-server-time", "--local"), env={"KEY": "a=b", "OTHER": ""}
    )
    dialog.save.click()
    qtbot.waitUntil(lambda: "time" in servers.rows, timeout=WAIT_MS)


def test_when_settings_are_pasted_then_their_servers_stand_in_the_list(servers: ServersCard, qtbot: QtBot) -> None:
    dialog = servers.open_paste()
    dialog.text.setPlainText("{")
    dialog.add.click()
    qtbot.waitUntil(lambda: "no JSON" in dialog.message.text, timeout=WAIT_MS)
    dialog.text.setPlainText('{"mcpServers": {"wiki": {"url": "https://example.org/mcp"}}}')
    dialog.add.click()
    qtbot.waitUntil(lambda: "wiki" in servers.rows, timeout=WAIT_MS)


def test_when_a_server_is_removed_then_it_can_be_undone(
    servers: ServersCard, context: AppContext, fake_host: FakeHost, qtbot: QtBot
) -> None:
    servers.rows["files"].remove_wanted.emit()
    assert "files" not in servers.rows
    context.tool_removals.undo("files")
    assert "files" in servers.rows
    assert fake_host.tools.servers
    servers.rows["files"].remove_wanted.emit()
    context.tool_removals.finish()
    qtbot.waitUntil(lambda: not fake_host.tools.servers, timeout=WAIT_MS)


def test_when_a_server_takes_long_to_end_then_it_does_not_come_back_meanwhile(
    servers: ServersCard, context: AppContext, fake_host: FakeHost, qtbot: QtBot
) -> None:
    fake_host.tools.is_removal_held = True
    servers.rows["files"].remove_wanted.emit()
    context.tool_removals.finish()
    qtbot.waitUntil(lambda: "DELETE /admin/tools/servers" in fake_host.paths, timeout=WAIT_MS)
    assert "files" not in servers.rows
    assert context.session.tools.n_offered == 0
    context.tool_removals.undo("files")
    assert "files" not in servers.rows
    with qtbot.waitSignal(context.link.tools_changed, timeout=WAIT_MS):
        fake_host.tools.released.set()
    assert "files" not in servers.rows
    fake_host.tools.show(fake_host, files_server())
    qtbot.waitUntil(lambda: "files" in servers.rows, timeout=WAIT_MS)


def test_when_a_server_cannot_be_removed_then_it_is_shown_again(
    servers: ServersCard, context: AppContext, fake_host: FakeHost, qtbot: QtBot
) -> None:
    fake_host.tools.servers.clear()  # the host does not know it, and refuses
    servers.rows["files"].remove_wanted.emit()
    with qtbot.waitSignal(context.link.request_failed, timeout=WAIT_MS):
        context.tool_removals.finish()
    assert "files" in servers.rows


def test_when_a_server_is_switched_off_then_the_host_is_told_and_its_tools_are_gone(
    servers: ServersCard, context: AppContext, fake_host: FakeHost, qtbot: QtBot
) -> None:
    servers.rows["files"].switch.click()
    qtbot.waitUntil(lambda: not fake_host.tools.servers[0].config.enabled, timeout=WAIT_MS)
    qtbot.waitUntil(lambda: context.session.tools.n_offered == 0, timeout=WAIT_MS)


def test_when_a_permission_is_revoked_then_it_is_gone(tooled: MainWindow, context: AppContext) -> None:
    tooled.show_page("settings")
    server = context.tools.servers[0]
    found = Found(server, next(tool for tool in server.tools if tool.call_name == "files__read_file"))
    context.tools.allow_always(found)
    page = tooled.findChild(SettingsPage)
    assert page is not None
    assert page.permissions._list.count() == 1
    context.tools.revoke(found.permission)
    assert page.permissions._list.count() == 0
    page.permissions.trust.click()
    assert context.tools.trusts_read_only
