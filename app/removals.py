"""Removes models with a delay, so that it can be undone: nothing on disk is touched before it is over."""

from dataclasses import dataclass

from PySide6.QtCore import QCoreApplication, QObject, QTimer, Signal

from app.link import HostLink
from app.models_link import ModelsLink
from app.notices import Notices
from runtime.errors import Failure
from runtime.messages.api import InstalledModel
from runtime.messages.library import RemoveAnswer
from runtime.units import format_bytes

UNDO_MS = 8_000
"""How long a removal can be undone."""


@dataclass(slots=True)
class _Pending:
    model: InstalledModel
    timer: QTimer
    note_id: int


class Removals(QObject):
    """Home thread: main."""

    changed = Signal()
    """`pending` changed."""

    def __init__(self, link: HostLink, models: ModelsLink, notices: Notices, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._link = link
        self._models = models
        self._notices = notices
        self._pending: dict[str, _Pending] = {}
        link.installed_changed.connect(self._forget_gone)

    @property
    def pending(self) -> frozenset[str]:
        """Models that are shown as removed already."""
        return frozenset(self._pending)

    def remove(self, model: InstalledModel) -> None:
        """Remove a model in a while; a notice offers to undo it."""
        if model.id in self._pending:
            return
        timer = QTimer(self)
        timer.setSingleShot(True)
        timer.setInterval(UNDO_MS)
        timer.timeout.connect(lambda: self._carry_out(model.id))
        text = QCoreApplication.translate("Removals", "{name} goes to the trash; {size} become free.")
        note_id = self._notices.say(
            "info",
            text.format(name=model.name, size=format_bytes(model.size_bytes)),
            action_label=QCoreApplication.translate("Removals", "Undo"),
            on_action=lambda: self.undo(model.id),
        )
        self._pending[model.id] = _Pending(model, timer, note_id)
        timer.start()
        self.changed.emit()

    def undo(self, model_id: str) -> None:
        """Keep a model after all; too late it does nothing."""
        one = self._pending.pop(model_id, None)
        if one is not None:
            one.timer.stop()
            self._notices.withdraw(one.note_id)
            self.changed.emit()

    def finish(self) -> None:
        """Carry out what waits: the window closes."""
        for model_id in tuple(self._pending):
            self._carry_out(model_id)

    def _carry_out(self, model_id: str) -> None:
        one = self._pending[model_id]
        one.timer.stop()
        self._notices.withdraw(one.note_id)
        self._models.remove(
            model_id,
            lambda answer: self._removed(one.model, answer),
            failed=lambda failure: self._failed(one.model, failure),
        )

    def _removed(self, model: InstalledModel, answer: RemoveAnswer) -> None:
        if not answer.in_trash:
            text = QCoreApplication.translate(
                "Removals", "{name} was deleted for good: this disk has no trash. {size} are free now."
            )
            self._notices.say("info", text.format(name=model.name, size=format_bytes(answer.freed_bytes)))
        self._forget_gone()

    def _failed(self, model: InstalledModel, failure: Failure) -> None:
        self._pending.pop(model.id, None)
        text = QCoreApplication.translate("Removals", "{name} could not be removed. {why}")
        self._notices.say("error", text.format(name=model.name, why=f"{failure.message} {failure.hint}".strip()))
        self.changed.emit()

    def _forget_gone(self) -> None:
        there = {model.id for model in self._link.installed}
        gone = [model_id for model_id in self._pending if model_id not in there]
        for model_id in gone:
            self._pending.pop(model_id).timer.stop()
        if gone:
            self.changed.emit()
