from collections.abc import Mapping
from dataclasses import replace

import pytest

from runtime.errors import ModelLoadFailed
from runtime.gguf.architecture import ModelShape, scaled_to, shape_of
from runtime.gguf.header import GgufHeader, MetaValue, TensorInfo, read_header
from runtime.gguf.source import FileSource
from runtime.library.starter import find_starter

F32, Q4_1, Q8_0, Q4_K = 0, 3, 8, 12


def header_of(
    tensors: tuple[TensorInfo, ...] = (), architecture: str = "llama", keys: Mapping[str, MetaValue] | None = None
) -> GgufHeader:
    metadata: dict[str, MetaValue] = {
        "general.architecture": architecture,
        f"{architecture}.block_count": 2,
        f"{architecture}.embedding_length": 64,
        f"{architecture}.attention.head_count": 4,
        f"{architecture}.attention.head_count_kv": 2,
        f"{architecture}.context_length": 4096,
    }
    metadata |= {f"{architecture}.{key}": value for key, value in (keys or {}).items()}
    return GgufHeader(3, False, metadata, tensors, 32, 1024, 1 << 20)


EMBEDDING = TensorInfo("token_embd.weight", (64, 100), F32, 0)
OUTPUT = TensorInfo("output.weight", (64, 100), Q8_0, 0)
QUERY = TensorInfo("blk.0.attn_q.weight", (64, 64), Q4_1, 0)
EXPERTS = TensorInfo("blk.1.ffn_up_exps.weight", (256, 32, 8), Q4_K, 0)
ROUTER = TensorInfo("blk.1.ffn_gate_inp.weight", (64, 8), F32, 0)


@pytest.fixture(scope="module")
def starter() -> ModelShape:
    path = find_starter()
    assert path is not None
    with FileSource(path) as source:
        return shape_of([read_header(source)])


def test_starter_when_its_shape_is_read_then_is_known_to_the_byte(starter: ModelShape) -> None:
    assert (starter.architecture, starter.n_layer, starter.n_embd, starter.n_ff) == ("llama", 30, 576, 1536)
    assert (starter.n_vocab, starter.n_ctx_train, starter.n_head) == (49_152, 8192, 9)
    assert {(layer.k_width, layer.v_width, layer.n_swa, layer.state_bytes) for layer in starter.layers} == {
        (192, 192, 0, 0)
    }
    assert starter.size_bytes == 96_576_768
    assert starter.input_bytes + starter.layers_bytes + starter.output_bytes == 96_576_768 + starter.input_bytes
    assert starter.is_tied
    assert starter.n_params == starter.n_params_active == 134_515_008
    assert starter.embd_row_bytes == 576 * 34 // 32
    assert dict(starter.tensor_types) == {"Q8_0": 30_081_024, "F32": 140_544, "Q4_1": 66_355_200}
    assert (starter.kv_source, starter.has_memory, starter.is_moe, starter.has_state) == ("exact", True, False, False)


def test_output_of_its_own_when_there_is_one_then_embeddings_count_once() -> None:
    tied, own = shape_of([header_of((EMBEDDING,))]), shape_of([header_of((EMBEDDING, OUTPUT))])
    assert (tied.is_tied, tied.input_bytes, tied.output_bytes) == (True, 25_600, 25_600)
    assert (own.is_tied, own.input_bytes, own.output_bytes) == (False, 25_600, 6816)
    assert dict(own.output_types) == {"Q8_0": 6816}


def test_encoder_when_its_shape_is_read_then_has_no_output_layer_and_no_memory() -> None:
    shape = shape_of([header_of((EMBEDDING,), "bert")])
    assert (shape.is_tied, shape.output_bytes, shape.has_memory) == (False, 0, False)
    assert all(layer.k_width == 0 for layer in shape.layers)


def test_model_that_is_not_causal_when_its_shape_is_read_then_has_no_memory_but_its_cache() -> None:
    shape = shape_of([header_of((EMBEDDING,), keys={"attention.causal": False})])
    assert not shape.has_memory
    assert all(layer.k_width == 32 for layer in shape.layers)


