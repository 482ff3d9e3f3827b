"""The engine: one thread that steps the scheduler and llama.cpp.

A step, always in this order: commands; drop what was cancelled; admit; plan; decode; sample and stop; hand off.
Nothing else happens on this thread: no JSON, no files, no log lines at each step.
"""

import gc
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from runtime.errors import BadRequest, BugFault, Busy, ContextExceeded, GenerationFailed, RuntimeFault
from runtime.messages.shared import PositionLogprobs
from runtime.scheduler.limits import Limits
from runtime.scheduler.plan import NO_TOKEN, NOT_SAMPLED, BatchPlan, BatchResult
from runtime.scheduler.scheduler import Scheduler
from runtime.scheduler.types import Done, Ended, EngineFigures, EngineOutput, EngineRequest
from runtime.scheduler.unit import Job
from runtime.worker.backend import LlamaBackend
from runtime.worker.load import LlamaModel
from runtime.worker.pooled_lane import PooledBatch, PooledLane
from runtime.worker.sampler import Sampler, SamplerFactory
from runtime.worker.speculation import make_speculation
from runtime.worker.state_disk import StateDisk

IDLE_TICK_S = 1.0
SWITCH_INTERVAL_S = 0.0005
"""Longest the engine waits for the interpreter lock after a decode while another thread computes (Python's 5 ms
would be most of a step of a small model)."""
STEP_LIMIT_S = 30.0
STEP_LIMIT_PER_ROW_S = 1.0
FIGURES_EVERY_S = 0.25
STORE_AT_STOP_S = 4.0
"""How long the last prompts may be written to the disk when the model is unloaded."""


class _Choosing(Protocol):
    """A unit of the scheduler, whose sampler is one of this worker."""

    job: Job
    sampler: Sampler


OnOutputs = Callable[[tuple[EngineOutput, ...]], None]


@dataclass(frozen=True, slots=True)
class _Submit:
    request: EngineRequest
    samplers: tuple[Sampler, ...]
    submitted_s: float


