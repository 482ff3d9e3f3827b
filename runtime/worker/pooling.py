"""The context that turns texts into numbers: a vector of each text, or a score from a classifier head.

An encoder has one context, which does this and nothing else. A model that can also generate gets a second one at the
first request, because the one that generates has an output row for each sequence, and here every token needs one. It
holds as many cells as the longest text so far. No plan counts it, since most models are never asked for vectors: what
it needs is compared with what is free before it is made. Its batches are small, because llama.cpp computes logits for
every output row beside the embedding (`llama_context::decode`).

Vectors are pooled here, over the rows of a text, so that a text may be read in several decodes; a score is llama.cpp's
own (`LLAMA_POOLING_TYPE_RANK`).
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.errors import NotEnoughMemory
from runtime.scheduler.adapters import AdapterSet
from runtime.scheduler.plan import BatchPlan
from runtime.units import format_bytes
from runtime.worker import native, parameters
from runtime.worker.batch import BatchArrays
from runtime.worker.devices import CPU, list_devices
from runtime.worker.load import LlamaModel

MAX_SEQUENCES = 64
"""Texts in one decode."""
LEAST_CELLS = 512
LOGITS_BYTES = 64 * 1024 * 1024
"""What the unwanted logits of a decode may take; llama.cpp keeps room for them for encoders too."""
LEAST_ROWS = 128
MOST_ROWS = 512
"""More rows at once read no faster on a processor."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one text in one decode: tokens `start` to `start + n_rows` of it, under sequence `seq_id`."""

    tokens: tuple[int, ...]
    start: int
    n_rows: int
    seq_id: int

    @property
    def is_last(self) -> bool:
        """Whether the text ends with this piece."""
        return self.start + self.n_rows == len(self.tokens)


