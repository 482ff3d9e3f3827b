"""Python's cyclic garbage collector, kept on the main thread.

The collector runs on whichever thread happens to allocate. A Qt object that it frees on another thread is destroyed
there, under the feet of the main thread's event loop. So it is switched off, and the same generations are collected
from a timer instead.
"""

import gc

from PySide6.QtCore import QObject, QTimer, Slot

PERIOD_MS = 1000


class Garbage(QObject):
    """Home thread: main. One for the program; `stop` gives the collector back."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._timer = QTimer(self)
        self._timer.setInterval(PERIOD_MS)
        self._timer.timeout.connect(self._look)
        self._was_enabled = False
        self._has_frozen = False

    def start(self) -> None:
        """Take over. What was imported so far is never looked at again, which keeps each collection short."""
        self._was_enabled = gc.isenabled()
        gc.disable()
        if gc.get_freeze_count() == 0:
            gc.freeze()
            self._has_frozen = True
        self._timer.start()

    def stop(self) -> None:
        """Put it back as it was."""
        self._timer.stop()
        if self._has_frozen:
            gc.unfreeze()
            self._has_frozen = False
        if self._was_enabled:
            gc.enable()

    @Slot()
    def _look(self) -> None:
        """Collect the oldest generation whose threshold is passed, as Python itself does."""
        counts, thresholds = gc.get_count(), gc.get_threshold()
        for generation in (2, 1, 0):
            # Looking once a second lets many allocations pass; the counts of the older generations only rise when
            # a younger one is collected, so the pace between generations stays Python's.
            if counts[generation] > thresholds[generation]:
                gc.collect(generation)
                return
