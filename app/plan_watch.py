"""Asks for plans while a person moves sliders: by formula at once, exactly after a pause. No widget here."""

import logging
from collections import OrderedDict
from functools import partial

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.call import Call
from app.link import HostLink
from app.models_link import ModelsLink
from runtime.errors import Failure
from runtime.messages.fit import MemoryPlan, PlanRequest, PlanTarget
from runtime.options import LoadOptions

EXACT_AFTER_MS = 350
"""A person who has not moved a slider for so long wants to know exactly."""

REFRESH_MS = 15_000
"""What other programs hold changes: a plan that is looked at is made anew so often."""

MAX_VERDICTS = 512
"""Most verdicts of installed models kept; the oldest goes first."""


_log = logging.getLogger(__name__)


class PlanWatch(QObject):
    """The newest plan of one target. Home thread: main.

    At most one request of each kind runs; options that changed meanwhile are asked for when it ends.
    """

    planned = Signal(object)
    """`MemoryPlan` for the options asked for last."""

    failed = Signal(object)
    """`Failure` of the newest request."""

    busy_changed = Signal(bool)
    """Whether an exact plan is still to come."""

    def __init__(self, models: ModelsLink, target: PlanTarget, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._models = models
        self._target = target
        self._options = LoadOptions()
        self._quick: Call | None = None
        self._exact: Call | None = None
        self._quick_is_stale = False
        self._has_exact = False
        self._is_busy = False
        self._pause = QTimer(self)
        self._pause.setSingleShot(True)
        self._pause.setInterval(EXACT_AFTER_MS)
        self._pause.timeout.connect(self._ask_exact)
        self._refresh = QTimer(self)
        self._refresh.setInterval(REFRESH_MS)
        self._refresh.timeout.connect(self._ask_exact)

    @property
    def options(self) -> LoadOptions:
        """What is planned for."""
        return self._options

    def ask(self, options: LoadOptions, *, at_once: bool = False) -> None:
        """Plan these options: a formula now (`at_once`: none, but the exact figures now)."""
        self._options = options
        self._has_exact = False
        if self._exact is not None:
            self._exact.drop()
            self._exact = None
        self._set_busy(True)
        if at_once:
            self._ask_exact()
            return
        self._pause.start()
        if self._quick is None:
            self._ask_quick()
        else:
            self._quick_is_stale = True

    def set_watched(self, watched: bool) -> None:
        """Whether somebody looks: only then it is made anew now and then."""
        if watched and not self._refresh.isActive():
            self._refresh.start()
        elif not watched:
            self._refresh.stop()

    def stop(self) -> None:
        """Drop what is on its way; nothing is told any more."""
        self._pause.stop()
        self._refresh.stop()
        for call in (self._quick, self._exact):
            if call is not None:
                call.drop()
        self._quick = self._exact = None

    def _ask_quick(self) -> None:
        self._quick_is_stale = False
        request = PlanRequest(self._target, self._options, draft=self._options.draft_model, exact=False)
        self._quick = self._models.plan(request, self._take_quick, failed=self._quick_failed)

    def _take_quick(self, plan: MemoryPlan) -> None:
        self._quick = None
        if not self._has_exact and not self._quick_is_stale:
            self.planned.emit(plan)
        self._go_on()

    def _quick_failed(self, failure: Failure) -> None:
        self._quick = None
        del failure  # the exact request that follows tells it
        self._go_on()

    def _go_on(self) -> None:
        if self._quick_is_stale and not self._has_exact:
            self._ask_quick()

    @Slot()
    def _ask_exact(self) -> None:
        self._pause.stop()
        if self._exact is None:
            request = PlanRequest(self._target, self._options, draft=self._options.draft_model)
            self._exact = self._models.plan(request, self._take_exact, failed=self._exact_failed)

    def _take_exact(self, plan: MemoryPlan) -> None:
        self._exact = None
        self._has_exact = True
        self._set_busy(False)
        self.planned.emit(plan)

    def _exact_failed(self, failure: Failure) -> None:
        self._exact = None
        self._set_busy(False)
        self.failed.emit(failure)

    def _set_busy(self, busy: bool) -> None:
        if busy != self._is_busy:
            self._is_busy = busy
            self.busy_changed.emit(busy)


class Verdicts(QObject):
    """Judges the installed models one after another, by formula, while their list is looked at. Home thread: main."""

    changed = Signal(str)
    """Id of a model whose verdict is new."""

    def __init__(self, link: HostLink, models: ModelsLink, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._link = link
        self._models = models
        self._plans: OrderedDict[str, MemoryPlan] = OrderedDict()
        self._waiting: list[str] = []
        self._call: Call | None = None
        self._is_watched = False
        self._refresh = QTimer(self)
        self._refresh.setInterval(4 * REFRESH_MS)
        self._refresh.timeout.connect(self.refresh)

    def plan(self, model_id: str) -> MemoryPlan | None:
        """The last verdict on a model."""
        return self._plans.get(model_id)

    def set_watched(self, watched: bool) -> None:
        """Whether the list is looked at."""
        if watched != self._is_watched:
            self._is_watched = watched
            if watched:
                self._refresh.start()
                self.refresh()
            else:
                self._refresh.stop()
                self._waiting.clear()

    @Slot()
    def refresh(self) -> None:
        """Judge all models anew; those without a verdict first."""
        if self._is_watched:
            usable = [one.id for one in self._link.installed if not one.problem and one.kind in ("chat", "embedding")]
            self._waiting = sorted(usable, key=lambda one: one in self._plans)
            self._next()

    def _next(self) -> None:
        while self._call is None and self._waiting and self._link.is_connected:
            model_id = self._waiting.pop(0)
            request = PlanRequest(PlanTarget(model=model_id), exact=False)
            self._call = self._models.plan(
                request, partial(self._take, model_id), failed=partial(self._pass_over, model_id)
            )

    def _take(self, model_id: str, plan: MemoryPlan) -> None:
        self._call = None
        self._plans[model_id] = plan
        self._plans.move_to_end(model_id)
        while len(self._plans) > MAX_VERDICTS:
            self._plans.popitem(last=False)
        self.changed.emit(model_id)
        self._next()

    def _pass_over(self, model_id: str, failure: Failure) -> None:
        self._call = None
        _log.info("no verdict on %s: %s", model_id, failure.message)
        self._next()
