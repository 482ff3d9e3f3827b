"""Automatic load options resolved to numbers, and the llama.cpp parameters made of them.

Decisions held here:

* `n_ctx` is what one conversation may hold. The KV cache is one pool for all sequences (`kv_unified`), because
  only then can two sequences share the cells of a common prefix. A pool of `n_ctx * n_parallel` cells would be
  paid for by everyone and used by few, so it holds one conversation at full length and `POOL_SHARE` tokens for
  each further one; when it runs short the scheduler evicts, then preempts, and no text is lost.
* Full-size sliding-window caches, flash attention switched off and one output row for each token are the
  bindings' defaults; none of them is kept. `n_outputs_max` is the number of sequences (the context makes that many
  rows at once when it is created), and the scheduler asks for at most one row a sequence.
* More sequences than parallel slots are made where a sequence costs only its output row, so that idle
  conversations stay in memory while others generate.
"""

from dataclasses import dataclass
from typing import Any

from runtime.errors import BadRequest, NotEnoughMemory
from runtime.options import LoadOptions
from runtime.scheduler.types import MemoryKind
from runtime.units import format_bytes
from runtime.worker import native

DEFAULT_N_CTX = 8192
MIN_N_CTX = 512
DEFAULT_N_PARALLEL = 4
POOL_SHARE = 1280
"""Cells for each further conversation: the scheduler's reserve of 1,024 tokens and a short prompt."""
DEFAULT_N_UBATCH = 512
DEFAULT_N_BATCH_GPU = 2048
MAX_IDLE_SEQUENCES = 16
CELL_PAD = 256  # llama.cpp pads n_ctx to a multiple of it (llama-context.cpp)

GGML_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20, "bf16": 30}
"""enum ggml_type (ggml.h)."""
_BITS = {"f32": 32, "f16": 16, "bf16": 16, "q8_0": 8.5, "q5_1": 6, "q5_0": 5.5, "q4_1": 5, "q4_0": 4.5, "iq4_nl": 4.5}
_FLASH = {"auto": -1, "off": 0, "on": 1}  # enum llama_flash_attn_type


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What the parameters depend on, read from the model before its context is made."""

    n_ctx_train: int
    n_layer: int
    kv_width_k: int
    kv_width_v: int
    memory_kind: MemoryKind
    has_memory: bool
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Resolved:
    """Every load option as a number."""

    n_ctx: int
    n_parallel: int
    n_seq_max: int
    n_cells: int
    n_batch: int
    n_ubatch: int
    n_threads: int
    n_gpu_layers: int


def cell_bytes(shape: ModelShape, options: LoadOptions) -> int:
    """Estimated bytes of one token in the KV cache; exact for models with the same attention in every layer."""
    bits = shape.kv_width_k * _BITS[options.type_k] + shape.kv_width_v * _BITS[options.type_v]
    return int(shape.n_layer * bits / 8)


def resolve(
    shape: ModelShape,
    options: LoadOptions,
    *,
    n_gpu_layers: int,
    n_cores: int,
    free_bytes: int,
) -> Resolved:
    """Choose a number for everything left automatic.

    Args:
        shape: the model.
        options: what was asked for.
        n_gpu_layers: layers on GPUs, already decided (it is needed to load the model).
        n_cores: physical cores.
        free_bytes: memory that may be used for the KV cache.

    Raises:
        NotEnoughMemory: not even the smallest context fits, or the one asked for does not.
    """
    n_parallel = options.n_parallel or DEFAULT_N_PARALLEL
    idle = 0 if shape.memory_kind == "points" else min(n_parallel, MAX_IDLE_SEQUENCES)
    n_seq_max = min(n_parallel + idle, native.LLAMA_MAX_SEQ)
    wanted = options.n_ctx or min(DEFAULT_N_CTX, shape.n_ctx_train or DEFAULT_N_CTX)
    n_ubatch = options.n_ubatch or min(DEFAULT_N_UBATCH, options.n_batch or DEFAULT_N_UBATCH)
    n_batch = options.n_batch or (max(DEFAULT_N_BATCH_GPU, n_ubatch) if n_gpu_layers else n_ubatch)
    n_batch = max(n_batch, n_parallel)
    if not shape.has_memory:
        # An encoder sees its whole text at once: it must fit one micro-batch.
        wanted = min(wanted, shape.n_ctx_train or wanted)
        n_batch = n_ubatch = max(wanted, n_ubatch)
    n_ctx, n_cells = _fit(shape, options, wanted, n_parallel, free_bytes)
    return Resolved(
        n_ctx=n_ctx,
        n_parallel=n_parallel,
        n_seq_max=n_seq_max,
        n_cells=n_cells,
        n_batch=n_batch,
        n_ubatch=min(n_ubatch, n_batch),
        n_threads=options.n_threads or max(1, n_cores),
        n_gpu_layers=n_gpu_layers,
    )


def _fit(shape: ModelShape, options: LoadOptions, wanted: int, n_parallel: int, free_bytes: int) -> tuple[int, int]:
    """Context and pool that fit: first the pool shrinks, then an automatic context."""
    each = cell_bytes(shape, options) if shape.has_memory else 0
    n_ctx = wanted
    while True:
        extra = (n_parallel - 1) * min(n_ctx, POOL_SHARE)
        while True:
            n_cells = -(-(n_ctx + extra) // CELL_PAD) * CELL_PAD
            if each * n_cells <= free_bytes:
                return n_ctx, n_cells
            if extra == 0:
                break
            extra = extra // 2 if extra > CELL_PAD else 0
        if options.n_ctx is not None or n_ctx <= MIN_N_CTX:
            raise NotEnoughMemory(
                f"A context of {n_ctx:,} tokens needs {format_bytes(each * n_cells)} for its cache, "
                f"but {format_bytes(free_bytes)} are free.",
                hint="Choose a shorter context, a smaller cache type (q8_0) or a smaller model.",
                needed_bytes=each * n_cells,
                free_bytes=free_bytes,
            )
        n_ctx = max(MIN_N_CTX, n_ctx // 2)


def context_params(resolved: Resolved, options: LoadOptions, *, has_memory: bool) -> Any:  # noqa: ANN401 - a C struct
    """llama.cpp's context parameters.

    Raises:
        BadRequest: a V cache below f16 with flash attention off, which llama.cpp cannot do.
    """
    if options.flash_attn == "off" and _BITS[options.type_v] < _BITS["f16"]:
        raise BadRequest(f"A V cache of type {options.type_v} needs flash attention.", param="type_v")
    params = native.context_default_params()
    params.n_ctx = resolved.n_cells
    params.n_batch = resolved.n_batch
    params.n_ubatch = resolved.n_ubatch
    params.n_seq_max = resolved.n_seq_max if has_memory else 1
    params.n_outputs_max = resolved.n_seq_max if has_memory else 0
    params.n_threads = params.n_threads_batch = resolved.n_threads
    params.flash_attn_type = _FLASH[options.flash_attn]
    params.type_k = GGML_TYPES[options.type_k]
    params.type_v = GGML_TYPES[options.type_v]
    if not has_memory:
        params.embeddings = True
        params.pooling_type = 0  # LLAMA_POOLING_TYPE_NONE: pooled by runtime.worker.embedding
    params.offload_kqv = True
    params.op_offload = True
    params.swa_full = False
    params.kv_unified = True
    params.no_perf = True
    return params
