"""One port, two languages: HTTPS for everyone, plain HTTP for programs on this machine.

The first byte of a connection tells them apart: TLS begins with 0x16 (RFC 8446, section 5.1), a request with a letter.
So programs here go on with the address they have when a person opens the server to the network, and nothing readable
leaves the machine. Who speaks plain HTTP from elsewhere is told to use HTTPS.
"""

import asyncio
import ssl
from asyncio import sslproto
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from runtime.host.access import is_loopback

HANDSHAKE_WITHIN_S = 10
_TLS_HANDSHAKE = 0x16
_SENTENCE = b"This server speaks HTTPS. Begin the address with https://.\n"
_PLAIN_REFUSED = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_SENTENCE), _SENTENCE)
)


class DoorConfig(uvicorn.Config):
    """uvicorn's, and what the door needs. `tls` may be replaced while the server runs."""

    tls: ssl.SSLContext
    inner: Callable[[uvicorn.Config, ServerState, dict[str, Any]], H11Protocol]


class TlsDoor(asyncio.Protocol):
    """A connection whose first byte has not come. Home: the event loop."""

    def __init__(
        self,
        config: DoorConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._config = config
        self._connections: set[Any] = server_state.connections
        self._loop = _loop or asyncio.get_event_loop()
        self._config_parts = (config, server_state, app_state)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first byte, for a while. Counted as a connection until somebody else counts it."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - asyncio's own promise
        self._transport = transport
        if len(self._connections) > (self._config.limit_concurrency or 0):
            transport.abort()
            return
        self._connections.add(self)
        self._timer = self._loop.call_later(HANDSHAKE_WITHIN_S, self._too_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """It left before it said anything."""
        del exc
        self._leave()

    def shutdown(self) -> None:
        """The server is closing. Part of uvicorn's protocols."""
        if self._transport is not None and self._transport.get_protocol() is self:
            self._transport.close()
        self._leave()

    def data_received(self, data: bytes) -> None:
        """The first bytes: hand the connection on."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if data[0] == _TLS_HANDSHAKE:
            self._begin_tls(transport, data)
        elif _is_from_here(transport):
            self._leave()
            inner = self._config.inner(*self._config_parts)
            transport.set_protocol(inner)
            inner.connection_made(transport)
            inner.data_received(data)
        else:
            self._leave()
            transport.write(_PLAIN_REFUSED)
            transport.close()

    def _begin_tls(self, transport: asyncio.Transport, data: bytes) -> None:
        # This stays counted until the handshake's time is over: a failed one tells nobody.
        protocol = sslproto.SSLProtocol(
            self._loop,
            self._config.inner(*self._config_parts),
            self._config.tls,
            None,  # type: ignore[arg-type]  # nobody waits for the handshake; asyncio allows for it
            server_side=True,
            ssl_handshake_timeout=HANDSHAKE_WITHIN_S,
            ssl_shutdown_timeout=HANDSHAKE_WITHIN_S / 2,
        )
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        while data:
            buffer = protocol.get_buffer(len(data))
            n_taken = min(len(buffer), len(data))
            buffer[:n_taken] = data[:n_taken]
            protocol.buffer_updated(n_taken)
            data = data[n_taken:]

    def _too_late(self) -> None:
        if self._transport is not None and self._transport.get_protocol() is self:
            self._transport.abort()
        self._leave()

    def _leave(self) -> None:
        self._connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _is_from_here(transport: asyncio.Transport) -> bool:
    peer = transport.get_extra_info("peername")
    return bool(peer) and is_loopback(str(peer[0]))
