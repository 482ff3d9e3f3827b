"""Server-sent events, read piece by piece with a bound on the size of one event.

Format: WHATWG HTML, section "Server-sent events". Only `data` matters here; `event`, `id`, `retry` and comments
are passed over.
"""

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Longest event accepted; a snapshot of thousands of installed models stays far below."""


class EventTooLong(ValueError):
    """One event is longer than the bound: the stream is not what it should be."""


class SseParser:
    """Bytes in, the `data` of whole events out. One line of lookback, nothing is scanned twice."""

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._tail: list[bytes] = []
        self._tail_bytes = 0
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._skip_lf = False
        self._at_start = True

    def feed(self, raw: bytes) -> list[bytes]:
        """The payloads of the events that these bytes complete.

        Raises:
            EventTooLong: if one event passes the bound.
        """
        if not raw:
            return []
        if self._skip_lf:
            raw = raw.removeprefix(b"\n")
        self._skip_lf = raw.endswith(b"\r")
        if b"\r" in raw:
            raw = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = raw.split(b"\n")
        found: list[bytes] = []
        if len(lines) > 1:
            lines[0] = b"".join((*self._tail, lines[0]))
            self._tail.clear()
            self._tail_bytes = 0
            for line in lines[:-1]:
                self._take_line(line, found)
        if lines[-1]:
            self._tail.append(lines[-1])
            self._tail_bytes += len(lines[-1])
        if self._tail_bytes + self._data_bytes > self._max_event_bytes:
            raise EventTooLong(f"an event of the host is longer than {self._max_event_bytes} bytes")
        return found

    def _take_line(self, line: bytes, found: list[bytes]) -> None:
        if self._at_start:
            line = line.removeprefix(b"\xef\xbb\xbf")
            self._at_start = False
        if not line:
            if self._data:
                found.append(b"\n".join(self._data))
                self._data.clear()
                self._data_bytes = 0
            return
        name, _, value = line.partition(b":")
        if name == b"data":
            value = value.removeprefix(b" ")
            self._data.append(value)
            self._data_bytes += len(value)
