"""The load plan of an installed model: verdict, bars, sliders, and planned against actual after a load."""

from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QHideEvent, QShowEvent

from app.context import AppContext
from app.plan_watch import PlanWatch
from app.ui.appearance import Appearance
from app.ui.controls.buttons import TintedButton, push_button
from app.ui.controls.states import Message, Waiting
from app.ui.models.actual import ActualCard
from app.ui.models.bars import PlanBars
from app.ui.models.plan_controls import PlanControls
from app.ui.models.sub_page import SubPage
from app.ui.models.verdict import VerdictLine
from app.ui.models.words import can_load, tr
from app.ui.pages.base import Card
from runtime.errors import Failure
from runtime.messages.api import InstalledModel
from runtime.messages.fit import LoadRecord, MemoryPlan, PlanTarget
from runtime.options import LoadOptions

RECORD_AFTER_MS = 200
"""The host writes the record of a load down right after telling that the model is ready."""


class PlanPage(SubPage):
    """Opened from a card; leaving it keeps nothing that was not loaded or kept by its buttons."""

    hardware_wanted = Signal()

    def __init__(self, context: AppContext, appearance: Appearance, model: InstalledModel) -> None:
        super().__init__(context, appearance, model.name)
        self._model = model
        self._kept = LoadOptions()
        self._plan: MemoryPlan | None = None
        self.watch = PlanWatch(self.models, PlanTarget(model=model.id), self)
        self.watch.planned.connect(self._show_plan)
        self.watch.failed.connect(self._show_failure)
        self.watch.busy_changed.connect(self._show_busy)
        self._keep = push_button(tr("Keep settings"), self._remember)
        self._keep.setToolTip(tr("Used the next time this model is loaded"))
        self.head.addWidget(self._keep)
        self.load = push_button(tr("Load"), self._load, kind="primary")
        self.head.addWidget(self.load)
        self.message = Message()
        self.column.addWidget(self.message)
        self._waiting = Waiting()
        self.column.addWidget(self._waiting)
        self.verdict = VerdictLine(appearance)
        self.verdict.measure.clicked.connect(lambda _checked=False: self._measure())
        self.column.addWidget(self.verdict)
        self._memory = Card(tr("Where it goes"))
        nodes = TintedButton(appearance, "node", tr("Borrow memory of another computer…"), kind="quiet")
        nodes.clicked.connect(lambda _checked=False: self.hardware_wanted.emit())
        self._memory.head.addWidget(nodes)
        self.bars = PlanBars(appearance)
        self._memory.column.addWidget(self.bars)
        self.column.addWidget(self._memory)
        self._settings = Card(tr("Settings"))
        self._automatic = TintedButton(appearance, "spark", tr("Everything automatic"))
        self._automatic.clicked.connect(lambda _checked=False: self._reset())
        self._settings.head.addWidget(self._automatic)
        self.controls = PlanControls(appearance, model.n_ctx_train, full=True)
        self.controls.changed.connect(self._on_changed)
        self._settings.column.addWidget(self.controls)
        self.column.addWidget(self._settings)
        self.actual = ActualCard(appearance)
        self.column.addWidget(self.actual)
        self.column.addStretch(1)
        self._record_timer = QTimer(self)
        self._record_timer.setSingleShot(True)
        self._record_timer.setInterval(RECORD_AFTER_MS)
        self._record_timer.timeout.connect(self._ask_record)
        self.link.models_changed.connect(self._show_loaded)
        self.link.installed_changed.connect(self._offer_drafts)
        self._offer_drafts()
        self._memory.hide()
        self._settings.hide()
        self.begin()

    def begin(self) -> None:
        """Ask for the settings kept for the model, then for the plan; also after a failure."""
        self.message.hide()
        self._waiting.start(tr("Working out where it goes…"))
        self.models.settings(self._model.id, self._take_settings, failed=self._show_failure)
        self._ask_record()
        self._show_loaded()

    def leave(self) -> None:
        self.watch.stop()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.watch.set_watched(True)

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.watch.set_watched(False)

    # --- settings

    def _take_settings(self, options: LoadOptions) -> None:
        self._kept = options
        self.controls.set_options(options)
        self.watch.ask(options)
        self._show_buttons()

    def _on_changed(self, options: LoadOptions) -> None:
        self.watch.ask(options)
        self._show_buttons()

    def _reset(self) -> None:
        self.controls.set_options(LoadOptions())
        self._on_changed(LoadOptions())

    def _remember(self) -> None:
        options = self.controls.options
        self.models.remember(self._model.id, options, lambda: self._remembered(options))

    def _remembered(self, options: LoadOptions) -> None:
        self._kept = options
        self._show_buttons()

    def _offer_drafts(self) -> None:
        """Smaller chat models of the same architecture: another family has another vocabulary."""
        mine = self._model
        self.controls.offer_drafts(
            [
                (one.name, one.id)
                for one in self.link.installed
                if one.id != mine.id
                and one.kind == "chat"
                and not one.problem
                and one.architecture == mine.architecture
                and one.size_bytes < mine.size_bytes
            ]
        )

    # --- the plan

    def _show_plan(self, plan: MemoryPlan) -> None:
        self._plan = plan
        self._waiting.stop()
        self.message.hide()
        self._memory.show()
        self._settings.show()
        self.verdict.show_plan(plan)
        self.bars.show_plan(plan)
        self.controls.show_plan(plan)
        self._show_buttons()
        if plan.verdict == "too_large" and not self._is_loading:
            self.message.say(
                "warning",
                tr(
                    "The plan says that it does not fit. You can load it anyway: that may fail, and until then this "
                    "computer may become very slow. Save what is open in other programs first."
                ),
                tr("Load anyway"),
                lambda: self._load(anyway=True),
            )

    @property
    def _is_loading(self) -> bool:
        loaded = self.link.model(self._model.id)
        return loaded is not None and loaded.state not in ("", "failed")

    def _measure(self) -> None:
        """Measure this computer, then plan anew with what was found."""
        self.verdict.set_measuring(True)
        self.models.measure_machine(lambda _machine: self._measured(), failed=self._not_measured)

    def _measured(self) -> None:
        self.verdict.set_measuring(False)
        self.watch.ask(self.controls.options, at_once=True)

    def _not_measured(self, failure: Failure) -> None:
        self.verdict.set_measuring(False)
        self.message.say_failure(failure)

    def _show_busy(self, busy: bool) -> None:
        self.verdict.set_busy(busy)

    def _show_failure(self, failure: Failure) -> None:
        self._waiting.stop()
        self.message.say_failure(failure, tr("Try again"), self.begin)

    # --- loading

    def _load(self, *, anyway: bool = False) -> None:
        options = self.controls.options
        self._kept = options
        self.message.hide()
        self.context.load_model(self._model.id, options, anyway=anyway)
        self._show_buttons()

    def _show_loaded(self) -> None:
        loaded = self.link.model(self._model.id)
        if loaded is not None and loaded.state == "ready":
            self._record_timer.start()
        if loaded is not None and loaded.state == "failed" and loaded.failure is not None:
            self.message.say_failure(loaded.failure)
        self._show_buttons()

    def _show_buttons(self) -> None:
        loaded = self.link.model(self._model.id)
        state = loaded.state if loaded is not None else ""
        fits = self._plan is None or can_load(self._plan)
        is_same = loaded is not None and state == "ready" and loaded.options == self.controls.options
        if state == "loading" and loaded is not None:
            self.load.setText(tr("Loading, {percent} %").format(percent=round(loaded.fraction * 100)))
        elif state == "ready":
            self.load.setText(tr("Loaded") if is_same else tr("Load again"))
        else:
            self.load.setText(tr("Load"))
        self.load.setEnabled(fits and not is_same and state not in ("loading", "restarting", "unloading"))
        self._keep.setEnabled(self.controls.options != self._kept)
        self._automatic.setEnabled(self.controls.options != LoadOptions())

    def _ask_record(self) -> None:
        self.models.record(self._model.id, self._show_record, failed=lambda _failure: None)

    def _show_record(self, record: LoadRecord | None) -> None:
        self.actual.show_record(record)
