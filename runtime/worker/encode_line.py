"""The thread that encodes pictures and sounds, so that the engine goes on meanwhile: one request at a time."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from runtime.errors import Busy
from runtime.worker.live import Live
from runtime.worker.media_prompt import MixedPrompt
from runtime.worker.media_rows import ReadMedia

MAX_WAITING_ROWS = 65_536
"""Rows that may wait to be encoded: until then each holds its pixels, some ten kilobytes."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class EncodeJob:
    """One request's media.

    Attributes:
        live: the request.
        mixed: its prompt; its media are encoded in order.
        submit: called on this thread once all have their rows.
        fail: called on this thread instead, with the reason.
    """

    live: Live
    mixed: MixedPrompt
    submit: Callable[[], None]
    fail: Callable[[Exception], None]

    @property
    def n_rows(self) -> int:
        """Places they take in the prompt, an upper bound of the rows to encode."""
        return sum(medium.n_tokens for medium in self.mixed.media)


class EncodeLine:
    """The line in front of that thread; the window's requests go first. `put` and `close` from any thread.

    The thread lives while there is something to encode. One that rests would keep threads of OpenMP for itself, and
    with more of those than processors the engine's wait at every barrier (`runtime.worker.process`).
    """

    def __init__(self, encode: Callable[[ReadMedia], None]) -> None:
        self._encode = encode
        self._lock = threading.Lock()
        self._jobs: deque[EncodeJob] = deque()
        self._n_rows = 0
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def put(self, job: EncodeJob) -> None:
        """Queue a job.

        Raises:
            Busy: too much waits already.
        """
        with self._lock:
            if self._jobs and self._n_rows + job.n_rows > MAX_WAITING_ROWS:
                raise Busy(
                    "Too many pictures wait for the model.", hint="Try again.", retry_after_s=5, waiting=len(self._jobs)
                )
            if self._is_closed:
                return  # whoever closed it ends all requests
            self._n_rows += job.n_rows
            is_first = bool(getattr(job.live.request, "from_window", False))
            (self._jobs.appendleft if is_first else self._jobs.append)(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="encode", daemon=True)
                self._thread.start()

    def drop(self, live: Live) -> None:
        """Forget a request that was cancelled; one that is being encoded is finished for the cache."""
        with self._lock:
            for job in self._jobs:
                if job.live is live:
                    self._jobs.remove(job)
                    self._n_rows -= job.n_rows
                    return

    def close(self, timeout_s: float) -> bool:
        """Take no more, and end the thread after what it is doing; says whether it ended."""
        with self._lock:
            self._is_closed = True
            self._jobs.clear()
            thread = self._thread
        if thread is None:
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            try:
                for medium in job.mixed.media:
                    if job.live.is_cancelled:
                        break
                    self._encode(medium)
                else:
                    job.submit()
            except Exception as error:  # noqa: BLE001 - the top of this thread; one bad picture must not end it
                _log.info("a picture or sound was not encoded: %s", error)
                job.fail(error)

    def _next(self) -> EncodeJob | None:
        with self._lock:
            if not self._jobs:
                self._thread = None
                return None
            job = self._jobs.popleft()
            self._n_rows -= job.n_rows
            return job
