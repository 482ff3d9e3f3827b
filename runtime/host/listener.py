"""A listening address that can be opened and closed while the host runs: uvicorn, without its signal handling."""

import asyncio
import contextlib
import errno
import ipaddress
import socket
import sys
from collections.abc import Iterator

import psutil
import uvicorn
from starlette.types import ASGIApp

from runtime.errors import WorldFault

BACKLOG = 512
KEEP_ALIVE_S = 75
MAX_CONNECTIONS = 1024
_START_TIMEOUT_S = 10.0


class _Server(uvicorn.Server):
    """Signals belong to the host, which may run several of these."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Listener:
    """One address with an app behind it. Home: the event loop."""

    def __init__(self, app: ASGIApp, host: str, port: int, *, grace_s: float = 2.0) -> None:
        self._app = app
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
        config = uvicorn.Config(
            self._app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=BACKLOG,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=max(1, round(self._grace_s)),
            ws="none",
        )
        self._server = _Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets), name=f"listener {self._host}:{self.port}")
        deadline = asyncio.get_running_loop().time() + _START_TIMEOUT_S
        while not self._server.started:
            if self._task.done() or asyncio.get_running_loop().time() > deadline:
                raise WorldFault(f"The server at {self._host}:{self.port} did not start.")
            await asyncio.sleep(0.005)

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


def base_url(host: str, port: int) -> str:
    """`http://host:port`, with brackets around an IPv6 address."""
    try:
        is_v6 = ipaddress.ip_address(host).version == 6  # noqa: PLR2004
    except ValueError:
        is_v6 = False
    return f"http://[{host}]:{port}" if is_v6 else f"http://{host}:{port}"
