"""Automatic load options resolved to numbers: one owner for the planner and for a worker that was given no plan.

Decisions held here:

* `n_ctx` is what one conversation may hold. The KV cache is one pool for all sequences (`kv_unified`), because
  only then can two sequences share the cells of a common prefix. A pool of `n_ctx * n_parallel` cells would be
  paid for by everyone and used by few, so it holds one conversation at full length and `POOL_SHARE` tokens for
  each further one; when it runs short the scheduler evicts, then preempts, and no text is lost.
* Full-size sliding-window caches and one output row for each token are the bindings' defaults; neither is kept.
  `n_outputs_max` is the number of sequences (the context makes that many rows at once when it is created), and the
  scheduler asks for at most one row a sequence; where tokens are guessed ahead, for `MAX_DRAFT_ROWS` more at most.
* More sequences than parallel slots are made where a sequence costs only its output row, so that idle
  conversations stay in memory while others generate.
* Flash attention is llama.cpp's own choice where a GPU computes. On a processor alone it is off while the scores it
  would save stay below `SCORES_SHARE` of the memory left, since llama.cpp's kernel for it is slow there: 1,500 tokens
  into a conversation the starter model wrote 13 tokens a second with it and 34 without, and read 24 new tokens in
  1.2 s and 0.26 s (one thread, 2026-11-30). The micro-batch shrinks first, down to `LEAST_N_UBATCH`, where that keeps
  the scores below `SCORES_BYTES`: 128 rows read a prompt as fast as 512 there.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from runtime.errors import BadRequest, NotEnoughMemory
from runtime.fit.context_memory import context_bytes, is_quantized, padded
from runtime.fit.rope import rope_of
from runtime.gguf.architecture import ModelShape
from runtime.gguf.heads import TAKES_BACK_BY_SNAPSHOT, why_no_heads
from runtime.messages.load import ResolvedLoad, Speculator, TensorOverride
from runtime.options import FlashAttention, LoadOptions
from runtime.units import format_bytes

DEFAULT_N_CTX = 8192
MIN_N_CTX = 512
DEFAULT_N_PARALLEL = 4
POOL_SHARE = 1280
"""Cells for each further conversation: the scheduler's reserve of 1,024 tokens and a short prompt."""
DEFAULT_N_UBATCH = 512
DEFAULT_N_BATCH_GPU = 2048
MAX_IDLE_SEQUENCES = 16
ENCODER_SEQUENCES = 32
"""Texts that an encoder reads in one batch; they cost it no memory."""
LLAMA_MAX_SEQ = 256  # llama-cparams.h
PLENTY = 2**62
"""Free bytes where a load is only worked out: another judges whether it fits."""
ALL_LAYERS = 10_000
"""More layers than any model has: as many as there are."""
HOST_SHARE = 0.8
"""Share of the free system memory the context may take; the rest is for compute buffers and everyone else."""
SCORES_SHARE = 1 / 8
SCORES_BYTES = 128 * 1024 * 1024
"""Scores of one layer of attention that are not worth a smaller micro-batch."""
LEAST_N_UBATCH = 128
_POOLING_CLS, _POOLING_LAST, _POOLING_RANK = 2, 3, 4  # enum llama_pooling_type (llama.h)
N_DRAFT_MAX: dict[Speculator, int] = {"off": 0, "lookup": 8, "draft": 4, "mtp": 3}
"""Longest guesses: a repeated passage goes on for long, a small model soon goes another way; heads were trained for the
first token of a guess."""
MAX_SNAPSHOTS = 3
"""Longest guess by itself where each of its tokens costs a state of every sequence."""
MAX_DRAFT_ROWS = 32
"""Rows of guesses in one step, over all conversations: each takes memory for its logits, and a step of many
conversations is wide already."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the layers of a model go. The fields are those of `ResolvedLoad`; the default is the processor alone."""

    n_gpu_layers: int = 0
    devices: tuple[str, ...] = ()
    tensor_split: tuple[float, ...] = ()
    overrides: tuple[TensorOverride, ...] = ()
    nodes: tuple[str, ...] = ()
    n_cpu_moe: int = 0
    offload_kqv: bool = True


