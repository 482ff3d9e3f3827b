"""Starts, watches, restarts and ends the host process of the data folder."""

import logging
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
from PySide6.QtCore import QByteArray, QCoreApplication, QObject, QTimer, QUrl, Signal, Slot
from PySide6.QtNetwork import QNetworkAccessManager, QNetworkProxy, QNetworkReply, QNetworkRequest

from app.call import Call
from app.event_stream import HTTP_OK, reply_status
from app.host_child import HostChild
from runtime.messages.api import HostFile
from runtime.paths import DataFolder
from runtime.unreadable import UNREADABLE

HostState = Literal["stopped", "starting", "running", "restarting", "failed"]
CommandProvider = Callable[[DataFolder], Sequence[str]]
"""Gives the command line that starts the host; a frozen program puts its own executable here."""

MAX_DEATHS = 5
DEATHS_WITHIN_S = 120.0
"""So many deaths within so long, and the host is not started again by itself."""

BACKOFF_MS = (100, 500, 1000, 2000, 4000)
START_TIMEOUT_S = 60.0
"""Longest start: a cold disk and a slow virus scanner included."""

STOP_TIMEOUT_S = 8.0
"""Longest polite end; then the host is ended by force. Models are freed by the system, nothing is lost."""

POLL_STARTING_MS = 25
POLL_RUNNING_MS = 250
PROBE_TIMEOUT_MS = 3000
MAX_SILENT_PROBES = 3
"""A living host that does not answer so often in a row is ended by force and started again."""

_log = logging.getLogger(__name__)


def host_command(folder: DataFolder) -> Sequence[str]:
    """The host by this interpreter: `python -m runtime.host --data-dir D --with-parent`."""
    return (sys.executable, "-m", "runtime.host", "--data-dir", str(folder.root), "--with-parent")


