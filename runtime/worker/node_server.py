"""`python -m runtime.worker.node_server`: llama.cpp's RPC server for one client at a time, on the loopback address.

Started by `runtime.worker.node`, one for each client. Prints one line of JSON (`runtime.messages.fit.NodeReady`) once
it listens; everything else goes to standard error. It ends when its standard input does.
"""

import argparse
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
LISTEN_TIMEOUT_S = 60.0
"""A GPU's driver may take seconds to start before llama.cpp listens."""
EXIT_REFUSED = 2
EXIT_NOT_LISTENING = 3

_POLL_S = 0.02
_log = logging.getLogger("node")


class Refused(Exception):
    """The arguments ask for what cannot or should not be done; the text is for the person."""


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
    """End with the process that started us."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="runtime.worker.node_server")
    parser.add_argument("--device", action="append", default=[])
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--cache", default="")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Serve until ended; returns an exit status only when that was not possible."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(message)s")
    options = _parse(arguments)
    # What llama.cpp prints must not mix with the one line that is an answer.
    answer = os.dup(1)
    os.dup2(2, 1)
    threading.Thread(target=_watch_stdin, name="stdin", daemon=True).start()
    try:
        with amx.refused():
            native.backend_init()
            devices = choose_devices(tuple(options.device))
            for device in devices:
                ggml.extra_buffer_types(device.handle)
    except Refused as refusal:
        _log.error("%s", refusal)
        return EXIT_REFUSED
    port = free_port(LOOPBACK)
    address = f"{LOOPBACK}:{port}"
    ready = NodeReady(address, tuple(describe(device) for device in devices))
    threading.Thread(target=_announce, args=(answer, ready, port), name="announce", daemon=True).start()
    threads = options.threads or psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    ggml.serve_devices(address, options.cache or None, threads, devices)
    _log.error("llama.cpp cannot listen on %s", address)
    return EXIT_NOT_LISTENING


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    os._exit(code)
