"""The host a chat talks to: the one that runs on the data folder, or one started for this chat alone."""

import subprocess
import sys
import tempfile
import time
from types import TracebackType
from typing import IO, Self

from runtime.cli.host_file import running_host
from runtime.errors import WorldFault
from runtime.host.ownership import read_host_file
from runtime.messages.api import HostFile
from runtime.paths import DataFolder

START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 15.0
_LOOK_EVERY_S = 0.02
_MAX_SAID_BYTES = 4000
_EXIT_ALREADY_RUNNING = 3


class BorrowedHost:
    """A host for the length of a `with` block: `file` says where it is, `is_ours` whether it ends with us."""

    def __init__(self, data: DataFolder) -> None:
        self._data = data
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None
        self.file: HostFile

    @property
    def is_ours(self) -> bool:
        """Whether the host was started here."""
        return self._process is not None

    def __enter__(self) -> Self:
        """Find or start it.

        Raises:
            WorldFault: it could not be started.
        """
        found = running_host(self._data)
        if found is None:
            try:
                found = self._start()
            except BaseException:
                self._end()
                raise
        self.file = found
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it, if it was started here."""
        self._end()

    def _start(self) -> HostFile:
        command = [sys.executable, "-m", "runtime.host", "--data-dir", str(self._data.root), "--with-parent"]
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `_end`
        # A session of its own, so that Ctrl-C in the terminal reaches us and not the host.
        if sys.platform == "win32":
            flags = subprocess.CREATE_NEW_PROCESS_GROUP
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=self._said, stderr=self._said, creationflags=flags
            )
        else:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=self._said, stderr=self._said, start_new_session=True
            )
        self._process = process
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            # Waiting on the process paces the loop and sees at once when it ends.
            try:
                code = process.wait(_LOOK_EVERY_S)
            except subprocess.TimeoutExpired:
                found = read_host_file(self._data)
                if found is not None and found.pid == process.pid:
                    return found
                continue
            other = running_host(self._data) if code == _EXIT_ALREADY_RUNNING else None
            if other is None:
                raise WorldFault(f"The host could not be started: {self._last_words() or f'exit code {code}'}")
            self._process = None  # someone else started one in the same moment; theirs serves as well
            return other
        raise WorldFault(f"The host did not answer within {START_TIMEOUT_S:.0f} s. {self._last_words()}")

    def _last_words(self) -> str:
        if self._said is None:
            return ""
        size = self._said.seek(0, 2)
        self._said.seek(max(0, size - _MAX_SAID_BYTES))
        return self._said.read().decode("utf-8", "replace").strip()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()  # it ends when its standard input does
            try:
                process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._said is not None:
            self._said.close()
            self._said = None
