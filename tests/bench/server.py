"""Our server against llama.cpp's own: `python -m tests.bench server [--json] [--quick]`.

`llama-server` is built from the source archive that our engine was compiled from (installers/llama_server.py), for the
same processor with the same defines; both do without AMX. Both load the starter model with the same settings, ours as
the host resolved them, and answer the same streaming chat completions from one process of clients
(tests/bench/clients.py): fresh prompts behind one common beginning, lengths of 32 to 96 tokens, sampling as given in
the requests. They take turns, one after the other in each round and the other way round in the next, so that whatever
else the machine does falls on both alike.

For 1, 8 and 32 clients: tokens a second of all clients together (median of the rounds' ratios), and time to first
token, median and 99th percentile of all requests.
"""

import contextlib
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import httpx
import msgspec

from installers.llama_server import llama_server
from runtime.library.starter import find_starter
from runtime.paths import DataFolder
from tests.bench.clients import Job, Result
from tests.bench.command import run_part
from tests.e2e.conftest import HostUnderTest, poll
from tests.support.autogroup import put_like_this_process

LEAST_SPEED = 1.0
MOST_FIRST = 1.0
"""Bounds of the ratios: at least as many tokens a second, at most as long to the first token."""

FIXED: dict[str, str | int] = {
    "n_ctx": 2048,
    "n_parallel": 32,
    "flash_attn": "off",
    "type_k": "f16",
    "type_v": "f16",
    "host_cache_bytes": 512 * 2**20,
}
"""Load options that are told both; the rest is as our host resolves it on this machine. Without flash attention, since
on a processor that is faster for both."""

LEVELS = {1: 3, 8: 2, 32: 1}
"""Clients, and how many requests each makes in a round: few, so that the arms take turns often."""
ROUNDS, ROUNDS_QUICK = 8, 2


class Level(msgspec.Struct, frozen=True):
    """One number of clients measured; times to first token in seconds."""

    clients: int
    tokens_per_s: float
    theirs_tokens_per_s: float
    speed: float
    first_p50_s: float
    first_p99_s: float
    theirs_first_p50_s: float
    theirs_first_p99_s: float
    first_p50: float
    first_p99: float


class Report(msgspec.Struct, frozen=True):
    """All figures of a run, and which bounds were missed."""

    settings: dict[str, str | int]
    levels: tuple[Level, ...]
    missed: tuple[str, ...]


class Clients:
    """The process of clients."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.clients"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def carry_out(self, job: Job) -> Result:
        """Run a job to its end."""
        sent, came = self._process.stdin, self._process.stdout
        assert sent is not None
        assert came is not None
        sent.write(msgspec.json.encode(job).decode() + "\n")
        sent.flush()
        line = came.readline()
        if not line:
            raise SystemExit("the clients ended; what went wrong stands above")
        return msgspec.json.decode(line, type=Result)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


@contextlib.contextmanager
def their_server(program: Path, model: Path, settings: dict[str, str | int], log: IO[bytes]) -> Iterator[int]:
    """llama.cpp's server with our settings; gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    words = {
        "--model": str(model),
        "--port": port,
        "--parallel": settings["n_parallel"],
        "--ctx-size": settings["kv_cells"],
        "--batch-size": settings["n_batch"],
        "--ubatch-size": settings["n_ubatch"],
        "--threads": settings["n_threads"],
        "--cache-type-k": settings["type_k"],
        "--cache-type-v": settings["type_v"],
        "--flash-attn": settings["flash_attn"],
        "--cache-ram": int(settings["host_cache_bytes"]) // 2**20,
        "--n-gpu-layers": 0,
    }
    command = [str(program), "--kv-unified", *(str(word) for pair in words.items() for word in pair)]
    with subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as process:
        try:

            def is_ready() -> bool | None:
                assert process.poll() is None, f"llama-server ended with {process.returncode}"
                with contextlib.suppress(httpx.HTTPError):
                    return httpx.get(f"http://127.0.0.1:{port}/health").status_code == httpx.codes.OK or None
                return None

            poll(is_ready)
            yield port
        finally:
            process.terminate()


