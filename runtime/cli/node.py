"""`deskside node`: lend this machine's devices to another Deskside, until Ctrl-C."""

import argparse
import ipaddress
import subprocess
import sys

import msgspec

from runtime.cli import exit_codes
from runtime.cli.terminal import Terminal, neutralise
from runtime.errors import BadRequest, WorldFault
from runtime.messages.fit import NodeReady
from runtime.paths import DataFolder
from runtime.units import format_bytes

END_TIMEOUT_S = 10.0
_REFUSED = 2
"""Exit status of `runtime.worker.node` for an argument that asks for what should not be done."""


def run(parsed: argparse.Namespace, _data: DataFolder, terminal: Terminal) -> int:
    """Lend until Ctrl-C. llama.cpp runs in a process of its own, so that a fault of it gets a sentence here.

    Raises:
        BadRequest: the address is none, or stands for every network.
        WorldFault: the address cannot be used, or llama.cpp ended.
    """
    command = [sys.executable, "-m", "runtime.worker.node", "--watch-stdin", *_arguments(parsed)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        return _lend(process, terminal)
    finally:
        if process.stdin is not None:
            process.stdin.close()  # it ends when its standard input does
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def _arguments(parsed: argparse.Namespace) -> list[str]:
    given = ["--host", parsed.host, "--port", str(parsed.port), "--threads", str(parsed.threads)]
    for device in parsed.device:
        given += ["--device", device]
    if parsed.cache:
        given += ["--cache", parsed.cache]
    if parsed.every_interface:
        given.append("--every-interface")
    return given


def _lend(process: "subprocess.Popen[bytes]", terminal: Terminal) -> int:
    said: list[str] = []
    if process.stdout is None or process.stderr is None:
        raise WorldFault("The node's process has no output.")
    line = process.stdout.readline()
    if not line:
        said = [text.removeprefix("ERROR ") for text in process.stderr.read().decode("utf-8", "replace").splitlines()]
        code = process.wait()
        words = next((text for text in reversed(said) if text.strip()), f"exit code {code}")
        fault = BadRequest if code == _REFUSED else WorldFault
        raise fault(f"This machine cannot be lent: {words}")
    ready = msgspec.json.decode(line, type=NodeReady)
    terminal.line(f"This machine lends its memory at {terminal.paint(ready.address, 'bold', 'cyan')}:")
    for device in ready.devices:
        free, total = format_bytes(device.free_bytes), format_bytes(device.total_bytes)
        terminal.line(f"  {device.name}  {neutralise(device.description)}  {free} free of {total}")
    if ready.warning:
        terminal.warn(ready.warning)
    elif ipaddress.ip_address(ready.address.rsplit(":", 1)[0]).is_loopback:
        terminal.line("Only this machine can reach it; --host with an address of your network lets others.", "dim")
    terminal.line("On the other machine: Models, Nodes, Add. Ctrl-C stops lending.", "dim")
    terminal.out.flush()
    for raw in process.stderr:  # read on, so that the pipe never fills; llama.cpp says who connects
        terminal.say(neutralise(raw.decode("utf-8", "replace").rstrip()), "dim")
    code = process.wait()
    if code:
        raise WorldFault(f"llama.cpp stopped lending (exit code {code}).", hint="Start it again.")
    return exit_codes.OK
