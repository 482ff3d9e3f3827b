"""A tool server in the list: its state at a glance; unfolded, its tools and what can be done with it."""

from PySide6.QtCore import QCoreApplication, Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.ui.appearance import Appearance
from app.ui.controls.buttons import IconButton, push_button
from app.ui.controls.labels import ElidedLabel, breakable, label, set_tone
from app.ui.controls.switch import Switch
from app.ui.pages.base import clear_layout
from app.ui.theme import Size, Space
from app.ui.tools.words import count_of, state_of
from runtime.messages.tools import ToolInfo, ToolServerInfo

MAX_DESCRIPTION_CHARS = 300
"""Of a tool in the list; the whole is shown when a call asks."""


def tr(text: str) -> str:
    """Translate in this row's context."""
    return QCoreApplication.translate("ToolServerRow", text)


class ServerRow(QFrame):
    """Changes itself with `show_server`, so that focus and fold stay."""

    enabled_wanted = Signal(bool)
    edit_wanted = Signal()
    remove_wanted = Signal()
    restart_wanted = Signal()
    log_wanted = Signal()
    sign_in_wanted = Signal()
    sign_in_stopped = Signal()
    sign_out_wanted = Signal()
    page_wanted = Signal()
    """The page of the sign-in once more."""

    address_wanted = Signal()
    """The address of that page, to copy."""

    def __init__(self, appearance: Appearance, server: ToolServerInfo, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("role", "row")
        self._appearance = appearance
        self._shown_tools: tuple[ToolInfo, ...] | None = None
        self._at_a_glance = self._unfolded = ""
        name = server.config.name
        column = QVBoxLayout(self)
        column.setContentsMargins(0, Space.XS, 0, Space.XS)
        column.setSpacing(Space.XS)
        row = QHBoxLayout()
        row.setSpacing(Space.XS)
        self.inside = QWidget()
        self.fold = IconButton(appearance, "chevron-right", tr("Show the tools of {name}").format(name=name))
        self.fold.clicked.connect(lambda _checked=False: self.set_open(self.inside.isHidden()))
        row.addWidget(self.fold)
        title = ElidedLabel(name, "strong")
        title.setMinimumWidth(Size.LABEL_W - Size.CONTROL_H)
        row.addWidget(title)
        self._state = label("", "tag")
        row.addWidget(self._state, 0, Qt.AlignmentFlag.AlignVCenter)
        self._line = ElidedLabel("", "small")
        row.addWidget(self._line, 1)
        self.sign_in = push_button(tr("Sign in"), self.sign_in_wanted.emit, kind="primary")
        self.sign_in.setAccessibleName(tr("Sign in to {name}").format(name=name))
        row.addWidget(self.sign_in)
        self.stop = push_button(tr("Stop waiting"), self.sign_in_stopped.emit)
        self.stop.setAccessibleName(tr("Stop the sign-in to {name}").format(name=name))
        row.addWidget(self.stop)
        for icon, text, signal in (
            ("edit", tr("Change {name}"), self.edit_wanted),
            ("trash", tr("Remove {name}"), self.remove_wanted),
        ):
            button = IconButton(appearance, icon, text.format(name=name))
            button.clicked.connect(lambda _checked=False, signal=signal: signal.emit())
            row.addWidget(button)
        self.switch = Switch(appearance, tr("{name} may run").format(name=name))
        self.switch.clicked.connect(self.enabled_wanted)
        row.addWidget(self.switch)
        column.addLayout(row)
        self._fill_inside()
        column.addWidget(self.inside)
        self.inside.hide()
        self.show_server(server)

    def _fill_inside(self) -> None:
        inner = QVBoxLayout(self.inside)
        inner.setContentsMargins(Size.CONTROL_H + Space.XS, 0, 0, Space.XS)
        inner.setSpacing(Space.XS)
        self._problem = label("", "warn", wrap=True)
        inner.addWidget(self._problem)
        self._about = label("", "small", wrap=True)
        inner.addWidget(self._about)
        self._tools = QVBoxLayout()
        self._tools.setSpacing(Space.XS)
        inner.addLayout(self._tools)
        buttons = QHBoxLayout()
        buttons.setSpacing(Space.XS)
        self.page = push_button(tr("Open the page again"), self.page_wanted.emit)
        buttons.addWidget(self.page)
        self.address = push_button(tr("Copy its address"), self.address_wanted.emit)
        buttons.addWidget(self.address)
        self.restart = push_button(tr("Start again"), self.restart_wanted.emit)
        buttons.addWidget(self.restart)
        self.log = push_button(tr("Show log"), self.log_wanted.emit)
        buttons.addWidget(self.log)
        self.sign_out = push_button(tr("Sign out"), self.sign_out_wanted.emit)
        buttons.addWidget(self.sign_out)
        buttons.addStretch(1)
        inner.addLayout(buttons)

    def set_open(self, opened: bool) -> None:
        """Show or hide the tools."""
        self.inside.setVisible(opened)
        self.fold.set_icon_name("chevron-down" if opened else "chevron-right")
        self._show_line()

    def _show_line(self) -> None:
        """What is wrong stands below once it is unfolded, whole."""
        self._line.setText(self._at_a_glance if self.inside.isHidden() else self._unfolded)

    def show_server(self, server: ToolServerInfo) -> None:
        """Show it as it is now."""
        config = server.config
        words, tone = state_of(server)
        self._state.setText(words)
        set_tone(self._state, tone)
        usable = count_of(len(server.tools))
        where = config.command if config.transport == "stdio" else config.url
        self._at_a_glance = f"{usable} · {where}" if server.state == "ready" else server.problem or where
        self._unfolded = f"{usable} · {where}" if server.state == "ready" else where
        self._show_line()
        self.setAccessibleName(f"{config.name}, {words}, {self._at_a_glance}")
        self.switch.setChecked(config.enabled)
        waits = server.state == "signing_in"
        self.sign_in.setVisible(server.needs_sign_in and not waits)
        self.stop.setVisible(waits)
        for button in (self.page, self.address):
            button.setVisible(waits and bool(server.sign_in_url))
        self.restart.setVisible(not waits)
        self.sign_out.setVisible(config.signed_in and not waits)
        hint = tr("Press Sign in: your browser opens, and comes back by itself.")
        problem = " ".join(part for part in (server.problem, hint if server.needs_sign_in else server.hint) if part)
        if waits:
            problem = tr("Finish the sign-in in your browser. It comes back by itself.")
        set_tone(self._problem, "muted" if waits else "warn")
        self._problem.setText(breakable(problem))
        self._problem.setVisible(bool(problem) and server.state != "ready")
        self._about.setText(breakable(self._facts(server)))
        self.restart.setEnabled(config.enabled)
        if server.tools != self._shown_tools:
            self._shown_tools = server.tools
            clear_layout(self._tools)
            for tool in server.tools:
                self._tools.addWidget(_tool(tool))

    @staticmethod
    def _facts(server: ToolServerInfo) -> str:
        config = server.config
        parts = [server.product]
        if config.transport == "stdio":
            parts.append(" ".join((config.command, *config.args)))
        else:
            parts.append(config.url)
        if config.signed_in:
            parts.append(tr("you are signed in"))
        if server.secrets:
            kept = {"keyring": tr("secrets in the system's keyring"), "file": tr("secrets in a private file")}
            parts.append(kept[server.secrets])
        if server.left_out:
            parts.append(tr("{n} more tools are left out").format(n=server.left_out))
        if server.restarts:
            parts.append(tr("started again {n} times").format(n=server.restarts))
        return "  ·  ".join(part for part in parts if part)


def _tool(tool: ToolInfo) -> QWidget:
    made = QWidget()
    column = QVBoxLayout(made)
    column.setContentsMargins(0, 0, 0, 0)
    column.setSpacing(0)
    head = QHBoxLayout()
    head.setSpacing(Space.XS)
    head.addWidget(label(tool.title or tool.name))
    if tool.title:
        head.addWidget(label(tool.name, "small"))
    if tool.destructive:
        head.addWidget(label(tr("Says it may destroy data"), "tag-amber"))
    elif tool.read_only:
        head.addWidget(label(tr("Says it only reads"), "tag"))
    head.addStretch(1)
    column.addLayout(head)
    text = tool.description.strip()
    if len(text) > MAX_DESCRIPTION_CHARS:
        text = f"{text[:MAX_DESCRIPTION_CHARS].rstrip()}…"
    if text:
        column.addWidget(label(breakable(text), "small", wrap=True))
    if tool.problem:
        column.addWidget(label(tr("Not offered to models. {why}").format(why=tool.problem), "warn", wrap=True))
    return made
