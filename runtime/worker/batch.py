"""The rows of a decode in llama.cpp's form."""

import numpy as np
from numpy.typing import NDArray

from runtime.errors import BugFault
from runtime.scheduler.plan import BatchPlan
from runtime.worker import native
from runtime.worker.media_rows import Rows


class BatchArrays:
    """A `llama_batch` over numpy arrays that are made once. Every row belongs to one sequence."""

    def __init__(self, n_rows_max: int) -> None:
        self.n_rows_max = n_rows_max
        self.token: NDArray[np.int32] = np.zeros(n_rows_max, dtype=np.int32)
        self.pos: NDArray[np.int32] = np.zeros(n_rows_max, dtype=np.int32)
        self.seq: NDArray[np.int32] = np.zeros(n_rows_max, dtype=np.int32)
        self.output: NDArray[np.int8] = np.zeros(n_rows_max, dtype=np.int8)
        self._n_seq: NDArray[np.int32] = np.ones(n_rows_max, dtype=np.int32)
        first: int = self.seq.ctypes.data
        self._seq_pointers: NDArray[np.uintp] = first + np.arange(n_rows_max, dtype=np.uintp) * 4
        self.batch = native.Batch(
            0,
            self.token.ctypes.data,
            None,
            self.pos.ctypes.data,
            self._n_seq.ctypes.data,
            self._seq_pointers.ctypes.data,
            self.output.ctypes.data,
        )

    def fill(self, plan: BatchPlan) -> int:
        """Copy a plan in; returns its rows.

        Raises:
            BugFault: it has none, or more than there is room for.
        """
        n_rows = len(plan.tokens)
        if not 0 < n_rows <= self.n_rows_max:
            raise BugFault(f"a plan of {n_rows} rows for a batch of {self.n_rows_max}")
        self.token[:n_rows] = plan.tokens if plan.media is None else 0
        self.pos[:n_rows] = plan.positions
        self.seq[:n_rows] = plan.seq_ids
        if len(plan.output_rows) == n_rows:
            self.output[:n_rows] = 1
        else:
            self.output[:n_rows] = 0
            self.output[plan.output_rows] = 1
        self.batch.n_tokens = n_rows
        return n_rows

    def media_batch(self, plan: BatchPlan) -> "tuple[native.Batch, object]":
        """The batch of a plan whose rows are a picture's, and what must live until it is decoded."""
        media = plan.media
        if media is None or not isinstance(media.span.rows, Rows):
            raise BugFault("a plan of a picture without its rows")
        n_rows = self.fill(plan)
        self.batch.n_tokens = 0
        embd = np.ascontiguousarray(media.span.rows.embd[media.first : media.first + n_rows])
        # [n_dims, n_rows]: with several dimensions llama.cpp wants all rows of the first, then all of the next.
        positions = np.ascontiguousarray(media.span.rows.positions(media.first, n_rows, media.position))
        batch = native.Batch(
            n_rows,
            None,
            embd.ctypes.data,
            positions.ctypes.data,
            self._n_seq.ctypes.data,
            self._seq_pointers.ctypes.data,
            self.output.ctypes.data,
        )
        return batch, (embd, positions)
