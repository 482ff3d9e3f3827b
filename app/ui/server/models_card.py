"""Models in memory: what they do, when they go by themselves, and a button that lets them go now."""

from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.link import HostLink
from app.ui.controls.buttons import push_button
from app.ui.controls.labels import ElidedLabel, label
from app.ui.server.watched_card import WatchedCard
from app.ui.server.words import tr, unload_words
from app.ui.theme import Size, Space
from runtime import units
from runtime.messages.api import LoadedModel
from runtime.units import format_bytes, format_speed

TICK_MS = 1_000


class _Row(QWidget):
    def __init__(self, model: LoadedModel, link: HostLink) -> None:
        super().__init__()
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(Space.M)
        words = QVBoxLayout()
        words.setSpacing(Size.FOCUS)
        words.addWidget(ElidedLabel(model.name, "strong"))
        self._facts = ElidedLabel("", "small")
        words.addWidget(self._facts)
        row.addLayout(words, 1)
        self._when = label("", "muted")
        row.addWidget(self._when)
        self._unload = push_button(tr("Unload"), lambda: link.unload_model(model.id))
        self._unload.setAccessibleName(tr("Unload {name}").format(name=model.name))
        row.addWidget(self._unload)

    def show_model(self, model: LoadedModel, now_s: float) -> None:
        """Show its state."""
        states = {
            "loading": tr("Loading, {percent} %").format(percent=round(model.fraction * 100)),
            "restarting": tr("Starting again"),
            "failed": model.failure.message if model.failure is not None else tr("Failed"),
            "unloading": tr("Unloading"),
            "ready": "",
        }
        facts = [states[model.state]]
        if model.facts is not None and model.state == "ready":
            facts += [model.facts.quantization, tr("{n} tokens of context").format(n=f"{model.facts.n_ctx:,}")]
            engine = model.engine
            facts.append(tr("{busy} of {slots} slots in use").format(busy=engine.active, slots=model.facts.n_parallel))
            if engine.waiting:
                facts.append(tr("{n} waiting").format(n=engine.waiting))
            if engine.active and engine.generation_tps:
                facts.append(format_speed(engine.generation_tps))
            if engine.resident_bytes:
                facts.append(format_bytes(engine.resident_bytes))
        self._facts.setText(" · ".join(fact for fact in facts if fact))
        self._when.setText(unload_words(model, now_s))
        self._unload.setEnabled(model.state in ("ready", "failed"))


class ModelsCard(WatchedCard):
    """Rows are kept while models stay, so that focus and pointer do."""

    def __init__(self, link: HostLink, parent: QWidget | None = None) -> None:
        super().__init__(tr("Models in memory"), TICK_MS, parent)
        self._link = link
        self._rows: dict[str, _Row] = {}
        self._none = label(tr("None. A request that names an installed model loads it."), "muted", wrap=True)
        self.column.addWidget(self._none)
        self._list = QVBoxLayout()
        self._list.setSpacing(Space.S)
        self.column.addLayout(self._list)

    def look(self) -> None:
        """Show what is loaded."""
        now_s = units.now()
        loaded = {model.id: model for model in self._link.loaded}
        for model_id in [key for key in self._rows if key not in loaded]:
            gone = self._rows.pop(model_id)
            self._list.removeWidget(gone)
            gone.hide()
            gone.deleteLater()
        for model_id, model in loaded.items():
            if model_id not in self._rows:
                self._rows[model_id] = _Row(model, self._link)
                self._list.addWidget(self._rows[model_id])
            self._rows[model_id].show_model(model, now_s)
        self._none.setVisible(not loaded)
