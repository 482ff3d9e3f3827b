"""The server processes of a node: one for each client, one kept ready."""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator

import msgspec

from runtime.messages.fit import NodeDevice, NodeReady

KEPT_READY = 1
END_TIMEOUT_S = 5.0


class NotStarted(Exception):
    """A server did not start; it has said why on standard error."""


class Server:
    """One `runtime.worker.node_server`."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        line = self.process.stdout.readline() if self.process.stdout is not None else b""
        try:
            self.ready = msgspec.json.decode(line, type=NodeReady)
        except msgspec.DecodeError:
            self.stop()
            raise NotStarted("llama.cpp could not be started as a server.") from None

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, _, port = self.ready.address.rpartition(":")
        return host, int(port)

    @property
    def is_running(self) -> bool:
        """Whether it can take a client."""
        return self.process.poll() is None

    def stop(self) -> None:
        """End it; closing its standard input asks for that, and after a while it is made to."""
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        try:
            self.process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class ServerPool:
    """Starts servers and takes them back. Home thread: any (locked)."""

    def __init__(self, devices: tuple[str, ...], n_threads: int, cache: str) -> None:
        self._command = [sys.executable, "-m", "runtime.worker.node_server", "--threads", str(n_threads)]
        for device in devices:
            self._command += ["--device", device]
        if cache:
            self._command += ["--cache", cache]
        self._lock = threading.Lock()
        self._idle: list[Server] = []
        self.devices: tuple[NodeDevice, ...] = ()
        self.hello_answer = b""
        """What servers answer to hello, once one was asked."""

    def start(self) -> tuple[NodeDevice, ...]:
        """Start the first server and learn the devices.

        Raises:
            NotStarted: it ended instead.
        """
        first = Server(self._command)
        with self._lock:
            self._idle.append(first)
        self.devices = first.ready.devices
        return self.devices

    @contextlib.contextmanager
    def lent(self) -> Iterator[Server]:
        """A server for one client.

        Raises:
            NotStarted: none could be started.
        """
        server = self._take()
        try:
            yield server
        finally:
            self._take_back(server)

    def _take(self) -> Server:
        while True:
            with self._lock:
                found = self._idle.pop() if self._idle else None
            if found is None:
                return Server(self._command)
            if found.is_running:
                return found
            found.stop()

    def _take_back(self, server: Server) -> None:
        with self._lock:
            is_kept = server.is_running and len(self._idle) < KEPT_READY
            if is_kept:
                self._idle.append(server)
        if not is_kept:
            server.stop()
