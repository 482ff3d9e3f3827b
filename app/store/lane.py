"""The lane on which the store lives."""

from pathlib import Path

from PySide6.QtCore import QObject

from app.notices import Notices


class StoreLane(QObject):
    """Hands work to the store's thread. Home thread: main."""

    def __init__(self, path: Path, notices: Notices, parent: QObject | None = None) -> None:
        super().__init__(parent)
        raise NotImplementedError
