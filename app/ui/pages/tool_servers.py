"""The section of Settings about tools: the servers, and what may run without a question."""

import msgspec
from PySide6.QtCore import QCoreApplication, QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication
from PySide6.QtWidgets import QDialog, QFrame, QHBoxLayout, QPlainTextEdit, QVBoxLayout

from app.context import AppContext
from app.tool_book import Permission
from app.tools_link import ToolsLink
from app.ui.appearance import Appearance
from app.ui.controls.buttons import IconButton, push_button
from app.ui.controls.labels import ElidedLabel, label
from app.ui.controls.states import Message
from app.ui.controls.switch import Switch
from app.ui.pages.base import Card, SettingRow, clear_layout
from app.ui.pages.tool_server_dialog import PasteDialog, ServerDialog
from app.ui.pages.tool_server_row import ServerRow
from app.ui.theme import Size, Space, Type
from runtime.errors import Failure
from runtime.messages.tools import ToolServerConfig, ToolServerInfo, ToolServerLog


def tr(text: str) -> str:
    """Translate in these cards' context."""
    return QCoreApplication.translate("ToolCards", text)


class ServersCard(Card):
    """The list follows the host's events."""

    def __init__(self, context: AppContext, appearance: Appearance) -> None:
        super().__init__(tr("Tools"))
        self._link = context.link
        self._book = context.tools
        self._removals = context.tool_removals
        self._servers = ToolsLink(context.link, self)
        self._appearance = appearance
        self.rows: dict[str, ServerRow] = {}
        self._signing_in: dict[str, bool] = {}
        """Sign-ins begun here, and whether the host was seen waiting for the browser."""

        self.column.addWidget(
            label(
                tr(
                    "Tool servers (MCP) are programs that let a model look something up or do something for you. "
                    "They run with your rights, so only add ones you trust. You are asked before a tool runs; which "
                    "tools a model knows, you choose in each chat."
                ),
                "small",
                wrap=True,
            )
        )
        self._list = QVBoxLayout()
        self._list.setSpacing(0)
        self.column.addLayout(self._list)
        self._empty = label(tr("There is none yet."), "muted")
        self.column.addWidget(self._empty)
        self.message = Message()
        self.column.addWidget(self.message)
        buttons = QHBoxLayout()
        buttons.setSpacing(Space.XS)
        self.add = push_button(tr("Add a server"), lambda: self.open_form(None))
        self.paste = push_button(tr("Paste settings of another program"), self.open_paste)
        buttons.addWidget(self.add)
        buttons.addWidget(self.paste)
        buttons.addStretch(1)
        self.column.addLayout(buttons)
        self._book.changed.connect(self.refresh)
        context.link.connected.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show the servers as they are now."""
        servers = self._book.servers
        names = [server.config.name for server in servers]
        if names != list(self.rows):
            clear_layout(self._list)
            self.rows = {server.config.name: self._row(server) for server in servers}
            for row in self.rows.values():
                self._list.addWidget(row)
        for server in servers:
            self.rows[server.config.name].show_server(server)
            self._look_at_sign_in(server)
        self._empty.setVisible(not servers)
        for button in (self.add, self.paste):
            button.setEnabled(self._link.is_connected)

    def _row(self, server: ToolServerInfo) -> ServerRow:
        name = server.config.name
        row = ServerRow(self._appearance, server)
        row.enabled_wanted.connect(lambda on: self._enable(name, on=on))
        row.edit_wanted.connect(lambda: self._edit(name))
        row.remove_wanted.connect(lambda: self._removals.remove(name))
        row.restart_wanted.connect(lambda: self._restart(name))
        row.sign_in_wanted.connect(lambda: self._sign_in(name))
        row.sign_in_stopped.connect(lambda: self._servers.cancel_sign_in(name, failed=self._failed))
        row.sign_out_wanted.connect(lambda: self._servers.sign_out(name, failed=self._failed))
        row.page_wanted.connect(lambda: self._open_page(self._address(name)))
        row.address_wanted.connect(lambda: QGuiApplication.clipboard().setText(self._address(name)))
        row.log_wanted.connect(lambda: self._servers.log(name, lambda log: self._show_log(name, log)))
        return row

    def _config(self, name: str) -> ToolServerConfig | None:
        return next((server.config for server in self._book.servers if server.config.name == name), None)

    def _enable(self, name: str, *, on: bool) -> None:
        config = self._config(name)
        if config is not None:
            self.message.hide()
            self._servers.change(name, msgspec.structs.replace(config, enabled=on), failed=self._failed)

    def _edit(self, name: str) -> None:
        config = self._config(name)
        if config is not None:
            self.open_form(config)

    def _restart(self, name: str) -> None:
        self.message.hide()
        self._servers.start(name, anew=True, failed=self._failed)

    def _sign_in(self, name: str) -> None:
        self.message.hide()
        self._signing_in[name] = False
        self._servers.sign_in(name, lambda begun: self._open_page(begun.url), failed=self._failed)

    def _address(self, name: str) -> str:
        return next((server.sign_in_url for server in self._book.servers if server.config.name == name), "")

    def _open_page(self, address: str) -> None:
        """Open the page of a sign-in in the person's browser."""
        url = QUrl(address)
        if url.scheme() in {"http", "https"} and QDesktopServices.openUrl(url):
            return
        self.message.say(
            "warning",
            tr("No browser could be opened. Open the address of the sign-in yourself."),
            tr("Copy the address"),
            lambda: QGuiApplication.clipboard().setText(address),
        )

    def _look_at_sign_in(self, server: ToolServerInfo) -> None:
        """Come back to the front when a sign-in that was begun here has led somewhere."""
        name = server.config.name
        if name not in self._signing_in:
            return
        if server.state == "signing_in":
            self._signing_in[name] = True
        elif self._signing_in[name] and server.state in {"ready", "failed"}:
            del self._signing_in[name]
            if server.state == "ready":
                self.message.say("note", tr("You are signed in to {name}.").format(name=name))
            self.window().activateWindow()

    def _failed(self, failure: Failure) -> None:
        self.message.say_failure(failure)

    def open_form(self, config: ToolServerConfig | None) -> ServerDialog:
        """Open the form, for a new server or this one."""
        dialog = ServerDialog(self._link, config, self)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()
        return dialog

    def open_paste(self) -> PasteDialog:
        """Open the dialog that takes the settings of another program."""
        dialog = PasteDialog(self._link, self)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()
        return dialog

    def _show_log(self, name: str, log: ToolServerLog) -> None:
        dialog = QDialog(self)
        dialog.setWindowTitle(tr("Log of {name}").format(name=name))
        dialog.resize(Size.PALETTE_W, Size.PALETTE_H)
        column = QVBoxLayout(dialog)
        column.setContentsMargins(Space.M, Space.M, Space.M, Space.M)
        text = QPlainTextEdit("\n".join(log.lines) or tr("It has written nothing."))
        text.setReadOnly(True)
        text.setProperty("kind", "code")
        text.setFont(self._appearance.font(Type.SMALL, code=True))
        text.setAccessibleName(dialog.windowTitle())
        column.addWidget(text)
        column.addWidget(push_button(tr("Close"), dialog.accept))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()


