"""Encoded pictures and sounds as values: rows of numbers, and the positions they take."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Rows:
    """The encoded rows of one chunk, as `runtime.worker.batch` takes them.

    Attributes:
        embd: float32 [n_rows, n_embd].
        base: int32 [1 or 4, n_rows]: positions of a chunk that stands at position 0.
        moves: int32, the same shape: 1 where a position moves with the chunk, 0 where it does not.
    """

    embd: Floats
    base: Ints
    moves: Ints

    def positions(self, first: int, n_rows: int, position: int) -> Ints:
        """Positions of some rows of a chunk that stands at `position`."""
        part = slice(first, first + n_rows)
        return np.asarray(self.base[:, part] + self.moves[:, part] * np.int32(position), dtype=np.int32)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a picture or sound that is encoded by itself: what is known of it before.

    Attributes:
        tokens: placeholders of its rows.
        n_pos: positions it takes.
        is_causal: see `runtime.scheduler.media.MediaSpan`.
        base, moves: see `Rows`.
        counts_pictures: its positions hold the number of the picture in the prompt (HunyuanVL).
    """

    tokens: tuple[int, ...]
    n_pos: int
    is_causal: bool
    base: Ints
    moves: Ints
    counts_pictures: bool = False

    def numbered(self, embd: Floats, number: int) -> Rows:
        """Its rows in a prompt where it is the picture of this number, from 0."""
        if not self.counts_pictures:
            return Rows(embd, self.base, self.moves)
        base = self.base.copy()
        base[3, 1:-1] = number
        return Rows(embd, base, self.moves)


Piece = tuple[int, ...] | Chunk
"""Tokens the model's family wants around a picture, or a chunk."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class ReadMedia:
    """A picture or sound, cut up. `n_tokens` is what it takes in a prompt, marks around it included.

    Attributes:
        key: digest of its content; equal keys are equal media.
        kind: `image` or `audio`.
        pieces: in order.
        source: libmtmd's chunks, until they are encoded.
        rows: of each chunk, once they are: float32 [n_rows, n_embd].
    """

    key: bytes
    kind: str
    pieces: tuple[Piece, ...]
    source: object = None
    rows: tuple[Floats, ...] | None = None
    n_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        self.n_tokens = sum(len(piece.tokens if isinstance(piece, Chunk) else piece) for piece in self.pieces)

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """Those pieces that are encoded."""
        return tuple(piece for piece in self.pieces if isinstance(piece, Chunk))
