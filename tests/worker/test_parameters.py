import dataclasses

import pytest

from runtime.errors import BadRequest, NotEnoughMemory
from runtime.options import LoadOptions
from runtime.worker.parameters import POOL_SHARE, ModelShape, Resolved, cell_bytes, context_params, resolve

SHAPE = ModelShape(
    n_ctx_train=32_768,
    n_layer=32,
    kv_width_k=1024,
    kv_width_v=1024,
    memory_kind="shared",
    has_memory=True,
    size_bytes=4 * 10**9,
)
CELL_BYTES = 32 * 2 * 1024 * 2


def resolved(options: LoadOptions, shape: ModelShape = SHAPE, *, layers: int = 0, free_bytes: int = 10**12) -> Resolved:
    return resolve(shape, options, n_gpu_layers=layers, n_cores=8, free_bytes=free_bytes)


def test_when_everything_is_automatic_then_the_numbers_are_sane() -> None:
    chosen = resolved(LoadOptions())
    assert (chosen.n_ctx, chosen.n_parallel, chosen.n_batch, chosen.n_ubatch, chosen.n_threads) == (
        8192,
        4,
        512,
        512,
        8,
    )
    assert chosen.n_cells == 8192 + 3 * POOL_SHARE
    assert chosen.n_seq_max == 8


def test_when_the_model_was_trained_on_less_then_the_context_is_no_longer() -> None:
    assert resolved(LoadOptions(), dataclasses.replace(SHAPE, n_ctx_train=2048)).n_ctx == 2048


def test_when_there_are_gpu_layers_then_a_batch_is_larger_than_a_micro_batch() -> None:
    chosen = resolved(LoadOptions(), layers=33)
    assert (chosen.n_batch, chosen.n_ubatch, chosen.n_gpu_layers) == (2048, 512, 33)


def test_when_numbers_are_given_then_they_are_kept() -> None:
    chosen = resolved(LoadOptions(n_ctx=1000, n_parallel=2, n_batch=64, n_ubatch=32, n_threads=3))
    assert (chosen.n_ctx, chosen.n_parallel, chosen.n_batch, chosen.n_ubatch, chosen.n_threads) == (1000, 2, 64, 32, 3)
    assert chosen.n_cells == 2048


def test_when_memory_is_short_then_first_the_pool_shrinks_and_then_the_context() -> None:
    whole = resolved(LoadOptions(), free_bytes=CELL_BYTES * 20_000)
    pool = resolved(LoadOptions(), free_bytes=CELL_BYTES * 9_500)
    context = resolved(LoadOptions(), free_bytes=CELL_BYTES * 3_000)
    assert (whole.n_ctx, pool.n_ctx, context.n_ctx) == (8192, 8192, 2048)
    assert 8192 <= pool.n_cells <= 9_500 < whole.n_cells
    assert context.n_cells <= 3_000


def test_when_a_chosen_context_does_not_fit_then_it_is_refused_with_numbers() -> None:
    with pytest.raises(NotEnoughMemory) as caught:
        resolved(LoadOptions(n_ctx=32_768), free_bytes=CELL_BYTES * 20_000)
    assert caught.value.details == {"needed_bytes": CELL_BYTES * 32_768, "free_bytes": CELL_BYTES * 20_000}
    with pytest.raises(NotEnoughMemory):
        resolved(LoadOptions(), free_bytes=CELL_BYTES * 100)


def test_when_the_cache_type_is_smaller_then_so_is_a_cell() -> None:
    assert cell_bytes(SHAPE, LoadOptions()) == CELL_BYTES
    assert cell_bytes(SHAPE, LoadOptions(type_k="q8_0", type_v="q8_0")) == CELL_BYTES * 17 // 32


def test_when_memory_cannot_be_cut_then_no_sequences_beyond_the_slots_are_made() -> None:
    assert resolved(LoadOptions(), dataclasses.replace(SHAPE, memory_kind="points")).n_seq_max == 4


def test_when_the_model_is_an_encoder_then_its_whole_text_fits_a_micro_batch() -> None:
    chosen = resolved(LoadOptions(), dataclasses.replace(SHAPE, has_memory=False, n_ctx_train=2048))
    assert chosen.n_ctx == chosen.n_batch == chosen.n_ubatch == 2048


def test_when_context_parameters_are_made_then_none_of_the_wasteful_defaults_is_left() -> None:
    options = LoadOptions(type_k="q8_0", type_v="q8_0")
    chosen = resolved(options)
    params = context_params(chosen, options, has_memory=True)
    assert params.n_ctx == chosen.n_cells
    assert params.n_outputs_max == params.n_seq_max == chosen.n_seq_max
    assert (params.flash_attn_type, params.swa_full, params.kv_unified, params.embeddings) == (-1, False, True, False)
    assert (params.type_k, params.type_v) == (8, 8)


def test_when_a_small_v_cache_meets_no_flash_attention_then_it_is_refused() -> None:
    options = LoadOptions(type_v="q8_0", flash_attn="off")
    with pytest.raises(BadRequest, match="flash attention"):
        context_params(resolved(options), options, has_memory=True)