CPU_ONLY = Placement()


def experts_in_ram(layers: Iterable[int]) -> TensorOverride:
    """Keep the routed experts of these layers in system memory (llama.cpp's `--n-cpu-moe`)."""
    chosen = "|".join(str(layer) for layer in layers)
    return TensorOverride(rf"blk\.({chosen})\.ffn_(up|down|gate|gate_up)_(ch|)exps", "CPU")


def resolve(
    shape: ModelShape,
    options: LoadOptions,
    *,
    n_cores: int,
    free_bytes: int,
    placement: Placement = CPU_ONLY,
    least_n_ubatch: int = 0,
) -> ResolvedLoad:
    """Choose a number for everything left automatic.

    Args:
        shape: the model.
        options: what was asked for.
        n_cores: physical cores.
        free_bytes: memory the context may take, on all devices together: the pool shrinks, and then an automatic
            context, until its KV cache and recurrent state fit. On a processor alone it also decides about flash
            attention. A planner that has chosen a context itself sets `options.n_ctx` and passes what is left
            once the weights are in memory.
        placement: where the layers go, already decided.
        least_n_ubatch: an automatic micro-batch is no smaller: what a picture needs whose rows are read at once.

    Raises:
        NotEnoughMemory: not even the smallest context fits, or the one asked for does not (`needed_bytes`,
            `free_bytes`).
        BadRequest: a quantized V cache with flash attention off, which llama.cpp cannot do (`param`).
    """
    if options.flash_attn == "off" and is_quantized(options.type_v):
        raise BadRequest(f"A V cache of type {options.type_v} needs flash attention.", param="type_v")
    speculation = speculator(shape, options)
    n_draft_max = (options.n_draft_max or N_DRAFT_MAX[speculation]) if speculation != "off" else 0
    n_rs_seq = 0
    if n_draft_max and shape.architecture in TAKES_BACK_BY_SNAPSHOT:
        n_rs_seq = n_draft_max = options.n_draft_max or min(n_draft_max, MAX_SNAPSHOTS)
    n_parallel = options.n_parallel or DEFAULT_N_PARALLEL
    has_points = shape.is_recurrent or shape.is_hybrid or shape.n_swa > 0
    idle = 0 if has_points else min(n_parallel, MAX_IDLE_SEQUENCES)
    n_seq_max = min(n_parallel + idle, LLAMA_MAX_SEQ)
    wanted = options.n_ctx or min(DEFAULT_N_CTX, shape.n_ctx_train or DEFAULT_N_CTX)
    n_ubatch = options.n_ubatch or min(DEFAULT_N_UBATCH, options.n_batch or DEFAULT_N_UBATCH)
    if options.n_ubatch is None:
        n_ubatch = max(n_ubatch, least_n_ubatch)
    n_batch = options.n_batch or (max(DEFAULT_N_BATCH_GPU, n_ubatch) if placement.n_gpu_layers else n_ubatch)
    n_batch = max(n_batch, n_parallel, least_n_ubatch)
    if not shape.has_memory:
        # An encoder sees its whole text at once: it must fit one micro-batch.
        wanted = min(wanted, shape.n_ctx_train or wanted)
        n_batch = n_ubatch = max(wanted, n_ubatch)
        n_seq_max = min(ENCODER_SEQUENCES, n_batch)
    n_ubatch = min(n_ubatch, n_batch)
    n_ctx, n_cells = _fit(shape, options, wanted, n_parallel, n_seq_max, n_ubatch, free_bytes, n_rs_seq)
    flash_attn: FlashAttention = options.flash_attn
    if flash_attn == "auto" and not placement.n_gpu_layers and shape.has_memory and not is_quantized(options.type_v):
        left_bytes = free_bytes - _context_bytes(shape, options, n_cells, n_seq_max, n_ubatch, n_rs_seq)
        if found := _n_ubatch_without_flash(shape, options, n_cells, n_ubatch, left_bytes):
            flash_attn, n_ubatch = "off", found if options.n_ubatch else max(found, least_n_ubatch)
    draft_rows = min(n_parallel * n_draft_max, MAX_DRAFT_ROWS)
    return ResolvedLoad(
        n_ctx=n_ctx,
        n_parallel=n_parallel,
        n_seq_max=n_seq_max,
        n_cells=n_cells,
        n_batch=n_batch,
        n_ubatch=n_ubatch,
        n_threads=options.n_threads or max(1, n_cores),
        n_gpu_layers=min(placement.n_gpu_layers, shape.n_layer + 1),
        n_outputs_max=max(n_seq_max, min(n_parallel + draft_rows, n_batch)) if shape.has_memory else 0,
        type_k=options.type_k,
        type_v=options.type_v,
        flash_attn=flash_attn,
        offload_kqv=placement.offload_kqv,
        swa_full=False,
        kv_unified=True,
        use_mmap=options.use_mmap,
        embeddings=not shape.has_memory,
        devices=placement.devices,
        tensor_split=placement.tensor_split,
        overrides=placement.overrides,
        nodes=placement.nodes,
        n_cpu_moe=placement.n_cpu_moe,
        pooling=_pooling(shape, options),
        rope=rope_of(shape, options, n_ctx),
        speculation=speculation,
        n_draft_max=n_draft_max,
        n_rs_seq=n_rs_seq,
        adapters=shape.adapters,
    )


