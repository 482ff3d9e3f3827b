"""One soak: a real host, the starter model, many clients, a worker that is killed again and again."""

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import httpx
import msgspec
import psutil

from runtime.paths import DataFolder
from tests.e2e.conftest import HostUnderTest, poll
from tests.soak.asks import Asker
from tests.soak.clients import Client, Ledger
from tests.soak.watch import MIB, Trend, Watched
from tests.support.autogroup import put_like_this_process

N_CLIENTS = 32
READ_EVERY_S = 2.0
TELL_EVERY_S = 30.0
REST_WITHIN_S = 240.0
AFTER_KILL_S = 30.0
"""So long after a worker was killed, and until the model is ready again, errors that say so are no problem."""

MOST_MEMORY_SLOPE = 0.5
"""MiB a minute, after the warm-up: 30 MiB in an hour. What a host keeps (answers, log lines, the table) is bounded, but
fills for some time."""

MOST_FILES_SLOPE = 0.5
"""Open files a minute."""

MOST_OWN_MIB = 256.0
"""What a worker may hold beside what llama.cpp allocated and the prompt cache. Of a worker the height counts, not the
slope: it lives from kill to kill, and its cache of keys and values is first touched bit by bit."""

HEALTH_WITHIN_S = 5.0
MAX_ROWS = 200
"""Ended requests in the host's table (`runtime.host.desk.MAX_FINISHED_ROWS`)."""

OPTIONS: dict[str, object] = {"n_ctx": 1024, "n_parallel": 8, "max_waiting": 14, "host_cache_bytes": 32 * 2**20}
"""Fewer slots and places in the queue than clients, so that some are refused; a cache that is soon full."""


class Length(msgspec.Struct, frozen=True):
    """How long, and how often the worker is killed; slopes are told of lives that outlast the warm-up."""

    run_s: float
    kill_every_s: float
    warm_up_s: float
    worker_warm_up_s: float
    are_slopes_judged: bool


LONG = Length(3600, 300, 600, 90, are_slopes_judged=True)
SHORT = Length(150, 50, 40, 15, are_slopes_judged=False)
"""Caches still fill in so short a time: slopes are told, not judged."""


class Report(msgspec.Struct, frozen=True):
    """What a soak came to."""

    minutes: float
    requests: int
    ends: dict[str, int]
    kinds: dict[str, int]
    kills: int
    slowest_recovery_s: float
    slowest_health_s: float
    trends: tuple[Trend, ...]
    problems: tuple[str, ...]
    missed: tuple[str, ...]


