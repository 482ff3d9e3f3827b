"""The scheduler: who decodes what in the next step, and what a step came to.

Pure: no thread, no clock (times are handed in), no llama.cpp. The caller repeats, on one thread:
commands (`submit`, `cancel`); `plan`; decode and sample; `apply`; `take_outputs`.

Every request ends with exactly one `Done` or `Ended`. Books change only in `apply`, and only for a decode that
returned 0 (or 2, after asking the memory what it holds).
"""

from collections.abc import Callable

from runtime.errors import BugFault, GenerationFailed, RuntimeFault, to_failure
from runtime.messages.shared import FinishReason, PositionLogprobs
from runtime.scheduler.adapters import AdapterTurns, having
from runtime.scheduler.filling import Filler
from runtime.scheduler.hostcache import SavedState
from runtime.scheduler.limits import (
    BROKEN_WINDOW_S,
    RESERVE_TOKENS,
    SHARED_WAIT_TOKENS,
    Limits,
)
from runtime.scheduler.memory import KvMemory
from runtime.scheduler.placement import Placement
from runtime.scheduler.plan import NO_TOKEN, NOT_SAMPLED, BatchPlan, BatchResult
from runtime.scheduler.prefix import common_prefix
from runtime.scheduler.speculation import Speculation
from runtime.scheduler.statestore import STORE_GAIN_TOKENS, StateStore
from runtime.scheduler.types import Ended, EngineOutput, EngineRequest, PromptRead, Text
from runtime.scheduler.unit import Job, Unit, UnitState
from runtime.scheduler.waiting import WaitingLine


