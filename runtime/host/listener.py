"""A listening address that can be opened and closed while the host runs: uvicorn, without its signal handling."""

import asyncio
import contextlib
import errno
import ipaddress
import socket
import ssl
import sys
from collections.abc import Iterator

import psutil
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from runtime.errors import WorldFault
from runtime.host.access import is_loopback
from runtime.host.tls_door import DoorConfig, TlsDoor

BACKLOG = 512
KEEP_ALIVE_S = 75
MAX_CONNECTIONS = 384
"""Of one listener. Two listeners and the workers stay below 1,024 open files, which many systems allow a process;
over that nobody could connect, the window included."""
MAX_PER_ADDRESS = 96
"""Of them, from one other machine: one that opens all it can must not shut the others out."""
_SPARE_CONNECTIONS = 32
"""Accepted beyond it, to be told 503; further ones are closed at once."""
REQUEST_WITHIN_S = 30.0
"""A connection that has sent no whole request head after so long (half as long at least) is closed."""
_OPEN_FILES = 4096
_START_TIMEOUT_S = 10.0


class _Protocol(H11Protocol):
    """uvicorn's in pure Python, whichever others are installed: it bounds heads and refuses smuggling shapes.

    By itself it keeps any number of silent connections for ever.
    """

    _check: asyncio.TimerHandle | None = None
    _was_silent = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        if self.client is not None and not is_loopback(self.client[0]) and self._n_of_peer() > MAX_PER_ADDRESS:
            transport.close()
            return
        if len(self.connections) > (self.config.limit_concurrency or 0) + _SPARE_CONNECTIONS:
            transport.close()
            return
        self._check_later()

    def _n_of_peer(self) -> int:
        mine = self.client[0] if self.client is not None else ""
        return sum(1 for other in self.connections if (getattr(other, "client", None) or ("",))[0] == mine)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._check is not None:
            self._check.cancel()
        super().connection_lost(exc)

    def _check_later(self) -> None:
        self._check = self.loop.call_later(REQUEST_WITHIN_S / 2, self._close_if_silent)

    def _close_if_silent(self) -> None:
        # Between requests uvicorn's own keep-alive timer runs; it stops at the first byte of the next one.
        cycle: RequestResponseCycle | None = self.cycle  # uvicorn leaves out the None
        is_silent = cycle is None or (cycle.response_complete and self.timeout_keep_alive_task is None)
        if is_silent and self._was_silent:
            self.transport.close()
            return
        self._was_silent = is_silent
        self._check_later()


def allow_open_files() -> int:
    """Raise this process's bound on open files as far as it may be, up to 4,096; returns the bound (POSIX)."""
    if sys.platform == "win32":
        return _OPEN_FILES
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
    return soft if soft != resource.RLIM_INFINITY else _OPEN_FILES


def max_connections() -> int:
    """Connections of one listener, so that two of them leave files to open for everything else."""
    return max(32, min(MAX_CONNECTIONS, allow_open_files() // 2 - 96))


class _Server(uvicorn.Server):
    """Signals belong to the host, which may run several of these."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Listener:
    """One address with an app behind it. Home: the event loop."""

    def __init__(
        self, app: ASGIApp, host: str, port: int, *, grace_s: float = 2.0, tls: ssl.SSLContext | None = None
    ) -> None:
        """With `tls`, other machines must speak it; programs on this one may."""
        self._app = app
        self._tls = tls
        self._config: DoorConfig | None = None
        self._host = host
        self._port = port
        self._grace_s = grace_s
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None
        self.port = 0

    async def open(self) -> None:
        """Listen.

        Raises:
            WorldFault: with a sentence that says why it cannot.
        """
        sockets = await asyncio.to_thread(_bind, self._host, self._port)
        self.port = int(sockets[0].getsockname()[1])
        config = DoorConfig(
            self._app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=BACKLOG,
            limit_concurrency=max_connections(),
            http=TlsDoor if self._tls is not None else _Protocol,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=max(1, round(self._grace_s)),
            ws="none",
        )
        config.inner = _Protocol
        if self._tls is not None:
            config.tls = self._tls
        self._config = config
        self._server = _Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets), name=f"listener {self._host}:{self.port}")
        deadline = asyncio.get_running_loop().time() + _START_TIMEOUT_S
        while not self._server.started:
            if self._task.done() or asyncio.get_running_loop().time() > deadline:
                raise WorldFault(f"The server at {self._host}:{self.port} did not start.")
            await asyncio.sleep(0.005)

    def renew(self, tls: ssl.SSLContext) -> None:
        """Show another certificate from the next connection on."""
        if self._config is not None:
            self._config.tls = tls

    def stop_accepting(self) -> None:
        """Refuse new connections from now on; what runs goes on."""
        for server in self._server.servers if self._server is not None and self._server.started else ():
            server.close()

    async def close(self) -> None:
        """Stop: running answers get a short grace and are then cut off."""
        if self._server is None or self._task is None:
            return
        self._server.should_exit = True
        await asyncio.wait({self._task}, timeout=self._grace_s + 5.0)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})
        self._server = None


def _bind(host: str, port: int) -> list[socket.socket]:
    """One socket for each address of `host`, all on one port."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError, OverflowError):
        raise WorldFault(
            f"There is no address named {host!r}.", hint="Use 127.0.0.1 for this machine only, or 0.0.0.0 for all."
        ) from None
    addresses = list(dict.fromkeys((entry[0], str(entry[4][0])) for entry in found))
    addresses.sort(key=lambda entry: entry[0] != socket.AF_INET)
    sockets: list[socket.socket] = []
    problem: OSError | None = None
    for family, address in addresses:
        try:
            sock = _bind_one(family, address, sockets[0].getsockname()[1] if sockets else port)
        except OSError as error:
            problem = problem or error
            if error.errno == errno.EADDRINUSE:  # half of a name on our port would be a trap
                break
            continue
        sockets.append(sock)
    if problem is not None and (not sockets or problem.errno == errno.EADDRINUSE):
        for sock in sockets:
            sock.close()
        raise _explained(problem, host, port) from problem
    return sockets


def _bind_one(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform == "win32":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setblocking(False)
        sock.bind((address, port))
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def _explained(error: OSError, host: str, port: int) -> WorldFault:
    if error.errno == errno.EADDRINUSE:
        return WorldFault(
            f"Port {port} is already used{_user_of(port)}.", hint="Choose another port, or end that program."
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return WorldFault(
            f"This account may not listen on port {port}.", hint="Ports below 1024 are reserved; choose a higher one."
        )
    if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
        return WorldFault(
            f"{host} is not an address of this machine.",
            hint="Use 127.0.0.1 for this machine only, or 0.0.0.0 for all.",
        )
    return WorldFault(f"The server cannot listen on {host}:{port}: {error.strerror or error}.")


def _user_of(port: int) -> str:
    """` by ollama (process 12)`, or nothing where the system does not tell."""
    try:
        for connection in psutil.net_connections(kind="tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr[1:2] == (port,) and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (process {connection.pid})"
    except (psutil.Error, OSError):
        return " by another program"
    return " by another program"


def base_url(host: str, port: int, scheme: str = "http") -> str:
    """`http://host:port`, with brackets around an IPv6 address."""
    try:
        is_v6 = ipaddress.ip_address(host).version == 6  # noqa: PLR2004
    except ValueError:
        is_v6 = False
    return f"{scheme}://[{host}]:{port}" if is_v6 else f"{scheme}://{host}:{port}"
