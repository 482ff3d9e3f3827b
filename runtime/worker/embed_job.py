"""One `Embed` is many engine requests: a few at a time, collected in order."""

import threading
from collections import deque
from collections.abc import Callable, Sequence

from runtime.errors import BadRequest, Busy, Failure, RuntimeFault, to_failure
from runtime.messages.ipc import Embedded, Failed, Finished
from runtime.messages.shared import Timings, Usage
from runtime.scheduler.types import Done, EngineRequest

MAX_INPUTS = 2048
"""As OpenAI's API allows."""
MAX_ANSWER_BYTES = 48 * 1024 * 1024
"""All vectors of one answer; keeps its frame under the limit."""
_FLOAT_BYTES = 4


class EmbeddingJob:
    """Collects the vectors of one `Embed`. Home thread: any (locked).

    Args:
        request_id: the host's name for it.
        inputs: tokens of each input.
        window: how many run at a time.
        submit: hands one to the engine.
    """

    def __init__(
        self,
        request_id: str,
        inputs: Sequence[tuple[int, ...]],
        *,
        window: int,
        from_window: bool,
        submit: Callable[[EngineRequest], None],
    ) -> None:
        self._request_id = request_id
        self._waiting = deque(enumerate(inputs))
        self._vectors: list[bytes] = [b""] * len(inputs)
        self._window = max(window, 1)
        self._from_window = from_window
        self._submit = submit
        self._lock = threading.Lock()
        self._running: set[str] = set()
        self._prompt_tokens = 0
        self._failure: Failure | None = None
        self._is_cancelled = False

    def pump(self) -> Embedded | Failed | Finished | None:
        """Hand in as many as may run; the ending, if it was cancelled meanwhile and none does.

        Raises:
            RuntimeFault: if the engine refuses the first of all; later refusals for lack of room are waited out.
        """
        with self._lock:
            while self._waiting and len(self._running) < self._window and not self._is_over:
                index, tokens = self._waiting[0]
                part_id = f"{self._request_id}\n{index}"
                self._running.add(part_id)
                try:
                    self._submit(EngineRequest(part_id, tokens, from_window=self._from_window, embed=True))
                except RuntimeFault as error:
                    self._running.discard(part_id)
                    if isinstance(error, Busy) and self._running:
                        return None  # room comes when one of ours ends
                    self._waiting.clear()
                    raise
                self._waiting.popleft()
            return self._ending() if self._is_over else None

    @property
    def _is_over(self) -> bool:
        return self._is_cancelled or self._failure is not None

    def cancel(self) -> list[str]:
        """Hand in no more; the names of the running parts, for the engine."""
        with self._lock:
            self._is_cancelled = True
            self._waiting.clear()
            return list(self._running)

    def part_done(self, part: Done) -> Embedded | Failed | Finished | None:
        """Take in a finished part; the ending, if it was the last one."""
        with self._lock:
            self._running.discard(part.request_id)
            self._prompt_tokens += part.usage.prompt_tokens
            index = int(part.request_id.rpartition("\n")[2])
            self._vectors[index] = part.vector
            if "cancelled" in part.reasons:
                self._is_cancelled = True
            if len(part.vector) * len(self._vectors) > MAX_ANSWER_BYTES and not self._is_over:
                most = MAX_ANSWER_BYTES // len(part.vector)
                self._failure = to_failure(BadRequest(f"At most {most:,} inputs at once fit in one answer."))
            return self._ending()

    def part_failed(self, part_id: str, failure: Failure) -> tuple[Embedded | Failed | Finished | None, list[str]]:
        """Take in a failed part: the ending if it was the last one, and which parts to cancel."""
        with self._lock:
            self._running.discard(part_id)
            self._failure = self._failure or failure
            self._waiting.clear()
            return self._ending(), list(self._running)

    def _ending(self) -> Embedded | Failed | Finished | None:
        if self._running or (self._waiting and not self._is_over):
            return None
        usage = Usage(prompt_tokens=self._prompt_tokens)
        if self._failure is not None:
            return Failed(self._request_id, self._failure)
        if self._is_cancelled:
            return Finished(self._request_id, ("cancelled",), usage, Timings())
        return Embedded(self._request_id, tuple(self._vectors), usage)
