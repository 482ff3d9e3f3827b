"""Models: what is installed, what is loaded, and what can be done with each."""

from functools import partial
from pathlib import Path

from PySide6.QtCore import QCoreApplication, Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLineEdit, QProgressBar, QVBoxLayout, QWidget

from app.context import AppContext
from app.ui.appearance import Appearance
from app.ui.controls.buttons import IconButton, TintedButton, push_button
from app.ui.controls.labels import ElidedLabel, label, set_tone
from app.ui.pages.base import Page, clear_layout
from app.ui.theme import Size, Space
from runtime.messages.api import InstalledModel, LoadedModel
from runtime.units import format_bytes, format_count


def tr(text: str) -> str:
    """Translate in this page's context."""
    return QCoreApplication.translate("ModelsPage", text)


class ModelCard(QFrame):
    """One installed model; told anew what it is and whether it is loaded."""

    wanted = Signal(str, str)
    """Model id and action: load, unload, chat, folder."""

    def __init__(self, model: InstalledModel, appearance: Appearance) -> None:
        super().__init__()
        self.model = model
        self.setProperty("role", "card")
        self.setAccessibleName(model.name)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(Space.M, Space.S, Space.S, Space.S)
        outer.setSpacing(Space.HAIR)
        row = QHBoxLayout()
        row.setSpacing(Space.XS)
        words = QVBoxLayout()
        words.setSpacing(Space.HAIR)
        top = QHBoxLayout()
        top.setSpacing(Space.XS)
        top.addWidget(ElidedLabel(model.name, "strong"))
        if model.starter:
            top.addWidget(label(self.tr("Starter"), "tag-accent"))
        if model.kind != "chat":
            top.addWidget(label(self._kind(), "tag"))
        self._state = label("", "tag")
        top.addWidget(self._state)
        top.addStretch(1)
        words.addLayout(top)
        words.addWidget(ElidedLabel(self._facts(), "small"))
        row.addLayout(words, 1)
        self._buttons: dict[str, QWidget] = {}
        for action, text, kind in (
            ("chat", self.tr("Chat"), "primary"),
            ("load", self.tr("Load"), ""),
            ("unload", self.tr("Unload"), ""),
        ):
            button = push_button(text, partial(self.wanted.emit, model.id, action), kind=kind)
            button.setAccessibleName(f"{text}: {model.name}")
            row.addWidget(button, 0, Qt.AlignmentFlag.AlignVCenter)
            self._buttons[action] = button
        folder = IconButton(appearance, "folder", self.tr("Show {name} in its folder").format(name=model.name))
        folder.clicked.connect(lambda _checked=False: self.wanted.emit(self.model.id, "folder"))
        row.addWidget(folder, 0, Qt.AlignmentFlag.AlignVCenter)
        outer.addLayout(row)
        self._bar = QProgressBar()
        self._bar.setTextVisible(False)
        self._bar.setAccessibleName(self.tr("Load progress of {name}").format(name=model.name))
        outer.addWidget(self._bar)
        self._problem = label("", "bad", wrap=True)
        outer.addWidget(self._problem)
        self.show_loaded(None)

    def _kind(self) -> str:
        kinds = {"embedding": self.tr("Embedding"), "projector": self.tr("Projector"), "other": self.tr("Other")}
        return kinds.get(self.model.kind, self.tr("Chat"))

    def _facts(self) -> str:
        model = self.model
        parts = [
            model.publisher,
            self.tr("{n} parameters").format(n=format_count(model.n_params)) if model.n_params else "",
            model.quantization,
            format_bytes(model.size_bytes),
            self.tr("{n} tokens context").format(n=f"{model.n_ctx_train:,}") if model.n_ctx_train else "",
            model.architecture,
            model.licence,
        ]
        return "  ·  ".join(part for part in parts if part)

    def show_loaded(self, loaded: LoadedModel | None) -> None:
        """Show whether it is loaded, and how far."""
        state = loaded.state if loaded is not None else ""
        texts = {
            "ready": self.tr("Loaded"),
            "loading": self.tr("Loading, {percent} %"),
            "restarting": self.tr("Restarting"),
            "unloading": self.tr("Unloading"),
            "failed": self.tr("Failed"),
        }
        percent = round(loaded.fraction * 100) if loaded is not None else 0
        self._state.setText(texts.get(state, "").format(percent=percent))
        self._state.setVisible(bool(state))
        set_tone(self._state, "tag-accent" if state == "ready" else "tag")
        busy = state in ("loading", "restarting")
        self._bar.setVisible(busy)
        self._bar.setValue(percent)
        usable = not self.model.problem and self.model.kind == "chat"
        self._buttons["chat"].setVisible(usable and state in ("", "ready"))
        self._buttons["load"].setVisible(
            not self.model.problem and self.model.kind != "projector" and state in ("", "failed")
        )
        self._buttons["unload"].setVisible(state in ("ready", "failed", "loading", "restarting"))
        failure = loaded.failure if loaded is not None else None
        problem = self.model.problem or (f"{failure.message} {failure.hint}".strip() if failure is not None else "")
        self._problem.setText(problem)
        self._problem.setVisible(bool(problem))


