"""Requests for vectors and scores: which texts go into the next decode, and what they come to.

Many short texts share a decode, each under a sequence of its own; a long one is read in pieces. Requests take turns,
one text each. While others generate, both sides get half of the time: a decode here is kept to about `STALL_LIMIT_S`,
and the next one waits until generating ones have had as long as it took.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from runtime.errors import (
    BadRequest,
    ContextExceeded,
    GenerationFailed,
    NotEnoughMemory,
    RuntimeFault,
    to_failure,
)
from runtime.messages.shared import FinishReason, Timings, Usage
from runtime.scheduler.adapters import AdapterSet, AdapterTurns, having
from runtime.scheduler.limits import MIN_PROMPT_ROWS, STALL_LIMIT_S
from runtime.scheduler.types import Done, Ended, EngineOutput, EngineRequest, PooledTask
from runtime.worker.load import LlamaModel
from runtime.worker.pooling import Piece, PooledContext

MAX_ANSWER_BYTES = 48 * 1024 * 1024
"""All vectors of one answer; keeps its frame under the limit."""
_ABORTED = 2  # llama_decode


@dataclass(slots=True, eq=False)
class _Job:
    """One request. `vectors[i]` is empty until text i is done."""

    request: EngineRequest
    task: PooledTask
    submitted_s: float
    started_s: float | None = None
    next_input: int = 0
    n_open: int = 0
    n_read: int = 0
    vectors: list[bytes] = field(default_factory=list)

    @property
    def adapters(self) -> AdapterSet | None:
        """What is applied to the model for it."""
        return self.request.adapters


@dataclass(slots=True, eq=False)
class _Reading:
    """A text that has a sequence. `total` is what its rows so far add up to."""

    job: _Job
    index: int
    tokens: tuple[int, ...]
    seq_id: int
    n_read: int = 0
    total: NDArray[np.float64] | None = None

    @property
    def adapters(self) -> AdapterSet | None:
        """What is applied to the model for it."""
        return self.job.adapters


class PooledBatch:
    """One decode: pieces of texts, in row order. All have the same adapters."""

    def __init__(self, adapters: AdapterSet | None = None) -> None:
        self.adapters = adapters
        self.pieces: list[Piece] = []
        self.readings: list[_Reading] = []
        self.n_rows = 0

    def add(self, reading: _Reading, n_rows: int) -> None:
        """Put the next rows of a text in."""
        self.pieces.append(Piece(reading.tokens, reading.n_read, n_rows, reading.seq_id))
        self.readings.append(reading)
        self.n_rows += n_rows

    @property
    def request_ids(self) -> set[str]:
        """Requests that have rows in it."""
        return {reading.job.request.request_id for reading in self.readings}


class PooledLane:
    """The queue and its decodes. Home thread: engine; `check` is called from any.

    Attributes:
        jobs: requests that have not ended.
        owed_s: time that generating requests are owed before the next decode here.
    """

    def __init__(self, loaded: LlamaModel) -> None:
        self._loaded = loaded
        self._context = PooledContext(loaded)
        self.jobs: deque[_Job] = deque()  # bounded where requests come in (`Engine.submit`)
        self._readings: list[_Reading] = []
        self._free = list(range(self._context.n_sequences - 1, -1, -1))
        self._turns = AdapterTurns()
        self._calm_rows = MIN_PROMPT_ROWS
        self.owed_s = 0.0

    # --- any thread ---

    def check(self, task: PooledTask) -> None:
        """Refuse what cannot be done.

        Raises:
            ContextExceeded: a text is too long; the message names it (`index`, `prompt_tokens`, `n_ctx`).
            BadRequest: the model makes no such numbers, a text is empty, or the answer would be too large.
        """
        is_score = task.kind == "score"
        if is_score is not self._context.makes_scores:
            raise BadRequest(
                "This model makes scores of pairs, no vectors of texts."
                if self._context.makes_scores
                else "This model cannot rank documents.",
                hint="Load an embedding model." if self._context.makes_scores else "Load a rerank model.",
                param="model",
            )
        n_bytes = len(task.inputs) * 4 * (1 if is_score else self._context.n_embd)
        if n_bytes > MAX_ANSWER_BYTES:
            most = MAX_ANSWER_BYTES // (4 * self._context.n_embd)
            raise BadRequest(f"At most {most:,} inputs at once fit in one answer.", param="input")
        n_vocab, n_most = self._loaded.vocab.n_tokens, self._context.n_tokens_max
        for index, tokens in enumerate(task.inputs):
            if not tokens:
                raise BadRequest(f"Text {index} is empty.", param="input")
            if min(tokens) < 0 or max(tokens) >= n_vocab:
                raise BadRequest(
                    f"A token of text {index} is outside the vocabulary (0 to {n_vocab - 1}).", param="input"
                )
            if len(tokens) > n_most:
                what = f"Document {index} with the query" if is_score else f"Text {index}"
                raise ContextExceeded(
                    f"{what} is {len(tokens):,} tokens long; the model reads at most {n_most:,} at once.",
                    hint="Cut it into parts, or load the model with a longer context if it was made for one.",
                    prompt_tokens=len(tokens),
                    n_ctx=n_most,
                    index=index,
                )

    # --- engine thread ---

    def submit(self, request: EngineRequest, task: PooledTask, submitted_s: float) -> None:
        """Queue a request."""
        self.jobs.append(_Job(request, task, submitted_s, vectors=[b""] * len(task.inputs)))

    def cancel(self, request_id: str, now_s: float) -> Done | None:
        """End a request; `None` if there is none of that name."""
        job = next((job for job in self.jobs if job.request.request_id == request_id), None)
        if job is None:
            return None
        self._drop(job)
        return self._done(job, "cancelled", now_s)

    def cancel_all(self, now_s: float) -> tuple[EngineOutput, ...]:
        """End everything, for a stop."""
        names = [job.request.request_id for job in self.jobs]
        return tuple(done for name in names if (done := self.cancel(name, now_s)) is not None)

    def is_due(self, *, others_run: bool) -> bool:
        """Whether it is this lane's turn."""
        return bool(self.jobs) and (not others_run or self.owed_s <= 0)

    def note_others(self, spent_s: float) -> None:
        """Generating requests had so much time."""
        self.owed_s = max(0.0, self.owed_s - spent_s)

    def plan(self, *, others_run: bool) -> tuple[PooledBatch, tuple[EngineOutput, ...]]:
        """The next decode, and endings of requests for which there is no memory; it may then be empty."""
        room = min(self._calm_rows, self._context.n_rows_max) if others_run else self._context.n_rows_max
        failed: tuple[EngineOutput, ...] = ()
        batch = PooledBatch()
        chosen = self._turns.choose(self.jobs)
        # Open texts of another set may hold what this one's need: then those are read on.
        for adapters in dict.fromkeys((chosen, *(reading.adapters for reading in self._readings))):
            batch, of_these = self._plan_of(adapters, room)
            failed += of_these
            if batch.n_rows:
                break
        return batch, failed

    def _plan_of(self, adapters: AdapterSet | None, room: int) -> tuple[PooledBatch, tuple[EngineOutput, ...]]:
        failed: tuple[EngineOutput, ...] = ()
        batch = PooledBatch(adapters)
        for reading in having(adapters, self._readings):
            left = len(reading.tokens) - reading.n_read
            if self._context.needs_whole:
                if not batch.n_rows or batch.n_rows + left <= room:
                    batch.add(reading, left)
            elif batch.n_rows < room:
                # A long text leaves half of the rows to the other requests.
                share = room - batch.n_rows if len(self.jobs) == 1 else max((room - batch.n_rows) // 2, 1)
                batch.add(reading, min(left, share))
        while self._free and batch.n_rows < room and (job := self._next_job(adapters)) is not None:
            tokens = job.task.inputs[job.next_input]
            if self._context.needs_whole:
                if batch.n_rows and batch.n_rows + len(tokens) > room:
                    break
            elif not self._has_cells(len(tokens)):
                if self._readings:
                    break  # until those that are open have ended
                try:
                    self._context.make_room(len(tokens))
                except NotEnoughMemory as error:
                    failed += self.fail({job.request.request_id}, error)
                    continue
            self._open(job, tokens, batch, room)
        return batch, failed

    def _next_job(self, adapters: AdapterSet | None) -> _Job | None:
        return next((job for job in having(adapters, self.jobs) if job.next_input < len(job.task.inputs)), None)

    def _has_cells(self, n_tokens: int) -> bool:
        return sum(len(reading.tokens) for reading in self._readings) + n_tokens <= self._context.n_cells

    def _open(self, job: _Job, tokens: tuple[int, ...], batch: PooledBatch, room: int) -> None:
        reading = _Reading(job, job.next_input, tokens, self._free.pop())
        job.next_input += 1
        job.n_open += 1
        self.jobs.remove(job)
        self.jobs.append(job)
        self._readings.append(reading)
        batch.add(reading, len(tokens) if self._context.needs_whole else min(len(tokens), room - batch.n_rows))

    def decode(self, batch: PooledBatch) -> int:
        """Decode and wait; returns llama_decode's code."""
        return self._context.decode(batch.pieces, batch.adapters)

    def apply(self, batch: PooledBatch, code: int, started_s: float, now_s: float) -> tuple[EngineOutput, ...]:
        """Take in what a decode returned."""
        self.owed_s = now_s - started_s
        for reading in batch.readings:
            if reading.job.started_s is None:
                reading.job.started_s = started_s
        if code == _ABORTED:
            self._start_over()
            return ()
        if code != 0:
            error = GenerationFailed(f"llama.cpp failed to read the texts (code {code}).", llama_code=code)
            return self.fail(batch.request_ids, error)
        if batch.n_rows >= MIN_PROMPT_ROWS and now_s > started_s:
            self._calm_rows = max(MIN_PROMPT_ROWS, int(batch.n_rows / (now_s - started_s) * STALL_LIMIT_S))
        rows = None if self._context.makes_scores else self._context.rows(batch.n_rows)
        outputs: list[EngineOutput] = []
        at = 0
        for piece, reading in zip(batch.pieces, batch.readings, strict=True):
            reading.n_read += piece.n_rows
            if rows is not None:
                self._add_rows(reading, rows[at : at + piece.n_rows], is_first=piece.start == 0)
            at += piece.n_rows
            if piece.is_last:
                outputs += self._finish(reading, now_s)
        return tuple(outputs)

    def _add_rows(self, reading: _Reading, rows: NDArray[np.float32], *, is_first: bool) -> None:
        pooling = self._loaded.resolved.pooling
        if pooling == "mean":
            total = rows.sum(axis=0, dtype=np.float64)
            reading.total = total if reading.total is None else reading.total + total
        elif pooling == "last":
            reading.total = rows[-1].astype(np.float64)
        elif is_first:
            reading.total = rows[0].astype(np.float64)

    def _finish(self, reading: _Reading, now_s: float) -> tuple[EngineOutput, ...]:
        job = reading.job
        if reading.total is None:
            vector = np.array([self._context.score(reading.seq_id)])
        else:
            norm = float(np.linalg.norm(reading.total))
            vector = reading.total / norm if norm > 0 else reading.total
        job.vectors[reading.index] = vector.astype("<f4").tobytes()
        job.n_read += len(reading.tokens)
        self._close_reading(reading)
        if job.n_open or job.next_input < len(job.task.inputs):
            return ()
        self.jobs.remove(job)
        return (self._done(job, "stop", now_s),)

    def _close_reading(self, reading: _Reading) -> None:
        self._readings.remove(reading)
        reading.job.n_open -= 1
        self._context.forget(reading.seq_id)
        self._free.append(reading.seq_id)

    def _drop(self, job: _Job) -> None:
        for reading in [reading for reading in self._readings if reading.job is job]:
            self._close_reading(reading)
        self.jobs.remove(job)

    def _start_over(self) -> None:
        """The context holds nothing any more: what is open is read anew."""
        self._context.clear()
        for reading in self._readings:
            reading.n_read, reading.total = 0, None

    def fail(self, request_ids: set[str], error: RuntimeFault) -> tuple[EngineOutput, ...]:
        """End these requests with an error."""
        failed = [job for job in self.jobs if job.request.request_id in request_ids]
        for job in failed:
            self._drop(job)
        self._start_over()
        return tuple(Ended(job.request.request_id, to_failure(error)) for job in failed)

    def fail_all(self, error: RuntimeFault) -> tuple[EngineOutput, ...]:
        """End every request with an error."""
        return self.fail({job.request.request_id for job in self.jobs}, error)

    def _done(self, job: _Job, reason: FinishReason, now_s: float) -> Done:
        started_s = now_s if job.started_s is None else job.started_s
        prompt_s = now_s - started_s
        return Done(
            job.request.request_id,
            (reason,),
            ("",),
            Usage(prompt_tokens=job.n_read),
            Timings(
                queue_s=started_s - job.submitted_s,
                prompt_s=prompt_s,
                prompt_tps=job.n_read / prompt_s if prompt_s > 0 else 0.0,
            ),
            tuple(job.vectors) if reason == "stop" else (),
        )

    def close(self) -> None:
        """Free what was made."""
        self._context.close()
