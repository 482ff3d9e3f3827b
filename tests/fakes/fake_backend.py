"""A model for the scheduler's tests: deterministic, and as strict as llama.cpp.

It stands where llama.cpp stands (`KvMemory` and a decode) and checks what llama.cpp checks or silently relies on:
positions of a sequence are contiguous, sequence ids in range, batch size kept, one row with logits a sequence and one
for each drafted token, never more of them than the context was made for, cells never more than there are, copies only
into empty sequences, and nothing cut out of a memory that cannot be cut. The "logits" of a row are the tokens its
sequence holds up to there, so a test sees exactly what the model would have seen.
"""

from dataclasses import dataclass, field

from runtime.scheduler.media import row_of
from runtime.scheduler.plan import BatchPlan
from runtime.scheduler.types import MemoryKind


class RuleBrokenError(AssertionError):
    """The scheduler asked for something llama.cpp does not do."""


def _rule(holds: bool, text: str) -> None:
    if not holds:
        raise RuleBrokenError(text)


@dataclass
class FakeMemory:
    """Tokens by sequence; cells are counted as llama.cpp does, a shared one once."""

    kind: MemoryKind = "shared"
    n_seq_max: int = 4
    n_cells: int = 10_000
    refuses_cuts: bool = False
    n_rollback: int = 0
    """So many of the last tokens can be forgotten even where nothing else can be cut."""
    state_bytes_per_token: int = 1
    held: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    positions: dict[int, list[int]] = field(default_factory=dict)
    """Of each place. Rows of a picture may share one."""
    next_position: dict[int, int] = field(default_factory=dict)
    _saved_positions: dict[tuple[int, ...], tuple[list[int], int]] = field(default_factory=dict)
    _next_cell: int = 0
    n_restored: int = 0
    n_saved: int = 0
    n_cleared: int = 0

    def tokens(self, seq_id: int) -> tuple[int, ...]:
        return tuple(token for token, _cell in self.held.get(seq_id, []))

    @property
    def cells_used(self) -> int:
        return len({cell for row in self.held.values() for _token, cell in row})

    def _check_id(self, seq_id: int) -> None:
        _rule(0 <= seq_id < self.n_seq_max, f"sequence {seq_id} of {self.n_seq_max}")

    def put(self, seq_id: int, token: int, position: int = -1) -> None:
        self._check_id(seq_id)
        self.held.setdefault(seq_id, []).append((token, self._next_cell))
        position = self.next_position.get(seq_id, 0) if position < 0 else position
        self.positions.setdefault(seq_id, []).append(position)
        self.next_position[seq_id] = position + 1
        self._next_cell += 1

    def _forget(self, seq_id: int) -> None:
        self.held.pop(seq_id, None)
        self.positions.pop(seq_id, None)
        self.next_position.pop(seq_id, None)

    def remove_range(self, seq_id: int, p0: int, p1: int) -> bool:
        self._check_id(seq_id)
        row, positions = self.held.get(seq_id, []), self.positions.get(seq_id, [])
        if p0 <= 0 and p1 < 0:
            self._forget(seq_id)
            return True
        _rule(p1 < 0, "a hole in a sequence")
        start = sum(1 for position in positions if position < p0)
        if start >= len(row):
            return True
        if (self.kind == "points" and len(row) - start > self.n_rollback) or self.refuses_cuts:
            return False
        del row[start:]
        del positions[start:]
        self.next_position[seq_id] = p0
        return True

    def copy(self, source: int, target: int, p0: int, p1: int) -> None:
        self._check_id(source)
        self._check_id(target)
        _rule(self.kind != "sequence", "this memory cannot share")
        _rule(not self.held.get(target), "copy into a sequence that holds something")
        row = self.held.get(source, [])
        positions = self.positions.get(source, [])
        end = len(row) if p1 < 0 else sum(1 for position in positions if position < p1)
        _rule(p0 <= 0 and p1 <= self.next_position.get(source, 0), "copy of more than the source holds")
        _rule(self.kind != "points" or end == len(row), "a state can only be copied whole")
        self.held[target] = row[:end]
        self.positions[target] = positions[:end]
        self.next_position[target] = self.next_position.get(source, 0) if p1 < 0 else p1

    def clear(self) -> None:
        self.held.clear()
        self.positions.clear()
        self.next_position.clear()
        self.n_cleared += 1

    def last_position(self, seq_id: int) -> int:
        return max(self.positions.get(seq_id, [-1]), default=-1)

    def save(self, seq_id: int, max_bytes: int) -> memoryview | None:
        tokens = self.tokens(seq_id)
        size = len(tokens) * self.state_bytes_per_token * 8
        if size > max_bytes:
            return None
        self.n_saved += 1
        self._saved_positions[tokens] = (list(self.positions[seq_id]), self.next_position[seq_id])
        raw = b"".join(token.to_bytes(8, "little", signed=True) for token in tokens)
        return memoryview(raw.ljust(size, b"\0"))

    def restore(self, seq_id: int, state: memoryview) -> bool:
        self._check_id(seq_id)
        _rule(not self.held.get(seq_id), "restore into a sequence that holds something")
        n_tokens = len(state) // 8 // self.state_bytes_per_token
        if self.cells_used + n_tokens > self.n_cells:
            return False
        for at in range(0, n_tokens * 8, 8):
            self.put(seq_id, int.from_bytes(state[at : at + 8], "little", signed=True))
        positions, self.next_position[seq_id] = self._saved_positions[self.tokens(seq_id)]
        self.positions[seq_id] = list(positions)
        self.n_restored += 1
        return True


