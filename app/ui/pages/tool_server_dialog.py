"""Setting up a tool server: by form, or by pasting what another program has."""

from PySide6.QtCore import QCoreApplication, Qt
from PySide6.QtWidgets import (
    QCheckBox,
    QDialog,
    QFrame,
    QHBoxLayout,
    QLineEdit,
    QPlainTextEdit,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from app.link import HostLink
from app.tools_link import ToolsLink
from app.ui.controls.buttons import push_button
from app.ui.controls.fields import ChoiceField, IntField
from app.ui.controls.labels import label
from app.ui.controls.states import Message, Waiting
from app.ui.theme import Size, Space
from app.ui.tools.words import count_of
from runtime.errors import Failure
from runtime.messages.tools import ToolServerConfig, ToolServerInfo, ToolsState, Transport

LINES_H = 3
"""Rows of text that fields of several lines show."""

MAX_TIMEOUT_S = 3600
EXAMPLE = (
    '{"mcpServers": {"files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "."]}}}'
)


def tr(text: str) -> str:
    """Translate in these dialogs' context."""
    return QCoreApplication.translate("ToolServerDialog", text)


def pairs_of(text: str, separator: str) -> dict[str, str]:
    """Names and values, one a line."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(separator)
        if name.strip():
            found[name.strip()] = value.strip()
    return found


class _Form(QDialog):
    """A heading, fields with a label above each, a message, and buttons."""

    def __init__(self, title: str, parent: QWidget | None) -> None:
        super().__init__(parent)
        self.setWindowTitle(title)
        self.setMinimumWidth(Size.DIALOG_W)
        self.outer = QVBoxLayout(self)
        self.outer.setContentsMargins(Space.L, Space.L, Space.L, Space.M)
        self.outer.setSpacing(Space.XS)
        self.outer.addWidget(label(title, "heading"))
        area = QScrollArea()
        area.setWidgetResizable(True)
        area.setFrameShape(QFrame.Shape.NoFrame)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._inside = QWidget()
        self._inside.setProperty("role", "scrolled")
        self.column = QVBoxLayout(self._inside)
        self.column.setContentsMargins(Size.FOCUS, 0, Space.S, 0)
        self.column.setSpacing(Space.XS)
        area.setWidget(self._inside)
        self.outer.addWidget(area, 1)

    def fit(self) -> None:
        """As high as the fields need, if the screen is."""
        room = self.screen().availableGeometry().height() - Space.XL * 2
        fields = self._inside.sizeHint().height() + Space.S
        frame = self.outer.sizeHint().height() - self.outer.itemAt(1).sizeHint().height()  # type: ignore[union-attr]
        self.resize(self.width(), min(room, fields + frame))

    def field(self, title: str, text: str, control: QWidget) -> QWidget:
        """A control under its name, with a sentence below."""
        holder = QWidget()
        inside = QVBoxLayout(holder)
        inside.setContentsMargins(0, 0, 0, 0)
        inside.setSpacing(Size.FOCUS)
        name = label(title)
        name.setBuddy(control)
        control.setAccessibleName(title)
        control.setAccessibleDescription(text)
        inside.addWidget(name)
        inside.addWidget(control)
        if text:
            inside.addWidget(label(text, "small", wrap=True))
        self.column.addWidget(holder)
        return holder

    @staticmethod
    def lines() -> QPlainTextEdit:
        """A field of several lines."""
        made = QPlainTextEdit()
        made.setProperty("kind", "field")
        made.setTabChangesFocus(True)
        made.setFixedHeight(made.fontMetrics().lineSpacing() * LINES_H + Space.M)
        return made


class ServerDialog(_Form):
    """Adds a server, or changes one."""

    def __init__(self, link: HostLink, config: ToolServerConfig | None = None, parent: QWidget | None = None) -> None:
        super().__init__(tr("Change a tool server") if config else tr("Add a tool server"), parent)
        self._servers = ToolsLink(link, self)
        self._before = config
        self.name = QLineEdit()
        self.field(tr("Name"), "", self.name)
        self.kind = ChoiceField()
        self.kind.addItem(tr("A program on this computer"), "stdio")
        self.kind.addItem(tr("An address (streamable HTTP)"), "http")
        self.kind.addItem(tr("An address (older form, SSE)"), "sse")
        self.kind.currentIndexChanged.connect(lambda _at: self._show_kind())
        self.field(tr("Reached by"), "", self.kind)
        self.command = QLineEdit()
        self.arguments = self.lines()
        self.variables = self.lines()
        self.folder = QLineEdit()
        keeps = tr("Values are kept in the system's keyring and not shown again. Left empty, a kept one stays.")
        self._of_program = [
            self.field(
                tr("Program"), tr("For example npx, uvx or a full path. It runs with your rights."), self.command
            ),
            self.field(tr("Arguments"), tr("One a line."), self.arguments),
            self.field(tr("Variables"), f"{tr('NAME=value, one a line.')} {keeps}", self.variables),
            self.field(tr("Working folder"), tr("Empty for your home folder."), self.folder),
        ]
        self.url = QLineEdit()
        self.url.setPlaceholderText("https://example.org/mcp")
        self.headers = self.lines()
        self._of_address = [
            self.field(tr("Address"), "", self.url),
            self.field(
                tr("Headers"),
                f"{tr('Name: value, one a line; for example Authorization: Bearer …')} {keeps}",
                self.headers,
            ),
        ]
        self.at_start = QCheckBox(tr("Start it with Deskside"))
        self.at_start.setChecked(True)
        self.column.addWidget(self.at_start)
        self.timeout = IntField()
        self.timeout.setRange(1, MAX_TIMEOUT_S)
        self.timeout.setValue(int(ToolServerConfig("x").timeout_s))
        self.timeout.setFixedWidth(Size.FIELD_SMALL_W)
        self.field(tr("Seconds a call may be silent"), "", self.timeout)
        self.message = Message()
        self.outer.addWidget(self.message)
        self._waiting = Waiting()
        self.outer.addWidget(self._waiting)
        buttons = QHBoxLayout()
        buttons.setSpacing(Space.XS)
        self.test = push_button(tr("Test"), self.try_out)
        buttons.addWidget(self.test)
        buttons.addStretch(1)
        buttons.addWidget(push_button(tr("Cancel"), self.reject))
        self.save = push_button(tr("Save") if config else tr("Add"), self.keep, kind="primary")
        self.save.setDefault(True)
        buttons.addWidget(self.save)
        self.outer.addLayout(buttons)
        if config is not None:
            self._show(config)
        self.column.addStretch(1)
        self._show_kind()
        for edit in (self.name, self.command, self.url):
            edit.textChanged.connect(lambda _text: self._look())
        self._look()

    def _show(self, config: ToolServerConfig) -> None:
        self.name.setText(config.name)
        self.kind.setCurrentIndex(self.kind.findData(config.transport))
        self.command.setText(config.command)
        self.arguments.setPlainText("\n".join(config.args))
        self.variables.setPlainText("\n".join(f"{name}={value}" for name, value in config.env.items()))
        self.folder.setText(config.folder)
        self.url.setText(config.url)
        self.headers.setPlainText("\n".join(f"{name}: {value}" for name, value in config.headers.items()))
        self.at_start.setChecked(config.at_start)
        self.timeout.setValue(round(config.timeout_s))

    @property
    def transport(self) -> Transport:
        """The one chosen."""
        chosen: Transport = self.kind.currentData()
        return chosen

    @property
    def config(self) -> ToolServerConfig:
        """What the form says."""
        return ToolServerConfig(
            name=self.name.text().strip(),
            transport=self.transport,
            command=self.command.text().strip(),
            args=tuple(line for line in self.arguments.toPlainText().splitlines() if line.strip()),
            env=pairs_of(self.variables.toPlainText(), "="),
            folder=self.folder.text().strip(),
            url=self.url.text().strip(),
            headers=pairs_of(self.headers.toPlainText(), ":"),
            enabled=self._before.enabled if self._before is not None else True,
            at_start=self.at_start.isChecked(),
            timeout_s=float(self.timeout.value()),
        )

    def _show_kind(self) -> None:
        is_program = self.transport == "stdio"
        for widget in self._of_program:
            widget.setVisible(is_program)
        for widget in self._of_address:
            widget.setVisible(not is_program)
        self._look()
        self.fit()

    def _look(self) -> None:
        where = self.command if self.transport == "stdio" else self.url
        whole = bool(self.name.text().strip() and where.text().strip())
        self.save.setEnabled(whole)
        self.test.setEnabled(whole)

    def try_out(self) -> None:
        """Start it as the form says, without keeping it."""
        self.message.hide()
        self.test.setEnabled(False)
        self._waiting.start(tr("Starting it…"))
        self._servers.test(self.config, self._tested, failed=self._failed)

    def _tested(self, info: ToolServerInfo) -> None:
        self._waiting.stop()
        self.test.setEnabled(True)
        names = ", ".join(tool.title or tool.name for tool in info.tools[:8])
        more = ", …" if len(info.tools) > 8 else ""  # noqa: PLR2004
        self.message.say(
            "note",
            tr("It works: {product}, {count}.").format(product=info.product, count=count_of(len(info.tools)))
            + (f" {names}{more}" if names else ""),
        )

    def keep(self) -> None:
        """Add or change it."""
        self.message.hide()
        self.save.setEnabled(False)
        if self._before is None:
            self._servers.add(self.config, lambda _info: self.accept(), failed=self._failed)
        else:
            self._servers.change(self._before.name, self.config, lambda _info: self.accept(), failed=self._failed)

    def _failed(self, failure: Failure) -> None:
        self._waiting.stop()
        self._look()
        self.message.say_failure(failure)


class PasteDialog(_Form):
    """Adds the servers of a pasted `mcpServers` text."""

    def __init__(self, link: HostLink, parent: QWidget | None = None) -> None:
        super().__init__(tr("Paste the settings of another program"), parent)
        self._servers = ToolsLink(link, self)
        self.add = push_button(tr("Add"), self.keep, kind="primary")
        self.add.setEnabled(False)
        self.text = self.lines()
        self.text.setFixedHeight(self.text.fontMetrics().lineSpacing() * LINES_H * 4)
        self.text.setPlaceholderText(EXAMPLE)
        self.text.textChanged.connect(lambda: self.add.setEnabled(bool(self.text.toPlainText().strip())))
        self.field(
            tr("JSON"),
            tr(
                "Programs keep it under “mcpServers”. Look at each command before you add it: it runs with your rights."
            ),
            self.text,
        )
        self.message = Message()
        self.outer.addWidget(self.message)
        buttons = QHBoxLayout()
        buttons.setSpacing(Space.XS)
        buttons.addStretch(1)
        buttons.addWidget(push_button(tr("Cancel"), self.reject))
        buttons.addWidget(self.add)
        self.outer.addLayout(buttons)
        self.fit()

    def keep(self) -> None:
        """Add them."""
        self.add.setEnabled(False)
        self._servers.paste(self.text.toPlainText(), self._added, failed=self._failed)

    def _added(self, _added: ToolsState) -> None:
        self.accept()

    def _failed(self, failure: Failure) -> None:
        self.add.setEnabled(True)
        self.message.say_failure(failure)
