"""The rows of logits of one decode, and the exact narrowing of a row to the tokens that can matter.

llama.cpp's samplers walk the whole vocabulary several times (up to 262,144 entries), which costs more than
everything else we do for a token. Most settings keep at most `top_k` tokens, so only the largest logits can ever
be chosen. `candidates` finds a set that provably contains the `k` largest, in one vectorised pass: the row is seen
as lines of columns; the k-th largest column maximum is a lower bound of the k-th largest logit, and only
columns that reach it can hold larger ones.
"""

import ctypes

import numpy as np
from numpy.typing import NDArray

from runtime.messages.shared import PositionLogprobs, TokenLogprob
from runtime.worker import native
from runtime.worker.vocab import Vocab

FloatRow = NDArray[np.float32]
IntRow = NDArray[np.int64]

COLUMNS = 4096
"""Columns a row is folded into, within a factor of two: measured best over vocabularies of 49,152 to 262,144, as
16 to 64 lines (2 cores, 2026-11)."""
GROUP = 8
"""Columns whose maxima are looked at together where few tokens are wanted."""
MIN_PREPARED_ROWS = 2
MAX_FOLDED_VOCAB = 65_536
FOLD = 384
"""Numbers that one row is folded into where few tokens are wanted: each is the largest of every 384th logit. On the
processor's caches as a decode leaves them (emptied), the few numpy calls this takes cost less than `bound` and `above`
do; with larger vocabularies than `MAX_FOLDED_VOCAB` the latter are quicker."""
MAX_PREPARED_K = 256
_ITEM_BYTES = ctypes.sizeof(native.TokenData)
_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class Candidates:
    """A `llama_token_data_array` over memory of ours. Home thread: engine."""

    def __init__(self, n_vocab: int) -> None:
        self._items = np.zeros(n_vocab, dtype=_CANDIDATE)
        self.ids = self._items["id"]
        self.logits = self._items["logit"]
        self._all_ids = np.arange(n_vocab, dtype=np.int32)
        self._address: int = self._items.ctypes.data
        self._array = native.TokenDataArray()
        self._pointer = ctypes.pointer(self._array)
        self.n_vocab = n_vocab

    def apply(self, sampler: int, size: int) -> int:
        """Run a chain that selects over the first `size` entries; returns the token it selected."""
        return self.apply_at(sampler, self._address, size)

    def apply_at(self, sampler: int, address: int, size: int) -> int:
        """The same over entries that stand somewhere else. A chain may reorder them, and XTC moves the beginning."""
        array = self._array
        array.data = address
        array.size = size
        array.selected = -1
        array.sorted = False
        native.sampler_apply(sampler, self._pointer)
        return ctypes.c_int32.from_address(array.data + array.selected * _ITEM_BYTES).value

    def remove(self, ids: IntRow, size: int) -> int:
        """Take these tokens out of the first `size` entries; returns how many are left."""
        if not len(ids):
            return size
        kept = np.flatnonzero(~np.isin(self.ids[:size], ids))
        self._items[: len(kept)] = self._items[kept]
        return len(kept)

    def fill(self, ids: IntRow, logits: FloatRow) -> int:
        """Take these entries; returns how many."""
        size = len(ids)
        self.ids[:size] = ids
        self.logits[:size] = logits
        return size

    def fill_all(self, row: FloatRow) -> int:
        """Take the whole vocabulary; returns how many."""
        self.ids[:] = self._all_ids
        self.logits[:] = row
        return self.n_vocab


