"""A real worker process with the host's end of its socket, for tests."""

import os
import queue
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self, TypeVar

from runtime.library.starter import find_starter
from runtime.messages.frames import decode_from_worker, encode_frame
from runtime.messages.ipc import Delta, Failed, Finished, FromWorker, Health, Hello, Load, Ready, Step, ToWorker
from runtime.options import LoadOptions

WAIT_S = 60.0
ROOT = Path(__file__).resolve().parents[2]
MessageT = TypeVar("MessageT")


@contextmanager
def worker_with_starter(folder: Path, options: LoadOptions) -> Iterator["WorkerUnderTest"]:
    """A worker that has loaded the starter model; its log is in the folder."""
    path = find_starter()
    assert path is not None
    with WorkerUnderTest(folder / "worker.log") as worker:
        worker.load(path, options)
        yield worker


class WorkerUnderTest:
    """Starts `python -m runtime.worker`, checks its token, and keeps what it says by request."""

    def __init__(self, log_path: Path) -> None:
        self.token = secrets.token_hex(16)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(WAIT_S)
        port = self._listener.getsockname()[1]
        self.log_path = log_path
        self._log = log_path.open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "runtime.worker", "--connect", f"127.0.0.1:{port}"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert self.process.stdin is not None
        self.process.stdin.write(f"{self.token}\n".encode())
        self.process.stdin.flush()
        self._sock, _ = self._listener.accept()
        self._file = self._sock.makefile("rb")
        self.hello = self._receive()
        self.inbox: queue.Queue[FromWorker | None] = queue.Queue()
        self.health: queue.Queue[Health] = queue.Queue()
        self._may_read = threading.Event()
        self._may_read.set()
        self._thread = threading.Thread(target=self._read, name="test-reader", daemon=True)
        self._thread.start()

    def _receive(self) -> FromWorker | None:
        head = self._file.read(4)
        if len(head) < 4:
            return None
        body = self._file.read(int.from_bytes(head, "little"))
        return decode_from_worker(body)

    def _read(self) -> None:
        while True:
            self._may_read.wait()
            try:
                message = self._receive()
            except (OSError, ValueError):
                message = None
            if isinstance(message, Health):
                self.health.put(message)
                continue
            self.inbox.put(message)
            if message is None:
                return

    def pause_reading(self) -> None:
        self._may_read.clear()

    def resume_reading(self) -> None:
        self._may_read.set()

    def send(self, message: ToWorker) -> None:
        self._sock.sendall(encode_frame(message))

    def send_raw(self, frame: bytes) -> None:
        self._sock.sendall(frame)

    def next(self) -> FromWorker | None:
        return self.inbox.get(timeout=WAIT_S)

    def until(self, kind: type[MessageT], matches: Callable[[MessageT], bool] = lambda _: True) -> MessageT:
        """The next message of a kind; those before it are dropped."""
        while True:
            message = self.next()
            assert message is not None, self.log_text()
            if isinstance(message, kind) and matches(message):
                return message

    def load(self, path: Path, options: LoadOptions | None = None) -> Ready:
        self.send(Load(str(path), options or LoadOptions()))
        return self.until(Ready)

    def answer(self, request: ToWorker) -> tuple[list[FromWorker], Finished]:
        """Send a request and collect all up to its `Finished`."""
        self.send(request)
        return self.collect()

    def collect(self) -> tuple[list[FromWorker], Finished]:
        messages: list[FromWorker] = []
        while True:
            message = self.next()
            assert message is not None, self.log_text()
            assert not isinstance(message, Failed), message
            if isinstance(message, Finished):
                return messages, message
            messages.append(message)

    def wait_for_exit(self) -> int:
        return self.process.wait(WAIT_S)

    def close_socket(self) -> None:
        self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def log_text(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def __enter__(self) -> Self:
        assert isinstance(self.hello, Hello)
        assert self.hello.token == self.token
        return self

    def __exit__(self, *_: object) -> None:
        self.resume_reading()
        self.process.kill()
        self.process.wait(WAIT_S)
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._thread.join(WAIT_S)
        self._file.close()
        self._sock.close()
        self._listener.close()
        self._log.close()


def deltas(messages: list[FromWorker], request_id: str, choice: int = 0) -> list[Delta]:
    """All deltas of one choice, in order."""
    return [
        delta
        for message in messages
        if isinstance(message, Step)
        for delta in message.deltas
        if delta.request_id == request_id and delta.choice == choice
    ]


def text_of(messages: list[FromWorker], request_id: str, choice: int = 0) -> str:
    return "".join(delta.text for delta in deltas(messages, request_id, choice) if delta.kind == "content")
