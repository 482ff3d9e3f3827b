"""Text into one vector.

A context of its own, made at the first request and kept: the one that generates has an output row for each
sequence, and an embedding needs one for each token. It is as short as the longest input so far, and its batches are
small, because llama.cpp computes logits for every output row beside the embedding (`llama_context::decode`).
"""

import ctypes
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from runtime.errors import GenerationFailed, NotEnoughMemory
from runtime.scheduler.plan import BatchPlan
from runtime.worker import native, parameters
from runtime.worker.batch import BatchArrays
from runtime.worker.load import LlamaModel

CHUNK_ROWS = 128
_LEAST_CTX = 512


class Embedder:
    """Embeds one input after the other. Home thread: engine."""

    def __init__(self, loaded: LlamaModel) -> None:
        self._loaded = loaded
        self._n_embd: int = native.model_n_embd_out(loaded.model)
        self._context = loaded.context if not loaded.has_memory else 0
        self._n_ctx = loaded.resolved.n_ctx if not loaded.has_memory else 0
        self._arrays = BatchArrays(loaded.resolved.n_batch if not loaded.has_memory else CHUNK_ROWS)

    def embed(self, tokens: Sequence[int]) -> Iterator[bytes | None]:
        """Read the tokens chunk by chunk: None after each chunk, the vector (float32 [n_embd], L2 norm 1) last.

        Raises:
            GenerationFailed: llama.cpp failed on a chunk.
            NotEnoughMemory: the context for it could not be made.
        """
        self._make_room(len(tokens))
        memory = native.get_memory(self._context) if self._loaded.has_memory else None
        pooling = self._loaded.pooling
        total: NDArray[np.float64] = np.zeros(self._n_embd, dtype=np.float64)
        step = self._arrays.n_rows_max
        for start in range(0, len(tokens), step):
            rows = self._decode(tokens[start : start + step], start)
            if pooling == "mean":
                total += rows.sum(axis=0, dtype=np.float64)
            elif pooling == "last":
                total = rows[-1].astype(np.float64)
            elif start == 0:
                total = rows[0].astype(np.float64)
            yield None
        if memory is not None:
            native.memory_clear(memory, False)
        norm = float(np.linalg.norm(total))
        yield (total / norm if norm > 0 else total).astype("<f4").tobytes()

    def _decode(self, tokens: Sequence[int], start: int) -> NDArray[np.float32]:
        count = len(tokens)
        plan = BatchPlan(list(tokens), list(range(start, start + count)), [0] * count, list(range(count)))
        self._arrays.fill(plan)
        code: int = native.decode(self._context, self._arrays.batch)
        if code != 0:
            if self._loaded.has_memory:
                native.memory_clear(native.get_memory(self._context), False)
            raise GenerationFailed(f"llama.cpp failed to embed the text (code {code}).", llama_code=code)
        address: int = native.get_embeddings(self._context)
        values: NDArray[np.float32] = np.ctypeslib.as_array(
            (ctypes.c_float * (count * self._n_embd)).from_address(address)
        )
        return values.reshape(count, self._n_embd)

    def _make_room(self, n_tokens: int) -> None:
        if n_tokens <= self._n_ctx:
            return
        self.close()
        wanted = max(_LEAST_CTX, 1 << (n_tokens - 1).bit_length())
        loaded = self._loaded
        params = parameters.context_params(loaded.resolved)
        params.n_ctx = wanted
        params.n_batch = params.n_ubatch = params.n_outputs_max = CHUNK_ROWS
        params.n_seq_max = 1
        params.embeddings = True
        params.pooling_type = 0  # LLAMA_POOLING_TYPE_NONE: pooled here, over chunks
        context: int | None = native.init_from_model(loaded.model, params)
        if not context:
            raise NotEnoughMemory("There is not enough memory for the context that embeds text.")
        self._context, self._n_ctx = context, wanted

    def reset(self) -> None:
        """Forget a text that was given up half-way."""
        if self._loaded.has_memory and self._context:
            native.memory_clear(native.get_memory(self._context), False)

    def close(self) -> None:
        """Free the context, if it is its own."""
        if self._loaded.has_memory and self._context:
            native.free(self._context)
            self._context = 0
            self._n_ctx = 0