class Engine:
    """Runs requests on a loaded model.

    `run` belongs to one thread; `submit`, `cancel` and `stop` may be called from any. Outputs of one step arrive
    together in one call of `on_outputs`, on the thread of `run`; it should only hand them on.

    Attributes:
        figures: running totals; read them from any thread.
    """

    def __init__(self, model: LlamaModel, on_outputs: OnOutputs, store: StateDisk | None = None) -> None:
        resolved = model.resolved
        self.figures = EngineFigures(kv_total=resolved.n_cells, last_step_at=time.monotonic())
        self._model = model
        self._on_outputs = on_outputs
        self._backend = LlamaBackend(model)
        self._backend.clear()  # the books begin empty
        speculating = make_speculation(model)
        self._drafter = speculating.computing
        self._backend.heads = speculating.heads
        self._scheduler = Scheduler(
            self._backend,
            Limits(
                n_ctx=resolved.n_ctx,
                n_cells=resolved.n_cells,
                n_parallel=resolved.n_parallel,
                n_seq_max=resolved.n_seq_max,
                n_batch=resolved.n_batch,
                n_ubatch=resolved.n_ubatch,
                n_outputs_max=self._backend.n_outputs_max,
                reads_all_cells=resolved.flash_attn == "off",
            ),
            piece=lambda token: model.vocab.token_bytes(token, special=True),
            eog_ids=model.vocab.eog_ids,
            host_cache_bytes=model.options.host_cache_bytes,
            store=store,
            speculation=speculating.speculation,
        )
        self._store = store
        if store is not None:
            store.on_arrival = self._on_arrival
        self._factory = SamplerFactory(model.vocab, resolved.n_ctx)
        self._pooled = PooledLane(model)
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)  # each step takes the lock itself, which is not a call in Python
        # Guarded by _wake:
        self._inbox: list[_Submit | str] = []  # a string cancels the request of that name
        self._live: set[str] = set()
        self._waiting = 0
        self._active = 0
        self._n_parallel = self._free = resolved.n_parallel
        self._running: BatchPlan | PooledBatch | None = None
        self._has_cancel = False
        self._has_arrived = False
        self._stop_at: float | None = None
        self._figures_at = 0.0

    # --- any thread ---

    def submit(self, request: EngineRequest) -> None:
        """Queue a request; it ends with exactly one `Done` or `Ended`, unless this raises.

        Raises:
            Busy: the queue is full, or the engine is stopping (`retry_after_s`, `waiting`).
            ContextExceeded: the prompt is longer than the context (`prompt_tokens`, `n_ctx`).
            BadRequest: an option is out of range, the grammar does not parse, or the model cannot generate.
        """
        self._check(request)
        self._check_room(request)
        text = tuple(token for token in request.prompt if token >= 0) if request.media else request.prompt
        samplers = () if request.pooled else self._factory.make(request.options, text, request.plan)
        with self._wake:
            self._check_room(request)
            if request.request_id in self._live:
                raise BadRequest(f"A request with the id {request.request_id!r} is running already.")
            self._live.add(request.request_id)
            self._inbox.append(_Submit(request, samplers, time.monotonic()))
            self._wake.notify()

    def _check(self, request: EngineRequest) -> None:
        if request.pooled is not None:
            self._pooled.check(request.pooled)
            return
        n_prompt, n_ctx = len(request.prompt), self._model.resolved.n_ctx
        if not n_prompt:
            raise BadRequest("The prompt is empty.", param="prompt")
        n_vocab = self._model.vocab.n_tokens
        n_rows = sum(span.n_rows for span in request.media)
        n_outside = sum(not 0 <= token < n_vocab for token in request.prompt) if n_rows else 0
        if n_outside != n_rows or (not n_rows and (min(request.prompt) < 0 or max(request.prompt) >= n_vocab)):
            raise BadRequest(f"A token of the prompt is outside the vocabulary (0 to {n_vocab - 1}).", param="prompt")
        needs_room = request.options.max_tokens != 0
        if n_prompt + needs_room > n_ctx:
            raise ContextExceeded(
                f"The prompt is {n_prompt:,} tokens long; the context holds {n_ctx:,}, the answer included.",
                hint="Shorten the conversation, or load the model with a longer context.",
                prompt_tokens=n_prompt,
                n_ctx=n_ctx,
            )
        most = self._model.resolved.n_ubatch
        if any(span.n_rows > most for span in request.media if not span.is_causal):
            raise BadRequest(f"A picture has more than the {most:,} rows that can be read at once.", param="messages")
        if not self._model.has_memory:
            raise BadRequest("This model only reads texts into numbers; it cannot write.", param="model")

    def _check_room(self, request: EngineRequest) -> None:
        with self._wake:
            n_new = sum(1 for command in self._inbox if isinstance(command, _Submit))
            waiting = max(0, n_new + self._waiting - self._free)
            if self._stop_at is not None:
                raise Busy("The model is being unloaded.", retry_after_s=5, waiting=waiting)
            # One place beyond the bound is the window's.
            if waiting >= self._model.options.max_waiting + (1 if request.from_window else 0):
                raise Busy(
                    f"{waiting} requests are waiting already.",
                    hint="Try again later, or load the model with more parallel slots.",
                    retry_after_s=self._scheduler.retry_after_s(waiting),
                    waiting=waiting,
                )

    def cancel(self, request_id: str) -> None:
        """End a request between two steps; unknown ids are ignored.

        When every request of the running decode is cancelled, the decode is given up too.
        """
        with self._wake:
            if request_id not in self._live:
                return
            self._inbox.append(request_id)
            self._has_cancel = True
            if self._running is not None:
                cancelled = {command for command in self._inbox if isinstance(command, str)}
                if self._running.request_ids <= cancelled:
                    self._backend.abort.set()
            self._wake.notify()

    def stop(self, drain_s: float) -> None:
        """Finish what runs for at most `drain_s` seconds, end the rest as cancelled, and let `run` return."""
        with self._wake:
            self._stop_at = time.monotonic() + drain_s
            if drain_s <= 0 and self._running is not None:
                self._backend.abort.set()
            self._wake.notify()

    # --- the engine thread ---

    def run(self) -> None:
        """Block until stopped.

        Raises:
            GenerationFailed: llama.cpp failed twice within a minute; the process should end and be started anew.
                Every request has ended before this is raised.
        """
        interval = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        # What exists now stays: keep the collector from walking it again and again.
        gc.collect()
        gc.freeze()
        try:
            while self._step():
                pass
            if self._store is not None and not self._scheduler.is_broken:
                self._store.store_all(self._scheduler.placement.left_behind(), STORE_AT_STOP_S)
        finally:
            gc.unfreeze()
            sys.setswitchinterval(interval)
            self._pooled.close()
            self._factory.close()
        if self._scheduler.is_broken:
            raise GenerationFailed("llama.cpp failed twice within a minute; the model has to be loaded again.")

    def _step(self) -> bool:
        """One step, or one idle tick. False: the engine has stopped."""
        scheduler = self._scheduler
        if self._inbox or scheduler.is_idle:
            self._take_commands()
        started_s = time.monotonic()
        is_idle = scheduler.is_idle and not self._pooled.jobs
        if self._stop_at is not None and (started_s >= self._stop_at or is_idle):
            self._end_all(started_s)
            return False
        if is_idle:
            self._hand_off(scheduler.take_outputs())  # of what was cancelled just now
            self._publish(started_s)
            return True
        try:
            if self._pooled.jobs:
                self._pooled_step()
            self._generate_step(started_s)
        except Exception as error:  # noqa: BLE001 - the top of the engine: every request must end
            fault = error if isinstance(error, RuntimeFault) else BugFault(f"{type(error).__name__}: {error}")
            scheduler.crash(fault, time.monotonic())
            self._hand_off(self._pooled.fail_all(fault))
        self._hand_off(scheduler.take_outputs())
        self._publish(time.monotonic())
        self.figures.busy_s += self.figures.last_step_at - started_s
        if scheduler.is_broken:
            self._end_all(time.monotonic())
            return False
        return True

    def _on_arrival(self) -> None:
        """A stored state is there, or is not to be had. Called on the store's thread."""
        with self._wake:
            self._has_arrived = True
            self._wake.notify()

    def _wait_for_state(self) -> None:
        """All there is to do waits for the store."""
        with self._wake:
            if not self._inbox and not self._has_arrived and self._stop_at is None:
                self._wake.wait(IDLE_TICK_S)
            self._has_arrived = False

    def _take_commands(self) -> None:
        with self._wake:
            if not self._inbox and self._stop_at is None and self._scheduler.is_idle and not self._pooled.jobs:
                self._wake.wait(IDLE_TICK_S)
            commands, self._inbox = self._inbox, []
            self._has_cancel = False
            for command in commands:
                if isinstance(command, str):
                    self._cancel(command)
                elif command.request.pooled is not None:
                    self._pooled.submit(command.request, command.request.pooled, command.submitted_s)
                else:
                    self._scheduler.submit(command.request, command.samplers, command.submitted_s)
            self._count()

    def _count(self) -> None:
        """Publish what `submit` decides by; _wake is held."""
        self._active = self._scheduler.n_active
        self._waiting = self._scheduler.n_waiting + len(self._pooled.jobs)
        self._free = max(0, self._n_parallel - self._active)

    def _cancel(self, request_id: str) -> None:
        self._scheduler.cancel(request_id, time.monotonic())
        if (done := self._pooled.cancel(request_id, time.monotonic())) is not None:
            self._hand_off((done,))

    def _generate_step(self, started_s: float) -> None:
        scheduler, backend, figures = self._scheduler, self._backend, self.figures
        plan = scheduler.plan(started_s)
        if self._drafter is not None:
            figures.decode_s += self._drafter.take_decode_s()
        if plan is None:
            self._pooled.owed_s = 0.0  # nobody generates
            if scheduler.is_fetching and not self._pooled.jobs:
                self._wait_for_state()
            return
        figures.step_limit_s = STEP_LIMIT_S + STEP_LIMIT_PER_ROW_S * len(plan.tokens)
        with self._lock:
            if self._has_cancel:
                return  # it may concern this plan: take it in first
            backend.abort.clear()
            self._running = plan
            self._count()
            # A long prompt's first decode takes seconds: what runs and waits is told before it, not after.
            figures.active, figures.waiting = self._active, self._waiting
        before_s = time.monotonic()
        code = backend.decode(plan)
        after_s = time.monotonic()
        self._running = None  # an abort that comes too late is taken back before the next decode
        figures.decode_s += after_s - before_s
        if self._pooled.owed_s:
            self._pooled.note_others(after_s - before_s)
        if code == 0:
            tokens, logprobs, faults = self._sample(plan)
            figures.generated_tokens += len(tokens)
            if plan.n_drafted:
                n_wrong = tokens.count(NOT_SAMPLED)
                figures.generated_tokens -= n_wrong
                figures.draft_tokens += plan.n_drafted
                figures.draft_accepted += plan.n_drafted - n_wrong
            figures.prompt_tokens += len(plan.tokens) - plan.n_decode
            scheduler.apply(plan, BatchResult(0, tokens, logprobs, after_s - before_s, faults), after_s)
        else:
            scheduler.apply(plan, BatchResult(code, [], [], after_s - before_s), after_s)

    def _sample(self, plan: BatchPlan) -> tuple[list[int], list[PositionLogprobs | None], dict[int, RuntimeFault]]:
        rows = self._backend.logits
        samples = cast("list[tuple[int, _Choosing]]", plan.samples)
        n_rows = plan.n_decode if plan.n_drafted else 0  # rows among which there are drafts
        if (len(samples) > 1 and not n_rows) or rows.prepared:
            # Behind a wrong guess nothing is sampled, so rows of drafts are not prepared together.
            rows.prepare([] if n_rows else [(row, k) for row, unit in samples if (k := unit.sampler.prepared_k)])
        tokens: list[int] = []
        logprobs: list[PositionLogprobs | None] = []
        faults: dict[int, RuntimeFault] = {}
        wrong: _Choosing | None = None
        for row, unit in samples:
            # A row of a draft counts if what was sampled before it is what had been guessed.
            is_ahead = 0 < row < n_rows and samples[row - 1][1] is unit
            if is_ahead and (unit is wrong or tokens[-1] != plan.tokens[row]):
                wrong = unit
                tokens.append(NOT_SAMPLED)
                continue
            try:
                token = unit.sampler.pick(rows, row)
            except RuntimeFault as error:
                faults[len(tokens)] = error
                token = NO_TOKEN
            tokens.append(token)
            options = unit.job.request.options
            if options.logprobs and token >= 0:
                while len(logprobs) < len(tokens) - 1:
                    logprobs.append(None)
                logprobs.append(rows.log_probabilities(row, token, options.top_logprobs, self._model.vocab))
        if logprobs:
            logprobs += [None] * (len(tokens) - len(logprobs))
        return tokens, logprobs, faults

    def _pooled_step(self) -> None:
        """One decode of texts to read into vectors or scores, if it is their turn."""
        lane, backend, figures = self._pooled, self._backend, self.figures
        others_run = not self._scheduler.is_idle
        if not lane.is_due(others_run=others_run):
            return
        batch, failed = lane.plan(others_run=others_run)
        self._hand_off(failed)
        if not batch.n_rows:
            return
        with self._wake:
            if self._has_cancel:
                return  # it may concern this batch: take it in first
            backend.abort.clear()
            self._running = batch
            self._count()
            figures.active, figures.waiting = self._active + 1, self._waiting - 1
        figures.step_limit_s = STEP_LIMIT_S + STEP_LIMIT_PER_ROW_S * batch.n_rows
        before_s = time.monotonic()
        code = lane.decode(batch)
        after_s = time.monotonic()
        with self._wake:
            self._running = None
        figures.decode_s += after_s - before_s
        if code == 0:
            figures.prompt_tokens += batch.n_rows
        self._hand_off(lane.apply(batch, code, before_s, after_s))

    def _end_all(self, now_s: float) -> None:
        """End every request, also those that were never taken out of the inbox."""
        with self._wake:
            if self._stop_at is None:
                self._stop_at = now_s
        self._take_commands()
        self._scheduler.cancel_all(now_s)
        outputs = list(self._scheduler.take_outputs())
        outputs += self._pooled.cancel_all(now_s)
        self._hand_off(tuple(outputs))
        self._publish(now_s)

    def _hand_off(self, outputs: tuple[EngineOutput, ...]) -> None:
        if not outputs:
            return
        for output in outputs:
            if type(output) is Done or type(output) is Ended:
                with self._wake:
                    self._live.discard(output.request_id)
        self._on_outputs(outputs)

    def _publish(self, now_s: float) -> None:
        figures = self.figures
        figures.last_step_at = now_s
        if now_s - self._figures_at < FIGURES_EVERY_S and not self._scheduler.is_idle:
            return
        self._figures_at = now_s
        figures.active = self._scheduler.n_active + min(1, len(self._pooled.jobs))
        figures.waiting = self._scheduler.n_waiting + max(0, len(self._pooled.jobs) - 1)
        figures.kv_used = self._scheduler.kv_used
        figures.host_cache_bytes = self._scheduler.placement.host.size_bytes
