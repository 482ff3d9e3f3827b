"""Pictures as they are drawn: decoded on a lane at the size they are shown, kept in a bounded cache."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Protocol

from PySide6.QtCore import QObject, QSize, Signal
from PySide6.QtGui import QImage, QPixmap

from app.tasks import Lane
from app.ui.attachments.prepare import decode

MAX_CACHE_BYTES = 96 * 1024 * 1024
"""Decoded pictures kept; the ones not drawn for longest go first."""

MAX_LOST = 1_000
"""Pictures remembered as lost or broken."""

_Key = tuple[str, int, int]


class FileSource(Protocol):
    """Where bytes come from."""

    def fetch(self, hashes: Iterable[str], done: Callable[[Mapping[str, bytes]], None]) -> None:
        """`done` gets the bytes by hash, those that are lost left out."""
        ...


class Pictures(QObject):
    """Home thread: main."""

    ready = Signal(str)
    """Hash of a picture that can be drawn now, or that turned out to be lost."""

    def __init__(self, media: FileSource, lane: Lane | None, parent: QObject | None = None) -> None:
        """Without a lane, pictures are decoded on the main thread."""
        super().__init__(parent)
        self._media = media
        self._lane = lane
        self._done: OrderedDict[_Key, QPixmap] = OrderedDict()
        self._done_bytes = 0
        self._asked: set[_Key] = set()
        self._lost: OrderedDict[str, None] = OrderedDict()

    def get(self, sha256: str, within: QSize) -> QPixmap | None:
        """The picture no larger than this many device pixels; `None` while it is decoded, or where it is lost."""
        key = (sha256, within.width(), within.height())
        found = self._done.get(key)
        if found is not None:
            self._done.move_to_end(key)
            return found
        if key not in self._asked and sha256 not in self._lost:
            self._asked.add(key)
            self._media.fetch((sha256,), partial(self._decode, key))
        return None

    def is_lost(self, sha256: str) -> bool:
        """Whether its bytes are gone or cannot be decoded."""
        return sha256 in self._lost

    def _decode(self, key: _Key, data: Mapping[str, bytes]) -> None:
        raw = data.get(key[0])
        if raw is None:
            self._keep(key, QImage())
            return
        work = partial(decode, raw, QSize(key[1], key[2]))
        if self._lane is None:
            self._keep(key, work())
            return
        self._lane.submit(
            work,
            partial(self._keep, key),
            lambda _error: self._keep(key, QImage()),
        )

    def _keep(self, key: _Key, image: QImage) -> None:
        self._asked.discard(key)
        if image.isNull():
            self._lost[key[0]] = None
            while len(self._lost) > MAX_LOST:
                self._lost.popitem(last=False)
        else:
            self._done[key] = QPixmap.fromImage(image)
            self._done_bytes += image.sizeInBytes()
            while self._done_bytes > MAX_CACHE_BYTES and len(self._done) > 1:
                gone = self._done.popitem(last=False)[1]
                self._done_bytes -= gone.width() * gone.height() * gone.depth() // 8
        self.ready.emit(key[0])
