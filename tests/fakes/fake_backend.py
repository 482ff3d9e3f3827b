"""A model for the scheduler's tests: deterministic, and as strict as llama.cpp.

It stands where llama.cpp stands (`KvMemory` and a decode) and checks what llama.cpp checks or silently relies on:
positions of a sequence are contiguous, sequence ids in range, batch size kept, at most one row with logits a
sequence, never more of them than the context was made for, cells never more than there are, copies only into empty
sequences, and nothing cut out of a memory that cannot be cut. The "logits" of a row are the tokens its sequence
holds up to there, so a test sees exactly what the model would have seen.
"""

from dataclasses import dataclass, field

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
    state_bytes_per_token: int = 1
    held: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
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

    def put(self, seq_id: int, token: int) -> None:
        self._check_id(seq_id)
        self.held.setdefault(seq_id, []).append((token, self._next_cell))
        self._next_cell += 1

    def remove_range(self, seq_id: int, p0: int, p1: int) -> bool:
        self._check_id(seq_id)
        row = self.held.get(seq_id, [])
        start, end = max(p0, 0), len(row) if p1 < 0 else p1
        if start == 0 and end >= len(row):
            self.held.pop(seq_id, None)
            return True
        if start >= len(row):
            return True
        if self.kind == "points" or self.refuses_cuts:
            return False
        _rule(end >= len(row), "a hole in a sequence")
        del row[start:]
        return True

    def copy(self, source: int, target: int, p0: int, p1: int) -> None:
        self._check_id(source)
        self._check_id(target)
        _rule(self.kind != "sequence", "this memory cannot share")
        _rule(not self.held.get(target), "copy into a sequence that holds something")
        row = self.held.get(source, [])
        end = len(row) if p1 < 0 else p1
        _rule(p0 <= 0 and end <= len(row), "copy of more than the source holds")
        _rule(self.kind != "points" or end == len(row), "a state can only be copied whole")
        self.held[target] = row[:end]

    def clear(self) -> None:
        self.held.clear()
        self.n_cleared += 1

    def last_position(self, seq_id: int) -> int:
        return len(self.held.get(seq_id, [])) - 1

    def save(self, seq_id: int, max_bytes: int) -> memoryview | None:
        tokens = self.tokens(seq_id)
        size = len(tokens) * self.state_bytes_per_token * 8
        if size > max_bytes:
            return None
        self.n_saved += 1
        raw = b"".join(token.to_bytes(8, "little") for token in tokens)
        return memoryview(raw.ljust(size, b"\0"))

    def restore(self, seq_id: int, state: memoryview) -> bool:
        self._check_id(seq_id)
        _rule(not self.held.get(seq_id), "restore into a sequence that holds something")
        n_tokens = len(state) // 8 // self.state_bytes_per_token
        if self.cells_used + n_tokens > self.n_cells:
            return False
        for at in range(0, n_tokens * 8, 8):
            self.put(seq_id, int.from_bytes(state[at : at + 8], "little"))
        self.n_restored += 1
        return True


@dataclass
class FakeBackend:
    """Decodes plans against a `FakeMemory`. `codes` are returned, first to last, instead of decoding."""

    memory: FakeMemory
    n_batch: int = 64
    n_outputs_max: int = 4
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
        wanted_by = [plan.seq_ids[row] for row in plan.output_rows]
        _rule(len(wanted_by) == len(set(wanted_by)), "two outputs of one sequence")
        _rule(sum(count for _unit, count in plan.chunks) == len(rows), "chunks and rows differ")
        _rule(all(count > 0 for _unit, count in plan.chunks), "an empty chunk")
        lengths: dict[int, int] = {}
        for _token, position, seq_id in rows:
            expected = lengths.get(seq_id, len(self.memory.held.get(seq_id, [])))
            _rule(position == expected, f"position {position} of sequence {seq_id} that holds {expected}")
            lengths[seq_id] = expected + 1
        self.n_decodes += 1
        if self.codes:
            code = self.codes.pop(0)
            if code:
                if code == 2:
                    self._half(rows)
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
        for index, (token, _position, seq_id) in enumerate(rows):
            self.memory.put(seq_id, token)
            if index in wanted:
                self.seen.append(self.memory.tokens(seq_id))
        return 0

    def _half(self, rows: list[tuple[int, int, int]]) -> None:
        for token, _position, seq_id in rows[: len(rows) // 2]:
            self.memory.put(seq_id, token)
