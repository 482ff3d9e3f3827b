"""A node as its clients and the person who starts it see it."""

import contextlib
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import psutil
import pytest

from runtime.messages.fit import NodeReady
from runtime.worker.node import EXIT_NOT_LISTENING, EXIT_REFUSED, Refused, check_address
from runtime.worker.rpc_hello import check_node

pytestmark = pytest.mark.e2e

HELLO, DEVICE_COUNT, DEVICE_MEMORY, ALLOC_BUFFER, FREE_BUFFER, GET_ALIGNMENT = 14, 15, 11, 0, 4, 1


def start(*arguments: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "runtime.worker.node", "--watch-stdin", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def end(process: "subprocess.Popen[bytes]") -> int:
    assert process.stdin is not None
    process.stdin.close()
    try:
        return process.wait(20)
    finally:
        process.kill()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


@pytest.fixture(scope="module")
def node() -> Iterator[NodeReady]:
    process = start("--port", "0")
    try:
        assert process.stdout is not None
        yield msgspec.json.decode(process.stdout.readline(), type=NodeReady)
    finally:
        end(process)


class Client:
    """Speaks llama.cpp's RPC."""

    def __init__(self, ready: NodeReady) -> None:
        host, _, port = ready.address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 20)

    def ask(self, command: int, request: bytes = b"") -> bytes:
        self.send(command, request)
        (length,) = struct.unpack("<Q", self.receive(8))
        return self.receive(length)

    def send(self, command: int, request: bytes = b"") -> None:
        self.socket.sendall(struct.pack("<BQ", command, len(request)) + request)

    def receive(self, n_bytes: int) -> bytes:
        found = b""
        while len(found) < n_bytes:
            part = self.socket.recv(n_bytes - len(found))
            assert part, "the node closed the connection"
            found += part
        return found


@contextlib.contextmanager
def connected(ready: NodeReady) -> Iterator[Client]:
    client = Client(ready)
    try:
        assert client.ask(HELLO, bytes(24))[0] == 7
        yield client
    finally:
        client.socket.close()


def test_when_it_listens_then_one_line_tells_where_and_what_it_lends(node: NodeReady) -> None:
    assert node.address.startswith("127.0.0.1:")
    assert node.warning == ""
    assert node.devices[0].name == "CPU"
    assert 0 < node.devices[0].free_bytes <= node.devices[0].total_bytes == psutil.virtual_memory().total
    check_node(node.address)


def test_when_asked_for_memory_then_it_tells_what_is_available_and_not_all_of_it(node: NodeReady) -> None:
    with connected(node) as client:
        assert struct.unpack("<I", client.ask(DEVICE_COUNT)) == (1,)
        free, total = struct.unpack("<QQ", client.ask(DEVICE_MEMORY, struct.pack("<I", 0)))
    memory = psutil.virtual_memory()
    assert total == memory.total
    assert free == pytest.approx(memory.available, rel=0.2)
    assert free < total


def test_when_one_client_uses_it_then_another_is_answered_too(node: NodeReady) -> None:
    with connected(node) as first, connected(node) as second:
        for client in (first, second):
            pointer, size = struct.unpack("<QQ", client.ask(ALLOC_BUFFER, struct.pack("<IQ", 0, 1 << 20)))
            assert pointer
            assert size == 1 << 20
        check_node(node.address)
        assert struct.unpack("<Q", first.ask(GET_ALIGNMENT, struct.pack("<I", 0)))[0] >= 16


def test_when_a_client_that_uses_it_asks_for_memory_in_one_breath_then_the_answers_come_in_order(
    node: NodeReady,
) -> None:
    with connected(node) as client:
        alignment = struct.pack("<BQI", GET_ALIGNMENT, 4, 0)
        memory = struct.pack("<BQI", DEVICE_MEMORY, 4, 0)
        client.socket.sendall(alignment)
        assert struct.unpack("<QQ", client.receive(16))[0] == 8
        # The request arrives in two pieces.
        client.socket.sendall(memory[:5])
        client.socket.sendall(memory[5:])
        length, free, total = struct.unpack("<QQQ", client.receive(24))
        assert length == 16
        assert 0 < free < total
        assert struct.unpack("<Q", client.ask(GET_ALIGNMENT, struct.pack("<I", 0)))[0] >= 16


def test_when_a_client_brings_its_server_down_then_only_it_loses_its_connection(node: NodeReady) -> None:
    with connected(node) as good, connected(node) as bad:
        assert good.ask(GET_ALIGNMENT, struct.pack("<I", 0))
        bad.send(99)
        assert bad.socket.recv(1) == b""
        assert good.ask(GET_ALIGNMENT, struct.pack("<I", 0))
    check_node(node.address)


def test_when_what_connects_speaks_something_else_then_it_is_turned_away(node: NodeReady) -> None:
    client = Client(node)
    try:
        client.socket.sendall(b"GET / HTTP/1.1\r\nHost: here.example\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):  # what it had not read yet makes its end a reset
            assert client.socket.recv(1) == b""
    finally:
        client.socket.close()
    check_node(node.address)


def test_when_its_parent_ends_then_it_ends_with_all_its_servers() -> None:
    process = start("--port", "0")
    assert process.stdout is not None
    ready = msgspec.json.decode(process.stdout.readline(), type=NodeReady)
    servers = psutil.Process(process.pid).children()
    with connected(ready) as client:
        client.ask(GET_ALIGNMENT, struct.pack("<I", 0))
        assert end(process) == 0
    assert len(servers) == 1
    _gone, alive = psutil.wait_procs(servers, 20)
    assert alive == []


def test_when_a_device_is_unknown_then_it_is_refused() -> None:
    process = start("--port", "0", "--device", "CUDA7")
    assert process.wait(60) == EXIT_REFUSED
    assert process.stderr is not None
    assert b"There is no device CUDA7 here; there are CPU" in process.stderr.read()
    end(process)


def test_when_the_port_is_taken_then_it_says_so(node: NodeReady) -> None:
    process = start("--port", node.address.rpartition(":")[2])
    assert process.wait(60) == EXIT_NOT_LISTENING
    assert process.stderr is not None
    assert node.address.encode() + b" cannot be used" in process.stderr.read()
    end(process)


def test_when_the_address_is_every_network_then_it_takes_a_flag() -> None:
    with pytest.raises(Refused, match="every network"):
        check_address("0.0.0.0", 1, every_interface=False)
    assert check_address("0.0.0.0", 1, every_interface=True).host == "0.0.0.0"


@pytest.mark.parametrize(("host", "port"), [("no such host", 1), ("::1", 1), ("127.0.0.1", 70_000), ("127.0.0.1", -1)])
def test_when_the_address_is_none_then_it_is_refused(host: str, port: int) -> None:
    with pytest.raises(Refused):
        check_address(host, port, every_interface=False)
