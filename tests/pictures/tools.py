"""Pictures of tools: `python -m tests.pictures.tools OUT NAME WIDTH HEIGHT [state ...]`."""

import sys
import tempfile
from pathlib import Path

import msgspec
from PySide6.QtGui import QPixmap

from app.context import AppContext
from app.store.records import ToolSetup
from app.tool_book import Found
from app.ui.pages.settings import SettingsPage
from app.ui.window import MainWindow
from runtime.messages.shared import MediaPart
from runtime.messages.tools import ResultMedia, ResultText, ToolProgress, ToolResult, ToolReturned, ToolServerConfig
from runtime.paths import DataFolder
from tests.fakes.answers import Reply, calls, words
from tests.fakes.fake_host import FakeHost
from tests.fakes.fake_tools import READING, Script, files_server, returned
from tests.pictures.shoot import Shooter
from tests.support.pictures import png

READ = ("files__read_file", '{"path":"notes/2026/travel.md","encoding":"utf-8"}')
WRITE = ("files__write_file", '{"path":"notes/summary.md","text":"Three days in the Alps, two huts, one rest day."}')


class ToolShooter(Shooter):
    """Cards in every state, the menu, the section of Settings, its dialogs."""

    def run_tools(self, host: FakeHost, folder: DataFolder) -> None:
        """Go through the states."""
        context = AppContext(folder)
        window = MainWindow(context, self.appearance)
        window.close_wanted.connect(context.close)
        window.resize(self.width, self.height)
        window.show()
        context.link.attach(host.host_file)
        self.wait(lambda: context.link.is_connected and bool(context.tools.servers))
        context.tools.set_default(ToolSetup(servers=("files",)))
        self.cards(host, context, window)
        self.menu(window)
        self.settings(host, context, window)
        window.close()
        self.wait(lambda: context.is_closed)

    def cards(self, host: FakeHost, context: AppContext, window: MainWindow) -> None:
        """Asking, running, done, refused, failed."""
        session, page = context.session, window.chat
        host.replies.append(Reply(calls(READ, WRITE, text="I will look at your notes and then write the summary.")))
        page.new_chat()
        self.wait(lambda: not session.is_loading)
        page.send("Summarise my travel notes into a file.")
        self.wait(lambda: len(session.messages()) == 4)
        self.rest(0.6)
        self.shoot(window, "t1-asks")
        host.tools.scripts.append(Script((ToolProgress(0.4, "reading page 2 of 5"), returned("never")), held=True))
        session.tools.allow(session.messages()[2].id, "once")
        self.rest(1.2)
        self.shoot(window, "t2-runs")
        session.stop()
        self.rest(0.4)
        self.shoot(window, "t3-stopped")
        result = ToolResult(
            (ResultText("# Travel\n\nDay one: by train to the valley, up to the first hut."),),
            cut=("The result was cut: 12,345 characters after the first 65,536 are missing.",),
            duration_s=0.42,
        )
        picture = ToolResult(
            (
                ResultText("Maps:"),
                *(ResultMedia(MediaPart("image", png(w, h, seed=w), "image/png")) for w, h in ((900, 600), (400, 700))),
            ),
            duration_s=1,
        )
        host.tools.scripts.append(Script((ToolReturned(result),)))
        host.tools.scripts.append(Script((returned("No space left on the disk.", is_error=True),)))
        host.tools.scripts.append(Script((ToolReturned(picture),)))
        wrong = ("files__read_file", '{"path": notes')
        host.replies.append(Reply(calls(READ, WRITE, READ, wrong)))
        host.replies.append(Reply(words("Your notes are read; the file could not be written, since the disk is full.")))
        page.new_chat()
        self.wait(lambda: not session.is_loading)
        page.send("And again, please.")
        self.wait(lambda: len(session.messages()) == 6)
        for at in (2, 3, 4):
            session.tools.allow(session.messages()[at].id, "once")
            self.rest(0.3)
        self.wait(lambda: not session.is_busy)
        for turn in page.transcript.turns:
            if turn.parts is not None and turn.parts.tool is not None:
                turn.parts.tool.result_fold.click()
        self.rest(0.8)
        self.shoot(window, "t4-done")
        page.transcript.verticalScrollBar().setValue(0)
        self.rest(0.6)
        self.shoot(window, "t5-done-top")

    def menu(self, window: MainWindow) -> None:
        """The menu of the composer."""
        if not self.wants("t6-menu"):
            return
        for theme in ("light", "dark"):
            window.choose_theme(theme)
            menu = window.chat.tools_button.menu_now()
            menu.popup(window.mapToGlobal(window.rect().center()))
            self.rest(0.3)
            menu.grab().save(str(self.out / f"t6-menu-{theme}-{self.size}.png"))
            menu.close()

    def settings(self, host: FakeHost, context: AppContext, window: MainWindow) -> None:
        """The section of Settings."""
        server = context.tools.servers[0]
        found = Found(server, next(tool for tool in server.tools if tool.call_name == "files__read_file"))
        context.tools.allow_always(found)
        broken = ToolServerConfig(
            "weather", "http", url="https://weather.example.org/mcp", headers={"Authorization": ""}
        )
        host.tools.show(
            host,
            files_server(
                tools=(
                    *files_server().tools,
                    msgspec.structs.replace(
                        READING, name="large", title="", problem="The schema of its arguments has 100,000 characters."
                    ),
                ),
                left_out=3,
            ),
            files_server(
                config=broken,
                state="failed",
                tools=(),
                problem="The server refused to let Deskside in (401).",
                hint="Put a valid token into the header Authorization, or remove that header to sign in by browser.",
            ),
            files_server(
                config=ToolServerConfig("notes", "http", url="https://notes.example.org/mcp"),
                state="failed",
                tools=(),
                problem="The server asks who you are (401).",
                needs_sign_in=True,
            ),
            files_server(
                config=ToolServerConfig("calendar", "http", url="https://calendar.example.org/mcp"),
                state="signing_in",
                tools=(),
                needs_sign_in=True,
                sign_in_url="https://login.example.org/",
            ),
            files_server(config=ToolServerConfig("search", command="uvx", enabled=False), state="off", tools=()),
        )
        window.show_page("settings")
        self.rest(0.5)
        page = window.findChild(SettingsPage)
        assert page is not None
        for name in ("files", "weather", "notes", "calendar"):
            page.tool_servers.rows[name].set_open(True)
        self.rest(0.3)
        bar = page.area.verticalScrollBar()
        bar.setValue(page.tool_servers.y() - 24)
        self.rest(0.3)
        self.shoot(window, "t7-settings")
        bar.setValue(page.tool_servers.y() + page.tool_servers.rows["weather"].y())
        self.rest(0.3)
        self.shoot(window, "t7-sign-in")
        bar.setValue(page.permissions.y() - 300)
        self.rest(0.3)
        self.shoot(window, "t8-permissions")
        form = page.tool_servers.open_form(files_server().config)
        self._dialog(window, form.grab, "t9-form")
        form.reject()
        paste = page.tool_servers.open_paste()
        self._dialog(window, paste.grab, "t10-paste")
        paste.reject()

    def _dialog(self, window: MainWindow, grab: object, name: str) -> None:
        if not self.wants(name):
            return
        for theme in ("light", "dark"):
            window.choose_theme(theme)
            self.rest(0.3)
            picture = grab()  # type: ignore[operator]
            assert isinstance(picture, QPixmap)
            picture.save(str(self.out / f"{name}-{theme}-{self.size}.png"))


def main() -> int:
    """Shoot one size: OUT NAME WIDTH HEIGHT [state ...]."""
    out, size, width, height, *only = sys.argv[1:]
    with tempfile.TemporaryDirectory() as data, FakeHost() as host:
        host.tools.servers = [files_server()]
        ToolShooter(Path(out), size, int(width), int(height), only).run_tools(host, DataFolder(Path(data)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