def measure(
    clients: Clients, ports: tuple[int, int], model: str, n_clients: int, rounds: int
) -> tuple[list[Result], list[Result]]:
    """Results of ours and of theirs, round by round."""
    results: tuple[list[Result], list[Result]] = ([], [])
    for index in range(rounds):
        for arm in (0, 1) if index % 2 == 0 else (1, 0):
            job = Job(ports[arm], model, n_clients, LEVELS[n_clients], seed=1_000 * n_clients + index)
            results[arm].append(clients.carry_out(job))
        ours, theirs = (arm[-1].tokens / arm[-1].wall_s for arm in results)
        print(f"{n_clients} clients, round {index + 1}: {ours:.1f} and {theirs:.1f} tokens/s", file=sys.stderr)
    return results


def level(n_clients: int, ours: list[Result], theirs: list[Result]) -> Level:
    """The figures of one number of clients."""
    speeds = [result.tokens / result.wall_s for result in ours]
    their_speeds = [result.tokens / result.wall_s for result in theirs]
    firsts, their_firsts = (
        statistics.quantiles([first for result in arm for first in result.first_s], n=100, method="inclusive")
        for arm in (ours, theirs)
    )
    return Level(
        clients=n_clients,
        tokens_per_s=statistics.median(speeds),
        theirs_tokens_per_s=statistics.median(their_speeds),
        speed=statistics.median(mine / other for mine, other in zip(speeds, their_speeds, strict=True)),
        first_p50_s=firsts[49],
        first_p99_s=firsts[98],
        theirs_first_p50_s=their_firsts[49],
        theirs_first_p99_s=their_firsts[98],
        first_p50=firsts[49] / their_firsts[49],
        first_p99=firsts[98] / their_firsts[98],
    )


def judge(levels: list[Level]) -> tuple[str, ...]:
    """Sentences about the bounds that were not kept."""
    missed = []
    for found in levels:
        where = f"{found.clients} clients"
        if found.speed < LEAST_SPEED:
            missed.append(f"tokens/s {found.speed:.3f} < {LEAST_SPEED} of llama-server's ({where})")
        for name, ratio in (("p50", found.first_p50), ("p99", found.first_p99)):
            if ratio > MOST_FIRST:
                missed.append(f"time to first token, {name}: {ratio:.3f} > {MOST_FIRST} of llama-server's ({where})")
    return tuple(missed)


def run(*, quick: bool) -> Report:
    model = find_starter()
    if model is None:
        raise SystemExit("the starter model is not installed")
    program = llama_server()
    with tempfile.TemporaryDirectory(prefix="deskside-bench-") as folder:
        host = HostUnderTest(DataFolder(Path(folder) / "data"))
        try:
            host.open_api()
            host.load_starter(**FIXED)
            facts = host.loaded()["facts"]
            assert isinstance(facts, dict)
            settings: dict[str, str | int] = {**FIXED, **facts["resolved"]}
            put_like_this_process(host.worker().pid)
            clients = Clients()
            with (
                (Path(folder) / "llama-server.log").open("wb") as log,
                their_server(program, model, settings, log) as their_port,
            ):
                ports = (int(host.address.rsplit(":", 1)[1].strip("/")), their_port)
                measure(clients, ports, host.model, 8, 1)  # warm both
                rounds = ROUNDS_QUICK if quick else ROUNDS
                levels = [level(n, *measure(clients, ports, host.model, n, rounds)) for n in LEVELS]
            clients.close()
        finally:
            host.close()
    return Report(settings, tuple(levels), judge(levels))


def show(report: Report) -> None:
    print("settings of both:", ", ".join(f"{name} {value}" for name, value in report.settings.items()))
    print("clients   tokens/s   theirs   ratio   first token p50   theirs   ratio   p99   theirs   ratio")
    for found in report.levels:
        figures = (
            f"{found.clients:7}",
            f"{found.tokens_per_s:8.1f}",
            f"{found.theirs_tokens_per_s:6.1f}",
            f"{found.speed:5.3f}",
            f"{found.first_p50_s * 1000:12.0f} ms",
            f"{found.theirs_first_p50_s * 1000:5.0f} ms",
            f"{found.first_p50:5.3f}",
            f"{found.first_p99_s * 1000:5.0f} ms",
            f"{found.theirs_first_p99_s * 1000:5.0f} ms",
            f"{found.first_p99:5.3f}",
        )
        print("   ".join(figures))


def main() -> int:
    return run_part("tests.bench.server", __doc__, "two rounds instead of eight", run, show)


if __name__ == "__main__":
    sys.exit(main())
