"""The model picker at the top of the chat: what is loaded, what can be, and how far a load is."""

from PySide6.QtCore import QCoreApplication, QPoint, QSize, Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QMenu, QProgressBar, QSizePolicy, QVBoxLayout, QWidget

from app.link import HostLink
from app.model_choice import current_model
from app.ui.appearance import Appearance
from app.ui.controls.buttons import IconButton, TintedButton
from app.ui.server.words import unload_words
from app.ui.theme import Size, Space
from runtime import units
from runtime.messages.api import InstalledModel
from runtime.units import format_bytes


def model_line(model: InstalledModel) -> str:
    """Name, quantization and size for a menu."""
    sees = QCoreApplication.translate("ModelPicker", "sees pictures") if model.is_vision else ""
    facts = [model.quantization, format_bytes(model.size_bytes), sees]
    return f"{model.name}   {' · '.join(fact for fact in facts if fact)}"


class ModelPicker(QWidget):
    """A button that opens the menu of models, a thin bar with the load progress, and an eject button."""

    load_wanted = Signal(str)
    unload_wanted = Signal(str)
    models_page_wanted = Signal()

    def __init__(self, link: HostLink, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._link = link
        self._appearance = appearance
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(Space.HAIR)
        column = QVBoxLayout()
        column.setSpacing(Size.FOCUS)
        self.button = TintedButton(appearance, "models", "", kind="picker", ink="text_muted")
        self.button.setAccessibleName(self.tr("Model"))
        self.button.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self.button.clicked.connect(lambda _checked=False: self.open_menu())
        self._bar = QProgressBar()
        self._bar.setTextVisible(False)
        self._bar.setAccessibleName(self.tr("Loading the model"))
        policy = self._bar.sizePolicy()
        policy.setRetainSizeWhenHidden(True)
        self._bar.setSizePolicy(policy)
        column.addStretch(1)
        column.addSpacing(Size.PROGRESS_H)
        column.addWidget(self.button)
        column.addWidget(self._bar)
        column.addStretch(1)
        row.addLayout(column)
        self._eject = IconButton(appearance, "eject", self.tr("Unload the model"))
        self._eject.clicked.connect(lambda _checked=False: self._unload())
        row.addWidget(self._eject)
        link.models_changed.connect(self.refresh)
        link.installed_changed.connect(self.refresh)
        link.connected.connect(self.refresh)
        link.disconnected.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show the state of the model."""
        model = current_model(self._link)
        loading = model is not None and model.state in ("loading", "restarting")
        self._bar.setVisible(loading)
        self._eject.setVisible(model is not None and model.state in ("ready", "failed"))
        if not self._link.is_connected:
            self._set(self.tr("Starting the engine…"))
        elif model is None:
            self._set(self.tr("Choose a model"))
        elif loading:
            percent = round(model.fraction * 100)
            self._bar.setValue(percent)
            text = self.tr("Loading {name}, {percent} %") if model.state == "loading" else self.tr("Restarting {name}")
            self._set(text.format(name=model.name, percent=percent))
        elif model.state == "failed":
            self._set(self.tr("{name} failed to load").format(name=model.name))
        else:
            self._set(model.name)
        self.button.setEnabled(self._link.is_connected)

    def _set(self, text: str) -> None:
        limit = Size.PALETTE_W - 2 * Space.XL
        shown = self.button.fontMetrics().elidedText(f" {text}  ▾", Qt.TextElideMode.ElideMiddle, limit)
        if shown != self.button.text():
            self.button.setText(shown)
            self.button.setAccessibleName(f"{self.tr('Model')}: {text}")

    def _unload(self) -> None:
        model = current_model(self._link)
        if model is not None:
            self.unload_wanted.emit(model.id)

    def open_menu(self, *, only_vision: bool = False) -> bool:
        """Show the models to choose from, or those that see pictures; False, and no menu, where none does."""
        if only_vision and not any(model.is_vision and not model.problem for model in self._link.installed):
            return False
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        loaded = {model.id: model for model in self._link.loaded}
        chat = [
            model for model in self._link.installed if model.kind == "chat" and (model.is_vision or not only_vision)
        ]
        for model in chat:
            entry = menu.addAction(model_line(model))
            state = loaded[model.id].state if model.id in loaded else ""
            entry.setIcon(
                self._appearance.icon("check", "accent") if state == "ready" else self._appearance.icon("models")
            )
            entry.setEnabled(not model.problem and state not in ("loading", "ready"))
            entry.setToolTip(model.problem)
            if state == "ready":
                entry.setText(f"{entry.text()} · {unload_words(loaded[model.id], units.now()).lower()}")
            entry.triggered.connect(lambda _checked=False, chosen=model.id: self.load_wanted.emit(chosen))
        if not chat:
            menu.addAction(self.tr("No chat model is installed")).setEnabled(False)
        menu.addSeparator()
        more = menu.addAction(self._appearance.icon("list"), self.tr("All models…"))
        more.triggered.connect(lambda _checked=False: self.models_page_wanted.emit())
        menu.popup(self.button.mapToGlobal(QPoint(0, self.button.height() + Space.HAIR)))
        return True

    def sizeHint(self) -> QSize:
        hint = super().sizeHint()
        return QSize(hint.width(), Size.TOOLBAR_H - Size.LINE)
