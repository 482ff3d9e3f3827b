"""`deskside hardware`: the processor, memory and GPUs, once or every second."""

import argparse
import threading
from collections.abc import Collection, Iterator

import msgspec
import psutil

from runtime.cli import exit_codes
from runtime.cli.terminal import Style, Terminal, neutralise, table
from runtime.hardware import HardwareSampler
from runtime.host.ownership import read_host_file
from runtime.messages.hardware import GpuSample, HardwareSample
from runtime.paths import DataFolder
from runtime.units import format_bytes

_INTERVAL_S = 1.0
_FIRST_SPAN_S = 0.3  # load is over a span of time, so even a single reading needs two
_NOT_AVAILABLE = "not available"
_HOME, _CLEAR_LINE, _CLEAR_REST = "\x1b[H", "\x1b[K", "\x1b[J"


def run(parsed: argparse.Namespace, data: DataFolder, terminal: Terminal) -> int:
    """Print one reading, or go on until Ctrl-C."""
    sampler = HardwareSampler(lambda: our_pids(data))
    pause = threading.Event()  # waits between readings; never set, so that Ctrl-C is what ends it
    try:
        sampler.sample()
        pause.wait(_FIRST_SPAN_S)
        while True:
            _print(sampler.sample(), parsed, terminal)
            if not parsed.watch:
                return exit_codes.OK
            pause.wait(_INTERVAL_S)
    except KeyboardInterrupt:
        return exit_codes.OK if parsed.watch else exit_codes.INTERRUPTED
    finally:
        sampler.close()


def our_pids(data: DataFolder) -> Collection[int]:
    """The host that runs on this data folder, with its workers."""
    host = read_host_file(data)
    if host is None:
        return ()
    try:
        process = psutil.Process(host.pid)
        return (host.pid, *(child.pid for child in process.children(recursive=True)))
    except psutil.Error:
        return ()


def _print(sample: HardwareSample, parsed: argparse.Namespace, terminal: Terminal) -> None:
    if parsed.json:
        encoded = msgspec.json.encode(sample)
        terminal.line((encoded if parsed.watch else msgspec.json.format(encoded)).decode())
    else:
        # Drawn over what was there, without clearing the screen first, which would flicker.
        over = parsed.watch and terminal.out_is_tty
        terminal.out.write(_HOME if over else "")
        for line in describe(sample, terminal):
            terminal.line(line + (_CLEAR_LINE if over else ""))
        terminal.out.write(_CLEAR_REST if over else "")
        if parsed.watch and not over:
            terminal.line()
    terminal.out.flush()


def describe(sample: HardwareSample, terminal: Terminal) -> Iterator[str]:
    """The lines of one reading."""
    cpu, memory = sample.cpu, sample.memory
    yield terminal.paint(neutralise(cpu.name) or "Processor", "bold")
    yield from _rows(
        ("cores", _number(cpu.cores_physical)),
        ("threads", _number(cpu.cores_logical)),
        ("load", _number(cpu.utilisation_percent, " %")),
        ("clock", _number(cpu.frequency_mhz, " MHz")),
        ("temperature", _number(cpu.temperature_c, " °C")),
    )
    total, available = memory.total_bytes, memory.available_bytes
    used = None if total is None or available is None else total - available
    swap = f"{format_bytes(memory.swap_used_bytes)} of {format_bytes(memory.swap_total_bytes)}"
    if not memory.swap_total_bytes:
        swap = _NOT_AVAILABLE if memory.swap_total_bytes is None else "none"
    yield terminal.paint("Memory", "bold")
    yield from _rows(
        ("in use", f"{format_bytes(used)} of {format_bytes(total)}"),
        ("by Deskside", "nothing runs" if memory.ours_bytes is None else format_bytes(memory.ours_bytes)),
        ("swap", swap),
    )
    for gpu in sample.gpus:
        yield from _gpu_lines(gpu, terminal)
    if not sample.gpus:
        yield terminal.paint("No GPU was found; models run on the processor.", "dim")
    for note in sample.notes:
        yield terminal.paint(neutralise(note), "dim")


def _gpu_lines(gpu: GpuSample, terminal: Terminal) -> Iterator[str]:
    yield terminal.paint(f"GPU {gpu.index}: {neutralise(gpu.name)}", "bold")
    if gpu.problem:
        yield terminal.paint(f"  {neutralise(gpu.problem)}", "red")
        return
    shared = ", shared with the processor" if gpu.unified_memory else ""
    limits: tuple[Style, ...] = ("yellow",) if gpu.throttled else ()
    reasons = _NOT_AVAILABLE if gpu.throttle_reasons is None else " ".join(gpu.throttle_reasons) or "none"
    yield from _rows(
        ("memory", f"{format_bytes(gpu.memory_used_bytes)} of {format_bytes(gpu.memory_total_bytes)}{shared}"),
        ("by Deskside", format_bytes(gpu.memory_ours_bytes)),
        ("by others", format_bytes(gpu.memory_others_bytes)),
        ("load", _number(gpu.utilisation_percent, " %")),
        ("temperature", _of_limit(gpu.temperature_c, gpu.temperature_limit_c, " °C")),
        ("power", _of_limit(gpu.power_w, gpu.power_limit_w, " W")),
        ("clock", _of_limit(gpu.clock_mhz, gpu.clock_max_mhz, " MHz")),
        ("memory clock", _of_limit(gpu.memory_clock_mhz, gpu.memory_clock_max_mhz, " MHz")),
        ("fan", _number(gpu.fan_percent, " %")),
        ("limited by", terminal.paint(reasons, *limits)),
    )
    for one in gpu.mig:
        used, total = format_bytes(one.memory_used_bytes), format_bytes(one.memory_total_bytes)
        yield f"  slice {neutralise(one.name)}: {used} of {total}"


def _rows(*rows: tuple[str, str]) -> Iterator[str]:
    yield from (f"  {line}" for line in table(list(rows)))


def _number(value: float | None, unit: str = "") -> str:
    return _NOT_AVAILABLE if value is None else f"{value:,.0f}{unit}"


def _of_limit(value: float | None, limit: float | None, unit: str) -> str:
    if value is None or limit is None:
        return _number(value, unit)
    return f"{value:,.0f} of {limit:,.0f}{unit}"
