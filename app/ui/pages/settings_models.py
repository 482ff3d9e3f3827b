"""Settings that hold for all models, and the account at the hub."""

from collections.abc import Callable

import msgspec
from PySide6.QtCore import QCoreApplication
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QLineEdit

from app.context import AppContext
from app.models_link import ModelsLink
from app.ui.appearance import Appearance
from app.ui.controls.buttons import push_button
from app.ui.controls.fields import ChoiceField, IntField
from app.ui.controls.labels import label
from app.ui.controls.states import Message
from app.ui.controls.switch import Switch
from app.ui.pages.base import Card, SettingRow
from app.ui.theme import Size, Space
from runtime.errors import Failure
from runtime.messages.library import HubAccount
from runtime.options import ModelsOptions

GB = 1_000_000_000
MINUTE_S = 60

IDLE_S: tuple[int | None, ...] = (None, 5 * MINUTE_S, 15 * MINUTE_S, 60 * MINUTE_S, 240 * MINUTE_S, 2_592_000)
"""Choices of how long an idle model stays; the last one is the longest there is (30 days)."""

MARGINS: tuple[int | None, ...] = (None, GB // 4, GB // 2, GB, 2 * GB, 4 * GB)
"""Choices of the memory kept free."""

MAX_DOWNLOADS = 16


def tr(text: str) -> str:
    """Translate in these cards' context."""
    return QCoreApplication.translate("ModelSettings", text)


class ModelsCard(Card):
    """Asks the host for the values and sends each change at once."""

    def __init__(self, context: AppContext, appearance: Appearance) -> None:
        super().__init__(tr("Models"))
        self._models = ModelsLink(context.link, self)
        self._link = context.link
        self._options: ModelsOptions | None = None
        self.message = Message()
        self.idle = self._choice(
            tuple(zip(self._idle_words(), IDLE_S, strict=True)), lambda value: self._set(idle_unload_s=value)
        )
        self.gpu = self._choice(self._margin_words(), lambda value: self._set(gpu_margin_bytes=value))
        self.ram = self._choice(self._margin_words(), lambda value: self._set(ram_margin_bytes=value))
        self.demand = Switch(appearance, tr("Load on demand"))
        self.demand.clicked.connect(lambda on: self._set(load_on_demand=on))
        self.at_once = IntField()
        self.at_once.setRange(1, MAX_DOWNLOADS)
        self.at_once.setFixedWidth(Size.FIELD_SMALL_W)
        self.at_once.valueChanged.connect(lambda value: self._set(max_downloads=value))
        for title, text, control in (
            (
                tr("Unload an idle model after"),
                tr(
                    "Its memory becomes free for other programs. Automatic is an hour for one that a program asked for."
                ),
                self.idle,
            ),
            (
                tr("Graphics memory kept free"),
                tr("Left on each GPU for the desktop, games and other programs."),
                self.gpu,
            ),
            (tr("System memory kept free"), tr("Left for the system and other programs."), self.ram),
            (
                tr("Load on demand"),
                tr("When a program asks for a model that is on disk, it is loaded by itself."),
                self.demand,
            ),
            (tr("Downloads at once"), tr("The others wait for their turn."), self.at_once),
        ):
            self.column.addWidget(SettingRow(title, text, control))
        self.column.addWidget(self.message)
        self._link.connected.connect(self.refresh)
        self.refresh()

    @staticmethod
    def _idle_words() -> tuple[str, ...]:
        return (
            tr("Automatic"),
            tr("5 minutes"),
            tr("15 minutes"),
            tr("1 hour"),
            tr("4 hours"),
            tr("30 days"),
        )

    @staticmethod
    def _margin_words() -> tuple[tuple[str, int | None], ...]:
        texts = [tr("Automatic") if size is None else f"{size / GB:g} GB" for size in MARGINS]
        return tuple(zip(texts, MARGINS, strict=True))

    def _choice(self, rows: tuple[tuple[str, int | None], ...], take: Callable[[int | None], None]) -> QComboBox:
        box = ChoiceField()
        box.setFixedWidth(Size.FIELD_W)
        for text, value in rows:
            box.addItem(text, value)
        box.activated.connect(lambda at: take(box.itemData(at)))
        return box

    def refresh(self) -> None:
        """Ask for the values."""
        self.setEnabled(self._options is not None)
        if self._link.is_connected:
            self._models.options(self._show, failed=self._failed)

    def _set(self, **changes: object) -> None:
        if self._options is not None:
            self.message.hide()
            self._options = msgspec.structs.replace(self._options, **changes)
            self._models.set_options(self._options, self._show, failed=self._failed)

    def _show(self, options: ModelsOptions) -> None:
        self._options = None  # what is shown now is not told back
        self._put(self.idle, options.idle_unload_s, tr("{n} minutes"), MINUTE_S)
        self._put(self.gpu, options.gpu_margin_bytes, tr("{n} GB"), GB)
        self._put(self.ram, options.ram_margin_bytes, tr("{n} GB"), GB)
        self.demand.setChecked(options.load_on_demand)
        self.at_once.setValue(options.max_downloads)
        self._options = options
        self.setEnabled(True)

    @staticmethod
    def _put(box: QComboBox, value: int | None, words: str, unit: int) -> None:
        """Choose a value; one that is not offered (set elsewhere) is added."""
        at = next((at for at in range(box.count()) if box.itemData(at) == value), -1)
        if at < 0 and value is not None:
            box.addItem(words.format(n=f"{value / unit:g}"), value)
            at = box.count() - 1
        box.setCurrentIndex(at)

    def _failed(self, failure: Failure) -> None:
        self.message.say_failure(failure, tr("Try again"), self.refresh)


class HubCard(Card):
    """Signing in, a mirror, and offline."""

    def __init__(self, context: AppContext) -> None:
        super().__init__(tr("Model hub"))
        self._models = ModelsLink(context.link, self)
        self._link = context.link
        self._options: ModelsOptions | None = None
        self._text = label("", "", wrap=True)
        self._leave = push_button(tr("Sign out"), self._sign_out)
        self._leave.hide()
        head = QHBoxLayout()
        head.setSpacing(Space.XS)
        head.addWidget(self._text, 1)
        head.addWidget(self._leave)
        self.column.addLayout(head)
        row = QHBoxLayout()
        row.setSpacing(Space.XS)
        self.button = push_button(tr("Sign in"), self.sign_in)
        self.token = QLineEdit()
        self.token.setEchoMode(QLineEdit.EchoMode.Password)
        self.token.setPlaceholderText(tr("Access token"))
        self.token.setAccessibleName(tr("Access token of the hub"))
        self.token.returnPressed.connect(self.sign_in)
        self.token.textChanged.connect(lambda text: self.button.setEnabled(bool(text.strip())))
        row.addWidget(self.token, 1)
        row.addWidget(self.button)
        self.column.addLayout(row)
        self._note = label(
            tr("Only needed for models whose terms must be accepted. Kept in the system's keyring, never in a file."),
            "small",
            wrap=True,
        )
        self.column.addWidget(self._note)
        self.message = Message()
        self.column.addWidget(self.message)
        self.address = QLineEdit()
        self.address.setFixedWidth(Size.CHOICE_W)
        self.address.setPlaceholderText(tr("The hub itself"))
        self.address.editingFinished.connect(lambda: self._set(hub_endpoint=self.address.text().strip()))
        self.column.addWidget(SettingRow(tr("Mirror"), tr("Address of a mirror of the hub."), self.address))
        self.offline = ChoiceField()
        self.offline.setFixedWidth(Size.FIELD_W)
        self.offline.addItem(tr("When I look for models"), False)
        self.offline.addItem(tr("Never (offline)"), True)
        self.offline.activated.connect(lambda at: self._set(offline=bool(self.offline.itemData(at))))
        self.column.addWidget(SettingRow(tr("Contact the hub"), tr("Chats never leave this computer."), self.offline))
        self._link.connected.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Ask who is signed in, and for the settings."""
        self.setEnabled(self._link.is_connected)
        if self._link.is_connected:
            self._models.account(self._show, failed=self._failed)
            self._models.options(self._show_options, failed=lambda _failure: None)

    def _sign_out(self) -> None:
        self._models.sign_in("", self._show, failed=self._failed)

    def sign_in(self) -> None:
        """Sign in with the token that was typed."""
        token = self.token.text().strip()
        if token:
            self.message.hide()
            self.button.setEnabled(False)
            self._models.sign_in(token, self._show, failed=self._failed)

    def _show(self, account: HubAccount) -> None:
        self.setEnabled(True)
        if account.signed_in:
            self._text.setText(tr("Signed in as {name} at {hub}.").format(name=account.name, hub=account.endpoint))
            self.token.clear()
        else:
            self._text.setText(tr("Not signed in at {hub}. Most models need no account.").format(hub=account.endpoint))
        for widget in (self.token, self._note, self.button):
            widget.setVisible(not account.signed_in)
        self._leave.setVisible(account.signed_in)
        self.button.setEnabled(bool(self.token.text().strip()))
        if account.problem:
            self.message.say("error", account.problem)
        else:
            self.message.hide()

    def _set(self, **changes: object) -> None:
        if self._options is not None:
            wanted = msgspec.structs.replace(self._options, **changes)
            if wanted != self._options:
                self._models.set_options(wanted, self._show_options, failed=self._failed)

    def _show_options(self, options: ModelsOptions) -> None:
        self._options = options
        if not self.address.hasFocus():
            self.address.setText(options.hub_endpoint)
        self.offline.setCurrentIndex(int(options.offline))

    def _failed(self, failure: Failure) -> None:
        self.button.setEnabled(True)
        self.message.say_failure(failure)
