"""The bounds the scheduler keeps: its own, and what a context was made for."""

from dataclasses import dataclass

RESERVE_TOKENS = 1024
"""Room kept for the answer of each admitted request, so that one without `max_tokens` does not lock the pool."""
STALL_LIMIT_S = 0.15
"""While others generate, a step reads about as much prompt as takes this long."""
MIN_PROMPT_ROWS = 32
SHARED_WAIT_TOKENS = 64
"""A request waits for a prompt being read right now if it shares at least this much more with it."""
BROKEN_WINDOW_S = 60.0
"""Two compute errors within this time: the process should be started anew."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the context was made for. All in tokens, rows or sequences.

    Attributes:
        n_ctx: most tokens of one conversation.
        n_cells: tokens the memory holds over all sequences.
        n_parallel: units that are read or generate at once.
        n_seq_max: sequences; at least `n_parallel`.
        n_batch: most rows of a decode.
        n_ubatch: most prompt rows while anyone generates.
        n_outputs_max: most rows with logits in a decode; llama.cpp ends the process above it.
        reads_all_cells: whether attention runs over all cells in use, whoever's they are (without flash attention).
            Then the last bits of a result depend on which cells a sequence has, so a seeded request that runs alone
            begins at the first one; and each cell costs every row, so idle conversations keep few of them.
    """

    n_ctx: int
    n_cells: int
    n_parallel: int
    n_seq_max: int
    n_batch: int
    n_ubatch: int
    n_outputs_max: int
    reads_all_cells: bool = False