class PermissionsCard(Card):
    """What may run without a question in every chat."""

    def __init__(self, context: AppContext, appearance: Appearance) -> None:
        super().__init__(tr("Tools that run without asking"))
        self._book = context.tools
        self._appearance = appearance
        self._shown: tuple[Permission, ...] | None = None
        self.trust = Switch(appearance, tr("Trust tools that say they only read"))
        self.trust.clicked.connect(self._book.trust_read_only)
        self.column.addWidget(
            SettingRow(
                tr("Trust tools that say they only read"),
                tr("The server says so itself, and nobody checks it. What they read may leave this computer."),
                self.trust,
            )
        )
        self._list = QVBoxLayout()
        self._list.setSpacing(0)
        self.column.addLayout(self._list)
        self._empty = label(tr("No tool is always allowed. Each call asks."), "muted", wrap=True)
        self.column.addWidget(self._empty)
        self._book.changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show the permissions as they are now."""
        self.trust.setChecked(self._book.trusts_read_only)
        allowed = self._book.allowed
        if allowed == self._shown:
            return
        self._shown = allowed
        clear_layout(self._list)
        for permission in allowed:
            self._list.addWidget(self._row(permission))
        self._empty.setVisible(not allowed)

    def _row(self, permission: Permission) -> QFrame:
        server, tool, _ = permission
        frame = QFrame()
        frame.setProperty("role", "row")
        row = QHBoxLayout(frame)
        row.setContentsMargins(0, Space.XS, 0, Space.XS)
        row.addWidget(ElidedLabel(f"{server} · {tool}"), 1)
        revoke = IconButton(
            self._appearance, "close", tr("Ask again before {tool} of {server} runs").format(tool=tool, server=server)
        )
        revoke.clicked.connect(lambda _checked=False: self._book.revoke(permission))
        row.addWidget(revoke)
        return frame
