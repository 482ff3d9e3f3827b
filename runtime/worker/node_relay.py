"""One client of a node: answers what only asks, passes everything else on to a server process of its own.

A request of llama.cpp's RPC is a command byte, the length as 8 bytes and so many bytes; an answer is a length and bytes
(`ggml-rpc.cpp`, protocol 7). A client sends one request after the other and waits for each answer it expects, so an
answer from here cannot get between the bytes of another.
"""

import logging
import socket
import struct
import threading

import psutil

from runtime.worker.node_pool import Server, ServerPool
from runtime.worker.rpc_hello import CAPS_BYTES, HELLO

DEVICE_COUNT, GET_DEVICE_MEMORY = 15, 11  # enum rpc_cmd
BUFFER_BYTES = 1024 * 1024
CPU = "CPU"

_HEAD = struct.Struct("<BQ")
_LENGTH = struct.Struct("<Q")
_DEVICE = struct.Struct("<I")
_MEMORY = struct.Struct("<QQ")
_HELLO = _HEAD.pack(HELLO, CAPS_BYTES) + bytes(CAPS_BYTES)
_log = logging.getLogger("node")


def serve_client(client: socket.socket, pool: ServerPool, peer: str) -> None:
    """Serve until the client is gone.

    Raises:
        OSError: the connection broke.
        NotStarted: no server could be started for it.
    """
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A machine that was switched off says nothing; its memory must come free all the same.
    client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if _receive(client, len(_HELLO))[: _HEAD.size] != _HELLO[: _HEAD.size]:
        _log.warning("%s is no client of llama.cpp, or of another version", peer)
        return
    client.sendall(_hello_answer(pool))
    while head := _receive(client, _HEAD.size):
        command, length = _HEAD.unpack(head)
        if command == DEVICE_COUNT and length == 0:
            client.sendall(_LENGTH.pack(_DEVICE.size) + _DEVICE.pack(len(pool.devices)))
        elif command == GET_DEVICE_MEMORY and length == _DEVICE.size:
            client.sendall(_memory_answer(pool, _receive(client, _DEVICE.size)))
        else:
            _log.info("%s uses this machine", peer)
            with pool.lent() as server:
                _Relay(client, server, pool).run(head)
            _log.info("%s is done", peer)
            return


def _hello_answer(pool: ServerPool) -> bytes:
    """What a server says to hello: the same each time, so one is asked once."""
    if not pool.hello_answer:
        with pool.lent() as server:
            connection, pool.hello_answer = _say_hello(server)
            connection.close()
    return pool.hello_answer


def _memory_answer(pool: ServerPool, raw_device: bytes) -> bytes:
    """The answer to `GET_DEVICE_MEMORY`: free and total bytes at this moment.

    Raises:
        OSError: no server answered.
    """
    if answer := _processor_memory(pool, raw_device):
        return answer
    with pool.lent() as server:
        connection, _answer = _say_hello(server)
        with connection:
            connection.sendall(_HEAD.pack(GET_DEVICE_MEMORY, _DEVICE.size) + raw_device)
            return _receive(connection, _LENGTH.size + _MEMORY.size)


def _processor_memory(pool: ServerPool, raw_device: bytes) -> bytes:
    """The answer for a processor; nothing for another device."""
    device = _DEVICE.unpack(raw_device)[0]
    if device >= len(pool.devices) or pool.devices[device].name != CPU:
        return b""
    memory = psutil.virtual_memory()
    return _LENGTH.pack(_MEMORY.size) + _MEMORY.pack(memory.available, memory.total)


def _say_hello(server: Server) -> tuple[socket.socket, bytes]:
    """Connect to a server; the connection and its answer."""
    connection = socket.create_connection(server.address)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(_HELLO)
        answer = _receive(connection, _LENGTH.size + 4 + CAPS_BYTES)
    except OSError:
        connection.close()
        raise
    return connection, answer


def _receive(source: socket.socket, n_bytes: int) -> bytes:
    """So many bytes, or nothing at a proper end.

    Raises:
        OSError: it ended in between.
    """
    found = b""
    while len(found) < n_bytes:
        part = source.recv(n_bytes - len(found))
        if not part:
            if found:
                raise OSError("the connection ended inside a message")
            return b""
        found += part
    return found


class _Relay:
    """Passes bytes both ways between a client and its server, until one of them ends."""

    def __init__(self, client: socket.socket, server: Server, pool: ServerPool) -> None:
        self._client = client
        self._server = server
        self._pool = pool

    def run(self, first: bytes) -> None:
        """`first` is the head of the request that was read already."""
        upstream, _answer = _say_hello(self._server)
        back = threading.Thread(target=self._pass_back, args=(upstream,), name="answers", daemon=True)
        with upstream:
            back.start()
            try:
                self._pass_on(upstream, first)
            finally:
                _end(upstream)
                back.join()

    def _pass_back(self, upstream: socket.socket) -> None:
        buffer = memoryview(bytearray(BUFFER_BYTES))
        try:
            while n_bytes := upstream.recv_into(buffer):
                self._client.sendall(buffer[:n_bytes])
        except OSError as error:
            _log.info("a connection ended: %s", error)
        _end(self._client)

    def _pass_on(self, upstream: socket.socket, first: bytes) -> None:
        """Requests to the server, but those for memory, which are answered here."""
        buffer = memoryview(bytearray(BUFFER_BYTES))
        held, inside = first, 0
        while True:
            # `held` is the beginning of a request; `inside` counts the bytes of one that are still to be passed on.
            while not inside and len(held) >= _HEAD.size:
                command, length = _HEAD.unpack_from(held)
                if command == GET_DEVICE_MEMORY and length == _DEVICE.size:
                    if len(held) < _HEAD.size + length:
                        break
                    if answer := _processor_memory(self._pool, held[_HEAD.size : _HEAD.size + length]):
                        held = held[_HEAD.size + length :]
                        self._client.sendall(answer)
                        continue
                inside = _HEAD.size + length
                upstream.sendall(held[:inside])
                held, inside = held[inside:], inside - min(inside, len(held))
            n_bytes = self._client.recv_into(buffer)
            if not n_bytes:
                return
            passed = min(inside, n_bytes)
            if passed:
                upstream.sendall(buffer[:passed])
                inside -= passed
            held += bytes(buffer[passed:n_bytes])


def _end(connection: socket.socket) -> None:
    """Tell both sides that nothing more comes, also a thread that waits for it."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        _log.debug("already closed")
