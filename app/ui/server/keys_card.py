"""API keys: made, limited, watched, revoked. A key itself is shown once."""

from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QDialog, QFrame, QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from app.link import HostLink
from app.ui.appearance import Appearance
from app.ui.controls.buttons import IconButton, TintedButton, push_button
from app.ui.controls.fields import IntField
from app.ui.controls.labels import ElidedLabel, label
from app.ui.pages.base import SettingRow, clear_layout
from app.ui.server.watched_card import WatchedCard
from app.ui.server.words import HOUR_S, MINUTE_S, is_lan, tr
from app.ui.theme import Size, Space
from runtime import units
from runtime.messages.api import ApiKeyInfo, ApiState, NewKeyAnswer
from runtime.options import KeyLimits, declared_options

POLL_MS = 2_000
"""Pause between two looks at how keys are used."""

MAX_FIELD = 2**31 - 1
"""What a number field can hold; larger limits can be set by file."""

DAY_S = 24 * HOUR_S
NEW_KEY_NAME_CHARS = 64


def used_words(key: ApiKeyInfo, now_s: float) -> str:
    """When a key was last used."""
    if not key.used_s:
        return tr("never used")
    ago_s = max(0.0, now_s - key.used_s)
    if ago_s < MINUTE_S:
        return tr("used just now")
    if ago_s < HOUR_S:
        return tr("used {n} min ago").format(n=int(ago_s // MINUTE_S))
    if ago_s < DAY_S:
        return tr("used {n} h ago").format(n=int(ago_s // HOUR_S))
    return tr("used {n} days ago").format(n=int(ago_s // DAY_S))


def limit_words(limits: KeyLimits) -> str:
    """The limits in one line."""
    parts = []
    if limits.requests_per_minute is not None:
        parts.append(tr("{n} requests a minute").format(n=f"{limits.requests_per_minute:,}"))
    if limits.max_concurrent is not None:
        parts.append(tr("{n} at once").format(n=f"{limits.max_concurrent:,}"))
    if limits.tokens_per_day is not None:
        parts.append(tr("{n} tokens a day").format(n=f"{limits.tokens_per_day:,}"))
    return ", ".join(parts) if parts else tr("no limits")


class KeyDialog(QDialog):
    """Asks for the limits of a key, and for its name when it is new."""

    def __init__(self, title: str, name: str, limits: KeyLimits, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle(title)
        self.setMinimumWidth(Size.DIALOG_W)
        column = QVBoxLayout(self)
        column.setSpacing(Space.M)
        self.name = QLineEdit(name)
        self.name.setMaxLength(NEW_KEY_NAME_CHARS)
        self.name.setPlaceholderText(tr("Which program is it for?"))
        self.name.setFixedWidth(Size.FIELD_W)
        if not name:
            column.addWidget(SettingRow(tr("Name"), tr("Letters, digits, space, dot, hyphen."), self.name))
        self.fields: dict[str, IntField] = {}
        for option in declared_options(KeyLimits):
            field = IntField()
            field.setRange(0, min(MAX_FIELD, int(option.high or MAX_FIELD)))
            field.setSpecialValueText(tr("No limit"))
            field.setGroupSeparatorShown(True)
            field.setFixedWidth(Size.FIELD_W)
            field.setValue(min(getattr(limits, option.name) or 0, MAX_FIELD))
            self.fields[option.name] = field
            column.addWidget(SettingRow(option.title, option.text, field))
        buttons = QHBoxLayout()
        buttons.setSpacing(Space.XS)
        buttons.addStretch(1)
        buttons.addWidget(push_button(tr("Cancel"), self.reject))
        self._ok = push_button(tr("Save") if name else tr("Make the key"), self.accept, kind="primary")
        self._ok.setDefault(True)
        self._ok.setEnabled(bool(name))
        self.name.textChanged.connect(lambda text: self._ok.setEnabled(is_key_name(text)))
        buttons.addWidget(self._ok)
        column.addLayout(buttons)

    @property
    def limits(self) -> KeyLimits:
        """What was entered."""
        return KeyLimits(**{name: field.value() or None for name, field in self.fields.items()})


def is_key_name(text: str) -> bool:
    """Whether the host takes this as a name."""
    clean = text.strip()
    return bool(clean) and all(char.isalnum() or char in "_ .-" for char in clean)


class KeysCard(WatchedCard):
    """Shows the keys of `ApiState`, with their use as of the last look."""

    copied = Signal(str)

    def __init__(self, link: HostLink, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(tr("API keys"), POLL_MS, parent)
        self._link = link
        self._appearance = appearance
        self._shown: tuple[object, ...] = ("nothing yet",)
        self._is_asking = False
        new = TintedButton(appearance, "key", tr("New key"))
        new.clicked.connect(lambda _checked=False: self.ask_new())
        self.head.addWidget(new)
        self._text = label("", "small", wrap=True)
        self.column.addWidget(self._text)
        self.new_key = QFrame()
        self.new_key.setProperty("role", "note")
        inside = QHBoxLayout(self.new_key)
        inside.setContentsMargins(Space.S, Space.XS, Space.S, Space.XS)
        self.new_key_text = label("", wrap=True)
        inside.addWidget(self.new_key_text, 1)
        inside.addWidget(push_button(tr("Copy"), lambda: self.copied.emit(self.key)))
        inside.addWidget(push_button(tr("Done"), self._hide_new, kind="quiet"))
        self.new_key.hide()
        self.key = ""
        self.column.addWidget(self.new_key)
        self.question = QFrame()
        self.question.setProperty("role", "note")
        asked = QHBoxLayout(self.question)
        asked.setContentsMargins(Space.S, Space.XS, Space.S, Space.XS)
        self._question_text = label("", wrap=True)
        asked.addWidget(self._question_text, 1)
        asked.addWidget(push_button(tr("Delete it"), self._delete_last))
        asked.addWidget(push_button(tr("Keep it"), self.question.hide, kind="quiet"))
        self.question.hide()
        self._last = ""
        self.column.addWidget(self.question)
        self._list = QVBoxLayout()
        self._list.setSpacing(Space.S)
        self.column.addLayout(self._list)

    def look(self) -> None:
        """Ask for the keys' use."""
        if self._is_asking or not self._link.is_connected:
            return
        self._is_asking = True

        def answered(state: ApiState | None) -> None:
            self._is_asking = False
            if state is not None:
                self.show_keys(state.keys)

        self._link.ask_api(answered, failed=lambda _failure: answered(None))

    def show_keys(self, keys: tuple[ApiKeyInfo, ...]) -> None:
        """Show these."""
        now_s = units.now()
        if [key.name for key in keys] != [self._last]:
            self.question.hide()
        self._text.setText(
            tr("Requests need one of these keys.")
            if keys
            else tr("No key: requests need none. With a key, each needs one.")
        )
        rows = tuple((key.name, self._facts(key, now_s), key.limits) for key in keys)
        if rows == self._shown:
            return
        self._shown = rows
        clear_layout(self._list)
        for key in keys:
            self._list.addWidget(self._row(key, now_s))

    def _facts(self, key: ApiKeyInfo, now_s: float) -> str:
        facts = [used_words(key, now_s)]
        if key.n_requests:
            facts.append(tr("{n} requests").format(n=f"{key.n_requests:,}"))
            facts.append(
                tr("{n} tokens, {today} of them today").format(n=f"{key.n_tokens:,}", today=f"{key.n_tokens_today:,}")
            )
        if key.n_running:
            facts.append(tr("{n} running").format(n=key.n_running))
        facts.append(limit_words(key.limits))
        return " · ".join(facts)

    def _row(self, key: ApiKeyInfo, now_s: float) -> QWidget:
        line = QWidget()
        row = QHBoxLayout(line)
        row.setContentsMargins(0, 0, 0, 0)
        words = QVBoxLayout()
        words.setSpacing(Size.FOCUS)
        words.addWidget(ElidedLabel(key.name, "strong"))
        words.addWidget(ElidedLabel(self._facts(key, now_s), "small"))
        row.addLayout(words, 1)
        change = IconButton(self._appearance, "sliders", tr("Limits of {name}").format(name=key.name))
        change.clicked.connect(partial(self._ask_limits, key))
        row.addWidget(change)
        delete = IconButton(self._appearance, "trash", tr("Delete the key {name}").format(name=key.name))
        delete.clicked.connect(partial(self._delete, key.name))
        row.addWidget(delete)
        return line

    # --- what a person does

    def ask_new(self) -> None:
        """Ask for name and limits of a new key."""
        dialog = KeyDialog(tr("New API key"), "", KeyLimits(), self)
        dialog.accepted.connect(lambda: self.make_key(dialog.name.text(), dialog.limits))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _ask_limits(self, key: ApiKeyInfo, _checked: bool = False) -> None:
        title = tr("Limits of {name}").format(name=key.name)
        dialog = KeyDialog(title, key.name, key.limits, self)
        dialog.accepted.connect(lambda: self.set_limits(key.name, dialog.limits))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def make_key(self, name: str, limits: KeyLimits | None = None) -> None:
        """Make a key; it is shown once."""
        if name.strip():
            self._link.new_key(name.strip(), self._show_new, limits=limits)

    def set_limits(self, name: str, limits: KeyLimits) -> None:
        """Change what the holder of a key may take."""
        self._link.set_key_limits(name, limits, self.look)

    def _delete(self, name: str, _checked: bool = False) -> None:
        state = self._link.api
        if state is not None and state.running and is_lan(state.options) and len(state.keys) == 1:
            self._last = name
            self._question_text.setText(
                tr(
                    "“{name}” is the last key. Other devices are served only with a key: without it the API goes off, "
                    "also for programs on this computer. Make another key first, or serve this computer alone."
                ).format(name=name)
            )
            self.question.show()
            return
        self._link.delete_key(name)

    def _delete_last(self) -> None:
        self.question.hide()
        self._link.delete_key(self._last)

    def _show_new(self, answer: NewKeyAnswer) -> None:
        self.key = answer.key
        self.new_key_text.setText(
            tr("Key “{name}”: {key}\nCopy it now; it is not shown again.").format(name=answer.name, key=answer.key)
        )
        self.new_key.show()

    def _hide_new(self) -> None:
        self.key = ""
        self.new_key_text.setText("")
        self.new_key.hide()