def test_experts_when_counted_then_only_those_used_are_active() -> None:
    keys: Mapping[str, MetaValue] = {"expert_count": 8, "expert_used_count": 2}
    shape = shape_of([header_of((EMBEDDING, OUTPUT, QUERY, EXPERTS, ROUTER), keys=keys)])
    dense, sparse = shape.layers
    assert (shape.n_expert, shape.n_expert_used, shape.is_moe) == (8, 2, True)
    assert (dense.expert_bytes, dense.n_expert_used) == (0, 0)
    assert (sparse.expert_bytes, sparse.n_expert_used) == (256 * 32 * 8 * 144 // 256, 2)
    assert sparse.weight_bytes == sparse.expert_bytes + 64 * 8 * 4
    assert dict(sparse.expert_types) == {"Q4_K": sparse.expert_bytes}
    n_experts = 256 * 32 * 8
    assert shape.n_params_active == shape.n_params - n_experts * 6 // 8 - 64 * 99


def test_parts_of_a_set_when_put_together_then_are_one_model() -> None:
    whole = shape_of([header_of((EMBEDDING, QUERY, EXPERTS))])
    rest = GgufHeader(3, False, {"split.no": 1}, (QUERY, EXPERTS), 32, 512, 1 << 20)
    assert shape_of([header_of((EMBEDDING,)), rest]) == whole


def test_layers_that_predict_further_tokens_when_summed_then_are_skipped_but_counted() -> None:
    extra = TensorInfo("blk.2.nextn.eh_proj.weight", (128, 64), F32, 0)
    keys: Mapping[str, MetaValue] = {"block_count": 3, "nextn_predict_layers": 1}
    shape = shape_of([header_of((EMBEDDING, QUERY, extra), "glm4moe", keys=keys)])
    assert shape.n_layer == 3
    assert (shape.layers[2].weight_bytes, shape.skipped_bytes) == (0, 128 * 64 * 4)
    assert sum(shape.tensor_types.values()) == shape.input_bytes + shape.layers_bytes


def test_tensors_without_a_layer_when_placed_then_belong_where_llama_cpp_puts_them() -> None:
    norm = TensorInfo("token_embd_norm.weight", (64,), F32, 0)
    assert shape_of([header_of((EMBEDDING, norm), "bert")]).layers[0].weight_bytes == 256
    assert shape_of([header_of((EMBEDDING, OUTPUT, norm), "lfm2")]).output_bytes == 6816 + 256
    position = TensorInfo("position_embd.weight", (64, 512), F32, 0)
    shape = shape_of([header_of((EMBEDDING, position), "gpt2")])
    assert (shape.input_bytes, shape.embd_row_bytes) == (25_600 + 131_072, 512)


def test_tensor_of_a_format_that_is_not_known_when_summed_then_is_named_and_weighs_nothing() -> None:
    strange = replace(QUERY, type_id=999)
    shape = shape_of([header_of((EMBEDDING, strange))])
    assert dict(shape.layers[0].tensor_types) == {"type 999": 0}


def test_other_quantization_when_scaled_then_weights_grow_and_memory_stays(starter: ModelShape) -> None:
    double = scaled_to(starter, starter.size_bytes * 2)
    assert double.size_bytes == starter.size_bytes * 2
    assert double.layers_bytes == starter.layers_bytes * 2
    assert double.tensor_types["Q8_0"] == 60_162_048
    assert double.embd_row_bytes == starter.embd_row_bytes * 2
    assert [layer.k_width for layer in double.layers] == [layer.k_width for layer in starter.layers]
    assert (double.is_file, starter.is_file) == (False, True)
    assert double.n_params == starter.n_params


@pytest.mark.parametrize("size_bytes", [0, -1])
def test_size_that_cannot_be_when_scaled_to_then_is_refused(starter: ModelShape, size_bytes: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        scaled_to(starter, size_bytes)


def test_no_file_or_no_architecture_when_asked_for_a_shape_then_says_so() -> None:
    with pytest.raises(ModelLoadFailed):
        shape_of([])
    with pytest.raises(ModelLoadFailed, match=r"general\.architecture"):
        shape_of([GgufHeader(3, False, {}, (), 32, 32, 32)])