class Soak:
    """State of one run."""

    def __init__(self, host: HostUnderTest, length: Length, seed: int) -> None:
        self._host = host
        self._length = length
        self._seed = seed
        self.ledger = Ledger(self._was_killed_lately)
        self._trouble_until_s = 0.0
        self.recoveries_s: list[float] = []
        self.health_s: list[float] = []
        self.n_kills = 0
        self.host_watch = Watched("host", host.process.pid)
        self.worker_watches: list[Watched] = []
        self.problems: list[str] = []
        self._http = httpx.AsyncClient(
            base_url=host.file.address, headers={"authorization": f"Bearer {host.file.token}"}, timeout=60
        )

    def _was_killed_lately(self) -> bool:
        return time.monotonic() < self._trouble_until_s

    async def run(self) -> None:
        """Clients, killer and watcher together; then the checks at the end."""
        began_s = time.monotonic()
        until_s = began_s + self._length.run_s
        works = (self._kill(until_s), self._watch(), self._ask_health(), self._tell())
        side = [asyncio.create_task(work) for work in works]
        askers = [Asker(self._host.model, self._seed + index) for index in range(N_CLIENTS)]
        clients = [Client(self._host.address, asker, self.ledger) for asker in askers]
        try:
            await asyncio.gather(*(client.run(until_s) for client in clients))
        finally:
            for task in side:
                task.cancel()
            ended = await asyncio.gather(*side, return_exceptions=True)
        self.problems += [f"{type(end).__name__}: {end}" for end in ended if isinstance(end, Exception)]
        await self._check_end(askers[0])
        await self._http.aclose()

    async def _tell(self) -> None:
        """A line now and then for whoever waits."""
        began_s = time.monotonic()
        n_told = 0
        while True:
            await asyncio.sleep(TELL_EVERY_S)
            minutes = (time.monotonic() - began_s) / 60
            ends = ", ".join(f"{end} {count:,}" for end, count in sorted(self.ledger.ends.items()))
            problems = [*self.problems, *self.ledger.problems]
            lines = [f"{minutes:.1f} min: {self.n_kills} kills, {len(problems)} problems; {ends}", *problems[n_told:]]
            n_told = len(problems)
            print("\n  ".join(lines), file=sys.stderr, flush=True)

    async def _ask_health(self) -> None:
        """The port must answer at once, whatever happens to the models."""
        async with httpx.AsyncClient(base_url=self._host.address, timeout=HEALTH_WITHIN_S) as http:
            while True:
                began_s = time.monotonic()
                try:
                    await http.get("/health")
                    self.health_s.append(time.monotonic() - began_s)
                    del self.health_s[: -4 * 3600]
                except httpx.HTTPError as error:
                    self.problems.append(f"/health did not answer within {HEALTH_WITHIN_S:.0f} s: {error!r}")
                await asyncio.sleep(1.0)

    async def _model(self) -> dict[str, object]:
        (model,) = (await self._http.get("/admin/status")).json()["models"]
        return dict(model)

    async def _kill(self, until_s: float) -> None:
        while time.monotonic() + self._length.kill_every_s < until_s:
            await asyncio.sleep(self._length.kill_every_s)
            model = await self._model()
            pid = model.get("pid")
            if not isinstance(pid, int):
                self.problems.append(f"no worker to kill: the model is {model['state']}")
                continue
            began_s = time.monotonic()
            self._trouble_until_s = float("inf")
            os.kill(pid, signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)
            self.n_kills += 1
            while True:
                model = await self._model()
                if model["state"] == "ready" and model.get("pid") != pid:
                    break
                if time.monotonic() - began_s > 120:
                    self.problems.append(f"two minutes after a kill the model is {model['state']}")
                    break
                await asyncio.sleep(0.1)
            self.recoveries_s.append(time.monotonic() - began_s)
            self._trouble_until_s = time.monotonic() + AFTER_KILL_S

    async def _watch(self) -> None:
        while True:
            now_s = time.monotonic()
            self.host_watch.read(now_s)
            pid = (await self._model()).get("pid")
            if isinstance(pid, int):
                if not self.worker_watches or self.worker_watches[-1].pid != pid:
                    put_like_this_process(pid)
                    try:
                        self.worker_watches.append(Watched(f"worker {len(self.worker_watches) + 1}", pid))
                    except psutil.NoSuchProcess:
                        continue
                self.worker_watches[-1].read(now_s)
            await asyncio.sleep(READ_EVERY_S)

    # --- the end ------------------------------------------------------------------------------------------

    async def _check_end(self, asker: Asker) -> None:
        """All is at rest, the table is bounded, and requests that need the whole cache are answered."""
        await self._come_to_rest("after the load")
        rows = (await self._http.get("/admin/requests")).json()
        if len(rows) > MAX_ROWS:
            self.problems.append(f"the table of requests has {len(rows)} rows")
        before = self.ledger.ends["answered"]
        n_fresh = int(str(OPTIONS["n_parallel"]))
        clients = [Client(self._host.address, Asker(self._host.model, 1), self.ledger) for _ in range(n_fresh)]
        for client in clients:
            client.leaves = False
        await asyncio.gather(*(client.ask(asker.long_prompt(400)) for client in clients))
        for client in clients:
            await client.close()
        if self.ledger.ends["answered"] - before != n_fresh:
            self.problems.append("fresh requests at a full cache were not all answered")
        await self._come_to_rest("after the fresh requests")

    async def _come_to_rest(self, when: str) -> None:
        deadline_s = time.monotonic() + REST_WITHIN_S
        told = ""
        while time.monotonic() < deadline_s:
            engine = (await self._model()).get("engine", {})
            rows = (await self._http.get("/admin/requests")).json()
            busy = [row for row in rows if row["state"] not in ("finished", "failed", "cancelled")]
            told = f"engine {engine}, requests {busy}"
            assert isinstance(engine, dict)
            if not engine.get("active") and not engine.get("waiting") and not busy:
                return
            await asyncio.sleep(0.2)
        self.problems.append(f"not at rest {when}: {told}")


