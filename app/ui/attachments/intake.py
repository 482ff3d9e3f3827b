"""Takes in what a person pastes, drops or chooses; the work happens on a lane."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtCore import QCoreApplication, QMimeData, QObject, Signal
from PySide6.QtGui import QImage

from app.store.records import MAX_ATTACHMENTS
from app.tasks import Lane
from app.ui.attachments.prepare import Prepared, Refused, prepare_file, prepare_image

PICTURE_FILTER = "*.png *.jpg *.jpeg *.webp *.gif *.bmp"
SOUND_FILTER = "*.wav *.mp3 *.flac"


class FileIntake(QObject):
    """Home thread: main. Files are prepared one after the other."""

    ready = Signal(str, object)
    """What `take` was told to call the receiver, and a `Prepared`."""

    refused = Signal(str)
    """Why a file is not taken."""

    waiting_changed = Signal(int)
    """Files that are being prepared."""

    def __init__(self, lane: Lane, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lane = lane
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """Files that are being prepared."""
        return self._waiting

    def take(self, source: QMimeData, receiver: str) -> bool:
        """Take the files or the picture of a paste or drop; False if there is none. Remote addresses are not taken."""
        paths = local_paths(source)
        if paths:
            self.take_paths(paths, receiver)
            return True
        if source.hasImage():
            image = source.imageData()
            if isinstance(image, QImage):
                self._submit(partial(prepare_image, image.copy()), receiver)
                return True
        return False

    def take_paths(self, paths: list[Path], receiver: str) -> None:
        """Take these files, as many as a message may have."""
        if len(paths) > MAX_ATTACHMENTS:
            text = QCoreApplication.translate(
                "FileIntake", "A message takes {count} files at most; the first ones were taken."
            )
            self.refused.emit(text.format(count=MAX_ATTACHMENTS))
        for path in paths[:MAX_ATTACHMENTS]:
            self._submit(partial(prepare_file, path), receiver)

    def _submit(self, work: Callable[[], Prepared], receiver: str) -> None:
        self._count(1)

        def done(prepared: Prepared) -> None:
            self._count(-1)
            self.ready.emit(receiver, prepared)

        def failed(error: Exception) -> None:
            self._count(-1)
            text = QCoreApplication.translate("FileIntake", "The file could not be attached: {why}")
            self.refused.emit(str(error) if isinstance(error, Refused) else text.format(why=error))

        self._lane.submit(work, done, failed)

    def _count(self, step: int) -> None:
        self._waiting += step
        self.waiting_changed.emit(self._waiting)


def local_paths(source: QMimeData) -> list[Path]:
    """The files of this computer that a paste or drop names."""
    return [Path(url.toLocalFile()) for url in source.urls() if url.isLocalFile()] if source.hasUrls() else []


def has_files(source: QMimeData) -> bool:
    """Whether a paste or drop holds files or a picture, and not text."""
    if local_paths(source):
        return True
    return source.hasImage() and not source.hasText()
