"""The log of what other programs asked: a line of JSON for each request, in `logs/requests.log`.

Off unless a person wants it, and without what was said unless they want that too. Never keys, only their names.
Bounded: rotated at 10 MB, four older ones are kept. Written by a thread of its own; when the disk does not keep up,
lines are left out and counted.
"""

import contextlib
import datetime
import logging
import logging.handlers
import os
import queue
import sys
import threading
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path

import msgspec

from runtime.messages.shared import Message
from runtime.options import RequestLogging
from runtime.units import now

MAX_FILE_BYTES = 10_000_000
OLDER_FILES = 4
MAX_WAITING_LINES = 1000
MAX_TEXT_CHARS = 200_000
"""Of what was asked, and of what was answered; the rest is left out of the log."""

_encode = msgspec.json.Encoder().encode
_log = logging.getLogger(__name__)


class LoggedRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line. `time` is local, with its zone; `status` that of HTTP, 499 for a client that left.

    `asked` (JSON) and `answered` are there only when a person chose to log text.
    """

    time: str
    request_id: str
    client: str
    route: str
    model: str
    status: int
    duration_s: float
    key: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    time_to_first_token_s: float = 0.0
    generation_tps: float = 0.0
    problem: str = ""
    asked: str = ""
    answered: str = ""


class Conversation:
    """What is said in one request, as far as the log keeps it. Kept only while text is logged."""

    def __init__(self) -> None:
        self.asked = ""
        self._answer: list[str] = []
        self._n_chars = 0

    def ask(self, messages: tuple[Message, ...] | None, prompt: str | None) -> None:
        """What was asked; of several parts, all."""
        parts = [{"role": row.role, "content": row.content} for row in messages or ()]
        text = _encode(parts).decode() if parts else prompt or ""
        self.asked = f"{self.asked}{text}"[:MAX_TEXT_CHARS]

    def add(self, text: str) -> None:
        """New text of the answer."""
        if self._n_chars < MAX_TEXT_CHARS:
            self._answer.append(text)
            self._n_chars += len(text)

    @property
    def answered(self) -> str:
        """What came, up to the bound."""
        return "".join(self._answer)[:MAX_TEXT_CHARS]


class RequestLog:
    """Home: the event loop; one thread writes."""

    def __init__(self, path: Path, mode: Callable[[], RequestLogging]) -> None:
        """`mode` says what is wanted now."""
        self._path = path
        self._mode = mode
        self._lines: queue.Queue[bytes | None] = queue.Queue(MAX_WAITING_LINES)
        self._writer: threading.Thread | None = None
        self._n_left_out = 0

    @property
    def wants_text(self) -> bool:
        """Whether what is said is to be kept."""
        return self._mode() == "text"

    @property
    def is_on(self) -> bool:
        """Whether anything is."""
        return self._mode() != "off"

    def add(self, line: LoggedRequest) -> None:
        """Write a line, soon."""
        if not self.is_on:
            return
        if self._writer is None:
            self._writer = threading.Thread(target=self._write, name="request log", daemon=True)
            self._writer.start()
        try:
            self._lines.put_nowait(_encode(line))
        except queue.Full:
            self._n_left_out += 1

    def close(self) -> None:
        """Write what waits, and close the file."""
        if self._writer is None:
            return
        try:
            self._lines.put(None, timeout=2.0)
        except queue.Full:  # the disk hangs: the thread ends with the process
            return
        self._writer.join(5.0)
        self._writer = None
        if self._n_left_out:
            _log.warning("%d lines were left out of the request log: the disk did not keep up", self._n_left_out)

    def _write(self) -> None:
        file = _PrivateFile(self._path, maxBytes=MAX_FILE_BYTES, backupCount=OLDER_FILES, encoding="utf-8", delay=True)
        while (line := self._lines.get()) is not None:
            file.handle(logging.LogRecord("requests", logging.INFO, "", 0, line.decode(), None, None))
        with contextlib.suppress(OSError):  # told when it happened first
            file.close()


class _PrivateFile(logging.handlers.RotatingFileHandler):
    """Readable by this person alone (POSIX); a full disk loses lines and nothing else."""

    _is_failing = False

    def _open(self) -> TextIOWrapper:
        handle = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        return os.fdopen(handle, "a", encoding=self.encoding)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 - logging's name
        if not self._is_failing:
            self._is_failing = True
            _log.warning("lines of the request log are lost: %s", sys.exception())


def time_of(started_s: float) -> tuple[str, float]:
    """The local time as text, and the seconds since."""
    at = datetime.datetime.fromtimestamp(started_s).astimezone()
    return at.isoformat(timespec="milliseconds"), round(max(0.0, now() - started_s), 3)
