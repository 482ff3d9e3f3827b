import msgspec
import pytest

from runtime.errors import BadRequest, NotEnoughMemory
from runtime.fit.context_memory import context_bytes, row_bytes
from runtime.fit.defaults import (
    LEAST_N_UBATCH,
    MIN_N_CTX,
    POOL_SHARE,
    SCORES_SHARE,
    Placement,
    experts_in_ram,
    resolve,
    scores_bytes,
)
from runtime.gguf.architecture import LayerShape, ModelShape
from runtime.messages.load import ResolvedLoad
from runtime.options import LoadOptions

LAYER = LayerShape(
    index=0,
    weight_bytes=100_000_000,
    expert_bytes=0,
    n_head=32,
    n_head_kv=8,
    k_width=1024,
    v_width=1024,
    n_swa=0,
    state_bytes=0,
    tensor_types={},
)
N_LAYER = 32
CELL_BYTES = N_LAYER * 2 * 1024 * 2


def shape(n_layer: int = N_LAYER, **values: object) -> ModelShape:
    import dataclasses

    made = ModelShape(
        architecture="llama",
        n_layer=n_layer,
        layers=tuple(dataclasses.replace(LAYER, index=index) for index in range(n_layer)),
        n_embd=4096,
        n_ff=11_008,
        n_vocab=32_000,
        n_ctx_train=32_768,
        n_head=32,
        n_expert=0,
        n_expert_used=0,
        input_bytes=80_000_000,
        output_bytes=100_000_000,
        is_tied=False,
        embd_row_bytes=2304,
        has_memory=True,
        is_recurrent=False,
        is_hybrid=False,
        n_swa=0,
        n_params=7_000_000_000,
        n_params_active=6_900_000_000,
        size_bytes=4 * 10**9,
        largest_tensor_bytes=100_000_000,
        tensor_types={},
        alignment=32,
        kv_source="exact",
    )
    return dataclasses.replace(made, **values)  # type: ignore[arg-type]


SHAPE = shape()


def resolved(
    options: LoadOptions, of: ModelShape = SHAPE, *, layers: int = 0, free_bytes: int = 10**12
) -> ResolvedLoad:
    placement = Placement(n_gpu_layers=layers, devices=("CUDA0",) if layers else ())
    return resolve(of, options, n_cores=8, free_bytes=free_bytes, placement=placement)


def test_when_everything_is_automatic_then_the_numbers_are_sane() -> None:
    chosen = resolved(LoadOptions(), layers=N_LAYER + 1)
    assert (chosen.n_ctx, chosen.n_parallel, chosen.n_batch, chosen.n_ubatch, chosen.n_threads) == (
        8192,
        4,
        2048,
        512,
        8,
    )
    assert chosen.n_cells == 8192 + 3 * POOL_SHARE
    assert chosen.n_seq_max == chosen.n_outputs_max == 8
    assert (chosen.swa_full, chosen.kv_unified, chosen.flash_attn) == (False, True, "auto")


def test_when_the_model_was_trained_on_less_then_the_context_is_no_longer() -> None:
    assert resolved(LoadOptions(), shape(n_ctx_train=2048)).n_ctx == 2048


def test_when_there_are_gpu_layers_then_a_batch_is_larger_than_a_micro_batch() -> None:
    chosen = resolved(LoadOptions(), layers=10_000)
    assert (chosen.n_batch, chosen.n_ubatch, chosen.n_gpu_layers) == (2048, 512, N_LAYER + 1)
    assert chosen.devices == ("CUDA0",)


def test_when_numbers_are_given_then_they_are_kept() -> None:
    chosen = resolved(LoadOptions(n_ctx=1000, n_parallel=2, n_batch=64, n_ubatch=32, n_threads=3, use_mmap=False))
    assert (chosen.n_ctx, chosen.n_parallel, chosen.n_batch, chosen.n_ubatch, chosen.n_threads) == (1000, 2, 64, 32, 3)
    assert chosen.n_cells == 2048
    assert not chosen.use_mmap


def test_when_memory_is_short_then_first_the_pool_shrinks_and_then_the_context() -> None:
    whole = resolved(LoadOptions(), free_bytes=CELL_BYTES * 20_000)
    pool = resolved(LoadOptions(), free_bytes=CELL_BYTES * 9_500)
    context = resolved(LoadOptions(), free_bytes=CELL_BYTES * 3_000)
    assert (whole.n_ctx, pool.n_ctx, context.n_ctx) == (8192, 8192, 2048)
    assert 8192 <= pool.n_cells <= 9_500 < whole.n_cells
    assert context.n_cells <= 3_000
    with pytest.raises(NotEnoughMemory):
        resolved(LoadOptions(), free_bytes=CELL_BYTES * (MIN_N_CTX - 1))


def test_when_a_chosen_context_does_not_fit_then_it_is_refused_with_numbers() -> None:
    with pytest.raises(NotEnoughMemory) as caught:
        resolved(LoadOptions(n_ctx=32_768), free_bytes=CELL_BYTES * 20_000)
    assert caught.value.details == {"needed_bytes": CELL_BYTES * 32_768, "free_bytes": CELL_BYTES * 20_000}


def test_when_memory_cannot_be_cut_then_no_sequences_beyond_the_slots_are_made() -> None:
    for kind in ({"is_recurrent": True}, {"is_hybrid": True}, {"n_swa": 1024}):
        assert resolved(LoadOptions(), shape(**kind)).n_seq_max == 4


