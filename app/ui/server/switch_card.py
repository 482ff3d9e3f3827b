"""The large switch, the addresses, and what is served at them."""

from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QGridLayout, QHBoxLayout, QVBoxLayout, QWidget

from app.link import HostLink
from app.ui.appearance import Appearance
from app.ui.controls.buttons import IconButton, push_button
from app.ui.controls.labels import ElidedLabel, label
from app.ui.controls.switch import Switch
from app.ui.pages.base import Card, clear_layout
from app.ui.server.words import address_of, base_url, dialect_name, is_lan, tr
from app.ui.theme import Size, Space


class SwitchCard(Card):
    """Shows `ApiState`; asks for on and off."""

    switched = Signal(bool)
    copied = Signal(str)
    keys_wanted = Signal()
    """The person wants to make a key."""

    def __init__(self, link: HostLink, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(parent=parent)
        self._link = link
        self._appearance = appearance
        row = QHBoxLayout()
        row.setSpacing(Space.M)
        self.switch = Switch(appearance, tr("API for other programs"), large=True)
        self.switch.clicked.connect(self._on_switch)
        row.addWidget(self.switch)
        words = QVBoxLayout()
        words.setSpacing(Space.HAIR)
        self.headline = label("", "read")
        self.detail = label("", "small", wrap=True)
        words.addWidget(self.headline)
        words.addWidget(self.detail)
        row.addLayout(words, 1)
        self.column.addLayout(row)
        self.warning = QFrame()
        self.warning.setProperty("role", "warning")
        inside = QHBoxLayout(self.warning)
        inside.setContentsMargins(Space.S, Space.XS, Space.XS, Space.XS)
        self.warning_text = label("", wrap=True)
        inside.addWidget(self.warning_text, 1)
        self._make_key = push_button(tr("Make a key"), self.keys_wanted.emit)
        inside.addWidget(self._make_key)
        self.column.addWidget(self.warning)
        self.served = AddressRows(appearance)
        self.served.copied.connect(self.copied)
        self.column.addWidget(self.served)

    def _on_switch(self, checked: bool) -> None:
        self.switch.set_busy(True)
        self.switched.emit(checked)

    def show_state(self) -> None:
        """Show the API as it is."""
        state = self._link.api
        known = state is not None and self._link.is_connected
        on = state is not None and state.running
        self.switch.setEnabled(known)
        self.switch.setChecked(on)
        self.switch.set_busy(False)
        self.headline.setText(tr("The API is on") if on else tr("The API is off"))
        if not known:
            self.detail.setText(tr("The engine is starting."))
        elif state is not None and state.problem:
            self.detail.setText(state.problem)
        elif on:
            self.detail.setText(self._spoken())
        else:
            self.detail.setText(tr("Turn it on, and other programs can use the models at a local address."))
        lan = state is not None and is_lan(state.options)
        needs_key = state is not None and not state.keys
        self.warning.setVisible(lan)
        text = tr("Other devices in this network can reach the API.")
        if needs_key:
            text = tr("Other devices are served only with a key: make an API key.")
        elif state is not None and state.options.tls == "off":
            text = f"{text} {tr('What is sent can be read on its way: turn on encryption in the settings.')}"
        self.warning_text.setText(text)
        self._make_key.setVisible(needs_key)
        self._show_served()

    def _spoken(self) -> str:
        state = self._link.api
        names = [dialect_name(one) for one in (state.dialects if state is not None else ()) if one != "responses"]
        if not names:
            return tr("Other programs find the models at these addresses.")
        return tr("Speaks to programs made for {names}.").format(names=", ".join(names))

    def _show_served(self) -> None:
        """One row an address."""
        state = self._link.api
        addresses = state.addresses if state is not None and state.running else ()
        titles = (tr("Address"), *(tr("In this network") for _ in addresses[1:]))
        self.served.show_rows(tuple(zip(titles, addresses, strict=False)))
        self.served.setVisible(bool(addresses))


class AddressRows(QWidget):
    """Titles and addresses, each with a button that copies it."""

    copied = Signal(str)

    def __init__(self, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self._rows: tuple[tuple[str, str], ...] = ()
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(Space.M)
        self._grid.setVerticalSpacing(Space.HAIR)
        self._grid.setColumnStretch(1, 1)
        self._grid.setColumnMinimumWidth(0, Size.LABEL_W)

    def show_rows(self, rows: tuple[tuple[str, str], ...]) -> None:
        """Show these."""
        if rows == self._rows:
            return
        self._rows = rows
        clear_layout(self._grid)
        for at, (title, url) in enumerate(rows):
            self._grid.addWidget(label(title), at, 0)
            words = ElidedLabel(url)
            words.setFont(self._appearance.font(code=True))
            self._grid.addWidget(words, at, 1)
            copy = IconButton(self._appearance, "copy", tr("Copy {address}").format(address=url))
            copy.clicked.connect(partial(self._copy, url))
            self._grid.addWidget(copy, at, 2)

    def _copy(self, url: str, _checked: bool = False) -> None:
        self.copied.emit(url)


class DialectsCard(Card):
    """Which programs are understood, and the base URL each kind wants."""

    copied = Signal(str)

    def __init__(self, link: HostLink, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(tr("Base URLs"), parent)
        self._link = link
        text = tr("Programs made for one of these find here what they expect; this is the base URL each kind wants.")
        self.column.addWidget(label(text, "muted", wrap=True))
        self._rows = AddressRows(appearance)
        self._rows.copied.connect(self.copied)
        self.column.addWidget(self._rows)

    def refresh(self) -> None:
        """Show what is served now, or what would be."""
        state = self._link.api
        address = address_of(self._link)
        dialects = state.dialects if state is not None else ()
        shown = [one for one in dialects if one != "responses"]  # at the same URL as OpenAI's other routes
        self._rows.show_rows(tuple((dialect_name(one), base_url(one, address)) for one in shown))
