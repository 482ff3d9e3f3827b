"""llama.cpp's log: kept for error messages and for the figures only it prints, passed on to `logging`.

llama.cpp has one log callback a process, so one `LlamaLog` is installed at the first load and stays.
"""

import ctypes
import logging
import re
import threading
from collections import deque

from runtime.worker import native

MAX_LINES = 400
"""Lines kept, newest last; a load of a large model prints fewer."""

_DEBUG, _INFO, _WARN, _ERROR, _CONT = 1, 2, 3, 4, 5  # enum ggml_log_level, ggml.h

_LEVELS = {_INFO: logging.DEBUG, _WARN: logging.INFO, _ERROR: logging.WARNING}
"""Where a line of llama.cpp goes: its information is our detail, its warnings are mostly about files."""

_CACHE_SIZE = re.compile(r"^llama_(?:kv_cache|memory_recurrent)\w*: +size = +([\d.]+) MiB")
_COMPUTE_SIZE = re.compile(r"compute buffer size = +([\d.]+) MiB")
_MIB = 1024 * 1024

_logger = logging.getLogger("llama.cpp")


class LlamaLog:
    """The last lines llama.cpp printed. Home thread: any (locked)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: deque[tuple[int, str]] = deque(maxlen=MAX_LINES)
        self._open = ""
        self._open_level = _INFO
        self._callback = native.LogCallback(self._on_text)

    def install(self) -> None:
        """Make llama.cpp print here; the object must live as long as the process."""
        native.log_set(ctypes.cast(self._callback, ctypes.c_void_p), None)

    def _on_text(self, level: int, raw: bytes | None, _user_data: int | None) -> None:
        if level == _DEBUG or raw is None:
            return
        text = raw.decode("utf-8", "replace")
        finished: list[tuple[int, str]] = []
        with self._lock:
            if level != _CONT:
                self._open_level = level
            self._open += text
            while "\n" in self._open:
                line, self._open = self._open.split("\n", 1)
                if line.strip(" ."):
                    finished.append((self._open_level, line.rstrip()))
            self._open = self._open[-4096:]
            self._lines.extend(finished)
        for line_level, line in finished:
            _logger.log(_LEVELS.get(line_level, logging.DEBUG), "%s", line)

    def clear(self) -> None:
        """Forget the lines, before a load."""
        with self._lock:
            self._lines.clear()
            self._open = ""

    def lines(self) -> tuple[str, ...]:
        """Kept lines, oldest first."""
        with self._lock:
            return tuple(line for _level, line in self._lines)

    def reason(self) -> str:
        """llama.cpp's own words on what went wrong: its last errors, else its last line."""
        with self._lock:
            errors = [line for level, line in self._lines if level == _ERROR]
            last = self._lines[-1][1] if self._lines else ""
        return "; ".join(line.split(": ", 1)[-1] for line in errors[-3:]) or last

    def cache_bytes(self) -> int:
        """Bytes of the KV and recurrent caches of the context made last."""
        return self._sum(_CACHE_SIZE)

    def compute_bytes(self) -> int:
        """Bytes of the compute buffers of the context made last."""
        return self._sum(_COMPUTE_SIZE)

    def _sum(self, pattern: re.Pattern[str]) -> int:
        found = (pattern.search(line) for line in self.lines())
        return int(sum(float(match.group(1)) for match in found if match) * _MIB)
