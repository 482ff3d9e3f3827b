"""Work on files that takes a while: checking, importing, moving, quantizing. One list, one way to cancel.

A job is a coroutine that is handed a `JobControl`; blocking work goes into a thread of its own with `in_thread`.
"""

import asyncio
import concurrent.futures
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable

import msgspec

from runtime.errors import Busy, to_failure
from runtime.library.progress import Cancelled, Progress
from runtime.messages.api import HostEvent, JobChanged
from runtime.messages.library import Job, JobKind
from runtime.units import now

log = logging.getLogger(__name__)

MAX_RUNNING = 8
"""Jobs at once: they share a disk, and each may hold a thread."""

MAX_ENDED = 50
"""Ended jobs that stay in the list; the oldest go first."""

EVENT_PERIOD_S = 0.25
"""A job's progress is told at most so often; its end is told at once."""

SPEED_WINDOW_S = 5.0
"""The speed is that of the last moments, so that a disk that slows down shows."""


class JobControl:
    """What a job tells and asks. Home: any thread."""

    def __init__(self, told: Callable[["Told"], None]) -> None:
        self._told = told
        self._cancelled = threading.Event()
        self._last_told_at = float("-inf")
        self._last_stage = ""
        self._seen: deque[tuple[float, int]] = deque()
        """Time and bytes of the reports within `SPEED_WINDOW_S`; at most four a second are kept."""

    def is_cancelled(self) -> bool:
        """True once the person cancelled; the work ends as soon as it can, by raising `Cancelled`."""
        return self._cancelled.is_set()

    def report(self, progress: Progress) -> None:
        """Say how far it is. May be called as often as one likes."""
        at = time.monotonic()
        if at - self._last_told_at < EVENT_PERIOD_S and progress.stage == self._last_stage:
            return
        if progress.stage != self._last_stage:
            self._seen.clear()
        self._last_told_at = at
        self._last_stage = progress.stage
        self._seen.append((at, progress.done_bytes))
        while at - self._seen[0][0] > SPEED_WINDOW_S:
            self._seen.popleft()
        since_at, since_bytes = self._seen[0]
        speed_bps = (progress.done_bytes - since_bytes) / (at - since_at) if at > since_at else 0.0
        left_s = (progress.total_bytes - progress.done_bytes) / speed_bps if speed_bps > 0 else None
        self._told(Told(progress.fraction, progress.stage, speed_bps, left_s))

    def cancel(self) -> None:
        """Ask the work to end."""
        self._cancelled.set()


class Told(msgspec.Struct, frozen=True):
    """One report of a job, with what follows from the ones before. `left_s` is None while nothing moves."""

    fraction: float
    stage: str
    speed_bps: float = 0.0
    left_s: float | None = None


Work = Callable[[JobControl], Awaitable[str]]
"""Does the job; the answer is a sentence on its result."""


class Jobs:
    """All jobs, running and lately ended. Home: the event loop."""

    def __init__(self, send: Callable[[HostEvent], None]) -> None:
        self._send = send
        self._jobs: dict[str, Job] = {}
        self._controls: dict[str, JobControl] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._threads = concurrent.futures.ThreadPoolExecutor(MAX_RUNNING, thread_name_prefix="job")

    def list(self) -> tuple[Job, ...]:
        """Newest last."""
        return tuple(self._jobs.values())

    def start(self, kind: JobKind, model: str, title: str, work: Work) -> Job:
        """Begin a job.

        Raises:
            Busy: `MAX_RUNNING` run already.
        """
        if len(self._tasks) >= MAX_RUNNING:
            raise Busy(
                f"{MAX_RUNNING} jobs on files run already.",
                hint="Wait for one to end, or cancel one.",
                retry_after_s=30,
                waiting=len(self._tasks),
            )
        loop = asyncio.get_running_loop()
        job = Job(secrets.token_hex(8), kind, model, title, "running", started_s=now())

        def told(report: Told) -> None:
            try:
                loop.call_soon_threadsafe(self._note, job.id, report)
            except RuntimeError:  # the loop has just closed
                control.cancel()

        control = JobControl(told)
        self._jobs[job.id] = job
        self._controls[job.id] = control
        self._tasks[job.id] = asyncio.create_task(self._run(job.id, control, work), name=f"job {kind} {model}")
        self._send(JobChanged(job))
        return job

    def in_thread(self, work: Callable[[JobControl], str]) -> Work:
        """A blocking function as the work of a job."""

        async def run(control: JobControl) -> str:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, control)

        return run

    def cancel(self, job_id: str) -> None:
        """Ask a job to end; an unknown or ended one is no error."""
        control = self._controls.get(job_id)
        if control is not None:
            control.cancel()
            self._note(job_id, Told(self._jobs[job_id].fraction, "cancelling"))

    async def close(self, patience_s: float = 10.0) -> None:
        """Cancel every job and wait for it to end, at most `patience_s`."""
        for control in self._controls.values():
            control.cancel()
        tasks = set(self._tasks.values())
        if tasks:
            await asyncio.wait(tasks, timeout=patience_s)
        for task in tasks:
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, job_id: str, control: JobControl, work: Work) -> None:
        try:
            result = await work(control)
        except asyncio.CancelledError:
            self._end(job_id, state="cancelled")
            raise
        except Cancelled:
            self._end(job_id, state="cancelled")
        except Exception as error:  # whatever went wrong is the job's failure
            log.warning("job %s failed", job_id, exc_info=error)
            self._end(job_id, state="failed", failure=to_failure(error))
        else:
            self._end(job_id, state="done", fraction=1.0, result=result)

    def _note(self, job_id: str, told: Told) -> None:
        job = self._jobs.get(job_id)
        if job is None or job.state != "running":
            return
        self._jobs[job_id] = msgspec.structs.replace(
            job, fraction=told.fraction, stage=told.stage, speed_bps=told.speed_bps, left_s=told.left_s
        )
        self._send(JobChanged(self._jobs[job_id]))

    def _end(self, job_id: str, **changes: object) -> None:
        job = msgspec.structs.replace(self._jobs[job_id], stage="", speed_bps=0.0, left_s=None, **changes)
        self._jobs[job_id] = job
        del self._controls[job_id]
        del self._tasks[job_id]
        ended = [one.id for one in self._jobs.values() if one.state != "running"]
        for old in ended[:-MAX_ENDED]:
            del self._jobs[old]
        self._send(JobChanged(job))
