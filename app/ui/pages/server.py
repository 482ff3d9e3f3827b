"""Server: the API switch, its address, port, keys and origins, and snippets that work as they stand."""

from functools import partial

import msgspec
from PySide6.QtCore import QCoreApplication, Qt, Signal
from PySide6.QtWidgets import (
    QButtonGroup,
    QCheckBox,
    QFrame,
    QHBoxLayout,
    QInputDialog,
    QLineEdit,
    QVBoxLayout,
    QWidget,
)

from app.context import AppContext
from app.ui.appearance import Appearance
from app.ui.controls.buttons import IconButton, TintedButton, push_button
from app.ui.controls.fields import IntField
from app.ui.controls.labels import ElidedLabel, label
from app.ui.controls.switch import Switch
from app.ui.pages.base import Card, Page, SettingRow, clear_layout
from app.ui.pages.snippets import SNIPPETS, snippet
from app.ui.theme import Size, Space
from runtime.messages.api import ApiKeyInfo, ApiState, NewKeyAnswer
from runtime.options import ApiOptions

EVERYWHERE = "0.0.0.0"  # noqa: S104 - only by the person's own switch, with a warning beside it
HERE = "127.0.0.1"
LARGEST_PORT = 65_535


def tr(text: str) -> str:
    """Translate in this page's context."""
    return QCoreApplication.translate("ServerPage", text)