class Scheduler:
    """Continuous batching over one memory. Home thread: the caller's, always the same."""

    def __init__(
        self,
        memory: KvMemory,
        limits: Limits,
        *,
        piece: Callable[[int], bytes],
        eog_ids: frozenset[int],
        host_cache_bytes: int,
        store: StateStore | None = None,
        speculation: Speculation | None = None,
    ) -> None:
        """Make the books of an empty memory.

        Args:
            memory: the model's memory.
            limits: what its context was made for.
            piece: bytes of a token, as the reader of the text should see it.
            eog_ids: tokens that end a generation.
            host_cache_bytes: bound of the saved states.
            store: where states outlive the process.
            speculation: decides about drafts; None makes none. The memory must be able to forget the last tokens of a
                sequence.
        """
        self._memory = memory
        self._limits = limits
        self._piece = piece
        self._eog_ids = eog_ids
        self._speculation = speculation
        self.placement = Placement(
            memory, limits.n_seq_max, host_cache_bytes, store, reads_all_cells=limits.reads_all_cells
        )
        self._store = store
        self._line = WaitingLine()
        self._turns = AdapterTurns()
        self._has_adapters = False
        self._jobs: dict[str, Job] = {}
        self._reading: list[Unit] = []
        self._generating: list[Unit] = []
        self._outputs: list[EngineOutput] = []
        self._filler = Filler(limits, memory.kind, speculation, lambda: self.kv_used)
        self._admission_paused = False
        self._last_error_s: float | None = None
        self.is_broken = False
        """llama.cpp failed twice in a short time: end the process."""

    # --- what the figures show ---

    @property
    def n_active(self) -> int:
        """Units that have a sequence."""
        return len(self._reading) + len(self._generating)

    @property
    def n_waiting(self) -> int:
        """Units that wait for one."""
        return len(self._line)

    @property
    def is_idle(self) -> bool:
        """Nothing to do until the next command."""
        return not self._jobs

    @property
    def is_fetching(self) -> bool:
        """Whether a unit in the line waits for a stored state."""
        return any(unit.ticket for unit in self._line)

    @property
    def kv_used(self) -> int:
        """Cells in use, idle conversations included."""
        return self.placement.tree.n_tokens + sum(
            unit.n_held - self.placement.tree.length(unit.seq_id) for unit in self._generating
        )

    def has(self, request_id: str) -> bool:
        """Whether the request is alive."""
        return request_id in self._jobs

    def retry_after_s(self, n_waiting: int) -> int:
        """Seconds after which a refused request may come back."""
        return self._line.retry_after_s(n_waiting, self._limits.n_parallel)

    # --- commands ---

    def submit(self, request: EngineRequest, samplers: tuple[object, ...], now_s: float) -> None:
        """Queue a request; one sampler for each choice. Its prompt has room for a token in the context."""
        job = Job(request, samplers, now_s, self._limits.n_ctx)
        self._has_adapters = self._has_adapters or request.adapters is not None
        self._jobs[request.request_id] = job
        self._line.append(job.units[0])

    def cancel(self, request_id: str, now_s: float) -> None:
        """End a request; what its choices hold stays reusable. Unknown ids are ignored."""
        job = self._jobs.get(request_id)
        if job is None:
            return
        for unit in job.units:
            if unit.state is UnitState.FINISHED:
                continue
            if rest := unit.text_out.flush():
                self._outputs.append(Text(request_id, unit.index, rest, 0))
            self._finish(unit, "cancelled", now_s)

    def cancel_all(self, now_s: float) -> None:
        """End everything, for a stop."""
        for request_id in tuple(self._jobs):
            self.cancel(request_id, now_s)

    def crash(self, error: RuntimeFault, now_s: float) -> None:
        """A step broke off: end everything with this error, and forget what the memory holds."""
        for job in tuple(self._jobs.values()):
            self._fail(job, error, now_s, keep=False)
        self._forget(now_s)

    def take_outputs(self) -> tuple[EngineOutput, ...]:
        """All outputs since the last call."""
        outputs, self._outputs = tuple(self._outputs), []
        return outputs

    # --- plan ---

    def plan(self, now_s: float) -> BatchPlan | None:
        """The next decode, or None when there is nothing to decode."""
        if len(self._line):
            self._admit(now_s)
            self._outputs += self._line.tell_positions()
        if not self._reading and not self._generating:
            return None
        plan = BatchPlan()
        if not self._has_adapters:
            self._filler.fill(plan, self._reading, self._generating)
            return plan
        plan.adapters = self._turns.choose([*self._generating, *self._reading])
        self._has_adapters = any(job.request.adapters is not None for job in self._jobs.values())
        reading, generating = having(plan.adapters, self._reading), having(plan.adapters, self._generating)
        self._filler.fill(plan, reading, generating)
        return plan

    # --- admission ---

    def _admit(self, now_s: float) -> None:
        if self._admission_paused and self.n_active:
            return
        self._admission_paused = False
        for unit in self._line:
            if self.n_active >= self._limits.n_parallel:
                return
            if self._waits_for_prefix(unit):
                continue
            if not self._fits(unit):
                return
            if self._waits_for_state(unit):
                continue
            self._line.remove(unit)
            self._start(unit, now_s)

    def _waits_for_prefix(self, unit: Unit) -> bool:
        """Whether a prompt being read now will soon hold much more of this one than any sequence does."""
        if self._memory.kind != "shared" or not self._reading or not self._reusable(unit):
            return False
        known = -1
        for reader in self._reading:
            whole = unit.layout.floor  # a picture is of use once all of it is read
            ahead = whole(common_prefix(reader.tokens, unit.tokens))
            if ahead - whole(min(reader.n_held, ahead)) < SHARED_WAIT_TOKENS:
                continue
            if known < 0:
                known = whole(self.placement.tree.match(unit.tokens, len(unit.tokens) - 1).length)
            if ahead - known >= SHARED_WAIT_TOKENS:
                return True
        return False

    def _waits_for_state(self, unit: Unit) -> bool:
        """Whether a stored state is being fetched that holds much more of this prompt than memory does."""
        store = self._store
        if store is None or unit.ticket == 0:
            return False
        if unit.ticket is None:
            limit = self._reusable(unit)
            unit.ticket = 0
            if limit >= STORE_GAIN_TOKENS:
                least = self.placement.known(unit.tokens, limit) + STORE_GAIN_TOKENS
                unit.ticket = store.seek(unit.tokens, limit, least, whole=self._memory.kind == "points")
        return unit.ticket > 0 and store.is_coming(unit.ticket)

    def _take_state(self, unit: Unit) -> SavedState | None:
        """What was fetched for a unit; whatever still comes is given up."""
        ticket, unit.ticket = unit.ticket, 0
        return self._store.take(ticket) if self._store is not None and ticket else None

    def _fits(self, unit: Unit) -> bool:
        """Whether the pool has room for the prompt and a part of the answer beside all active units."""
        if not self.n_active:
            return True
        held = sum(self._claim(other) for other in self._reading) + sum(self._claim(o) for o in self._generating)
        shares = self._memory.kind == "shared"
        match = self.placement.tree.match(unit.tokens, self._reusable(unit)).length if shares else 0
        reused = unit.layout.floor(match)
        return held + self._claim(unit) - reused <= self._limits.n_cells

    def _reusable(self, unit: Unit) -> int:
        """How much of a prompt may be reused; never all of it, since the last token must be evaluated.

        A prompt read in one piece and one read in two give logits that differ in the last bits. Who gives a seed
        wants the same text again, so nothing is reused for it.
        """
        return len(unit.tokens) - 1 if unit.job.request.options.sampling.seed is None else 0

    def _claim(self, unit: Unit) -> int:
        left = min(unit.job.max_tokens - unit.n_generated, RESERVE_TOKENS, self._limits.n_ctx - len(unit.tokens))
        return len(unit.tokens) - unit.n_shared + max(left, 0)

    def _start(self, unit: Unit, now_s: float) -> None:
        if self._limits.reads_all_cells and not self.n_active and not self._reusable(unit):
            while self.placement.evict_oldest():
                pass  # what idle conversations hold goes to host memory
        placed = self.placement.place(unit.tokens, self._reusable(unit), unit.layout, self._take_state(unit))
        unit.seq_id, unit.n_held, unit.n_shared = placed.seq_id, placed.n_held, placed.n_shared
        unit.state = UnitState.READING
        self._reading.append(unit)
        job = unit.job
        if job.admitted_s is None:
            job.admitted_s = now_s
            job.n_cached = placed.n_held

    # --- apply ---

    def apply(self, plan: BatchPlan, result: BatchResult, now_s: float) -> None:
        """Take in what a decode returned (codes: llama.h, `llama_decode`)."""
        if result.code == 0:
            self._filler.row_limit = self._limits.n_batch
            self._filler.measure(plan, result.decode_s)
            if self._speculation is not None:
                self._speculation.is_paused = False
            self._apply_rows(plan, now_s)
            self._apply_samples(plan, result, now_s)
        elif result.code == 1:
            self._make_room(plan, now_s)
        elif result.code == 2:  # noqa: PLR2004 - aborted
            self._believe_memory(plan)
        elif result.code == -1:
            error = BugFault("llama.cpp refused a batch as invalid.", llama_code=result.code)
            for job in {unit.job.request.request_id: unit.job for unit, _rows in plan.chunks}.values():
                self._fail(job, error, now_s, keep=False)
        else:
            self._compute_error(result.code, now_s)

    def _apply_rows(self, plan: BatchPlan, now_s: float) -> None:
        chunks = plan.chunks
        for unit, n_rows in chunks[: plan.n_generating]:
            unit.n_held += 1
            unit.n_ahead = n_rows - 1
        for unit, n_rows in chunks[plan.n_generating :]:
            end = unit.n_held + n_rows
            self.placement.extend(unit.seq_id, unit.tokens[unit.n_held : end])
            unit.n_held = end
            job = unit.job
            if self._memory.kind == "points" and end in job.save_points:
                self.placement.save_point(unit.seq_id)
            if unit.n_generated == 0 and unit.index == 0:
                self._outputs.append(PromptRead(job.request.request_id, end, len(job.request.prompt), job.n_cached))
            if end == len(unit.tokens):
                self._reading.remove(unit)
                self._generating.append(unit)
                unit.state = UnitState.GENERATING
                if job.max_tokens == 0:
                    for choice in job.units:
                        self._finish(choice, "length", now_s)

    def _apply_samples(self, plan: BatchPlan, result: BatchResult, now_s: float) -> None:
        logprobs = result.logprobs
        for _row, unit in plan.samples[plan.n_decode :]:
            # Before any token is taken: the first choice may end with its first one and leave its place.
            if unit.state is UnitState.FORKING:
                self._place_fork(unit)
        if plan.n_drafted and self._speculation is not None:
            self._take_drafted(plan, result, self._speculation, now_s)
        for index, (_row, unit) in enumerate(plan.samples):
            if plan.n_drafted and index < plan.n_decode:
                continue
            if unit.state is UnitState.FINISHED:
                continue  # another choice of its request could not be sampled
            if index in result.faults:
                self._fail(unit.job, result.faults[index], now_s)
                continue
            self._take_token(unit, result.tokens[index], logprobs[index] if logprobs else None, now_s)

    def _take_drafted(self, plan: BatchPlan, result: BatchResult, speculation: Speculation, now_s: float) -> None:
        """The tokens of units that generate, some of them with a draft behind their last one."""
        logprobs = result.logprobs
        first = 0
        for unit, n_rows in plan.chunks[: plan.n_generating]:
            n_taken = 0
            for index in range(first, first + n_rows):
                if unit.state is UnitState.FINISHED or result.tokens[index] == NOT_SAMPLED:
                    break
                if index in result.faults:
                    self._fail(unit.job, result.faults[index], now_s)
                    break
                if n_taken:  # what was guessed for this row is what came
                    unit.n_held += 1
                    unit.n_ahead -= 1
                self._take_token(unit, result.tokens[index], logprobs[index] if logprobs else None, now_s)
                n_taken += 1
            if n_rows > 1 and n_taken:
                speculation.note(unit, n_rows - 1, n_taken - 1)
            if unit.n_ahead and not self._forget_ahead(unit):
                self._requeue(unit)
            first += n_rows

    def _forget_ahead(self, unit: Unit) -> bool:
        """Take what was guessed wrong out of the memory. False: it cannot, and the sequence must be dropped."""
        unit.n_ahead = 0
        return self._memory.remove_range(unit.seq_id, unit.layout.position(unit.n_held), -1)

    def _place_fork(self, unit: Unit) -> None:
        """A further choice starts where the first one's prompt ends, in shared cells if it can."""
        first = unit.job.units[0]
        seq_id = self.placement.fork(first.seq_id) if self.n_active < self._limits.n_parallel else None
        if seq_id is None:
            unit.state = UnitState.QUEUED
            self._line.put_back(unit)
            return
        unit.seq_id = seq_id
        unit.n_held = unit.n_shared = len(unit.tokens)
        unit.state = UnitState.GENERATING
        self._generating.append(unit)

    def _take_token(self, unit: Unit, token: int, logprobs: PositionLogprobs | None, now_s: float) -> None:
        job = unit.job
        if job.first_token_s is None:
            job.first_token_s = now_s
        job.last_token_s = now_s
        if token == NO_TOKEN:
            if rest := unit.text_out.flush():
                self._outputs.append(Text(job.request.request_id, unit.index, rest, 0))
            self._finish(unit, "stop", now_s)
            return
        unit.tokens.append(token)
        unit.n_generated += 1
        out = unit.text_out
        reason: FinishReason | None = None
        if token in self._eog_ids:
            text = out.flush()
            reason = "stop"
        else:
            text = out.feed(self._piece(token))
            if out.stop_string:
                reason = "stop"
            elif unit.n_generated >= job.max_tokens or len(unit.tokens) >= self._limits.n_ctx:
                text += out.flush()
                reason = "length"
        self._outputs.append(Text(job.request.request_id, unit.index, text, 1, () if logprobs is None else (logprobs,)))
        if reason is not None:
            self._finish(unit, reason, now_s)

    # --- ends ---

    def _finish(self, unit: Unit, reason: FinishReason, now_s: float) -> None:
        self._leave(unit, keep=True)
        unit.reason = reason
        job = unit.job
        job.n_open -= 1
        if job.n_open == 0:
            del self._jobs[job.request.request_id]
            if job.admitted_s is not None:
                self._line.note_service(now_s - job.admitted_s)
            self._outputs.append(job.done(now_s))

    def _fail(self, job: Job, error: RuntimeFault, now_s: float, *, keep: bool = True) -> None:
        for unit in job.units:
            if unit.state is not UnitState.FINISHED:
                self._leave(unit, keep=keep)
        job.n_open = 0
        if self._jobs.pop(job.request.request_id, None) is not None:
            if job.admitted_s is not None:
                self._line.note_service(now_s - job.admitted_s)
            self._outputs.append(Ended(job.request.request_id, to_failure(error)))

    def _leave(self, unit: Unit, *, keep: bool) -> None:
        """Take a unit from where it is; its sequence becomes idle, or is forgotten."""
        if unit.state is UnitState.QUEUED:
            self._line.remove(unit)
            self._take_state(unit)
        elif unit.state is UnitState.READING:
            self._reading.remove(unit)
        elif unit.state is UnitState.GENERATING:
            self._generating.remove(unit)
        if unit.is_placed:
            if unit.n_ahead and not self._forget_ahead(unit):
                keep = False
            if keep:
                held = self.placement.tree.length(unit.seq_id)
                self.placement.extend(unit.seq_id, unit.tokens[held : unit.n_held])
                self.placement.release(unit.seq_id)
            else:
                self.placement.drop(unit.seq_id)
            unit.seq_id = -1
            self._admission_paused = False
        unit.state = UnitState.FINISHED

    # --- when a decode did not return 0 ---

    def _make_room(self, plan: BatchPlan, now_s: float) -> None:
        """No room for the batch: forget the drafts, else an idle sequence, else halve it, else preempt, else fail."""
        if plan.n_drafted and self._speculation is not None:
            self._speculation.is_paused = True
            return
        if self.placement.evict_oldest():
            return
        if not plan.is_whole:
            self._filler.row_limit = len(plan.tokens) // 2
            return
        self._filler.row_limit = self._limits.n_batch
        active = self._reading + self._generating
        youngest = max(active, key=lambda unit: (unit.job.submitted_s, unit.index))
        if len(active) > 1:
            self._requeue(youngest)
            self._admission_paused = True
            return
        error = GenerationFailed("The model's memory has no room for one more token.", llama_code=1)
        self._fail(youngest.job, error, now_s, keep=False)

    def _believe_memory(self, plan: BatchPlan) -> None:
        """Aborted: some of the batch went through; the memory knows how much."""
        for unit, n_rows in plan.chunks:
            last = self._memory.last_position(unit.seq_id)
            if last < 0 < unit.n_held:
                self._requeue(unit)  # what it held was spoilt, and is gone
                continue
            held = unit.layout.held(last, unit.n_held)
            # Where rows share a position it cannot tell how many of them it holds.
            is_unsure = plan.media is not None and plan.media.span.n_pos != plan.media.span.n_rows
            if held == unit.n_held and not is_unsure:
                continue
            # A row whose logits are still to be sampled is decoded again.
            is_reading = unit.state is UnitState.READING and self._memory.kind != "points"
            kept = unit.n_held
            if is_reading and not is_unsure:
                kept = min(held, unit.n_held + n_rows, len(unit.tokens) - 1)
            is_cut = kept >= unit.n_held and not (is_unsure and plan.media is not None and plan.media.first)
            if is_cut and (held > kept or is_unsure):
                is_cut = self._memory.remove_range(unit.seq_id, unit.layout.position(kept), -1)
            if not is_cut:
                self._requeue(unit)
                continue
            if is_reading:
                self.placement.extend(unit.seq_id, unit.tokens[unit.n_held : kept])
            unit.n_held = kept

    def _requeue(self, unit: Unit) -> None:
        """Back into the line; its prompt, and what it wrote, are read again."""
        self._leave(unit, keep=False)
        unit.n_held = unit.n_shared = 0
        unit.state = UnitState.QUEUED
        self._line.put_back(unit)

    def _compute_error(self, code: int, now_s: float) -> None:
        """It is not known how much of the batch is in memory: all active requests fail, all is forgotten."""
        error = GenerationFailed(
            f"llama.cpp failed to compute a batch (code {code}).",
            hint="Send the request again; if it happens again, choose fewer GPU layers or a shorter context.",
            llama_code=code,
        )
        for unit in (*self._reading, *self._generating):
            self._fail(unit.job, error, now_s, keep=False)
        self._forget(now_s)

    def _forget(self, now_s: float) -> None:
        self.placement.reset()
        if self._last_error_s is not None and now_s - self._last_error_s < BROKEN_WINDOW_S:
            self.is_broken = True
        self._last_error_s = now_s
