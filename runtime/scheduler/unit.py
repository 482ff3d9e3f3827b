"""A request while it lives: the job, and one unit for each of its choices."""

from enum import Enum, auto

from runtime.messages.shared import FinishReason, Timings, Usage
from runtime.scheduler.adapters import AdapterSet
from runtime.scheduler.media import PLAIN, Layout
from runtime.scheduler.stops import TextOut
from runtime.scheduler.types import Done, EngineRequest


class UnitState(Enum):
    """Where a unit is."""

    QUEUED = auto()
    FORKING = auto()
    """Waits for the first choice of its request to finish the prompt they share."""
    READING = auto()
    GENERATING = auto()
    FINISHED = auto()


class Unit:
    """One choice: its tokens, its place, its text.

    Attributes:
        job: the request it belongs to.
        index: which choice.
        sampler: picks its tokens; opaque to the scheduler.
        tokens: prompt and generated tokens, placeholders where rows of pictures stand, the first salted with the
            request's adapters. All but the last are, or will be, in memory before it samples.
        n_held: how many of them its sequence holds.
        n_shared: how many of those are in cells another sequence held first.
        seq_id: its sequence, or -1.
        n_generated: tokens sampled.
        n_ahead: drafted tokens that its sequence holds behind those, until they are compared with what came.
        may_draft: whether others may guess how it goes on; not where a seed asks for the same text, since the last
            bits of logits differ with the rows of a step.
        draft_kind: kind of its last guess, and `draft_hits` of `draft_trials` that were right lately
            (`runtime.scheduler.speculation`).
        draft_state: whatever the drafter keeps for it.
        reason: why it ended.
        ticket: what the store fetches for it; 0 when it was asked and fetches nothing, None before.
    """

    __slots__ = (
        "draft_hits",
        "draft_kind",
        "draft_state",
        "draft_trials",
        "index",
        "job",
        "may_draft",
        "n_ahead",
        "n_generated",
        "n_held",
        "n_shared",
        "reason",
        "sampler",
        "seq_id",
        "state",
        "text_out",
        "ticket",
        "tokens",
    )

    def __init__(self, job: "Job", index: int, sampler: object) -> None:
        self.job = job
        self.index = index
        self.sampler = sampler
        self.tokens: list[int] = list(job.request.prompt)
        if job.request.adapters is not None:
            self.tokens[0] = job.request.adapters.salted(self.tokens[0])
        self.n_held = 0
        self.n_shared = 0
        self.seq_id = -1
        self.n_generated = 0
        self.n_ahead = 0
        self.may_draft = job.request.options.sampling.seed is None
        self.draft_kind = 0
        self.draft_hits = self.draft_trials = 0.0
        self.draft_state: object = None
        self.state = UnitState.QUEUED if index == 0 else UnitState.FORKING
        self.text_out = TextOut(job.request.options.stop)
        self.reason: FinishReason | None = None
        self.ticket: int | None = None

    @property
    def adapters(self) -> AdapterSet | None:
        """What is applied to the model for it."""
        return self.job.request.adapters

    @property
    def layout(self) -> Layout:
        """Where its tokens stand."""
        return self.job.layout

    @property
    def is_placed(self) -> bool:
        """Whether it has a sequence."""
        return self.seq_id >= 0


class Job:
    """A request with its times (seconds of the caller's monotonic clock) and counts."""

    __slots__ = (
        "admitted_s",
        "first_token_s",
        "last_token_s",
        "layout",
        "max_tokens",
        "n_cached",
        "n_draft_accepted",
        "n_drafted",
        "n_open",
        "position_told",
        "request",
        "submitted_s",
        "units",
    )

    def __init__(self, request: EngineRequest, samplers: tuple[object, ...], now_s: float, n_ctx: int) -> None:
        self.request = request
        self.layout = Layout(request.media) if request.media else PLAIN
        asked = request.options.max_tokens
        room = n_ctx - len(request.prompt)
        self.max_tokens = room if asked is None else min(asked, room)
        self.submitted_s = now_s
        self.admitted_s: float | None = None
        self.first_token_s: float | None = None
        self.last_token_s: float | None = None
        self.n_cached = 0
        self.n_drafted = self.n_draft_accepted = 0
        self.position_told = 0
        self.units = [Unit(self, index, sampler) for index, sampler in enumerate(samplers)]
        self.n_open = len(self.units)

    @property
    def save_points(self) -> tuple[int, ...]:
        """Lengths of the prompt at which its state is kept, for a memory that cannot be cut."""
        return self.request.save_points or (len(self.request.prompt) - 1,)

    def done(self, now_s: float) -> Done:
        """The last word on a request whose units have all ended."""
        n_prompt = len(self.request.prompt)
        generated = [unit.n_generated for unit in self.units]
        return Done(
            request_id=self.request.request_id,
            reasons=tuple(unit.reason or "cancelled" for unit in self.units),
            stop_strings=tuple(unit.text_out.stop_string for unit in self.units),
            usage=Usage(
                prompt_tokens=n_prompt,
                cached_tokens=self.n_cached,
                completion_tokens=sum(generated),
            ),
            timings=self._timings(now_s, generated),
        )

    def _timings(self, now_s: float, generated: list[int]) -> Timings:
        admitted_s = now_s if self.admitted_s is None else self.admitted_s
        first_s = self.first_token_s
        last_s = self.last_token_s
        prompt_s = 0.0 if self.admitted_s is None else (now_s if first_s is None else first_s) - admitted_s
        generation_s = 0.0 if first_s is None or last_s is None else last_s - first_s
        n_read = len(self.request.prompt) - self.n_cached
        was_read = first_s is not None or self.max_tokens == 0
        n_between = sum(count - 1 for count in generated if count)
        return Timings(
            queue_s=admitted_s - self.submitted_s,
            prompt_s=prompt_s,
            time_to_first_token_s=0.0 if first_s is None else first_s - self.submitted_s,
            generation_s=generation_s,
            prompt_tps=n_read / prompt_s if prompt_s > 0 and was_read else 0.0,
            generation_tps=n_between / generation_s if generation_s > 0 else 0.0,
            draft_tokens=self.n_drafted,
            draft_accepted=self.n_draft_accepted,
        )
