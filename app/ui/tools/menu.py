"""The button in the composer that says which tools the model may ask for in this chat."""

import msgspec
from PySide6.QtCore import QCoreApplication, QPoint, Signal
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu, QWidget

from app.context import AppContext
from app.store.records import ToolSetup
from app.tool_book import ToolBook
from app.tool_rounds import ToolRounds
from app.tools_link import ToolsLink
from app.ui.appearance import Appearance
from app.ui.controls.buttons import IconButton
from app.ui.tools.words import count_of, state_of
from runtime.messages.tools import ToolInfo, ToolServerInfo


def tr(text: str) -> str:
    """Translate in this button's context."""
    return QCoreApplication.translate("ToolsMenu", text)


class ToolsButton(IconButton):
    """Shows how many tools are on; its menu chooses them. What is chosen holds from the next question on."""

    settings_wanted = Signal()

    def __init__(self, context: AppContext, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(appearance, "tool", tr("Tools"), parent, show_text=True)
        self._session = context.session
        self._book: ToolBook = context.tools
        self._rounds: ToolRounds = context.session.tools
        self._servers = ToolsLink(context.link, self)
        self.clicked.connect(lambda _checked=False: self.open_menu())
        self._book.changed.connect(self.refresh)
        self._session.reset.connect(self.refresh)
        self._session.setup.changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show the count."""
        n_on = self._rounds.n_offered
        self.setText(str(n_on) if n_on else "")
        self.setAccessibleName(tr("Tools, {count} on").format(count=count_of(n_on)) if n_on else tr("Tools, none on"))
        self.setToolTip(
            tr("{count} can be used in this chat").format(count=count_of(n_on)) if n_on else tr("Choose tools")
        )

    def menu_now(self) -> QMenu:
        """The menu as things are now."""
        menu = QMenu(self)
        menu.setToolTipsVisible(True)
        servers = self._book.servers
        if not servers:
            nothing = menu.addAction(tr("No tool server is set up yet"))
            nothing.setEnabled(False)
        for server in servers:
            self._add_server(menu, server)
        menu.addSeparator()
        if servers:
            setup = self._rounds.setup
            first = self._check(menu, tr("Always call a tool first"), on=setup.must_call)
            first.setToolTip(tr("For small models, which rarely call a tool by themselves."))
            first.toggled.connect(lambda on: self._change(must_call=on))
            keep = menu.addAction(tr("Use this choice in new chats"))
            keep.triggered.connect(lambda _checked=False: self._book.set_default(self._rounds.setup))
        menu.addAction(tr("Tool servers…")).triggered.connect(lambda _checked=False: self.settings_wanted.emit())
        return menu

    def open_menu(self) -> None:
        """Show the menu above the button."""
        menu = self.menu_now()
        menu.aboutToHide.connect(menu.deleteLater)
        menu.popup(self.mapToGlobal(QPoint(0, -menu.sizeHint().height())))

    def _add_server(self, menu: QMenu, server: ToolServerInfo) -> None:
        name = server.config.name
        setup = self._rounds.setup
        usable = [tool for tool in server.tools if not tool.problem]
        says = count_of(len(usable)) if usable else state_of(server)[0]
        chosen = self._check(menu, f"{name}   ({says})", on=name in setup.servers)
        chosen.setEnabled(server.config.enabled)
        chosen.setToolTip(server.problem)
        chosen.toggled.connect(lambda on: self._choose(server, on=on))
        if usable and name in setup.servers:
            inner = menu.addMenu(tr("Tools of {name}").format(name=name))
            inner.setToolTipsVisible(True)
            for tool in usable:
                self._add_tool(inner, server, tool)

    def _add_tool(self, menu: QMenu, server: ToolServerInfo, tool: ToolInfo) -> None:
        key = (server.config.name, tool.name)
        chosen = self._check(menu, tool.title or tool.name, on=key not in self._rounds.setup.off)
        chosen.setToolTip(tool.description[:500])
        chosen.toggled.connect(lambda on: self._switch(key, on=on))

    @staticmethod
    def _check(menu: QMenu, text: str, *, on: bool) -> QAction:
        action = menu.addAction(text.replace("&", "&&"))
        action.setCheckable(True)
        action.setChecked(on)
        return action

    def _choose(self, server: ToolServerInfo, *, on: bool) -> None:
        name = server.config.name
        others = tuple(one for one in self._rounds.setup.servers if one != name)
        self._change(servers=(*others, name) if on else others)
        if on and server.state == "idle":
            self._servers.start(name)  # its tools are known once it runs

    def _switch(self, key: tuple[str, str], *, on: bool) -> None:
        others = tuple(one for one in self._rounds.setup.off if one != key)
        self._change(off=others if on else (*others, key))

    def _change(self, **changes: object) -> None:
        setup: ToolSetup = msgspec.structs.replace(self._rounds.setup, **changes)
        self._rounds.set_setup(setup)
        self.refresh()
