"""One step as values: what to decode, and what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from runtime.errors import RuntimeFault
from runtime.messages.shared import PositionLogprobs
from runtime.scheduler.adapters import AdapterSet
from runtime.scheduler.media import MediaSlice
from runtime.scheduler.unit import Unit, UnitState


@dataclass(slots=True)
class BatchPlan:
    """One decode.

    Attributes:
        tokens: token of each row; placeholders in a decode of `media`.
        positions: position of each row in its sequence.
        seq_ids: sequence of each row.
        output_rows: rows whose logits are wanted, ascending; one a sequence, and one more for each drafted token.
        samples: who samples, and from which of the wanted rows (its index in `output_rows`). Choices of one
            request may share a row; a unit with a draft has an entry for each of its rows.
        chunks: each unit with the number of its rows, in row order; the first `n_generating` are units that
            generate: their last token, and what was drafted behind it.
        n_generating: units that generate.
        n_decode: rows of units that generate; they come first, and all of them are wanted.
        adapters: what is applied to the model.
        media: the rows are these of a picture, not tokens (llama.cpp takes one kind at a time).
        request_ids: requests that have rows, for an abort that only happens when all of them are cancelled.
    """

    tokens: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    seq_ids: list[int] = field(default_factory=list)
    output_rows: list[int] = field(default_factory=list)
    samples: list[tuple[int, Unit]] = field(default_factory=list)
    chunks: list[tuple[Unit, int]] = field(default_factory=list)
    n_generating: int = 0
    n_decode: int = 0
    media: MediaSlice | None = None
    adapters: AdapterSet | None = None

    @property
    def is_whole(self) -> bool:
        """Whether its rows can only be decoded all together."""
        return len(self.tokens) == 1 or (self.media is not None and not self.media.span.is_causal)

    def add_generating(self, units: Sequence[Unit]) -> None:
        """Give each unit that generates its row; the plan is empty so far."""
        tokens, positions, seq_ids = self.tokens, self.positions, self.seq_ids
        samples, chunks = self.samples, self.chunks
        for row, unit in enumerate(units):
            tokens.append(unit.tokens[-1])
            positions.append(unit.n_held - unit.layout.shift)
            seq_ids.append(unit.seq_id)
            samples.append((row, unit))
            chunks.append((unit, 1))
        self.n_generating = self.n_decode = len(units)
        self.output_rows.extend(range(self.n_decode))

    def add_prompt_rows(self, unit: Unit, n_rows: int) -> None:
        """The next rows of a prompt, whose positions are in the plan; the last one of all is sampled from."""
        end = unit.n_held + n_rows
        self.tokens.extend(unit.tokens[unit.n_held : end])
        if not unit.n_held:
            self.tokens[-n_rows] = unit.job.request.prompt[0]  # not the salted one
        self.seq_ids.extend([unit.seq_id] * n_rows)
        self.chunks.append((unit, n_rows))
        if end == len(unit.tokens) and unit.job.max_tokens > 0:
            row = len(self.output_rows)
            self.output_rows.append(len(self.tokens) - 1)
            self.samples.append((row, unit))
            if unit.index == 0:
                self.samples.extend((row, fork) for fork in unit.job.units if fork.state is UnitState.FORKING)

    def add_drafted(self, units: Sequence[Unit], drafts: Sequence[Sequence[int]]) -> None:
        """Give each unit that generates its row, and one for each token drafted for it; the plan is empty so far."""
        for unit, draft in zip(units, drafts, strict=True):
            n_rows = len(draft) + 1
            self.tokens.append(unit.tokens[-1])
            self.tokens.extend(draft)
            position = unit.layout.position(unit.n_held)
            self.positions.extend(range(position, position + n_rows))
            self.seq_ids.extend([unit.seq_id] * n_rows)
            self.samples.extend((row, unit) for row in range(len(self.samples), len(self.samples) + n_rows))
            self.chunks.append((unit, n_rows))
        self.n_generating = len(units)
        self.n_decode = len(self.tokens)
        self.output_rows.extend(range(self.n_decode))

    @property
    def n_drafted(self) -> int:
        """Rows that were guessed."""
        return self.n_decode - self.n_generating

    @property
    def request_ids(self) -> set[str]:
        """Requests that have rows in this step."""
        return {unit.job.request.request_id for unit, _rows in self.chunks}


@dataclass(slots=True)
class BatchResult:
    """What a decode returned.

    Attributes:
        code: llama_decode's: 0 done, 1 no room, 2 aborted, -1 bad batch, below a compute error (llama.h).
        tokens: the sampled token of each entry of `samples`; `NO_TOKEN` where no token may follow, `NOT_SAMPLED`
            behind a drafted token that was not what came.
        logprobs: of each entry of `samples`; empty when nobody asked.
        decode_s: time inside llama.cpp.
        faults: why an entry of `samples` could not be sampled, by its index; its request fails.
    """

    code: int
    tokens: list[int]
    logprobs: list[PositionLogprobs | None] = field(default_factory=list)
    decode_s: float = 0.0
    faults: dict[int, RuntimeFault] = field(default_factory=dict)


NO_TOKEN = -1
"""The grammar is at a point where no token of the vocabulary may follow."""
NOT_SAMPLED = -2
"""Nothing was sampled there: the row stands behind a wrong guess."""
