"""Server: the API switch above four tabs: who uses it now, how programs connect, keys, settings."""

import msgspec
from PySide6.QtCore import Signal
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QButtonGroup, QHBoxLayout, QWidget

from app.context import AppContext
from app.ui.appearance import Appearance
from app.ui.controls.buttons import tab_buttons
from app.ui.pages.base import Page
from app.ui.server.connect_card import ConnectCard
from app.ui.server.keys_card import KeysCard
from app.ui.server.models_card import ModelsCard
from app.ui.server.options_card import OptionsCard
from app.ui.server.requests_card import RequestsCard
from app.ui.server.switch_card import DialectsCard, SwitchCard
from app.ui.server.words import tr
from app.ui.theme import Space
from runtime.options import ApiOptions


class ServerPage(Page):
    """Shows `ApiState` and changes `ApiOptions`."""

    copied = Signal(str)

    def __init__(self, context: AppContext, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(
            tr("Server"),
            tr("Other programs can use the models: those made for OpenAI, Anthropic, Ollama or llama-server."),
            parent,
        )
        self._link = context.link
        self.switch = SwitchCard(self._link, appearance)
        self.models = ModelsCard(self._link)
        self.requests = RequestsCard(self._link, appearance)
        self.connect_card = ConnectCard(self._link, appearance)
        self.dialects = DialectsCard(self._link, appearance)
        self.keys = KeysCard(self._link, appearance)
        self.options = OptionsCard(appearance, context.folder.logs)
        self._cards: dict[str, tuple[QWidget, ...]] = {
            "activity": (self.requests, self.models),
            "connect": (self.connect_card, self.dialects),
            "keys": (self.keys,),
            "settings": (self.options,),
        }
        self.column.addWidget(self.switch)
        self.column.addLayout(self._build_tabs())
        for cards in self._cards.values():
            for card in cards:
                self.column.addWidget(card)
        self.column.addStretch(1)
        self.switch.switched.connect(lambda on: self._change({"enabled": on}))
        self.switch.keys_wanted.connect(self._make_key)
        self.options.changed.connect(self._change)
        for source in (self.switch, self.connect_card, self.dialects, self.keys, self.options):
            source.copied.connect(self.copied)
        self._link.api_changed.connect(self._show)
        self._link.connected.connect(self._show)
        self._link.disconnected.connect(self._show)
        self._link.models_changed.connect(self._show_models)
        self._link.installed_changed.connect(self.connect_card.refresh)
        self._show()
        self.show_tab("activity")

    def _build_tabs(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(Space.HAIR)
        titles = {
            "activity": tr("Activity"),
            "connect": tr("Connect"),
            "keys": tr("Keys"),
            "settings": tr("Settings"),
        }
        self._buttons = tab_buttons(titles, self.show_tab, QButtonGroup(self))
        for button in self._buttons.values():
            row.addWidget(button)
        row.addStretch(1)
        return row

    @property
    def tab(self) -> str:
        """The tab shown."""
        return next(name for name, button in self._buttons.items() if button.isChecked())

    def show_tab(self, name: str) -> None:
        """Show a tab."""
        self._buttons[name].setChecked(True)
        for other, cards in self._cards.items():
            for card in cards:
                card.setVisible(other == name)
        self._watch()

    def _watch(self) -> None:
        """Ask the host for what changes all the time only while it is seen."""
        seen = self.tab if self.isVisible() else ""
        self.requests.set_watched(seen == "activity")
        self.models.set_watched(seen == "activity")
        self.keys.set_watched(seen == "keys")

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._watch()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        for card in (self.requests, self.models, self.keys):
            card.set_watched(False)  # also of a minimised window, whose widgets count as visible

    def _change(self, changes: dict[str, object]) -> None:
        state = self._link.api
        options = state.options if state is not None else ApiOptions()
        self._link.set_api(msgspec.structs.replace(options, **changes), failed=self._refused)

    def _refused(self, failure: object) -> None:
        self._link.request_failed.emit(failure)
        self._show()  # controls show again what holds

    def _make_key(self) -> None:
        self.show_tab("keys")
        self.keys.ask_new()

    def _show(self, _change: object = None) -> None:
        state = self._link.api
        known = state is not None and self._link.is_connected
        self.switch.show_state()
        self.options.show_state(state, known=known)
        self.keys.show_keys(state.keys if state is not None else ())
        self._show_models()

    def _show_models(self) -> None:
        self.connect_card.refresh()
        self.dialects.refresh()
        if self.models.isVisible():
            self.models.look()
