"""`python -m runtime.worker.node`: lends this machine's devices to a Deskside elsewhere, through llama.cpp's RPC.

Prints one line of JSON (`runtime.messages.fit.NodeReady`) once it listens; everything else goes to standard error.
llama.cpp's RPC has no authentication and no encryption: whoever reaches the address can use the memory and crash
the process. So it listens on the loopback address unless told otherwise, and an address that stands for every
interface needs a flag of its own.
"""

import argparse
import ipaddress
import logging
import os
import socket
import sys
import threading
import time

import msgspec
import psutil

from runtime.messages.fit import NodeDevice, NodeReady
from runtime.worker import amx, ggml, native

LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 50052
"""The port of llama.cpp's own `rpc-server`."""
LISTEN_TIMEOUT_S = 60.0
"""A GPU's driver may take seconds to start before llama.cpp listens."""
EXIT_REFUSED = 2
EXIT_NOT_LISTENING = 3

WARNING = (
    "Anyone who reaches {address} can use this machine's memory and stop this process: "
    "there is no password and no encryption. Use it only on a network you trust."
)

_POLL_S = 0.02
_log = logging.getLogger("node")


class Refused(Exception):
    """The arguments ask for what cannot or should not be done; the text is for the person."""


def check_address(host: str, *, every_interface: bool) -> str:
    """The IPv4 address to listen on, as numbers: llama.cpp takes nothing else.

    Raises:
        Refused: it is no address of this machine's, or stands for every interface and that was not allowed.
    """
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
    return str(address)


def choose_devices(names: tuple[str, ...]) -> tuple[ggml.DeviceHandle, ...]:
    """The named devices; without names all GPUs, else the processor.

    Raises:
        Refused: a name is unknown, or this llama.cpp cannot lend at all.
    """
    if not ggml.has_rpc():
        raise Refused("This llama.cpp was built without RPC (-DGGML_RPC=ON), so it cannot lend devices.")
    handles = tuple(handle for handle in ggml.device_handles() if handle.kind != "node")
    if names:
        by_name = {handle.name: handle for handle in handles}
        if unknown := [name for name in names if name not in by_name]:
            raise Refused(f"There is no device {unknown[0]} here; there are {', '.join(by_name)}.")
        return tuple(by_name[name] for name in names)
    return tuple(handle for handle in handles if handle.kind in ("gpu", "igpu")) or tuple(
        handle for handle in handles if handle.kind == "cpu"
    )


def free_port(address: str) -> int:
    """A port nobody listens on at this moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


def describe(handle: ggml.DeviceHandle) -> NodeDevice:
    """A device with the memory it has now."""
    free, total = handle.memory()
    if handle.kind == "cpu":
        memory = psutil.virtual_memory()
        free, total = memory.available, memory.total
    return NodeDevice(handle.name, handle.description, total_bytes=total, free_bytes=free)


def _is_listening(port: int) -> bool:
    found = psutil.Process().net_connections("tcp4")
    return any(entry.status == psutil.CONN_LISTEN and entry.laddr.port == port for entry in found)


def _announce(answer: int, ready: NodeReady, port: int) -> None:
    """Wait until llama.cpp listens, then print the line."""
    deadline = time.monotonic() + LISTEN_TIMEOUT_S
    while not _is_listening(port):
        if time.monotonic() > deadline:
            _log.error("llama.cpp does not listen on %s after %.0f s", ready.address, LISTEN_TIMEOUT_S)
            os._exit(EXIT_NOT_LISTENING)
        time.sleep(_POLL_S)
    os.write(answer, msgspec.json.encode(ready) + b"\n")


def _watch_stdin() -> None:
    """End with the process that started us: its end closes our standard input."""
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
    if not 0 <= options.port <= 65_535:  # noqa: PLR2004 - the range of ports
        _log.error("%d is not a port: 0 to 65535 are.", options.port)
        return EXIT_REFUSED
    # What llama.cpp prints must not mix with the one line that is an answer.
    answer = os.dup(1)
    os.dup2(2, 1)
    if options.watch_stdin:
        threading.Thread(target=_watch_stdin, name="stdin", daemon=True).start()
    try:
        host = check_address(options.host, every_interface=options.every_interface)
        with amx.refused():
            native.backend_init()
            devices = choose_devices(tuple(options.device))
            for device in devices:
                ggml.extra_buffer_types(device.handle)
        port = options.port or free_port(host)
    except Refused as refusal:
        _log.error("%s", refusal)
        return EXIT_REFUSED
    except OSError as error:
        _log.error("%s:%d cannot be used: %s", options.host, options.port, error.strerror or error)
        return EXIT_NOT_LISTENING
    address = f"{host}:{port}"
    warning = "" if ipaddress.IPv4Address(host).is_loopback else WARNING.format(address=address)
    if warning:
        _log.warning("%s", warning)
    ready = NodeReady(address, tuple(describe(device) for device in devices), warning, options.cache)
    if options.cache:
        os.makedirs(options.cache, exist_ok=True)  # noqa: PTH103 - the path goes to C as text
    threading.Thread(target=_announce, args=(answer, ready, port), name="announce", daemon=True).start()
    threads = options.threads or psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    ggml.serve_devices(address, options.cache or None, threads, devices)
    _log.error("%s cannot be used: another program listens there, or it is no address of this machine.", address)
    return EXIT_NOT_LISTENING


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    os._exit(code)
