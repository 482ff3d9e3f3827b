"""One model of the hub in a list: a large button with name, note and facts."""

from PySide6.QtCore import QEvent, QSize, Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QSizePolicy, QVBoxLayout

from app.ui.controls.labels import ElidedLabel, label
from app.ui.models.words import ago_words, kind_words, tr
from app.ui.theme import Space
from runtime.messages.library import HubEntry
from runtime.units import format_bytes, format_count


def entry_facts(entry: HubEntry) -> str:
    """The facts below the name; what is not known is left out."""
    parts = [
        tr("{n} parameters").format(n=format_count(entry.n_params)) if entry.n_params else "",
        tr("about {size}").format(size=format_bytes(entry.size_bytes)) if entry.size_bytes else "",
        tr("{n} tokens context").format(n=f"{entry.n_ctx_train:,}") if entry.n_ctx_train else "",
        tr("{n} downloads").format(n=format_count(entry.downloads)) if entry.downloads else "",
        tr("{n} likes").format(n=format_count(entry.likes)) if entry.likes else "",
        tr("updated {time}").format(time=ago_words(entry.updated_s)) if entry.updated_s else "",
        entry.licence,
    ]
    return "  ·  ".join(part for part in parts if part)


_SIZE_EVENTS = frozenset({QEvent.Type.Polish, QEvent.Type.StyleChange, QEvent.Type.LayoutRequest, QEvent.Type.Show})


class EntryCard(QPushButton):
    """Press it to open the model's page."""

    def __init__(self, entry: HubEntry) -> None:
        super().__init__()
        self.entry = entry
        self.setProperty("kind", "suggestion")
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        facts = entry_facts(entry)
        self.setAccessibleName(tr("{name} by {publisher}").format(name=entry.name, publisher=entry.publisher))
        self.setAccessibleDescription(f"{entry.note} {facts}".strip())
        column = QVBoxLayout(self)
        column.setContentsMargins(Space.M, Space.S, Space.M, Space.S)
        column.setSpacing(Space.HAIR)
        top = QHBoxLayout()
        top.setSpacing(Space.XS)
        top.addWidget(ElidedLabel(entry.name, "strong"))
        top.addWidget(label(entry.publisher, "small"))
        if entry.is_installed:
            top.addWidget(label(tr("Installed"), "tag-accent"))
        if entry.kind != "chat":
            top.addWidget(label(kind_words(entry.kind), "tag"))
        if entry.is_gated:
            top.addWidget(label(tr("Terms to accept"), "tag-amber"))
        top.addStretch(1)
        column.addLayout(top)
        if entry.note:
            column.addWidget(ElidedLabel(entry.note))
        if facts:
            column.addWidget(ElidedLabel(facts, "small"))
        for child in self.findChildren(QLabel):
            child.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    def event(self, event: QEvent) -> bool:
        handled = super().event(event)
        # The stylesheet's least height of buttons would let a full page squeeze the card and cut its words.
        if event.type() in _SIZE_EVENTS and self.minimumHeight() != (height := self.sizeHint().height()):
            self.setMinimumHeight(height)
        return handled

    def sizeHint(self) -> QSize:
        layout = self.layout()
        return super().sizeHint() if layout is None else layout.sizeHint()
