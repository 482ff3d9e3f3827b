"""llama.cpp's memory and decode behind the scheduler's plan. Home thread: engine."""

import struct

import numpy as np

from runtime.errors import BugFault
from runtime.scheduler.adapters import AdapterSet
from runtime.scheduler.plan import BatchPlan
from runtime.scheduler.types import MemoryKind
from runtime.worker import native
from runtime.worker.batch import BatchArrays
from runtime.worker.load import LlamaModel
from runtime.worker.logits import LogitRows
from runtime.worker.speculation_heads import HeadsDrafter

_ABORTED = 2  # llama_decode
_MARK = b"deskMTP1"
_END = struct.Struct("<8sQ")
"""Ends a saved state that goes on with what the model's heads know: a mark, and the bytes of that part."""


class LlamaBackend:
    """Memory, decode and logits of one context."""

    def __init__(self, loaded: LlamaModel) -> None:
        self._context = loaded.context
        self._memory: int = native.get_memory(loaded.context) or 0
        self._kind: MemoryKind = loaded.memory_kind
        self._adapters = loaded.adapters
        self._applied: AdapterSet | None = None
        resolved = loaded.resolved
        self._has_snapshots = resolved.n_rs_seq > 0
        self._arrays = BatchArrays(resolved.n_batch)
        self.n_outputs_max = resolved.n_outputs_max or resolved.n_seq_max
        self.logits = LogitRows(loaded.vocab.n_tokens, self.n_outputs_max)
        self.abort = loaded.abort
        self.heads: HeadsDrafter | None = None
        """The model's own multi-token heads, which are told what happens to the memory."""
        # On the processor a decode has been computed when it returns.
        self._waits = bool(resolved.devices and resolved.n_gpu_layers)

    @property
    def kind(self) -> MemoryKind:
        """How the memory can be reused."""
        return self._kind

    def decode(self, plan: BatchPlan) -> int:
        """Decode and wait; returns llama_decode's code. At 0, `logits` shows the wanted rows."""
        if len(plan.output_rows) > self.n_outputs_max:
            raise BugFault(f"{len(plan.output_rows)} rows of logits wanted, {self.n_outputs_max} can be had")
        if plan.adapters != self._applied:
            self._adapters.apply(self._context, plan.adapters)
            self._applied = plan.adapters
        code = self._decode_media(plan) if plan.media is not None else self._decode_tokens(plan)
        if code == 0 and plan.output_rows:
            if self._waits:
                native.synchronize(self._context)  # lets other threads run, which `get_logits` does not
            # Puts the rows in batch order.
            self.logits.bind(native.get_logits(self._context))
        if code == 0 and self.heads is not None:
            self.heads.decoded(plan)
        if code == _ABORTED and self._has_snapshots:
            # llama.cpp takes the sequences back to snapshots that this decode may have written in some layers only.
            for seq_id in set(plan.seq_ids):
                self.remove_range(seq_id, -1, -1)
        return code

    def _decode_tokens(self, plan: BatchPlan) -> int:
        self._arrays.fill(plan)
        return int(native.decode(self._context, self._arrays.batch))

    def _decode_media(self, plan: BatchPlan) -> int:
        batch, alive = self._arrays.media_batch(plan)
        is_causal = plan.media is None or plan.media.span.is_causal
        if is_causal:
            code = int(native.decode(self._context, batch))
        else:
            native.set_causal_attn(self._context, False)
            try:
                code = int(native.decode(self._context, batch))
            finally:
                native.set_causal_attn(self._context, True)
        del alive
        return code

    def remove_range(self, seq_id: int, p0: int, p1: int) -> bool:
        """See `KvMemory.remove_range`."""
        if self.heads is not None:
            if p0 > 0:
                self.heads.cut(seq_id, p0)
            else:
                self.heads.forget(seq_id)
        return bool(native.memory_seq_rm(self._memory, seq_id, p0, p1))

    def copy(self, source: int, target: int, p0: int, p1: int) -> None:
        """See `KvMemory.copy`."""
        native.memory_seq_cp(self._memory, source, target, p0, p1)
        if self.heads is not None:
            self.heads.copy(source, target, p1)

    def clear(self) -> None:
        """See `KvMemory.clear`."""
        if self._memory:
            native.memory_clear(self._memory, False)
        if self.heads is not None:
            self.heads.clear()

    def last_position(self, seq_id: int) -> int:
        """See `KvMemory.last_position`."""
        return int(native.memory_seq_pos_max(self._memory, seq_id))

    def save(self, seq_id: int, max_bytes: int) -> memoryview | None:
        """See `KvMemory.save`."""
        size: int = native.state_seq_get_size(self._context, seq_id)
        if not 0 < size <= max_bytes:
            return None
        beside = self.heads.save(seq_id) if self.heads is not None else b""
        if not beside or size + len(beside) + _END.size > max_bytes:
            beside = b""
        else:
            beside += _END.pack(_MARK, len(beside))
        state = np.empty(size + len(beside), dtype=np.uint8)
        written: int = native.state_seq_get_data(self._context, state.ctypes.data, size, seq_id)
        state[size:] = np.frombuffer(beside, dtype=np.uint8)
        return state.data.toreadonly() if written == size else None

    def restore(self, seq_id: int, state: memoryview) -> bool:
        """See `KvMemory.restore`."""
        state, beside = _parts(state)
        source = np.frombuffer(state, dtype=np.uint8)
        read: int = native.state_seq_set_data(self._context, source.ctypes.data, len(source), seq_id)
        if read:
            if self.heads is not None:
                self.heads.restore(seq_id, self.last_position(seq_id) + 1, beside)
            return True
        self.remove_range(seq_id, -1, -1)
        return False


def _parts(state: memoryview) -> tuple[memoryview, memoryview]:
    """The model's own part of a saved state, and what its heads knew."""
    whole = len(state)
    if whole > _END.size:
        mark, size = _END.unpack(state[whole - _END.size :])
        own = whole - _END.size - size
        if mark == _MARK and own > 0:
            return state[:own], state[own : own + size]
    return state, state[:0]