@dataclass
class FakeBackend:
    """Decodes plans against a `FakeMemory`. `codes` are returned, first to last, instead of decoding."""

    memory: FakeMemory
    n_batch: int = 64
    n_outputs_max: int = 4
    n_ubatch: int = 32
    codes: list[int] = field(default_factory=list)
    n_decodes: int = 0
    rows_decoded: int = 0
    largest_prompt_rows_beside_generation: int = 0
    seen: list[tuple[int, ...]] = field(default_factory=list)

    def decode(self, plan: BatchPlan) -> int:
        """The code; at 0, `seen[i]` is what the i-th wanted row knows."""
        rows = list(zip(plan.tokens, plan.positions, plan.seq_ids, strict=True))
        _rule(0 < len(rows) <= self.n_batch, f"{len(rows)} rows in a batch of {self.n_batch}")
        _rule(len(plan.output_rows) <= self.n_outputs_max, f"{len(plan.output_rows)} outputs")
        _rule(plan.output_rows == sorted(set(plan.output_rows)), "output rows out of order")
        _rule(plan.output_rows[: plan.n_decode] == list(range(plan.n_decode)), "a row that generates without logits")
        drafted = plan.n_decode - plan.n_generating
        _rule(sum(count - 1 for _unit, count in plan.chunks[: plan.n_generating]) == drafted, "drafts miscounted")
        wanted_by = [unit.seq_id for unit, _count in plan.chunks[: plan.n_generating]]
        wanted_by += [plan.seq_ids[row] for row in plan.output_rows[plan.n_decode :]]
        _rule(len(wanted_by) == len(set(wanted_by)), "two outputs of one sequence")
        _rule(sum(count for _unit, count in plan.chunks) == len(rows), "chunks and rows differ")
        _rule(all(count > 0 for _unit, count in plan.chunks), "an empty chunk")
        if plan.media is None:
            _rule(min(plan.tokens) >= 0, "a placeholder among tokens")
            self._check_positions(rows)
        else:
            self._check_media(plan)
        self.n_decodes += 1
        if self.codes:
            code = self.codes.pop(0)
            if code:
                if code == 2 and not (plan.media is not None and not plan.media.span.is_causal):
                    self._half(rows)  # what has to be whole is one micro-batch: none of it goes through
                return code
        if self.memory.cells_used + len(rows) > self.memory.n_cells:
            return 1
        if plan.n_decode:
            self.largest_prompt_rows_beside_generation = max(
                self.largest_prompt_rows_beside_generation, len(rows) - plan.n_decode
            )
        self.rows_decoded += len(rows)
        self.seen = []
        wanted = set(plan.output_rows)
        for index, (token, position, seq_id) in enumerate(rows):
            self.memory.put(seq_id, token, position)
            if index in wanted:
                self.seen.append(self.memory.tokens(seq_id))
        media = plan.media
        if media is not None and media.first + media.n_rows == media.span.n_rows:
            self.memory.next_position[plan.seq_ids[0]] = media.position + media.span.n_pos
        return 0

    def _check_positions(self, rows: list[tuple[int, int, int]]) -> None:
        following: dict[int, int] = {}
        for _token, position, seq_id in rows:
            expected = following.get(seq_id, self.memory.next_position.get(seq_id, 0))
            _rule(position == expected, f"position {position} of sequence {seq_id} where {expected} follows")
            following[seq_id] = expected + 1

    def _check_media(self, plan: BatchPlan) -> None:
        media = plan.media
        assert media is not None
        span, seq_id = media.span, plan.seq_ids[0]
        _rule(len(set(plan.seq_ids)) == 1 and len(plan.tokens) == media.n_rows, "rows of two pictures")
        _rule(max(plan.tokens) < 0, "a token among a picture's rows")
        _rule([row_of(token) for token in plan.tokens] == list(range(media.first, media.first + media.n_rows)), "rows")
        _rule(span.is_causal or (media.n_rows == span.n_rows <= self.n_ubatch), "a picture in pieces")
        if span.n_pos == span.n_rows:
            _rule(plan.positions == [media.position + media.first + i for i in range(media.n_rows)], "positions")
        else:
            _rule(set(plan.positions) == {media.position}, "positions")
        if not media.first:
            _rule(media.position == self.memory.next_position.get(seq_id, 0), "a picture at another position")

    def _half(self, rows: list[tuple[int, int, int]]) -> None:
        for token, position, seq_id in rows[: len(rows) // 2]:
            self.memory.put(seq_id, token, position)
