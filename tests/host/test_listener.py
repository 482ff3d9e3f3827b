"""Connections that only sit there."""

import asyncio
import contextlib
import socket

import pytest
from starlette.responses import PlainTextResponse

from runtime.host import listener as listener_module
from runtime.host.listener import MAX_CONNECTIONS, Listener, max_connections


async def is_closed(sock: socket.socket) -> bool:
    with contextlib.suppress(ConnectionError):
        return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(sock, 1), 10) == b""
    return True


async def connect(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    return sock


def test_when_a_connection_sends_no_request_then_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "REQUEST_WITHIN_S", 0.1)

    async def run() -> None:
        listener = Listener(PlainTextResponse("hi"), "127.0.0.1", 0)
        await listener.open()
        silent, partial, again = [await connect(listener.port) for _ in range(3)]
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(partial, b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        await loop.sock_sendall(again, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200" in await loop.sock_recv(again, 4096)
        assert await is_closed(silent)
        assert await is_closed(partial)
        await loop.sock_sendall(again, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")  # kept alive between requests
        assert b"200" in await loop.sock_recv(again, 4096)
        await loop.sock_sendall(again, b"GET / HTTP/1.1\r\n")
        assert await is_closed(again)
        for sock in (silent, partial, again):
            sock.close()
        await listener.close()

    asyncio.run(run())


def test_when_too_many_connect_then_those_past_the_bound_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "max_connections", lambda: 2)
    monkeypatch.setattr(listener_module, "_SPARE_CONNECTIONS", 1)

    async def run() -> None:
        listener = Listener(PlainTextResponse("hi"), "127.0.0.1", 0)
        await listener.open()
        socks = [await connect(listener.port) for _ in range(4)]
        assert await is_closed(socks[3])
        await asyncio.get_running_loop().sock_sendall(socks[0], b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"503" in await asyncio.get_running_loop().sock_recv(socks[0], 4096)
        for sock in socks:
            sock.close()
        await listener.close()

    asyncio.run(run())


def test_when_few_files_may_be_open_then_fewer_connections_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "allow_open_files", lambda: 256)
    assert max_connections() == 32
    monkeypatch.setattr(listener_module, "allow_open_files", lambda: 4096)
    assert max_connections() == MAX_CONNECTIONS
