"""One step as values: what to decode, and what came of it."""

from dataclasses import dataclass, field

from runtime.errors import RuntimeFault
from runtime.messages.shared import PositionLogprobs
from runtime.scheduler.media import MediaSlice
from runtime.scheduler.unit import Unit


@dataclass(slots=True)
class BatchPlan:
    """One decode.

    Attributes:
        tokens: token of each row; placeholders in a decode of `media`.
        positions: position of each row in its sequence.
        seq_ids: sequence of each row.
        output_rows: rows whose logits are wanted, ascending; at most one a sequence.
        samples: who samples, and from which of the wanted rows (its index in `output_rows`). Choices of one
            request may share a row.
        chunks: each unit with the number of its rows, in row order; the first `n_decode` are units that
            generate, one row each.
        n_decode: rows of units that generate.
        media: the rows are these of a picture, not tokens (llama.cpp takes one kind at a time).
        request_ids: requests that have rows, for an abort that only happens when all of them are cancelled.
    """

    tokens: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    seq_ids: list[int] = field(default_factory=list)
    output_rows: list[int] = field(default_factory=list)
    samples: list[tuple[int, Unit]] = field(default_factory=list)
    chunks: list[tuple[Unit, int]] = field(default_factory=list)
    n_decode: int = 0
    media: MediaSlice | None = None

    @property
    def is_whole(self) -> bool:
        """Whether its rows can only be decoded all together."""
        return len(self.tokens) == 1 or (self.media is not None and not self.media.span.is_causal)

    @property
    def request_ids(self) -> set[str]:
        """Requests that have rows in this step."""
        return {unit.job.request.request_id for unit, _rows in self.chunks}


@dataclass(slots=True)
class BatchResult:
    """What a decode returned.

    Attributes:
        code: llama_decode's: 0 done, 1 no room, 2 aborted, -1 bad batch, below a compute error (llama.h).
        tokens: the sampled token of each entry of `samples`; `NO_TOKEN` where no token may follow.
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
