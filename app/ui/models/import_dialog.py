"""How a file comes into the library: copied, moved, or used where it is."""

from typing import Literal

from PySide6.QtWidgets import QButtonGroup, QDialog, QHBoxLayout, QRadioButton, QVBoxLayout, QWidget

from app.link import HostLink
from app.models_link import ModelsLink
from app.ui.controls.buttons import push_button
from app.ui.controls.labels import ElidedLabel, label
from app.ui.controls.states import Message
from app.ui.models.words import tr
from app.ui.theme import Size, Space
from runtime.errors import Failure
from runtime.messages.library import ImportRequest, Job

How = Literal["copy", "move", "use_in_place"]


class ImportDialog(QDialog):
    """Starts the import and closes; the job is shown under Downloads."""

    def __init__(self, link: HostLink, path: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._models = ModelsLink(link, self)
        self._path = path
        self.setWindowTitle(tr("Import a model"))
        self.setMinimumWidth(Size.DIALOG_W)
        column = QVBoxLayout(self)
        column.setContentsMargins(Space.L, Space.L, Space.L, Space.M)
        column.setSpacing(Space.XS)
        column.addWidget(label(tr("How should it come into the library?"), "heading"))
        column.addWidget(ElidedLabel(path, "small"))
        column.addSpacing(Space.XS)
        self._group = QButtonGroup(self)
        self.choices: dict[How, QRadioButton] = {}
        rows: tuple[tuple[How, str, str], ...] = (
            ("copy", tr("Copy it"), tr("The file stays where it is as well; the room is taken twice.")),
            ("move", tr("Move it"), tr("The file goes to the models folder.")),
            ("use_in_place", tr("Use it where it is"), tr("Nothing is copied; it must stay there.")),
        )
        for how, title, text in rows:
            button = QRadioButton(title)
            button.setAccessibleDescription(text)
            self._group.addButton(button)
            self.choices[how] = button
            column.addWidget(button)
            note = label(text, "small", wrap=True)
            note.setContentsMargins(Space.L, 0, 0, Space.HAIR)
            column.addWidget(note)
        self.choices["copy"].setChecked(True)
        self._message = Message()
        column.addWidget(self._message)
        buttons = QHBoxLayout()
        buttons.setSpacing(Space.XS)
        buttons.addStretch(1)
        buttons.addWidget(push_button(tr("Cancel"), self.reject))
        self.start = push_button(tr("Import"), self._start, kind="primary")
        self.start.setDefault(True)
        buttons.addWidget(self.start)
        column.addSpacing(Space.XS)
        column.addLayout(buttons)

    def _start(self) -> None:
        how = next(how for how, button in self.choices.items() if button.isChecked())
        self.start.setEnabled(False)
        self._models.import_models(ImportRequest(self._path, how), self._started, failed=self._failed)

    def _started(self, job: Job) -> None:
        del job  # it is shown under Downloads
        self.accept()

    def _failed(self, failure: Failure) -> None:
        self.start.setEnabled(True)
        self._message.say_failure(failure)