class PooledContext:
    """Decodes pieces of texts. Home thread: engine.

    Attributes:
        n_embd: numbers of a vector.
        n_rows_max: rows of a decode that has more than one text.
        needs_whole: a text must be decoded in one piece, since its tokens see each other in both directions.
        n_sequences: texts that may be open at once.
        n_cells: tokens of open texts it holds now; grows by `make_room`. Without a memory, the most rows of a decode.
    """

    def __init__(self, loaded: LlamaModel) -> None:
        self._loaded = loaded
        resolved = loaded.resolved
        self.n_embd: int = native.model_n_embd_out(loaded.model)
        self._is_own = not resolved.embeddings
        self.needs_whole = resolved.embeddings
        fitting = LOGITS_BYTES // (4 * max(loaded.vocab.n_tokens, 1))
        self.n_rows_max = min(max(fitting, LEAST_ROWS), MOST_ROWS)
        # A recurrent state is kept for each sequence, and is large.
        has_state = native.model_is_recurrent(loaded.model) or native.model_is_hybrid(loaded.model)
        self.n_sequences = 1 if has_state else MAX_SEQUENCES
        self._context = 0 if self._is_own else loaded.context
        self.n_cells = 0 if self._is_own else min(resolved.n_batch, resolved.n_ubatch)
        if not self._is_own:
            self.n_sequences = resolved.n_seq_max
            self.n_rows_max = min(self.n_rows_max, self.n_cells)
        self._arrays = BatchArrays(max(self.n_rows_max, self.n_cells))
        self._applied = None if self._is_own else loaded.adapters.default  # as `load_model` left it

    @property
    def makes_scores(self) -> bool:
        """Scores, not vectors."""
        return self._loaded.resolved.pooling == "rank"

    @property
    def n_tokens_max(self) -> int:
        """The longest text."""
        n_ctx = self._loaded.resolved.n_ctx
        return min(n_ctx, self.n_cells) if self.needs_whole else n_ctx

    def make_room(self, n_tokens: int) -> None:
        """Hold texts of so many tokens; only while none is open.

        Raises:
            NotEnoughMemory: the context could not be made.
        """
        if not self._is_own or n_tokens <= self.n_cells:
            return
        self.close()
        wanted = max(LEAST_CELLS, 1 << (n_tokens - 1).bit_length())
        loaded = self._loaded
        self._check_memory(wanted)
        params = parameters.context_params(loaded.resolved)
        params.n_ctx = wanted
        params.n_batch = params.n_ubatch = params.n_outputs_max = self.n_rows_max
        params.n_seq_max = self.n_sequences
        params.embeddings = True
        params.pooling_type = parameters.POOLING_RANK if self.makes_scores else parameters.POOLING_NONE
        context: int | None = native.init_from_model(loaded.model, params)
        if not context:
            raise NotEnoughMemory("There is not enough memory for the context that reads texts.")
        native.set_abort_callback(context, native.flag_reader(), loaded.abort.address)
        self._context, self.n_cells, self._applied = context, wanted, None

    def needed_bytes(self, n_cells: int) -> dict[str, int]:
        """What a context of its own takes on each device, a little more rather than less: it is in no plan.

        The memory of the conversation goes with the cells, the compute buffer with the rows; logits of every row stand
        in it and beside it.
        """
        loaded, resolved = self._loaded, self._loaded.resolved
        n_rows = self.n_rows_max
        needed = {
            part.device: part.context_bytes * n_cells // resolved.n_cells
            + part.compute_bytes * max(n_rows, resolved.n_ubatch) // resolved.n_ubatch
            for part in loaded.facts.memory
        }
        logits_bytes = 4 * n_rows * loaded.vocab.n_tokens
        last = resolved.devices[-1] if resolved.devices and resolved.n_gpu_layers else CPU
        needed[last] = needed.get(last, 0) + logits_bytes
        needed[CPU] = needed.get(CPU, 0) + logits_bytes + 4 * n_rows * self.n_embd
        return needed

    def _check_memory(self, n_cells: int) -> None:
        """Refuse before llama.cpp allocates: beyond what is free the system may end any process."""
        needed = self.needed_bytes(n_cells)
        for device in list_devices():
            needed_bytes = needed.get(device.name, 0)
            if device.total_bytes and needed_bytes > device.free_bytes:
                raise NotEnoughMemory(
                    f"Reading texts of this length beside the conversations needs {format_bytes(needed_bytes)} on "
                    f"{device.name}; {format_bytes(device.free_bytes)} are free.",
                    hint="Send shorter texts, load an embedding model instead, or close other programs.",
                    needed_bytes=needed_bytes,
                    free_bytes=device.free_bytes,
                )

    def decode(self, pieces: Sequence[Piece], adapters: AdapterSet | None = None) -> int:
        """Decode under these adapters and wait; returns llama_decode's code.

        After one that is not 0 nothing is held any more.
        """
        plan = BatchPlan()
        for piece in pieces:
            plan.tokens.extend(piece.tokens[piece.start : piece.start + piece.n_rows])
            plan.positions.extend(range(piece.start, piece.start + piece.n_rows))
            plan.seq_ids.extend([piece.seq_id] * piece.n_rows)
        plan.output_rows.extend(range(len(plan.tokens)))
        self._arrays.fill(plan)
        if adapters != self._applied:
            self._loaded.adapters.apply(self._context, adapters)
            self._applied = adapters
        code: int = native.decode(self._context, self._arrays.batch)
        if code == 0:
            native.synchronize(self._context)
        else:
            self.clear()
        return code

    def rows(self, n_rows: int) -> NDArray[np.float32]:
        """The embeddings of the last decode, [n_rows, n_embd]; valid until the next one."""
        address: int = native.get_embeddings(self._context)
        values: NDArray[np.float32] = np.ctypeslib.as_array(
            (ctypes.c_float * (n_rows * self.n_embd)).from_address(address)
        )
        return values.reshape(n_rows, self.n_embd)

    def score(self, seq_id: int) -> float:
        """The score of a text that ended with the last decode."""
        address: int = native.get_embeddings_seq(self._context, seq_id)
        return float(ctypes.c_float.from_address(address).value)

    def forget(self, seq_id: int) -> None:
        """Free the cells of a text."""
        memory: int | None = native.get_memory(self._context) if self._context else None
        if memory:
            native.memory_seq_rm(memory, seq_id, -1, -1)

    def clear(self) -> None:
        """Free the cells of all texts."""
        memory: int | None = native.get_memory(self._context) if self._context else None
        if memory:
            native.memory_clear(memory, False)

    def close(self) -> None:
        """Free the context, if it is its own."""
        if self._is_own and self._context:
            native.free(self._context)
            self._context = 0
            self.n_cells = 0
