"""Log files of the host: `host.log` is its own, `worker.log` what the models' processes print.

Bounded: each is rotated at 2 MB and keeps 4 older ones, 20 MB in all.
"""

import contextlib
import logging
import logging.handlers
import sys
from pathlib import Path

MAX_FILE_BYTES = 2_000_000
OLDER_FILES = 4
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _LogFile(logging.handlers.RotatingFileHandler):
    """Drops what a full disk does not take: nothing may fail, or fill the terminal, for want of a log line."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        pass

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it flushes
            super().close()


def _rotating(path: Path, layout: str) -> logging.Handler:
    handler = _LogFile(
        path, maxBytes=MAX_FILE_BYTES, backupCount=OLDER_FILES, encoding="utf-8", delay=True, errors="replace"
    )
    handler.setFormatter(logging.Formatter(layout))
    return handler


def _is_ours(record: logging.LogRecord) -> bool:
    """What the HTTP server says about connections belongs in the file."""
    return not record.name.startswith("uvicorn")


class HostLogs:
    """Sets the logging of this process up, and undoes it."""

    def __init__(self, folder: Path, *, to_stderr: bool) -> None:
        self._root = logging.getLogger()
        self._level = self._root.level
        self._handlers: list[logging.Handler] = [_rotating(folder / "host.log", _FORMAT)]
        if to_stderr:
            terminal = logging.StreamHandler(sys.stderr)
            terminal.setLevel(logging.WARNING)
            terminal.addFilter(_is_ours)
            terminal.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
            self._handlers.append(terminal)
        for handler in self._handlers:
            self._root.addHandler(handler)
        self._root.setLevel(logging.INFO)
        for chatty in ("httpx", "httpx2"):  # one line a request, with signed addresses in them
            logging.getLogger(chatty).setLevel(logging.WARNING)
        self._worker = logging.getLogger("worker output")
        self._worker.propagate = False  # never on the terminal, nor in host.log
        self._worker_handler = _rotating(folder / "worker.log", "%(asctime)s %(message)s")
        self._worker.addHandler(self._worker_handler)

    def worker_line(self, model_id: str, line: str) -> None:
        """Keep one line that a worker printed."""
        self._worker.info("[%s] %s", model_id, line)

    def close(self) -> None:
        """Close the files."""
        for handler in self._handlers:
            self._root.removeHandler(handler)
            handler.close()
        self._root.setLevel(self._level)
        self._worker.removeHandler(self._worker_handler)
        self._worker_handler.close()
