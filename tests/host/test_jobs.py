"""Jobs: progress, end, cancel, bounds."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from runtime.errors import Busy, StorageFault
from runtime.host import jobs as jobs_module
from runtime.host.jobs import MAX_ENDED, MAX_RUNNING, JobControl, Jobs
from runtime.library.progress import Cancelled, Progress
from runtime.messages.api import HostEvent, JobChanged
from runtime.messages.library import Job


class Told:
    """Collects events and waits for one."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self._news = asyncio.Event()

    def __call__(self, event: HostEvent) -> None:
        assert isinstance(event, JobChanged)
        self.jobs.append(event.job)
        self._news.set()

    async def until(self, wanted: Callable[[Job], bool]) -> Job:
        async with asyncio.timeout(10):
            while not any(map(wanted, self.jobs)):
                self._news.clear()
                await self._news.wait()
        return next(job for job in self.jobs if wanted(job))


def run(work: Callable[[Jobs, Told], Coroutine[Any, Any, None]]) -> None:
    async def with_jobs() -> None:
        told = Told()
        jobs = Jobs(told)
        try:
            await work(jobs, told)
        finally:
            await jobs.close()

    asyncio.run(with_jobs())


def ends(state: str) -> Callable[[Job], bool]:
    return lambda job: job.state == state


def test_when_blocking_work_is_done_then_its_progress_and_result_were_told() -> None:
    async def work(jobs: Jobs, told: Told) -> None:
        threads: list[str] = []

        def check(control: JobControl) -> str:
            threads.append(threading.current_thread().name)
            control.report(Progress(25, 100, "reading"))
            control.report(Progress(50, 100, "comparing"))
            return "All is well."

        job = jobs.start("verify", "m", "Checking m", jobs.in_thread(check))
        assert (job.state, job.fraction) == ("running", 0.0)
        done = await told.until(ends("done"))
        assert (done.fraction, done.result, done.stage, done.left_s) == (1.0, "All is well.", "", None)
        assert [job.stage for job in told.jobs] == ["", "reading", "comparing", ""]
        assert [job.fraction for job in told.jobs] == [0.0, 0.25, 0.5, 1.0]
        assert threads[0].startswith("job")
        assert jobs.list() == (done,)

    run(work)


def test_when_reports_flood_then_few_are_told_and_the_speed_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    at = [100.0]
    monkeypatch.setattr("runtime.host.jobs.time.monotonic", lambda: at[0])
    seen: list[jobs_module.Told] = []
    control = JobControl(seen.append)
    for step in range(1001):
        control.report(Progress(step * 1000, 2_000_000, "copying"))
        at[0] += 0.01
    assert len(seen) <= 1001 * 0.01 / jobs_module.EVENT_PERIOD_S + 1
    assert seen[0].left_s is None
    assert seen[-1].speed_bps == pytest.approx(100_000, rel=0.01)
    assert seen[-1].left_s == pytest.approx(10, rel=0.05)


def test_when_cancelled_then_it_ends_as_cancelled_and_a_second_time_is_no_error() -> None:
    async def work(jobs: Jobs, told: Told) -> None:
        begun = threading.Event()

        def forever(control: JobControl) -> str:
            begun.set()
            while not control.is_cancelled():
                threading.Event().wait(0.01)
            raise Cancelled

        job = jobs.start("import", "", "Importing", jobs.in_thread(forever))
        await asyncio.to_thread(begun.wait, 5)
        jobs.cancel(job.id)
        jobs.cancel(job.id)
        ended = await told.until(ends("cancelled"))
        assert ended.failure is None
        assert any(one.stage == "cancelling" for one in told.jobs)
        jobs.cancel(job.id)
        jobs.cancel("unknown")

    run(work)


def test_when_it_fails_then_the_reason_is_told() -> None:
    async def work(jobs: Jobs, told: Told) -> None:
        def fail(_control: JobControl) -> str:
            raise StorageFault("The disk is gone.", path="/x")

        jobs.start("move", "", "Moving", jobs.in_thread(fail))
        failed = await told.until(ends("failed"))
        assert failed.failure is not None
        assert (failed.failure.kind, failed.failure.message) == ("StorageFault", "The disk is gone.")

        async def break_down(_control: JobControl) -> str:
            raise ZeroDivisionError

        jobs.start("move", "", "Moving", break_down)
        broken = await told.until(lambda job: job.failure is not None and job.failure.kind == "BugFault")
        assert broken.state == "failed"

    run(work)


def test_when_too_many_run_then_one_more_is_refused_until_one_ends() -> None:
    async def work(jobs: Jobs, told: Told) -> None:
        go = asyncio.Event()

        async def wait(_control: JobControl) -> str:
            await go.wait()
            return ""

        for _ in range(MAX_RUNNING):
            jobs.start("verify", "m", "", wait)
        with pytest.raises(Busy):
            jobs.start("verify", "m", "", wait)
        go.set()
        await told.until(ends("done"))
        jobs.start("verify", "m", "", wait)

    run(work)


def test_when_many_have_ended_then_the_oldest_are_forgotten() -> None:
    async def work(jobs: Jobs, told: Told) -> None:
        async def nothing(_control: JobControl) -> str:
            return ""

        for number in range(MAX_ENDED + 10):
            job = jobs.start("verify", f"m{number}", "", nothing)
            await told.until(lambda one, wanted=job.id: one.id == wanted and one.state == "done")  # type: ignore[misc]
        assert len(jobs.list()) == MAX_ENDED
        assert jobs.list()[-1].model == f"m{MAX_ENDED + 9}"

    run(work)


def test_when_closed_then_running_jobs_are_cancelled() -> None:
    async def with_jobs() -> list[Job]:
        told = Told()
        jobs = Jobs(told)

        async def wait(control: JobControl) -> str:
            while not control.is_cancelled():  # noqa: ASYNC110 - it is asked from any thread
                await asyncio.sleep(0.01)
            raise Cancelled

        jobs.start("verify", "m", "", wait)
        jobs.start("verify", "n", "", jobs.in_thread(lambda control: "" if control.is_cancelled() else "late"))
        await asyncio.sleep(0)
        await jobs.close()
        return told.jobs

    told = asyncio.run(with_jobs())
    assert {job.state for job in told if job.state != "running"} <= {"cancelled", "done"}
    assert any(job.model == "m" and job.state == "cancelled" for job in told)