class ServerPage(Page):
    """Shows `ApiState` and changes `ApiOptions`."""

    copied = Signal(str)

    def __init__(self, context: AppContext, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(
            tr("Server"),
            tr("Other programs on this computer can use the loaded models through an OpenAI-compatible API."),
            parent,
        )
        self._link = context.link
        self._appearance = appearance
        self._language = "curl"
        self._snippet = label("")
        self._build_switch()
        self._build_snippets()
        self._build_keys()
        self._build_options()
        self.column.addStretch(1)
        self._link.api_changed.connect(self._show)
        self._link.connected.connect(self._show)
        self._link.disconnected.connect(self._show)
        self._link.models_changed.connect(self._show_snippet)
        self._show()

    @property
    def _state(self) -> ApiState | None:
        return self._link.api

    @property
    def _options(self) -> ApiOptions:
        state = self._state
        return state.options if state is not None else ApiOptions()

    def _change(self, **changes: object) -> None:
        self._link.set_api(msgspec.structs.replace(self._options, **changes))

    # --- building

    def _build_switch(self) -> None:
        card = Card()
        row = QHBoxLayout()
        row.setSpacing(Space.M)
        self._switch = Switch(self._appearance, tr("API for other programs"), large=True)
        self._switch.clicked.connect(self._on_switch)
        row.addWidget(self._switch)
        words = QVBoxLayout()
        words.setSpacing(Space.HAIR)
        self._headline = label("", "read")
        self._detail = label("", "small", wrap=True)
        words.addWidget(self._headline)
        words.addWidget(self._detail)
        row.addLayout(words, 1)
        card.column.addLayout(row)
        self._addresses = QVBoxLayout()
        self._addresses.setSpacing(Space.HAIR)
        card.column.addLayout(self._addresses)
        self._warning = QFrame()
        self._warning.setProperty("role", "warning")
        inside = QVBoxLayout(self._warning)
        inside.setContentsMargins(Space.S, Space.XS, Space.S, Space.XS)
        self._warning_text = label("", wrap=True)
        inside.addWidget(self._warning_text)
        card.column.addWidget(self._warning)
        self.column.addWidget(card)

    def _build_snippets(self) -> None:
        card = Card(tr("Try it"))
        self._tabs = QButtonGroup(self)
        for name in SNIPPETS:
            tab = push_button(name, partial(self._choose_snippet, name), kind="quiet")
            tab.setCheckable(True)
            tab.setChecked(name == self._language)
            self._tabs.addButton(tab)
            card.head.addWidget(tab)
        copy = IconButton(self._appearance, "copy", tr("Copy the snippet"))
        copy.clicked.connect(lambda _checked=False: self.copied.emit(self._snippet.text()))
        card.head.addWidget(copy)
        frame = QFrame()
        frame.setProperty("role", "code-card")
        inside = QVBoxLayout(frame)
        inside.setContentsMargins(Space.M, Space.S, Space.M, Space.S)
        self._snippet.setFont(self._appearance.font(code=True))
        self._snippet.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self._snippet.setAccessibleName(tr("Snippet"))
        self._snippet.setMinimumWidth(Size.TRANSCRIPT_MIN_W)
        inside.addWidget(self._snippet)
        card.column.addWidget(frame)
        self.column.addWidget(card)

    def _build_keys(self) -> None:
        card = Card(tr("API keys"))
        new = TintedButton(self._appearance, "key", tr("New key"))
        new.clicked.connect(lambda _checked=False: self._ask_key_name())
        card.head.addWidget(new)
        self._keys_text = label("", "small", wrap=True)
        card.column.addWidget(self._keys_text)
        self._new_key = QFrame()
        self._new_key.setProperty("role", "note")
        inside = QHBoxLayout(self._new_key)
        inside.setContentsMargins(Space.S, Space.XS, Space.S, Space.XS)
        self._new_key_text = label("", wrap=True)
        self._new_key_text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        inside.addWidget(self._new_key_text, 1)
        self._copy_key = push_button(tr("Copy"), self._copy_new_key)
        inside.addWidget(self._copy_key)
        self._new_key.hide()
        self._key = ""
        card.column.addWidget(self._new_key)
        self._keys = QVBoxLayout()
        self._keys.setSpacing(Space.HAIR)
        card.column.addLayout(self._keys)
        self.column.addWidget(card)

    def _build_options(self) -> None:
        card = Card(tr("Options"))
        self._port = IntField()
        self._port.setRange(0, LARGEST_PORT)
        self._port.setKeyboardTracking(False)
        self._port.setFixedWidth(Size.FIELD_SMALL_W + Space.L)
        self._port.editingFinished.connect(self._on_port)
        card.column.addWidget(SettingRow(tr("Port"), tr("0 lets the system choose a free one."), self._port))
        self._lan = Switch(self._appearance, tr("Reachable from the local network"))
        self._lan.clicked.connect(lambda checked=False: self._change(host=EVERYWHERE if checked else HERE))
        card.column.addWidget(
            SettingRow(
                tr("Reachable from the local network"),
                tr("Off: only programs on this computer. On: every device in the same network that has the address."),
                self._lan,
            )
        )
        self._origins = QLineEdit()
        self._origins.setPlaceholderText("https://example.com")
        self._origins.setFixedWidth(Size.FIELD_W + Space.XL)
        self._origins.editingFinished.connect(self._on_origins)
        card.column.addWidget(
            SettingRow(
                tr("Allowed origins"),
                tr("Web pages that may call the API, apart by spaces. None by default, so that no page you visit can."),
                self._origins,
            )
        )
        self._keep = QCheckBox(tr("Keep on"))
        self._keep.setAccessibleName(tr("Keep the API on when the window is closed"))
        self._keep.clicked.connect(lambda checked=False: self._change(keep_when_window_closes=checked))
        card.column.addWidget(
            SettingRow(tr("When the window is closed"), tr("The API and the loaded models stay on."), self._keep)
        )
        self.column.addWidget(card)

    # --- showing

    def _show(self, _change: object = None) -> None:
        state, options = self._state, self._options
        known = state is not None and self._link.is_connected
        on = state is not None and state.running
        for widget in (self._switch, self._port, self._lan, self._origins, self._keep):
            widget.setEnabled(known)
        self._switch.setChecked(on)
        self._switch.set_busy(False)
        self._headline.setText(tr("The API is on") if on else tr("The API is off"))
        if not known:
            self._detail.setText(tr("The engine is starting."))
        elif state is not None and state.problem:
            self._detail.setText(state.problem)
        elif on:
            self._detail.setText(tr("Served: /v1/models, /v1/chat/completions, /v1/completions, /v1/embeddings"))
        else:
            self._detail.setText(tr("Turn it on, and other programs can use the models at a local address."))
        clear_layout(self._addresses)
        for address in state.addresses if state is not None and on else ():
            self._addresses.addWidget(self._address_row(address))
        lan = options.host not in (HERE, "localhost", "::1")
        self._lan.setChecked(lan)
        self._warning.setVisible(lan)
        no_key = state is not None and not state.keys
        text = tr("The API can be reached from other devices in this network.")
        self._warning_text.setText(
            f"{text} {tr('Anyone there can use it: make an API key below.')}" if no_key else text
        )
        if not self._port.hasFocus():
            self._port.setValue(options.port)
        if not self._origins.hasFocus():
            self._origins.setText(" ".join(options.allowed_origins))
        self._keep.setChecked(options.keep_when_window_closes)
        self._show_keys(state.keys if state is not None else ())
        self._show_snippet()

    def _address_row(self, address: str) -> QWidget:
        frame = QFrame()
        frame.setProperty("role", "code-card")
        row = QHBoxLayout(frame)
        row.setContentsMargins(Space.M, Space.HAIR, Space.HAIR, Space.HAIR)
        words = ElidedLabel(address)
        words.setFont(self._appearance.font(code=True))
        row.addWidget(words, 1)
        copy = IconButton(self._appearance, "copy", tr("Copy {address}").format(address=address))
        copy.clicked.connect(lambda _checked=False: self.copied.emit(address))
        row.addWidget(copy)
        return frame

    def _show_keys(self, keys: tuple[ApiKeyInfo, ...]) -> None:
        self._keys_text.setText(
            tr("Requests need one of these keys.")
            if keys
            else tr("No key: requests need none. With a key, each needs one.")
        )
        clear_layout(self._keys)
        for key in keys:
            line = QWidget()
            row = QHBoxLayout(line)
            row.setContentsMargins(0, 0, 0, 0)
            row.addWidget(ElidedLabel(key.name), 1)
            delete = IconButton(self._appearance, "trash", tr("Delete the key {name}").format(name=key.name))
            delete.clicked.connect(lambda _checked=False, name=key.name: self._link.delete_key(name))
            row.addWidget(delete)
            self._keys.addWidget(line)

    def _show_snippet(self) -> None:
        state = self._state
        address = state.addresses[0] if state is not None and state.addresses else f"http://{HERE}:{self._options.port}"
        ready = next((model.id for model in self._link.loaded if model.state == "ready"), "")
        with_key = state is not None and bool(state.keys)
        self._snippet.setText(snippet(self._language, address, ready or "model-name", with_key=with_key))

    # --- what a person does

    def _choose_snippet(self, name: str) -> None:
        self._language = name
        self._show_snippet()

    def _on_switch(self, checked: bool) -> None:
        self._switch.set_busy(True)
        self._change(enabled=checked)

    def _on_port(self) -> None:
        if self._port.value() != self._options.port:
            self._change(port=self._port.value())

    def _on_origins(self) -> None:
        origins = tuple(self._origins.text().replace(",", " ").split())
        if origins != self._options.allowed_origins:
            self._change(allowed_origins=origins)

    def _ask_key_name(self) -> None:
        dialog = QInputDialog(self)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setWindowTitle(tr("New API key"))
        dialog.setLabelText(tr("Name of the key (which program is it for?)"))
        dialog.textValueSelected.connect(self._make_key)
        dialog.open()

    def _make_key(self, name: str) -> None:
        if name.strip():
            self._link.new_key(name.strip(), self._show_new_key)

    def _show_new_key(self, answer: NewKeyAnswer) -> None:
        self._key = answer.key
        self._new_key_text.setText(
            tr("Key “{name}”: {key}\nCopy it now; it is not shown again.").format(name=answer.name, key=answer.key)
        )
        self._new_key.show()

    def _copy_new_key(self) -> None:
        self.copied.emit(self._key)