def _pooling(shape: ModelShape, options: LoadOptions) -> Literal["mean", "cls", "last", "rank"]:
    if options.pooling == "rank" and not shape.has_classifier:
        raise BadRequest("This model has no classifier (`cls.*` in the file) to rank with.", param="pooling")
    if options.pooling != "auto":
        return options.pooling
    if shape.pooling_type == _POOLING_RANK and shape.has_classifier:
        return "rank"
    return "cls" if shape.pooling_type == _POOLING_CLS else "last" if shape.pooling_type == _POOLING_LAST else "mean"


def can_roll_back(shape: ModelShape, n_rs_seq: int) -> bool:
    """Whether the last tokens can be taken out of the model's memory again, which wrong guesses need.

    Windows of attention keep what they need for it (llama-kv-cache.cpp reuses only cells that are outside the window of
    the next position already). A recurrent state has gone on, unless llama.cpp keeps snapshots of it.

    Args:
        shape: the model.
        n_rs_seq: snapshots of each state.
    """
    if shape.architecture in TAKES_BACK_BY_SNAPSHOT:
        return shape.has_memory and n_rs_seq > 0
    return shape.has_memory and not shape.is_recurrent and not shape.is_hybrid


def speculator(shape: ModelShape, options: LoadOptions) -> Speculator:
    """Who guesses ahead for this model.

    Raises:
        BadRequest: a draft is asked for without a draft model, or the model's own heads where they cannot guess
            (`param`).
    """
    if options.speculation == "draft" and not options.draft_model:
        raise BadRequest(
            "Speculative decoding by a draft needs a draft model.", hint="Name a draft model.", param="draft_model"
        )
    if options.speculation == "mtp":
        reason = why_no_heads(shape) or (
            "" if can_roll_back(shape, MAX_SNAPSHOTS) else "its memory cannot take back a wrong guess"
        )
        if reason:
            raise BadRequest(
                f"This model cannot guess with heads of its own: {reason}.",
                hint="Choose another kind of speculative decoding: a draft model, 'lookup', or 'off'.",
                param="speculation",
            )
        return "mtp"
    if not can_roll_back(shape, MAX_SNAPSHOTS) or options.speculation == "off":
        return "off"
    if options.wants_draft:
        return "draft"
    return "lookup" if options.speculation == "lookup" else "off"


