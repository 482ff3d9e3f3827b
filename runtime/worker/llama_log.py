"""llama.cpp's log: kept for error messages and for the figures only it prints, passed on to `logging`.

llama.cpp has one log callback a process, so one `LlamaLog` is installed at the first load and stays.
"""

import ctypes
import logging
import re
import threading
from collections import deque
from typing import Literal

from runtime.worker import native

MAX_LINES = 400
"""Lines kept, newest last; a load of a large model prints fewer."""

_DEBUG, _INFO, _WARN, _ERROR, _CONT = 1, 2, 3, 4, 5  # enum ggml_log_level, ggml.h

_LEVELS = {_INFO: logging.DEBUG, _WARN: logging.INFO, _ERROR: logging.WARNING}
"""Where a line of llama.cpp goes: its information is our detail, its warnings are mostly about files."""

BufferPart = Literal["model", "cache", "compute", "output"]

_BUFFER_SIZE = re.compile(r"^\w+: +(\S+) +(model|KV|RS|state|\S+ \S+ state|compute|output) buffer size = +([\d.]+) MiB")
_CACHE_WORDS = ("KV", "RS")
_LAYER_DEVICE = re.compile(rb"^load_tensors: layer +(\d+) assigned to device (\S+?),")
_LAYER_START = b"load_tensors: layer "
_MAX_LAYERS = 1024
_MIB = 1024 * 1024

_logger = logging.getLogger("llama.cpp")


class LlamaLog:
    """The last lines llama.cpp printed. Home thread: any (locked)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: deque[tuple[int, str]] = deque(maxlen=MAX_LINES)
        self._open = ""
        self._open_level = _INFO
        self._layer_devices: dict[int, str] = {}
        self._callback = native.LogCallback(self._on_text)

    @property
    def address(self) -> int | None:
        """The callback, for other libraries that print as llama.cpp does."""
        return ctypes.cast(self._callback, ctypes.c_void_p).value

    def install(self) -> None:
        """Make llama.cpp print here; the object must live as long as the process."""
        native.log_set(self.address, None)

    def _on_text(self, level: int, raw: bytes | None, _user_data: int | None) -> None:
        if raw is None:
            return
        if level == _DEBUG:
            if raw.startswith(_LAYER_START):
                self._note_layer(raw)
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

    def _note_layer(self, raw: bytes) -> None:
        found = _LAYER_DEVICE.match(raw)
        if found and int(found[1]) < _MAX_LAYERS:
            with self._lock:
                self._layer_devices[int(found[1])] = found[2].decode("utf-8", "replace")

    def clear(self, *, keep_model: bool = False) -> None:
        """Forget the lines, before a load.

        With `keep_model`, before another context of the same model: what was said of its layers and buffers stays.
        """
        with self._lock:
            kept = [line for line in self._lines if keep_model and _is_model_buffer(line[1])]
            self._lines.clear()
            self._lines.extend(kept)
            self._open = ""
            if not keep_model:
                self._layer_devices.clear()

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

    def layer_devices(self) -> dict[int, str]:
        """Where the model opened last has its layers: ggml's name of the device by layer, the output layer last."""
        with self._lock:
            return dict(self._layer_devices)

    def sizes(self, part: BufferPart) -> tuple[tuple[str, int], ...]:
        """Name and bytes of the buffers of one kind, to 0.01 MiB; `cache` is KV cache and recurrent state.

        A dry run prints 0 for `model` and `cache`.
        """
        found: list[tuple[str, int]] = []
        for line in self.lines():
            match = _BUFFER_SIZE.match(line)
            if match is None:
                continue
            word = match[2]
            kind = "cache" if word in _CACHE_WORDS or word.endswith("state") else word
            if kind == part:
                found.append((match[1], int(float(match[3]) * _MIB)))
        return tuple(found)


def _is_model_buffer(line: str) -> bool:
    found = _BUFFER_SIZE.match(line)
    return found is not None and found[2] == "model"
