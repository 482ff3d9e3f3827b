"""Which rows the next decode takes: those of units that generate, of prompts that are read, or of one picture."""

from collections.abc import Callable

from runtime.scheduler.limits import MIN_PROMPT_ROWS, STALL_LIMIT_S, Limits
from runtime.scheduler.media import MediaSlice
from runtime.scheduler.plan import BatchPlan
from runtime.scheduler.speculation import Speculation
from runtime.scheduler.types import MemoryKind
from runtime.scheduler.unit import Unit


class Filler:
    """Fills plans. It reads units and changes none.

    Attributes:
        row_limit: most rows of a decode; below the context's own after one found no room.
    """

    def __init__(
        self, limits: Limits, kind: MemoryKind, speculation: Speculation | None, kv_used: Callable[[], int]
    ) -> None:
        """Begin.

        Args:
            limits: what the context was made for.
            kind: the memory's.
            speculation: decides about drafts; None makes none.
            kv_used: cells in use.
        """
        self._limits = limits
        self._kind = kind
        self._speculation = speculation
        self._kv_used = kv_used
        self.row_limit = limits.n_batch
        self._prompt_rows = limits.n_ubatch
        self._was_media = False

    def fill(self, plan: BatchPlan, reading: list[Unit], generating: list[Unit]) -> None:
        """Put rows of these units in; they have the same adapters."""
        if not reading:
            self._was_media = False
            self._add_generating(plan, generating, alone=True)
            return
        self._was_media = self._is_media_turn(reading, generating)
        if self._was_media:
            self._add_media(plan, reading, generating)
        else:
            self._add_generating(plan, generating, alone=False)
            self._add_reading(plan, reading, generating)

    def _is_media_turn(self, reading: list[Unit], generating: list[Unit]) -> bool:
        """Whether to decode rows of a picture now. They and tokens take turns, where there are both."""
        n_standing = sum(1 for unit in reading if unit.layout.span_at(unit.n_held) is not None)
        is_alone = n_standing == len(reading) and not generating
        return n_standing > 0 and (is_alone or not self._was_media)

    def _add_media(self, plan: BatchPlan, reading: list[Unit], generating: list[Unit]) -> None:
        """Rows of the picture that the oldest of those prompts has come to."""
        for unit in reading:
            span = unit.layout.span_at(unit.n_held)
            if span is None:
                continue
            first = unit.n_held - span.start
            n_rows = span.n_rows - first
            if span.is_causal:
                room = min(self._limits.n_batch, self.row_limit)
                n_rows = min(n_rows, min(room, self._prompt_rows, self._limits.n_ubatch) if generating else room)
                n_rows = self._stop_at_point(unit, n_rows)
            position = unit.layout.position(span.start)
            plan.media = MediaSlice(span, first, n_rows, position)
            plan.positions.extend(map(unit.layout.position, range(unit.n_held, unit.n_held + n_rows)))
            plan.add_prompt_rows(unit, n_rows)
            return

    def _add_generating(self, plan: BatchPlan, generating: list[Unit], *, alone: bool) -> None:
        """`alone`: no prompt is read in this step."""
        limits = self._limits
        generating = generating[: min(self.row_limit, limits.n_outputs_max)]
        if self._speculation is not None and generating and alone:  # prompts fill the step already
            rows = min(limits.n_batch, self.row_limit, limits.n_outputs_max, limits.n_cells - self._kv_used())
            drafts = self._speculation.drafts(generating, limits.n_ctx, rows - len(generating))
            if drafts is not None:
                plan.add_drafted(generating, drafts)
                return
        plan.add_generating(generating)

    def _add_reading(self, plan: BatchPlan, reading: list[Unit], generating: list[Unit]) -> None:
        room = min(self._limits.n_batch, self.row_limit) - plan.n_decode
        if generating:
            room = min(room, self._prompt_rows, self._limits.n_ubatch)
        for place, unit in enumerate(reading):
            if room <= 0:
                break
            # Every sequence moves by a token at least, so the oldest may not take the last rows.
            behind = len(reading) - place - 1
            n_rows = min(len(unit.tokens) - unit.n_held, max(1, room - behind))
            n_rows = self._stop_at_point(unit, unit.layout.text_rows(unit.n_held, n_rows))
            if not n_rows:
                continue  # it stands at a picture
            end = unit.n_held + n_rows
            is_last = end == len(unit.tokens) and unit.job.max_tokens > 0
            if is_last and len(plan.output_rows) >= self._limits.n_outputs_max:
                break
            position = unit.layout.position(unit.n_held)
            plan.positions.extend(range(position, position + n_rows))
            plan.add_prompt_rows(unit, n_rows)
            room -= n_rows

    def _stop_at_point(self, unit: Unit, n_rows: int) -> int:
        """End a chunk where a state is to be saved."""
        if self._kind != "points":
            return n_rows
        for point in unit.job.save_points:
            if unit.n_held < point < unit.n_held + n_rows:
                return point - unit.n_held
        return n_rows

    def measure(self, plan: BatchPlan, decode_s: float) -> None:
        """A plan was decoded: what it took decides how much prompt the next ones read beside others."""
        n_rows = len(plan.tokens)
        if n_rows - plan.n_decode >= MIN_PROMPT_ROWS and decode_s > 0:
            rows = int(n_rows / decode_s * STALL_LIMIT_S)
            self._prompt_rows = max(MIN_PROMPT_ROWS, min(rows, self._limits.n_ubatch))
        elif self._speculation is not None and n_rows == plan.n_decode:
            self._speculation.measure(n_rows, decode_s)