def test_when_the_model_is_an_encoder_then_its_whole_text_fits_a_micro_batch() -> None:
    chosen = resolved(LoadOptions(), shape(has_memory=False, n_ctx_train=2048))
    assert chosen.n_ctx == chosen.n_batch == chosen.n_ubatch == 2048
    assert (chosen.embeddings, chosen.n_outputs_max, chosen.n_seq_max) == (True, 0, 32)


def test_when_a_small_v_cache_meets_no_flash_attention_then_it_is_refused() -> None:
    with pytest.raises(BadRequest, match="flash attention"):
        resolved(LoadOptions(type_v="q8_0", flash_attn="off"))


def test_when_flash_attention_is_chosen_or_needed_then_it_is_kept() -> None:
    assert resolved(LoadOptions(flash_attn="on")).flash_attn == "on"
    assert resolved(LoadOptions(type_v="q8_0")).flash_attn == "auto"
    assert resolved(LoadOptions(), layers=1).flash_attn == "auto"


def test_when_only_the_processor_computes_then_flash_attention_is_off_while_its_scores_cost_little() -> None:
    cells = 8192 + 3 * POOL_SHARE
    scores = scores_bytes(SHAPE, cells, LEAST_N_UBATCH)
    enough = CELL_BYTES * cells + int(scores / SCORES_SHARE) + 1
    chosen = resolved(LoadOptions(), free_bytes=enough)
    assert (chosen.n_cells, chosen.flash_attn, chosen.n_ubatch) == (cells, "off", LEAST_N_UBATCH)
    chosen = resolved(LoadOptions(), free_bytes=enough - 64)
    assert (chosen.n_cells, chosen.flash_attn, chosen.n_ubatch) == (cells, "auto", 512)


def test_when_scores_are_large_then_the_micro_batch_shrinks_and_else_it_stays() -> None:
    small = shape(n_head=9, n_layer=30)
    assert [
        (resolved(LoadOptions(n_ctx=2048, n_parallel=slots), small).flash_attn, chosen.n_ubatch, chosen.n_batch)
        for slots in (4, 8, 32)
        for chosen in (resolved(LoadOptions(n_ctx=2048, n_parallel=slots), small),)
    ] == [("off", 512, 512), ("off", 256, 512), ("off", 128, 512)]
    chosen = resolved(LoadOptions(n_ctx=2048, n_parallel=32, n_ubatch=300), small)
    assert (chosen.flash_attn, chosen.n_ubatch) == ("off", 300)


def test_when_experts_stay_in_ram_then_only_those_layers_match() -> None:
    import re

    override = experts_in_ram((0, 1, 12))
    assert override.device == "CPU"
    matching = [
        name
        for name in (
            "blk.0.ffn_up_exps.weight",
            "blk.1.ffn_gate_up_exps.weight",
            "blk.12.ffn_down_chexps.weight",
            "blk.2.ffn_up_exps.weight",
            "blk.11.ffn_up_exps.weight",
            "blk.0.ffn_up.weight",
            "blk.0.ffn_up_shexp.weight",
        )
        if re.search(override.pattern, name)
    ]
    assert matching == ["blk.0.ffn_up_exps.weight", "blk.1.ffn_gate_up_exps.weight", "blk.12.ffn_down_chexps.weight"]


def test_when_rows_are_of_a_smaller_type_then_they_are_as_large_as_its_blocks() -> None:
    assert [row_bytes(kind, 64) for kind in ("f32", "f16", "q8_0", "q4_0")] == [256, 128, 68, 36]


def test_when_layers_differ_then_each_is_counted_by_its_kind() -> None:
    import dataclasses

    window = dataclasses.replace(LAYER, n_swa=1000)
    state = dataclasses.replace(LAYER, k_width=0, v_width=0, state_bytes=5_000)
    mixed = shape(layers=(LAYER, window, state), n_layer=3)
    one = 2 * 1024 * 2

    def of(n_cells: int) -> int:
        return context_bytes(mixed, n_cells=n_cells, n_seq_max=2, n_ubatch=512, type_k="f16", type_v="f16")

    assert of(8192) == one * 8192 + one * 2560 + 2 * 5_000
    assert of(1024) == 2 * one * 1024 + 2 * 5_000
    assert (
        context_bytes(shape(has_memory=False), n_cells=512, n_seq_max=1, n_ubatch=512, type_k="f16", type_v="f16") == 0
    )


def test_when_a_load_is_sent_to_a_worker_then_it_comes_back_the_same() -> None:
    chosen = resolved(LoadOptions(), layers=7)
    assert msgspec.json.decode(msgspec.json.encode(chosen), type=ResolvedLoad) == chosen


def test_when_a_picture_must_be_read_at_once_then_the_micro_batch_holds_it_unless_the_person_chose_one() -> None:
    free = 64 * 10**9
    plain = resolve(shape(), LoadOptions(n_ctx=8192), n_cores=4, free_bytes=free)
    seeing = resolve(shape(), LoadOptions(n_ctx=8192), n_cores=4, free_bytes=free, least_n_ubatch=280)
    assert plain.n_ubatch == LEAST_N_UBATCH
    assert seeing.n_ubatch >= 280
    assert seeing.n_batch >= seeing.n_ubatch
    fixed = resolve(shape(), LoadOptions(n_ctx=8192, n_ubatch=64), n_cores=4, free_bytes=free, least_n_ubatch=280)
    assert fixed.n_ubatch == 64
    larger = resolve(shape(), LoadOptions(flash_attn="on"), n_cores=4, free_bytes=free, least_n_ubatch=1000)
    assert larger.n_ubatch == 1000
