"""`python -m runtime.worker.node`: lends this machine's devices to Deskside elsewhere, through llama.cpp's RPC.

Prints one line of JSON (`runtime.messages.fit.NodeReady`) once it listens; everything else goes to standard error.
llama.cpp's RPC has no authentication and no encryption: whoever reaches the address can use the memory and crash
the process. So it listens on the loopback address unless told otherwise, and an address that stands for every
interface needs a flag of its own.

llama.cpp's server takes one client at a time and lets the next wait without a word, so a node that serves a model could
not even be asked how much is free. Here each client gets a server process of its own, and this process passes the bytes
on. What only asks (hello, how many devices, how much memory) is answered here; of the processor's memory it tells what
is available, where llama.cpp counts all of it as free. A client that brings its server down harms nobody else.
"""

import argparse
import ipaddress
import logging
import os
import socket
import sys
import threading
from dataclasses import dataclass

import msgspec

from runtime.messages.fit import NodeReady
from runtime.worker.node_pool import NotStarted, ServerPool
from runtime.worker.node_relay import serve_client

LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 50052
"""The port of llama.cpp's own `rpc-server`."""
MAX_CLIENTS = 8
"""Each has a process; further ones are turned away."""
BACKLOG = 16
EXIT_REFUSED = 2
EXIT_NOT_LISTENING = 3

WARNING = (
    "Anyone who reaches {address} can use this machine's memory and stop this process: "
    "there is no password and no encryption. Use it only on a network you trust."
)

_log = logging.getLogger("node")


class Refused(Exception):
    """The arguments ask for what cannot or should not be done; the text is for the person."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. `host` is an IPv4 address in numbers: llama.cpp's clients know no other."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return ipaddress.IPv4Address(self.host).is_loopback


def check_address(host: str, port: int, *, every_interface: bool) -> Address:
    """The address to listen on.

    Raises:
        Refused: it is none, or stands for every interface and that was not allowed.
    """
    if not 0 <= port <= 65_535:  # noqa: PLR2004 - the range of ports
        raise Refused(f"{port} is not a port: 0 to 65535 are.")
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        raise Refused(f"{host} is not an address: give this machine's IPv4 address or name.") from None
    address = ipaddress.IPv4Address(found[0][4][0])
    if address.is_unspecified and not every_interface:
        raise Refused(
            "0.0.0.0 would lend this machine to every network it is in. Give the address of one network, "
            "or add --every-interface if that is meant."
        )
    return Address(str(address), port)


def listen(address: Address) -> socket.socket:
    """A listening socket.

    Raises:
        OSError: the port is taken, or the address is not this machine's.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if os.name != "nt":  # there it would let two programs share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


class Node:
    """Accepts clients. Home thread: main; each client has a thread of its own."""

    def __init__(self, listener: socket.socket, pool: ServerPool) -> None:
        self._listener = listener
        self._pool = pool
        self._places = threading.BoundedSemaphore(MAX_CLIENTS)

    def run(self) -> None:
        """Accept until the listener fails."""
        while True:
            try:
                client, peer = self._listener.accept()
            except OSError as error:
                _log.error("no more clients: %s", error)
                return
            if not self._places.acquire(blocking=False):
                _log.warning("%s was turned away: %d others are connected", peer[0], MAX_CLIENTS)
                client.close()
                continue
            threading.Thread(target=self._serve, args=(client, peer[0]), name="client", daemon=True).start()

    def _serve(self, client: socket.socket, peer: str) -> None:
        try:
            with client:
                serve_client(client, self._pool, peer)
        except OSError as error:
            _log.info("%s is gone: %s", peer, error)
        except NotStarted as error:
            _log.error("%s was not served: %s", peer, error)
        finally:
            self._places.release()


def _watch_stdin() -> None:
    """End with the process that started us: its end closes our standard input, and ours our servers'."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="runtime.worker.node", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--host", default=LOOPBACK, help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="0 takes a free one (default: %(default)s)")
    parser.add_argument("--device", action="append", default=[], help="lend this device; may be given again")
    parser.add_argument("--threads", type=int, default=0, help="processor threads (default: physical cores)")
    parser.add_argument("--cache", default="", metavar="FOLDER", help="keep large tensors there between loads")
    parser.add_argument("--every-interface", action="store_true", help="allow 0.0.0.0")
    parser.add_argument("--watch-stdin", action="store_true", help="end when standard input ends")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Serve until ended; returns an exit status only when that was not possible."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(message)s")
    options = _parse(arguments)
    answer = os.dup(1)
    os.dup2(2, 1)
    if options.watch_stdin:
        threading.Thread(target=_watch_stdin, name="stdin", daemon=True).start()
    try:
        address = check_address(options.host, options.port, every_interface=options.every_interface)
        listener = listen(address)
        address = Address(address.host, listener.getsockname()[1])
        if options.cache:
            os.makedirs(options.cache, exist_ok=True)  # noqa: PTH103 - the path goes to C as text
        pool = ServerPool(tuple(options.device), options.threads, options.cache)
        devices = pool.start()
    except (Refused, NotStarted) as refusal:
        _log.error("%s", refusal)
        return EXIT_REFUSED
    except OSError as error:
        _log.error("%s:%d cannot be used: %s", options.host, options.port, error.strerror or error)
        return EXIT_NOT_LISTENING
    name = f"{address.host}:{address.port}"
    warning = "" if address.is_loopback else WARNING.format(address=name)
    if warning:
        _log.warning("%s", warning)
    os.write(answer, msgspec.json.encode(NodeReady(name, devices, warning, options.cache)) + b"\n")
    Node(listener, pool).run()
    return EXIT_NOT_LISTENING


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    os._exit(code)
