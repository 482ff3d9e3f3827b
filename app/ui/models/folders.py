"""Where models are kept: every folder with its room, adding one, and moving the main one."""

from functools import partial

import msgspec
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QVBoxLayout, QWidget

from app.context import AppContext
from app.ui.appearance import Appearance
from app.ui.controls.buttons import IconButton, TintedButton, push_button
from app.ui.controls.labels import ElidedLabel, label
from app.ui.controls.states import Message, Waiting
from app.ui.controls.switch import Switch
from app.ui.models.bars import Part, StackedBar
from app.ui.models.sub_page import SubPage
from app.ui.models.words import origin_words, tr
from app.ui.pages.base import Card, SettingRow, clear_layout
from app.ui.theme import Space
from runtime.errors import Failure
from runtime.messages.library import Job, LibraryState, ModelFolder
from runtime.options import ModelsOptions
from runtime.units import format_bytes, format_duration


class FolderCard(Card):
    """One folder."""

    def __init__(self, folder: ModelFolder, appearance: Appearance, page: "FoldersPage") -> None:
        super().__init__()
        top = QHBoxLayout()
        top.setSpacing(Space.XS)
        path = ElidedLabel(folder.path, "strong", mode=Qt.TextElideMode.ElideMiddle)
        top.addWidget(path)
        if folder.is_main:
            top.addWidget(label(tr("Downloads go here"), "tag-accent"), 0, Qt.AlignmentFlag.AlignVCenter)
        elif folder.origin not in ("folder", "deskside"):
            top.addWidget(label(origin_words(folder.origin), "tag"), 0, Qt.AlignmentFlag.AlignVCenter)
        top.addStretch(1)
        if folder.is_main:
            top.addWidget(push_button(tr("Move…"), page.choose_place))
        elif folder.origin == "folder":
            remove = IconButton(appearance, "close", tr("Search {path} no longer").format(path=folder.path))
            remove.clicked.connect(lambda _checked=False: page.remove_folder(folder.path))
            top.addWidget(remove)
        self.column.addLayout(top)
        if folder.problem:
            self.column.addWidget(label(folder.problem, "bad", wrap=True))
            return
        bar = StackedBar(appearance)
        total = folder.used_bytes + folder.free_bytes
        bar.show_parts((Part(tr("Models"), folder.used_bytes, "series_a", ""),), total)
        count = tr("1 model") if folder.n_models == 1 else tr("{n} models").format(n=folder.n_models)
        text = tr("{count}, {used}; {free} free on this disk").format(
            count=count, used=format_bytes(folder.used_bytes), free=format_bytes(folder.free_bytes)
        )
        bar.setAccessibleName(text)
        self.column.addWidget(bar)
        self.column.addWidget(label(text, "small", wrap=True))


class FoldersPage(SubPage):
    """Opened from the tab of installed models."""

    def __init__(self, context: AppContext, appearance: Appearance) -> None:
        super().__init__(context, appearance, tr("Where models are kept"))
        self._options: ModelsOptions | None = None
        self._state: LibraryState | None = None
        add = TintedButton(appearance, "plus", tr("Add a folder…"))
        add.setToolTip(tr("Its models are listed and used where they are; nothing is copied."))
        add.clicked.connect(lambda _checked=False: self.choose_folder())
        self.head.addWidget(add)
        self.message = Message()
        self.column.addWidget(self.message)
        self._job_card = Card()
        self._job_text = label("", wrap=True)
        self._job_card.column.addWidget(self._job_text)
        self._job_card.hide()
        self.column.addWidget(self._job_card)
        self._waiting = Waiting()
        self.column.addWidget(self._waiting)
        holder = QWidget()
        self._list = QVBoxLayout(holder)
        self._list.setContentsMargins(0, 0, 0, 0)
        self._list.setSpacing(Space.XS)
        self.column.addWidget(holder)
        self._others = Switch(appearance, tr("Use other programs' models"))
        self._others.clicked.connect(self._set_others)
        self._others_card = Card()
        self._others_card.column.addWidget(
            SettingRow(
                tr("Use other programs' models"),
                tr(
                    "Files of LM Studio, Ollama, Jan, GPT4All and the hub's cache are listed and used where they are. "
                    "They are never moved or deleted from here."
                ),
                self._others,
            )
        )
        self.column.addWidget(self._others_card)
        self.column.addStretch(1)
        self.link.jobs_changed.connect(self._show_job)
        self.link.installed_changed.connect(self._ask)
        self._show_job()
        self._ask()

    def _ask(self) -> None:
        if self._state is None:
            self._waiting.start(tr("Looking at the disks…"))
        self.models.library(self._show_state, failed=self._show_failure)
        self.models.options(self._show_options, failed=lambda _failure: None)

    def _show_failure(self, failure: Failure) -> None:
        self._waiting.stop()
        self.message.say_failure(failure, tr("Try again"), self._again)

    def _again(self) -> None:
        self.message.hide()
        self._ask()

    def _show_state(self, state: LibraryState) -> None:
        self._waiting.stop()
        if state == self._state:
            return
        self._state = state
        clear_layout(self._list)
        for folder in state.folders:
            self._list.addWidget(FolderCard(folder, self.appearance, self))

    def _show_options(self, options: ModelsOptions) -> None:
        self._options = options
        self._others.setChecked(options.use_other_programs)

    def _set_others(self, on: bool) -> None:
        if self._options is not None:
            self._options = msgspec.structs.replace(self._options, use_other_programs=on)
            self.models.set_options(self._options, lambda _options: self._ask(), failed=self._show_failure)

    # --- folders

    def choose_folder(self) -> None:
        """Ask for a folder to search."""
        self._choose(tr("Choose a folder with models"), self.add_folder)

    def choose_place(self) -> None:
        """Ask where the main folder should be."""
        self._choose(tr("Choose where the models should be"), self.move_to)

    def _choose(self, title: str, take: "partial[None] | object") -> None:
        dialog = QFileDialog(self, title)
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.setOption(QFileDialog.Option.ShowDirsOnly)
        dialog.fileSelected.connect(take)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def add_folder(self, path: str) -> None:
        """Search a folder from now on."""
        self.message.hide()
        self.models.add_folder(path, self._show_state, failed=self._say)

    def remove_folder(self, path: str) -> None:
        """Search a folder no longer; nothing on disk is touched."""
        self.message.hide()
        self.models.remove_folder(path, self._show_state, failed=self._say)

    def move_to(self, path: str) -> None:
        """Move the main folder with all its models."""
        self.message.hide()
        self.models.move_folder(path, failed=self._say)

    def _say(self, failure: Failure) -> None:
        self.message.say_failure(failure)

    def _show_job(self) -> None:
        job = next((one for one in self.link.jobs if one.kind == "move" and one.state == "running"), None)
        self._job_card.setVisible(job is not None)
        if job is not None:
            self._job_text.setText(move_line(job))


def move_line(job: Job) -> str:
    """How far the move is, and that nothing is lost when it is cut short."""
    left = tr(", {time} left").format(time=format_duration(job.left_s)) if job.left_s is not None else ""
    text = tr("{title}: {percent}{left}. Models stay where they are until every byte has arrived.")
    return text.format(title=job.title, percent=f"{job.fraction:.0%}", left=left)
