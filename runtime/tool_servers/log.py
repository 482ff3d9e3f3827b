"""What a tool server writes beside the protocol, bounded."""

from collections import deque

MAX_LINES = 200
MAX_LINE_CHARS = 2_000


class ServerLog:
    """The newest `MAX_LINES` lines."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._last = ""

    def add(self, line: str) -> None:
        """Append a line; control characters are shown as what they are."""
        text = line[:MAX_LINE_CHARS].rstrip()
        if text:
            self._last = "".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
            self._lines.append(self._last)

    def note_end(self, how: str) -> None:
        """Append how a run of the server ended, in Deskside's words; what it said until then is of the past."""
        self.add(f"(Deskside) {how}")
        self._last = ""

    def lines(self) -> tuple[str, ...]:
        """Oldest first."""
        return tuple(self._lines)

    def last(self) -> str:
        """The newest line of the server's present run, or ""."""
        return self._last


class Lines:
    """Cuts a stream of bytes into lines, without keeping more than `limit_bytes` of one."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._parts: list[bytes] = []
        self._size_bytes = 0
        self.is_too_long = False
        """The line that is being read is over the limit; what comes of it is thrown away."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk ends; of one that is too long nothing."""
        first, *others = chunk.split(b"\n")
        self._keep(first)
        ended: list[bytes] = []
        for other in others:
            if not self.is_too_long:
                ended.append(b"".join(self._parts))
            self._parts, self._size_bytes, self.is_too_long = [], 0, False
            self._keep(other)
        return ended

    def rest(self) -> bytes:
        """The line without an end."""
        return b"".join(self._parts)

    def _keep(self, piece: bytes) -> None:
        self._size_bytes += len(piece)
        if self._size_bytes > self._limit_bytes:
            self.is_too_long = True
            self._parts = []
        elif piece:
            self._parts.append(piece)
