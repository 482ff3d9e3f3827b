"""Bytes of pictures, sounds and text files on their way between the person, the store and the model."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping

from PySide6.QtCore import QObject

from app.saver import Saver
from app.store import StoreLane
from app.store.store import Store

MAX_CACHE_BYTES = 64 * 1024 * 1024
"""Bytes kept in memory, so that the turns of a conversation with pictures do not read them anew each time."""


class Media(QObject):
    """Home thread: main; reading happens on the store's lane."""

    def __init__(self, store: StoreLane, saver: Saver, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._store = store
        self._saver = saver
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._cached_bytes = 0

    def hold(self, sha256: str, data: bytes) -> None:
        """A person brought this file: keep it, on disk too. Whoever names it in a message or draft comes after."""
        self._remember(sha256, data)
        self._saver.put_file(sha256, data)

    def fetch(self, hashes: Iterable[str], done: Callable[[Mapping[str, bytes]], None]) -> None:
        """`done` gets the bytes by hash, those that are lost left out; at once if all are in memory."""
        found: dict[str, bytes] = {}
        missing: list[str] = []
        for sha256 in hashes:
            data = self._cache.get(sha256) or self._saver.pending_file(sha256)
            if data is None:
                missing.append(sha256)
            else:
                self._remember(sha256, data)
                found[sha256] = data
        if not missing:
            done(found)
            return

        def work(store: Store) -> dict[str, bytes]:
            read = ((sha256, store.file_data(sha256)) for sha256 in missing)
            return {sha256: data for sha256, data in read if data is not None}

        def take(read: dict[str, bytes]) -> None:
            for sha256, data in read.items():
                self._remember(sha256, data)
            done(found | read)

        def failed(error: Exception) -> None:
            self._store.say_error(error)
            done(found)

        self._saver.flush()
        self._store.submit(work, take, failed)

    def _remember(self, sha256: str, data: bytes) -> None:
        before = self._cache.pop(sha256, None)
        self._cached_bytes += len(data) - len(before or b"")
        self._cache[sha256] = data
        while self._cached_bytes > MAX_CACHE_BYTES and len(self._cache) > 1:
            self._cached_bytes -= len(self._cache.popitem(last=False)[1])