class ModelsPage(Page):
    """The installed models, with a filter."""

    chat_wanted = Signal(str)
    load_wanted = Signal(str)
    page_wanted = Signal(str)

    def __init__(self, context: AppContext, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(tr("Models"), parent=parent)
        self._context = context
        self._link = context.link
        self._appearance = appearance
        self._cards: dict[str, ModelCard] = {}
        self._filter = QLineEdit()
        self._filter.setPlaceholderText(self.tr("Filter"))
        self._filter.setAccessibleName(self.tr("Filter the models"))
        self._filter.setClearButtonEnabled(True)
        self._filter.setFixedWidth(Size.FIELD_W)
        self._filter.textChanged.connect(lambda _text: self._show_filtered())
        folder = TintedButton(appearance, "folder", self.tr("Open models folder"))
        folder.clicked.connect(lambda _checked=False: self._open_folder(context.folder.models))
        self.head.addWidget(self._filter)
        self.head.addWidget(folder)
        self._list = QVBoxLayout()
        self._list.setSpacing(Space.XS)
        self.column.addLayout(self._list)
        self._empty = label("", "muted", wrap=True)
        self._empty.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self._empty.setContentsMargins(Space.XL, Space.XL, Space.XL, Space.XL)
        self.column.addWidget(self._empty)
        self.column.addStretch(1)
        self._link.installed_changed.connect(self._rebuild)
        self._link.connected.connect(self._rebuild)
        self._link.models_changed.connect(self._show_loaded)
        self._link.disconnected.connect(self._show_filtered)
        self._rebuild()

    def _rebuild(self) -> None:
        clear_layout(self._list)
        self._cards = {}
        for model in self._link.installed:
            card = ModelCard(model, self._appearance)
            card.wanted.connect(self._on_wanted)
            self._cards[model.id] = card
            self._list.addWidget(card)
        total = sum(model.size_bytes for model in self._link.installed)
        count = len(self._link.installed)
        text = self.tr("1 model") if count == 1 else self.tr("{n} models").format(n=count)
        self.intro.setText(self.tr("{count} on this computer, {size}").format(count=text, size=format_bytes(total)))
        self.intro.setVisible(count > 0)
        self._show_loaded()
        self._show_filtered()

    def _show_loaded(self) -> None:
        for model_id, card in self._cards.items():
            card.show_loaded(self._link.model(model_id))

    def _show_filtered(self) -> None:
        wanted = self._filter.text().casefold().split()
        shown = 0
        for card in self._cards.values():
            model = card.model
            hay = f"{model.name} {model.publisher} {model.quantization} {model.architecture}".casefold()
            fits = all(word in hay for word in wanted)
            card.setVisible(fits)
            shown += fits
        if not self._link.is_connected and not self._cards:
            text = self.tr("The engine is starting; the models appear in a moment.")
        elif not self._cards:
            text = self.tr(
                "No model is installed. Put a GGUF file into the models folder (the button above opens it); "
                "it appears here by itself."
            )
        else:
            text = self.tr("No model has these words in its name.")
        self._empty.setText(text)
        self._empty.setVisible(shown == 0)

    def _on_wanted(self, model_id: str, action: str) -> None:
        if action == "chat":
            loaded = self._link.model(model_id)
            if loaded is not None and loaded.state == "ready":
                self.page_wanted.emit("chat")
            else:
                self.chat_wanted.emit(model_id)
        elif action == "load":
            self.load_wanted.emit(model_id)
        elif action == "unload":
            self._link.unload_model(model_id)
        elif action == "folder":
            model = self._cards[model_id].model
            self._open_folder(Path(model.path).parent)

    @staticmethod
    def _open_folder(folder: Path) -> None:
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(folder)))