def soak(length: Length, *, seed: int = 1, n_threads: int | None = None) -> Report:
    """Run one and judge it."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="deskside-soak-") as folder:
        host = HostUnderTest(DataFolder(Path(folder) / "data"))
        try:
            host.open_api()
            host.load_starter(**OPTIONS, **({"n_threads": n_threads} if n_threads else {}))
            most_mib = allocated_mib(host) + MOST_OWN_MIB
            run = Soak(host, length, seed)
            asyncio.run(run.run())
            poll(lambda: host.loaded()["state"] == "ready" or None)
        finally:
            host.close()
    trends = (
        *run.host_watch.trends(length.warm_up_s),
        *(one for watched in run.worker_watches for one in watched.trends(length.worker_warm_up_s)),
    )
    ledger = run.ledger
    problems = (*run.problems, *ledger.problems)
    missed = [f"{len(run.problems) + ledger.n_problems} problems"] if problems else []
    missed += heights_missed(trends, most_mib)
    if length.are_slopes_judged:
        missed += slopes_missed(trends)
    return Report(
        minutes=(time.monotonic() - began_s) / 60,
        requests=sum(ledger.kinds.values()),
        ends=dict(sorted(ledger.ends.items())),
        kinds=dict(sorted(ledger.kinds.items())),
        kills=run.n_kills,
        slowest_recovery_s=max(run.recoveries_s, default=0.0),
        slowest_health_s=max(run.health_s, default=0.0),
        trends=trends,
        problems=problems,
        missed=tuple(missed),
    )


def allocated_mib(host: HostUnderTest) -> float:
    """What llama.cpp said it allocated, and the prompt cache."""
    facts = host.loaded()["facts"]
    assert isinstance(facts, dict)
    sizes = [size for memory in facts["memory"] for name, size in memory.items() if name.endswith("_bytes")]
    return float(sum(sizes) + int(str(OPTIONS["host_cache_bytes"]))) / MIB


def heights_missed(trends: Iterable[Trend], most_mib: float) -> list[str]:
    """Sentences about workers that hold too much."""
    return [
        f"{one.name} at the end: {one.last:.0f} > {most_mib:.0f}"
        for one in trends
        if one.name.startswith("worker") and one.name.endswith("MiB") and one.last > most_mib
    ]


def slopes_missed(trends: Iterable[Trend]) -> list[str]:
    """Sentences about what grows: memory of the host, open files of it and of workers."""
    found: list[str] = []
    for one in trends:
        is_memory = one.name.endswith("MiB")
        bound = MOST_MEMORY_SLOPE if is_memory else MOST_FILES_SLOPE
        if one.slope_per_min > bound and not (is_memory and one.name.startswith("worker")):
            found.append(f"{one.name} grows by {one.slope_per_min:.2f} > {bound} a minute")
    return found


def show(report: Report) -> None:
    """Print what a soak came to."""
    rate = report.requests / report.minutes
    print(f"soak of {report.minutes:.1f} minutes: {report.requests:,} requests of {N_CLIENTS} clients ({rate:.0f}/min)")
    print("  ends:", ", ".join(f"{end} {count:,}" for end, count in report.ends.items()))
    print("  kinds:", ", ".join(f"{kind} {count:,}" for kind, count in report.kinds.items()))
    print(
        f"  workers killed: {report.kills}, ready again after {report.slowest_recovery_s:.1f} s at most;"
        f" /health within {report.slowest_health_s * 1000:.0f} ms"
    )
    for one in report.trends:
        print(
            f"  {one.name}: {one.first:.1f} -> {one.last:.1f}, {one.slope_per_min:+.3f} a minute"
            f" over {one.minutes:.1f} minutes"
        )
    for sentence in report.problems:
        print(f"PROBLEM: {sentence}")