class HostProcess(QObject):
    """The host of one data folder, started here or found running. Home thread: main.

    A started host holds a pipe of this process; when this process ends in whatever way, the pipe closes and the host
    ends too (unless the person chose to keep the API on).
    """

    state_changed = Signal(str)
    """A new `HostState`."""

    started = Signal(object)
    """`HostFile`: the host answers at this address (after a start, a restart or an attach)."""

    died = Signal(str)
    """The host ended by itself; the sentence says what is done about it (a restart follows, or `failed`)."""

    failed = Signal(str)
    """The host cannot be kept running; the sentence says why and what to do. `retry` begins anew."""

    stopped = Signal()
    """After `stop`: the host has ended, or was left on because the person wants that."""

    def __init__(
        self, folder: DataFolder, *, command: CommandProvider = host_command, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._folder = folder
        self._command = command
        self._state: HostState = "stopped"
        self._child: HostChild | None = None
        self._host: HostFile | None = None
        self._stale: bytes = b""
        self._deaths: deque[float] = deque(maxlen=MAX_DEATHS)
        self._began_s = 0.0
        self._is_stopping = False
        self._n_silent = 0
        self._kept_pid = 0
        self._network = QNetworkAccessManager(self)
        self._network.setProxy(QNetworkProxy(QNetworkProxy.ProxyType.NoProxy))
        self._poll = QTimer(self)
        self._poll.timeout.connect(self._look)
        self._restart = QTimer(self)
        self._restart.setSingleShot(True)
        self._restart.timeout.connect(self._spawn)

    @property
    def state(self) -> HostState:
        """Where the host stands."""
        return self._state

    @property
    def is_attached(self) -> bool:
        """Whether the host was found running (and is not ours to end)."""
        return self._host is not None and self._child is None and self._host.pid != self._kept_pid

    @property
    def host(self) -> HostFile | None:
        """How to reach the host, while one runs."""
        return self._host

    @property
    def last_lines(self) -> tuple[str, ...]:
        """The last lines the host said on standard error, at most `app.host_child.MAX_LINES`."""
        return self._child.lines if self._child else ()

    def set_kept_pid(self, pid: int) -> None:
        """The host that an earlier window left on: found again, it is ours to end."""
        self._kept_pid = pid

    def start(self) -> None:
        """Attach to a running host of this data folder, or start one."""
        if self._state in ("starting", "running", "restarting") or self._is_stopping:
            return
        self._set_state("starting")
        found = self._read_host_file()
        if found is None:
            self._spawn()
        else:
            self._probe(found, self._probed_at_start)

    def retry(self) -> None:
        """After `failed`: forget the earlier deaths and start again."""
        self._deaths.clear()
        if self._state == "failed":
            self._set_state("stopped")
        self.start()

    @Slot()
    def check(self) -> None:
        """The link was lost: look whether the host still lives."""
        if self._state != "running" or self._host is None:
            return
        if self._child is not None and self._child.has_ended:
            self._look()
        else:
            self._n_silent = 0
            self._probe(self._host, self._probed_again)

    def stop(self, *, keep: bool = False) -> None:
        """End the host we started (politely, then by force), or leave it on with `keep`. `stopped` follows."""
        self._is_stopping = True
        self._restart.stop()
        host, is_ours = self._host, not self.is_attached
        if keep or host is None or not is_ours:
            if self._child is not None:
                self._child.let_go()
            if keep or self._child is None or self._child.has_ended:
                self._finish_stop()
                return
        else:
            self._ask_to_end(host)
        self._began_s = time.monotonic()
        self._poll.start(POLL_STARTING_MS)

    # --- starting

    @Slot()
    def _spawn(self) -> None:
        if self._is_stopping:
            return
        self._host = None
        self._stale = self._raw_host_file()
        self._began_s = time.monotonic()
        self._child = HostChild(self._command(self._folder), self._folder.logs / "host-last-words.txt")
        self._poll.start(POLL_STARTING_MS)

    def _probed_at_start(self, found: HostFile, answers: bool) -> None:
        if self._is_stopping:
            return
        if answers:
            self._run(found)
        else:
            self._spawn()

    def _run(self, host: HostFile) -> None:
        self._host = host
        self._n_silent = 0
        self._poll.start(POLL_RUNNING_MS)
        self._set_state("running")
        self.started.emit(host)

    # --- watching

    @Slot()
    def _look(self) -> None:
        """Look at the child, and at the small file that says where it listens."""
        child = self._child
        if self._is_stopping:
            self._look_at_end()
        elif child is None:
            self._poll.stop()
        elif self._state == "running":
            if child.has_ended:
                self._mourn(_how_it_ended(child))
        elif (found := self._read_host_file()) is not None and self._raw_host_file() != self._stale:
            if child.has_ended and found.pid != child.pid:
                self._attach_to_rival(found)  # somebody else was faster: two windows began at once
            elif not child.has_ended:
                self._run(found)
            else:
                self._mourn(_how_it_ended(child))
        elif child.has_ended:
            self._end_of_start(child)
        elif time.monotonic() - self._began_s > START_TIMEOUT_S:
            child.kill()
            self._mourn(QCoreApplication.translate("HostProcess", "it did not start in time"))

    def _end_of_start(self, child: HostChild) -> None:
        """It ended before it said where it listens; perhaps because another host has the folder."""
        found = self._read_host_file()
        if found is not None:
            self._attach_to_rival(found)
        else:
            self._mourn(_how_it_ended(child))

    def _attach_to_rival(self, found: HostFile) -> None:
        child, self._child = self._child, None
        self._poll.stop()

        def decide(host: HostFile, answers: bool) -> None:
            if answers and not self._is_stopping:
                self._run(host)
            elif not self._is_stopping and child is not None:
                self._child = child
                self._mourn(_how_it_ended(child))

        self._probe(found, decide)

    def _probed_again(self, host: HostFile, answers: bool) -> None:
        if self._is_stopping or self._state != "running" or host != self._host:
            return
        if answers:
            self.started.emit(host)  # a listener that lost it attaches again
            return
        self._n_silent += 1
        if self._child is None:
            current = self._read_host_file()
            if current is not None and current != host:
                self._probe(current, self._probed_elsewhere)  # it was started again by its owner
            else:
                self._mourn(QCoreApplication.translate("HostProcess", "it was ended elsewhere"))
        elif self._child.has_ended:
            self._look()
        elif self._n_silent >= MAX_SILENT_PROBES:
            _log.error("the host is alive but silent; it is ended by force")
            self._child.kill()
        else:
            self._probe(host, self._probed_again)

    def _probed_elsewhere(self, host: HostFile, answers: bool) -> None:
        if answers and not self._is_stopping:
            self._run(host)
        else:
            self._mourn(QCoreApplication.translate("HostProcess", "it was ended elsewhere"))

    def _mourn(self, reason: str) -> None:
        """The host is gone: start it again, unless it dies too often."""
        self._poll.stop()
        if self._child is not None:
            self._child.let_go()
        self._host = None
        now_s = time.monotonic()
        self._deaths.append(now_s)
        _log.error("the host died: %s; its last lines: %s", reason, "\n".join(self.last_lines[-20:]))
        if len(self._deaths) == MAX_DEATHS and now_s - self._deaths[0] < DEATHS_WITHIN_S:
            self._set_state("failed")
            text = QCoreApplication.translate(
                "HostProcess",
                "Deskside's engine ended {count} times in a row ({reason}), so it is not started again by itself. "
                "Try again, or run “deskside doctor” in a terminal to see what is wrong.",
            )
            self.failed.emit(text.format(count=MAX_DEATHS, reason=self._with_last_line(reason)))
            return
        self._set_state("restarting")
        text = QCoreApplication.translate(
            "HostProcess", "Deskside's engine ended ({reason}). It is being started again; your chats are kept."
        )
        self.died.emit(text.format(reason=reason))
        recent = sum(1 for at_s in self._deaths if now_s - at_s < DEATHS_WITHIN_S)
        self._restart.start(BACKOFF_MS[min(recent, len(BACKOFF_MS)) - 1])

    def _with_last_line(self, reason: str) -> str:
        spoken = [line for line in self.last_lines if line.strip()]
        return f"{reason}: {spoken[-1].strip()}" if spoken else reason

    # --- ending

    def _ask_to_end(self, host: HostFile) -> None:
        reply = self._network.post(_request(host, "/admin/shutdown"), QByteArray())
        Call(reply, self._asked_to_end, self)

    def _asked_to_end(self, _: QNetworkReply) -> None:
        if self._is_stopping and self._child is None:
            self._finish_stop()

    def _look_at_end(self) -> None:
        child = self._child
        waited_s = time.monotonic() - self._began_s
        if child is None:
            if waited_s > STOP_TIMEOUT_S:
                self._finish_stop()
        elif child.has_ended:
            self._finish_stop()
        elif waited_s > STOP_TIMEOUT_S:
            child.kill()
        elif waited_s > STOP_TIMEOUT_S / 2:
            child.let_go()

    @Slot()
    def _finish_stop(self) -> None:
        if not self._is_stopping:
            return
        self._is_stopping = False
        self._poll.stop()
        if self._child is not None:
            self._child.let_go()
        self._host = None
        self._child = None
        self._set_state("stopped")
        self.stopped.emit()

    # --- small steps

    def _set_state(self, state: HostState) -> None:
        if state != self._state:
            self._state = state
            self.state_changed.emit(state)

    def _raw_host_file(self) -> bytes:
        try:
            return self._folder.host_file.read_bytes()
        except OSError:
            return b""

    def _read_host_file(self) -> HostFile | None:
        try:
            return msgspec.json.decode(self._raw_host_file(), type=HostFile)
        except UNREADABLE:
            return None

    def _probe(self, host: HostFile, tell: Callable[[HostFile, bool], None]) -> None:
        """Ask whether this host answers to its token."""
        reply = self._network.get(_request(host, "/admin/status"))

        def take(reply: QNetworkReply) -> None:
            is_well = reply.error() == QNetworkReply.NetworkError.NoError and reply_status(reply) in HTTP_OK
            tell(host, is_well)

        Call(reply, take, self)


def _request(host: HostFile, path: str) -> QNetworkRequest:
    request = QNetworkRequest(QUrl(host.address.rstrip("/") + path))
    request.setRawHeader(b"Authorization", b"Bearer " + host.token.encode())
    request.setHeader(QNetworkRequest.KnownHeaders.ContentTypeHeader, "application/json")
    request.setTransferTimeout(PROBE_TIMEOUT_MS)
    return request


def _how_it_ended(child: HostChild) -> str:
    code = child.exit_code
    if child.problem:
        return child.problem
    if code is not None and code < 0 and os.name == "posix":
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = str(-code)
        return QCoreApplication.translate("HostProcess", "signal {name}").format(name=name)
    return QCoreApplication.translate("HostProcess", "exit code {code}").format(code=code)
