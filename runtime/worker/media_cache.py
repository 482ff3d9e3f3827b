"""Encoded pictures and sounds, kept for the next turn: bounded in bytes, the longest unused first to go."""

import threading
import weakref
from collections import OrderedDict

from runtime.errors import Busy
from runtime.worker.media_rows import ReadMedia

MAX_CACHE_BYTES = 256 * 1024 * 1024
"""Bound of the rows kept for later. A picture of 1,000 rows for a model with 4,096 numbers a row takes 16 MB."""
MAX_LIVE_BYTES = 1024 * 1024 * 1024
"""Bound of all rows in memory, also those of requests that wait for the engine."""


class MediaCache:
    """Media by content. Home thread: any (locked).

    Attributes:
        max_bytes: bound of what it keeps.
        max_live_bytes: bound of all rows there are.
        size_bytes: rows it keeps.
        live_bytes: rows there are, kept here or used by requests.
    """

    def __init__(self, max_bytes: int = MAX_CACHE_BYTES, max_live_bytes: int = MAX_LIVE_BYTES) -> None:
        self.max_bytes = max_bytes
        self.max_live_bytes = max_live_bytes
        self.size_bytes = 0
        self.live_bytes = 0
        self._lock = threading.RLock()  # an array may end while it is held
        self._kept: OrderedDict[bytes, ReadMedia] = OrderedDict()

    def get(self, key: bytes) -> ReadMedia | None:
        """A medium whose rows are kept."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, media: ReadMedia) -> None:
        """Count a medium's new rows, and keep them; those over the bound by themselves are not kept."""
        rows = media.rows or ()
        size_bytes = _size_bytes(media)
        with self._lock:
            for array in rows:
                self.live_bytes += array.nbytes
                weakref.finalize(array, self._forget, array.nbytes).atexit = False
            if size_bytes > self.max_bytes or media.key in self._kept:
                return
            self._shrink(self.max_bytes - size_bytes)
            self._kept[media.key] = media
            self.size_bytes += size_bytes

    def check_room(self, size_bytes: int) -> None:
        """Make room for rows that are to be encoded.

        Raises:
            Busy: requests that wait hold too many.
        """
        with self._lock:
            over = self.live_bytes + size_bytes - self.max_live_bytes
            if over > 0:
                self._shrink(max(0, self.size_bytes - over))
            if self.live_bytes and self.live_bytes + size_bytes > self.max_live_bytes:
                raise Busy("Too many pictures wait for the model.", hint="Try again.", retry_after_s=5, waiting=1)

    def _shrink(self, most_bytes: int) -> None:
        while self.size_bytes > most_bytes:
            _key, media = self._kept.popitem(last=False)
            self.size_bytes -= _size_bytes(media)

    def _forget(self, size_bytes: int) -> None:
        with self._lock:
            self.live_bytes -= size_bytes


def _size_bytes(media: ReadMedia) -> int:
    return sum(array.nbytes for array in media.rows or ())
