"""The tab of what is on disk: room taken and free, a filter, and a card a model."""

from collections.abc import Iterator
from pathlib import Path

from PySide6.QtCore import QMimeData, Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QComboBox, QFileDialog, QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from app.context import AppContext
from app.models_link import ModelsLink
from app.plan_watch import Verdicts
from app.ui.appearance import Appearance
from app.ui.controls.buttons import TintedButton
from app.ui.controls.gradual import Gradual
from app.ui.controls.labels import ElidedLabel
from app.ui.controls.states import EmptyState
from app.ui.models.card import ModelCard
from app.ui.models.import_dialog import ImportDialog
from app.ui.models.words import tr
from app.ui.pages.base import ScrolledColumn
from app.ui.theme import Space
from runtime.messages.api import InstalledModel
from runtime.messages.library import Job, LibraryState
from runtime.units import format_bytes

SORTS = ("used", "name", "size")


class InstalledView(QWidget):
    """The installed models, with a filter."""

    wanted = Signal(str, str)
    """Model id and action."""

    discover_wanted = Signal()
    folders_wanted = Signal()

    def __init__(self, context: AppContext, appearance: Appearance, verdicts: Verdicts) -> None:
        super().__init__()
        self._context = context
        self._link = context.link
        self._models = ModelsLink(context.link, self)
        self._appearance = appearance
        self._verdicts = verdicts
        self._cards: dict[str, ModelCard] = {}
        self._build = Gradual(self)
        self._room: LibraryState | None = None
        self._is_asking = False
        self.setAcceptDrops(True)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        area = ScrolledColumn()
        outer.addWidget(area)
        area.column.addLayout(self._build_head())
        self._summary = ElidedLabel("", "muted")
        area.column.addWidget(self._summary)
        self._list = QVBoxLayout()
        self._list.setSpacing(Space.XS)
        area.column.addLayout(self._list)
        self._empty = EmptyState(appearance, "models")
        area.column.addWidget(self._empty)
        area.column.addStretch(1)
        self._link.installed_changed.connect(self._rebuild)
        self._link.installed_changed.connect(self.refresh_room)
        self._link.connected.connect(self._rebuild)
        self._link.connected.connect(self.refresh_room)
        self._link.models_changed.connect(self._show_loaded)
        self._link.jobs_changed.connect(self._show_jobs)
        self._link.disconnected.connect(self._show_filtered)
        context.removals.changed.connect(self._show_filtered)
        verdicts.changed.connect(self._show_verdict)
        self._rebuild()

    def _build_head(self) -> QHBoxLayout:
        head = QHBoxLayout()
        head.setSpacing(Space.XS)
        self._sort = QComboBox()
        self._sort.setAccessibleName(tr("Order of the models"))
        for name, text in zip(SORTS, (tr("Last used first"), tr("By name"), tr("Largest first")), strict=True):
            self._sort.addItem(text, name)
        self._sort.currentIndexChanged.connect(lambda _at: self._rebuild())
        head.addWidget(self._sort)
        self._filter = QLineEdit()
        self._filter.setPlaceholderText(tr("Filter"))
        self._filter.setAccessibleName(tr("Filter the models"))
        self._filter.setClearButtonEnabled(True)
        self._filter.textChanged.connect(lambda _text: self._show_filtered())
        head.insertWidget(0, self._filter, 1)
        bring = TintedButton(self._appearance, "plus", tr("Import…"))
        bring.setToolTip(tr("Bring a GGUF file from this computer into the library"))
        bring.clicked.connect(lambda _checked=False: self.choose_import())
        head.addWidget(bring)
        folders = TintedButton(self._appearance, "disk", tr("Storage…"))
        folders.setToolTip(tr("Where models are kept, and how much room they take"))
        folders.clicked.connect(lambda _checked=False: self.folders_wanted.emit())
        head.addWidget(folders)
        return head

    # --- room

    def refresh_room(self) -> None:
        """Ask how much room the models take."""
        if not self._is_asking and self._link.is_connected and self.isVisible():
            self._is_asking = True
            self._models.library(self._take_room, failed=lambda _failure: self._take_room(None))

    def _take_room(self, state: LibraryState | None) -> None:
        self._is_asking = False
        self._room = state if state is not None else self._room
        self._show_summary()

    def _show_summary(self) -> None:
        shown = [one for one in self._link.installed if one.id not in self._context.removals.pending]
        total = sum(model.size_bytes for model in shown)
        count = tr("1 model") if len(shown) == 1 else tr("{n} models").format(n=len(shown))
        text = tr("{count} on this computer, {size}").format(count=count, size=format_bytes(total))
        if self._room is not None:
            text = tr("{count}, {free} free").format(count=text, free=format_bytes(self._room.free_bytes))
        self._summary.setText(text if self._link.installed else "")
        self._summary.setVisible(bool(self._link.installed))

    # --- the list

    def _rebuild(self) -> None:
        """Cards of models that did not change are kept; new ones are made a few at a time."""
        models = self._sorted()
        wanted = {model.id: model for model in models}
        for model_id, card in list(self._cards.items()):
            if wanted.get(model_id) != card.model:
                del self._cards[model_id]
                card.hide()
                card.deleteLater()
        self._build.run(self._place(models), self._show_filtered)
        self._show_filtered()

    def _place(self, models: list[InstalledModel]) -> Iterator[None]:
        jobs = self._running_jobs()
        for at, model in enumerate(models):
            card = self._cards.get(model.id)
            if card is None:
                card = ModelCard(model, self._appearance)
                card.wanted.connect(self.wanted)
                card.show_plan(self._verdicts.plan(model.id))
                card.others_loaded = any(one.id != model.id for one in self._link.loaded)
                card.show_loaded(self._link.model(model.id))
                card.show_job(jobs.get(model.id))
                if not self._is_wanted(model):
                    card.hide()
                self._cards[model.id] = card
            item = self._list.itemAt(at)
            if item is None or item.widget() is not card:
                self._list.insertWidget(at, card)
            yield

    def _sorted(self) -> list[InstalledModel]:
        order = self._sort.currentData()
        models = sorted(self._link.installed, key=lambda one: one.name.casefold())
        if order == "size":
            models.sort(key=lambda one: -one.size_bytes)
        elif order == "used":
            models.sort(key=lambda one: -one.used_s)
        return models

    def _show_loaded(self) -> None:
        loaded = {one.id for one in self._link.loaded}
        for model_id, card in self._cards.items():
            card.others_loaded = bool(loaded - {model_id})
            card.show_loaded(self._link.model(model_id))

    def _running_jobs(self) -> dict[str, Job]:
        return {job.model: job for job in self._link.jobs if job.state == "running" and job.model}

    def _show_jobs(self) -> None:
        running = self._running_jobs()
        for model_id, card in self._cards.items():
            card.show_job(running.get(model_id))

    def _show_verdict(self, model_id: str) -> None:
        card = self._cards.get(model_id)
        if card is not None:
            card.show_plan(self._verdicts.plan(model_id))

    def _is_wanted(self, model: InstalledModel) -> bool:
        hay = f"{model.name} {model.publisher} {model.quantization} {model.architecture}".casefold()
        words = self._filter.text().casefold().split()
        return model.id not in self._context.removals.pending and all(word in hay for word in words)

    def _show_filtered(self) -> None:
        for card in self._cards.values():
            card.setVisible(self._is_wanted(card.model))
        self._show_summary()
        if any(self._is_wanted(model) for model in self._link.installed):
            self._empty.hide()
        elif not self._link.is_connected and not self._link.installed:
            self._empty.say(tr("Starting"), tr("The engine is starting; the models appear in a moment."))
        elif not self._link.installed:
            self._empty.say(
                tr("No model is installed"),
                tr(
                    "Choose one under Discover: it says which will run well on this computer before anything is "
                    "downloaded. A GGUF file that you have already can be imported."
                ),
                tr("Discover models"),
                self.discover_wanted.emit,
            )
        elif self._filter.text().strip():
            self._empty.say(
                tr("Nothing found"), tr("No model has these words in its name."), tr("Show all"), self._filter.clear
            )
        else:
            self._empty.say("", tr("The last model is on its way to the trash."))

    # --- import

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if self._dropped(event.mimeData()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        path = self._dropped(event.mimeData())
        if path:
            event.acceptProposedAction()
            self.offer_import(path)

    @staticmethod
    def _dropped(data: QMimeData) -> str:
        """The path of a dropped model file or folder; empty for anything else."""
        paths = [Path(url.toLocalFile()) for url in data.urls() if url.isLocalFile()]
        fits = [path for path in paths if path.suffix.casefold() == ".gguf" or path.is_dir()]
        return str(fits[0]) if len(paths) == 1 and fits else ""

    def choose_import(self) -> None:
        """Ask for a file, then how it comes into the library."""
        dialog = QFileDialog(self, tr("Choose a model file"), "", tr("Models (*.gguf);;All files (*)"))
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.fileSelected.connect(self.offer_import)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def offer_import(self, path: str) -> None:
        """Ask how a file comes into the library."""
        dialog = ImportDialog(self._link, path, self)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()
