import pytest

from runtime.errors import BadRequest, BugFault, ModelLoadFailed
from runtime.messages.load import ResolvedLoad, TensorOverride
from runtime.worker.devices import list_devices
from runtime.worker.parameters import LoadParameters, context_params

RESOLVED = ResolvedLoad(
    n_ctx=8192,
    n_parallel=4,
    n_seq_max=8,
    n_cells=12_032,
    n_batch=512,
    n_ubatch=256,
    n_threads=3,
    n_gpu_layers=0,
    n_outputs_max=8,
)


def changed(**values: object) -> ResolvedLoad:
    import msgspec

    return msgspec.structs.replace(RESOLVED, **values)


def test_when_context_parameters_are_made_then_they_are_the_resolved_ones() -> None:
    params = context_params(changed(type_k="q8_0", type_v="q4_0", flash_attn="on"))
    assert (params.n_ctx, params.n_batch, params.n_ubatch) == (12_032, 512, 256)
    assert params.n_outputs_max == params.n_seq_max == 8
    assert (params.flash_attn_type, params.swa_full, params.kv_unified, params.embeddings) == (1, False, True, False)
    assert (params.type_k, params.type_v) == (8, 2)
    assert params.n_threads == params.n_threads_batch == 3
    assert context_params(RESOLVED).flash_attn_type == -1
    assert context_params(changed(flash_attn="off")).flash_attn_type == 0


def test_when_an_encoder_is_loaded_then_every_token_gives_a_vector() -> None:
    params = context_params(changed(embeddings=True, n_outputs_max=0, n_seq_max=1))
    assert (params.embeddings, params.pooling_type, params.n_outputs_max) == (True, 0, 0)


def test_when_a_small_v_cache_meets_no_flash_attention_then_it_is_refused() -> None:
    with pytest.raises(BadRequest, match="flash attention"):
        context_params(changed(type_v="q8_0", flash_attn="off"))


def test_when_fewer_rows_of_logits_than_sequences_are_planned_then_it_is_refused_before_llama_cpp_aborts() -> None:
    with pytest.raises(BugFault, match="4 rows"):
        context_params(changed(n_outputs_max=4))
    assert context_params(changed(n_outputs_max=0)).n_outputs_max == 0


def test_when_only_the_processor_computes_then_no_device_is_offered() -> None:
    made = LoadParameters(RESOLVED, list_devices())
    assert made.params.n_gpu_layers == 0
    assert made._devices[0] is None
    assert (made.params.load_mode, made.params.no_alloc) == (-1, False)
    assert not made.params.tensor_buft_overrides


def test_when_nothing_is_to_be_allocated_then_the_file_is_not_mapped() -> None:
    made = LoadParameters(RESOLVED, list_devices(), no_alloc=True)
    assert (made.params.load_mode, made.params.no_alloc) == (0, True)
    assert LoadParameters(changed(use_mmap=False), list_devices()).params.load_mode == 0


def test_when_tensors_are_kept_elsewhere_then_llama_cpp_is_told_and_the_list_ends() -> None:
    override = TensorOverride(r"blk\.(0|1)\.ffn_down_exps", "CPU")
    made = LoadParameters(changed(overrides=(override,)), list_devices())
    assert made.params.tensor_buft_overrides
    assert made._overrides[0].pattern == override.pattern.encode()
    assert made._overrides[0].buft
    assert made._overrides[1].pattern is None


def test_when_a_device_of_the_plan_is_gone_then_it_is_named() -> None:
    with pytest.raises(ModelLoadFailed, match="CUDA7") as caught:
        LoadParameters(changed(devices=("CUDA7",), n_gpu_layers=3), list_devices())
    assert caught.value.details["device"] == "CUDA7"
    with pytest.raises(ModelLoadFailed, match="CUDA8"):
        LoadParameters(changed(overrides=(TensorOverride("x", "CUDA8"),)), list_devices())