class LogitRows:
    """The logits of one decode: float32 [n_rows, n_vocab], memory owned by llama.cpp until the next decode.

    Home thread: engine.
    """

    def __init__(self, n_vocab: int, n_rows_max: int) -> None:
        self.n_vocab = n_vocab
        self._n_rows_max = n_rows_max
        self._address = 0
        self.rows: FloatRow = np.zeros((0, n_vocab), dtype=np.float32)
        self._row_list: list[FloatRow] = []
        self._n_lines = 1 << max(3, (n_vocab // COLUMNS - 1).bit_length())
        self.n_columns = n_vocab // self._n_lines
        self._n_groups = self.n_columns // GROUP
        self._ids = np.arange(self._n_lines * self.n_columns, dtype=np.int64).reshape(self._n_lines, self.n_columns)
        self._blocks: list[FloatRow] = []
        self._folds: list[FloatRow] = []
        self.candidates = Candidates(n_vocab)
        self._all_blocks = np.zeros((0, self._n_lines, self.n_columns), dtype=np.float32)
        self._maxima = np.zeros((n_rows_max, self.n_columns), dtype=np.float32)
        self.prepared: dict[int, tuple[int, int]] = {}
        """Rows that `prepare` narrowed and nobody took yet."""
        self._prepared_items = np.zeros(0, dtype=_CANDIDATE)
        self.max_narrow = self.n_columns // 4
        """Above this many tokens a set is not narrower than the whole vocabulary in any useful way."""

    def bind(self, address: int) -> None:
        """Look at the memory of the last decode. llama.cpp keeps room for `n_rows_max` rows there (llama.h)."""
        if address == self._address:
            return
        self._address = address
        count = self.n_vocab * self._n_rows_max
        flat = np.ctypeslib.as_array((ctypes.c_float * count).from_address(address))
        self.view(flat.reshape(self._n_rows_max, self.n_vocab))

    def view(self, rows: FloatRow) -> None:
        """Look at these rows."""
        self.rows = rows
        self._row_list = list(rows)
        self._all_blocks = np.lib.stride_tricks.as_strided(
            rows,
            (len(rows), self._n_lines, self.n_columns),
            (rows.strides[0], self.n_columns * rows.itemsize, rows.itemsize),
            writeable=False,
        )
        self._blocks = list(self._all_blocks)
        if FOLD <= self.n_vocab <= MAX_FOLDED_VOCAB:
            whole = self.n_vocab // FOLD * FOLD
            self._folds = [row[:whole].reshape(-1, FOLD) for row in self._row_list]

    def row(self, index: int) -> FloatRow:
        """One row, float32 [n_vocab]."""
        return self._row_list[index]

    def argmax(self, index: int) -> int:
        """The likeliest token."""
        return int(self._row_list[index].argmax())

    def largest(self, index: int, k: int) -> tuple[np.float32, IntRow, FloatRow]:
        """A bound that at least `k` logits reach, and ids (ascending, or in order of columns) and logits of those."""
        if self._folds and k <= FOLD // 2:
            maxima = np.maximum.reduce(self._folds[index], axis=0)
            maxima.partition(FOLD - k)
            least = maxima[FOLD - k]
            row = self._row_list[index]
            ids = (row >= least).nonzero()[0]
            if len(ids) <= self.max_narrow:
                return least, ids, row.take(ids)
        least, maxima = self.bound(index, k)
        return least, *self.above(index, least, maxima)

    def bound(self, index: int, k: int) -> tuple[np.float32, FloatRow]:
        """A lower bound of the k-th largest logit, and the column maxima it comes from."""
        maxima = np.maximum.reduce(self._blocks[index], axis=0)
        if k <= self._n_groups // 4:
            # Maxima of groups of columns bound it too, a little lower, and are quicker to sort.
            coarse = np.maximum.reduce(maxima[: self._n_groups * GROUP].reshape(GROUP, self._n_groups), axis=0)
            coarse.partition(self._n_groups - k)
            return coarse[self._n_groups - k], maxima
        place = self.n_columns - k
        sorted_maxima = maxima.copy()
        sorted_maxima.partition(place)
        return sorted_maxima[place], maxima

    def above(self, index: int, least: np.float32, maxima: FloatRow) -> tuple[IntRow, FloatRow]:
        """Ids and logits of all tokens at or above `least`."""
        columns = (maxima >= least).nonzero()[0]
        # Ids are looked up as the logits are, not computed: code that just ran is still in the processor's caches.
        block = self._blocks[index].take(columns, axis=1).ravel()
        block_ids = self._ids.take(columns, axis=1).ravel()
        picks = (block >= least).nonzero()[0]
        ids, logits = block_ids[picks], block[picks]
        folded = self.n_columns * self._n_lines
        if folded < self.n_vocab:
            tail = self._row_list[index][folded:]
            more = (tail >= least).nonzero()[0]
            if len(more):
                return np.concatenate((ids, more + folded)), np.concatenate((logits, tail[more]))
        return ids, logits

    def prepare(self, wanted: list[tuple[int, int]]) -> None:
        """Narrow several rows at once, each to a set with its `k` largest: (row, k), rows ascending.

        One pass of each numpy function over all rows costs less than one for each row. Rows that are few among
        others, or whose k differs much, are left for `bound` and `above`.
        """
        self.prepared.clear()
        if len(wanted) < MIN_PREPARED_ROWS or self.n_columns * self._n_lines != self.n_vocab:
            return
        n_rows = wanted[-1][0] + 1
        k = max(k for _row, k in wanted)
        if k > min(MAX_PREPARED_K, self.max_narrow) or n_rows > 2 * len(wanted):
            return
        blocks = self._all_blocks[:n_rows]
        maxima = np.maximum.reduce(blocks, axis=1, out=self._maxima[:n_rows])
        if k <= self._n_groups // 4:
            grouped = maxima[:, : self._n_groups * GROUP].reshape(n_rows, GROUP, self._n_groups)
            coarse, place = np.maximum.reduce(grouped, axis=1), self._n_groups - k
        else:
            coarse, place = maxima.copy(), self.n_columns - k
        coarse.partition(place, axis=1)
        least = coarse[:, place]
        flat = np.flatnonzero(maxima >= least[:, None])
        in_row, columns = np.divmod(flat, self.n_columns)
        lines = blocks[in_row, :, columns]
        picks = np.flatnonzero(lines >= least[in_row, None])
        column, line = np.divmod(picks, self._n_lines)
        items = np.empty(len(picks), dtype=_CANDIDATE)
        items["id"] = line * self.n_columns + columns[column]
        items["logit"] = lines.ravel()[picks]
        borders = np.searchsorted(in_row[column], np.arange(n_rows + 1)).tolist()
        address: int = items.ctypes.data
        self._prepared_items = items
        for row, _k in wanted:
            self.prepared[row] = (address + borders[row] * _ITEM_BYTES, borders[row + 1] - borders[row])

    def take_prepared(self, index: int) -> tuple[int, int] | None:
        """Address and number of the row's entries, once: a chain reorders them."""
        return self.prepared.pop(index, None)

    def log_probabilities(self, index: int, token: int, n_top: int, vocab: Vocab) -> PositionLogprobs:
        """Natural logs of the probabilities the model gave, before any sampler.

        Args:
            index: the row.
            token: the token that was chosen.
            n_top: how many of the likeliest to add, likeliest first.
            vocab: for the bytes of the tokens.
        """
        row = self._row_list[index]
        largest = float(row.max())
        shifted = row.astype(np.float64) - largest
        log_sum = float(np.log(np.exp(shifted).sum()))

        def told(token_id: int) -> TokenLogprob:
            return TokenLogprob(token_id, vocab.token_bytes(token_id, special=True), float(shifted[token_id]) - log_sum)

        top: tuple[TokenLogprob, ...] = ()
        if n_top:
            best = np.argpartition(shifted, len(shifted) - n_top)[-n_top:]
            best = best[np.argsort(-shifted[best], kind="stable")]
            top = tuple(told(int(token_id)) for token_id in best)
        return PositionLogprobs(told(token), top)