def resolve_draft(
    shape: ModelShape, options: LoadOptions, model: ResolvedLoad, *, n_cores: int, placement: Placement = CPU_ONLY
) -> ResolvedLoad:
    """The load of a draft model beside a model: it has the same conversations, of the same length.

    Args:
        shape: the draft model.
        options: what was asked for the model.
        model: the model's own load.
        n_cores: physical cores.
        placement: where the draft model goes.
    """
    asked = LoadOptions(
        n_ctx=model.n_ctx,
        n_parallel=model.n_parallel,
        n_threads=options.n_threads,
        type_k=options.type_k,
        type_v=options.type_v,
        flash_attn=options.flash_attn,
        use_mmap=options.use_mmap,
        speculation="off",
    )
    resolved = resolve(shape, asked, n_cores=n_cores, free_bytes=PLENTY, placement=placement)
    if not placement.n_gpu_layers:
        resolved = replace(resolved, flash_attn=model.flash_attn)
    return replace(resolved, n_cells=model.n_cells, n_seq_max=model.n_seq_max, n_outputs_max=model.n_seq_max)


def scores_bytes(shape: ModelShape, n_cells: int, n_ubatch: int) -> int:
    """The float32 scores of one layer of attention without flash attention: [n_head, n_ubatch, n_cells]."""
    return 4 * shape.n_head * n_ubatch * n_cells


def _n_ubatch_without_flash(
    shape: ModelShape, options: LoadOptions, n_cells: int, n_ubatch: int, left_bytes: int
) -> int:
    """The micro-batch whose scores fit where a processor alone does without flash attention; 0 when none fits."""
    most_bytes = left_bytes * SCORES_SHARE
    while (
        scores_bytes(shape, n_cells, n_ubatch) > min(SCORES_BYTES, most_bytes)
        and n_ubatch > LEAST_N_UBATCH
        and options.n_ubatch is None
    ):
        n_ubatch = max(n_ubatch // 2, LEAST_N_UBATCH)
    return n_ubatch if scores_bytes(shape, n_cells, n_ubatch) <= most_bytes else 0


def _context_bytes(
    shape: ModelShape, options: LoadOptions, n_cells: int, n_seq_max: int, n_ubatch: int, n_rs_seq: int
) -> int:
    return context_bytes(
        shape,
        n_cells=n_cells,
        n_seq_max=n_seq_max,
        n_ubatch=n_ubatch,
        type_k=options.type_k,
        type_v=options.type_v,
        n_rs_seq=n_rs_seq,
    )


def _fit(
    shape: ModelShape,
    options: LoadOptions,
    wanted: int,
    n_parallel: int,
    n_seq_max: int,
    n_ubatch: int,
    free_bytes: int,
    n_rs_seq: int,
) -> tuple[int, int]:
    """Context and pool that fit: first the pool shrinks, then an automatic context."""

    def needed(n_cells: int) -> int:
        return _context_bytes(shape, options, n_cells, n_seq_max, n_ubatch, n_rs_seq)

    n_ctx = wanted
    while True:
        extra = (n_parallel - 1) * min(n_ctx, POOL_SHARE)
        while True:
            n_cells = padded(n_ctx + extra)
            if needed(n_cells) <= free_bytes:
                return n_ctx, n_cells
            if extra == 0:
                break
            extra = extra // 2 if extra > MIN_N_CTX // 2 else 0
        if options.n_ctx is not None or n_ctx <= MIN_N_CTX:
            raise NotEnoughMemory(
                f"A context of {n_ctx:,} tokens needs {format_bytes(needed(n_cells))} for its cache, "
                f"but {format_bytes(free_bytes)} are free.",
                hint="Choose a shorter context, a smaller cache type (q8_0) or a smaller model.",
                needed_bytes=needed(n_cells),
                free_bytes=free_bytes,
            )
        n_ctx = max(MIN_N_CTX, n_ctx // 2)
