"""A card that looks anew at intervals, as long as somebody sees it."""

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QWidget

from app.ui.pages.base import Card


class WatchedCard(Card):
    """What there is to look at, `look` says."""

    def __init__(self, title: str, pause_ms: int, parent: QWidget | None = None) -> None:
        """`pause_ms` lies between two looks."""
        super().__init__(title, parent)
        self._timer = QTimer(self)
        self._timer.setInterval(pause_ms)
        self._timer.timeout.connect(self.look)

    @property
    def is_watched(self) -> bool:
        """Whether somebody sees it."""
        return self._timer.isActive()

    def set_watched(self, watched: bool) -> None:
        """Look now and at intervals from now on, or not any more."""
        if watched:
            self.look()
            self._timer.start()
        else:
            self._timer.stop()

    def look(self) -> None:
        """Show, or ask for, what there is now."""
        raise NotImplementedError
