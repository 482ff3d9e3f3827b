"""The host as a child process: started, listened to and ended. No Qt here.

Standard input is a pipe that is held open: the host ends when it closes, however this process ends. What the host says
on standard error is read by a thread of its own, which touches nothing but a bounded queue.

`QProcess` would kill the host when its object goes away, so that a person's API could not stay on; hence
`subprocess`, whose calls used here return at once.
"""

import contextlib
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

MAX_LINES = 200
MAX_LINE_BYTES = 2000
LAST_WORDS_S = 0.5


class HostChild:
    """Home thread: main, but for `_listen`. `start` begins on its own thread, since making a process can take long."""

    def __init__(self, command: Sequence[str], last_words_path: Path) -> None:
        """`last_words_path` is rewritten with the last lines when the host ends."""
        self._command = list(command)
        self._last_words_path = last_words_path
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._process: subprocess.Popen[bytes] | None = None
        self._problem = ""
        self._is_let_go = False
        self._is_drained = False
        self._ended_s: float | None = None
        # A daemon: with the API kept on, the host's standard error stays open beyond this process's end.
        self._thread = threading.Thread(target=self._listen, name="host output", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """The process, once it was made."""
        return self._process.pid if self._process else None

    @property
    def problem(self) -> str:
        """Why no process could be made; empty otherwise."""
        return self._problem

    @property
    def lines(self) -> tuple[str, ...]:
        """The last lines on standard error."""
        return tuple(self._lines)

    @property
    def has_ended(self) -> bool:
        """Whether the process is over (or could not be made). Asks the system; returns at once.

        Its last words are waited for up to `LAST_WORDS_S`: a worker may hold the other end of standard error a moment
        longer.
        """
        if self._problem:
            return True
        if self._process is None or self._process.poll() is None:
            return False
        if self._ended_s is None:
            self._ended_s = time.monotonic()
        return self._is_drained or time.monotonic() - self._ended_s > LAST_WORDS_S

    @property
    def exit_code(self) -> int | None:
        """Exit code; minus the signal's number on POSIX; `None` while it runs."""
        return self._process.poll() if self._process else None

    def let_go(self) -> None:
        """Close its standard input: it ends, or stays if the person wants that."""
        self._is_let_go = True
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def kill(self) -> None:
        """End it by force."""
        if self._process is not None:
            with contextlib.suppress(OSError):
                self._process.kill()

    def _listen(self) -> None:
        # A session of its own, so that Ctrl-C in a terminal reaches the window first, which then ends the host.
        flags = 0
        if sys.platform == "win32":
            flags = subprocess.CREATE_NO_WINDOW
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=sys.platform != "win32",
                creationflags=flags,
            )
        except (OSError, ValueError) as error:
            self._problem = str(error)
            return
        self._process = process
        if self._is_let_go:
            self.let_go()
        if process.stderr is not None:
            with contextlib.suppress(OSError, ValueError), process.stderr as stream:
                while raw := stream.readline(MAX_LINE_BYTES):
                    self._lines.append(raw.decode(errors="replace").rstrip())
        self._is_drained = True
        process.wait()
        with contextlib.suppress(OSError):
            self._last_words_path.write_text("\n".join(self._lines), encoding="utf-8")
