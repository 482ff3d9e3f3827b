"""How programs connect: a text to copy for each."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QVBoxLayout, QWidget

from app.link import HostLink
from app.ui.appearance import Appearance
from app.ui.controls.buttons import IconButton
from app.ui.controls.fields import ChoiceField
from app.ui.controls.labels import label
from app.ui.pages.base import Card
from app.ui.server.snippets import Target, programs
from app.ui.server.words import address_of, tr
from app.ui.theme import Size, Space

USUAL_CONTEXT = 8192
"""Told to programs that want a context length while no model is loaded."""


class ConnectCard(Card):
    """Filled with the address, the model and the keys as they are."""

    copied = Signal(str)

    def __init__(self, link: HostLink, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(tr("Connect a program"), parent)
        self._link = link
        self._programs = programs()
        self.choice = ChoiceField()
        self.choice.setAccessibleName(tr("Program or language"))
        for at, program in enumerate(self._programs):
            self.choice.addItem(program.name, at)
        self.choice.currentIndexChanged.connect(lambda _at: self.refresh())
        self.head.addWidget(self.choice)
        copy = IconButton(appearance, "copy", tr("Copy the text"))
        copy.clicked.connect(lambda _checked=False: self.copied.emit(self.text))
        self.head.addWidget(copy)
        self._where = label("", "muted", wrap=True)
        self.column.addWidget(self._where)
        frame = QFrame()
        frame.setProperty("role", "code-card")
        inside = QVBoxLayout(frame)
        inside.setContentsMargins(Space.M, Space.S, Space.M, Space.S)
        self._snippet = label("")
        self._snippet.setFont(appearance.font(code=True))
        self._snippet.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self._snippet.setAccessibleName(tr("Snippet"))
        self._snippet.setMinimumWidth(Size.TRANSCRIPT_MIN_W)
        inside.addWidget(self._snippet)
        self.column.addWidget(frame)
        self._note = label("", "small", wrap=True)
        self.column.addWidget(self._note)
        self.refresh()

    @property
    def text(self) -> str:
        """What would be copied."""
        return self._snippet.text()

    def choose(self, name: str) -> None:
        """Show the text for this program."""
        self.choice.setCurrentIndex(self.choice.findText(name))

    def refresh(self) -> None:
        """Fill in what is known now."""
        state = self._link.api
        ready = next((model for model in self._link.loaded if model.state == "ready"), None)
        installed = next((one for one in self._link.installed if one.kind == "chat" and not one.problem), None)
        fallback = (installed.id, installed.name) if installed is not None else ("model-name", "Model")
        model_id, name = (ready.id, ready.name) if ready is not None else fallback
        with_key = state is not None and bool(state.keys)
        target = Target(
            address_of(self._link),
            model_id,
            name,
            ready.facts.n_ctx if ready is not None and ready.facts is not None else USUAL_CONTEXT,
            with_key,
        )
        program = self._programs[self.choice.currentData()]
        self._where.setText(program.where)
        self._snippet.setText(program.make(target))
        notes = []
        if state is None or not state.running:
            notes.append(tr("The API is off: turn it on first."))
        if with_key:
            notes.append(tr("Put one of your keys in the place of YOUR_KEY."))
        if state is not None and state.certificate is not None and state.certificate.is_own:
            notes.append(tr("The certificate is our own: the program must be told to trust it (see Settings)."))
        self._note.setText(" ".join(notes))
        self._note.setVisible(bool(notes))
