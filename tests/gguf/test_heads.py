"""Which models can guess with heads of their own, and what those take."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from runtime.gguf.architecture import ModelShape, scaled_to, shape_of
from runtime.gguf.header import GgufHeader, MetaValue, TensorInfo
from runtime.gguf.heads import why_no_heads, with_heads
from runtime.gguf.parts import read_shape
from tests.fakes.tiny_heads import Heads, write_with_heads
from tests.gguf.test_architecture import EMBEDDING, OUTPUT, QUERY, header_of

F32 = 0
HEAD = TensorInfo("blk.2.nextn.eh_proj.weight", (128, 64), F32, 0)
SECOND = TensorInfo("blk.3.nextn.eh_proj.weight", (128, 64), F32, 0)


def made(architecture: str, *tensors: TensorInfo, n_predict: int = 1, **more: MetaValue) -> ModelShape:
    keys: Mapping[str, MetaValue] = {"block_count": 2 + n_predict, "nextn_predict_layers": n_predict, **more}
    return shape_of([header_of((EMBEDDING, OUTPUT, QUERY, *tensors), architecture, keys=keys)])


def test_heads_when_they_are_loaded_then_have_weights_and_a_cache() -> None:
    shape = made("glm4moe", HEAD)
    loaded = with_heads(shape)
    assert (shape.layers[2].weight_bytes, shape.layers[2].k_width, shape.skipped_bytes) == (0, 0, 128 * 64 * 4)
    assert (loaded.layers[2].weight_bytes, loaded.skipped_bytes) == (128 * 64 * 4, 0)
    assert (loaded.layers[2].k_width, loaded.layers[2].v_width) == (shape.layers[0].k_width, shape.layers[0].v_width)
    assert loaded.layers[:2] == shape.layers[:2]
    assert sum(loaded.tensor_types.values()) == loaded.input_bytes + loaded.layers_bytes + loaded.output_bytes
    assert with_heads(made("glm4moe")).layers == made("glm4moe").layers


def test_heads_when_they_are_in_a_later_part_then_are_found() -> None:
    keys: Mapping[str, MetaValue] = {"block_count": 3, "nextn_predict_layers": 1}
    first = header_of((EMBEDDING, QUERY), "glm4moe", keys=keys)
    rest = GgufHeader(3, False, {"split.no": 1}, (HEAD, OUTPUT), 32, 512, 1 << 20)
    assert not why_no_heads(shape_of([first, rest]))


def test_heads_when_the_quantization_is_another_then_grow_with_the_model() -> None:
    shape = made("glm4moe", HEAD)
    assert scaled_to(shape, 2 * shape.size_bytes).heads[0].weight_bytes == 2 * shape.heads[0].weight_bytes


def test_tensors_when_they_belong_to_layers_that_are_not_there_then_are_skipped() -> None:
    far = TensorInfo("blk.99.attn_q.weight", (64, 64), F32, 0)
    for n_predict in (0, 1):
        shape = made("glm4moe", HEAD, far, n_predict=n_predict)
        assert shape.skipped_bytes == 64 * 64 * 4 + 128 * 64 * 4
        assert all(layer.weight_bytes == 0 for layer in shape.heads) or n_predict


def test_heads_when_more_are_promised_than_there_are_layers_then_no_layer_is_made_up() -> None:
    keys: Mapping[str, MetaValue] = {"block_count": 2, "nextn_predict_layers": 4_000_000_000}
    for tensors in ((HEAD,), (TensorInfo("blk.0.nextn.eh_proj.weight", (128, 64), F32, 0), SECOND), ()):
        shape = shape_of([header_of((EMBEDDING, OUTPUT, QUERY, *tensors), "glm4moe", keys=keys)])
        assert [head.index for head in shape.heads] in ([], [0, 1])
        assert shape.n_layer == 2


@pytest.mark.parametrize("architecture", ["glm4moe", "deepseek2", "qwen35"])
def test_heads_when_a_whole_file_is_read_then_can_guess(tmp_path: Path, architecture: str) -> None:
    shape = read_shape(write_with_heads(tmp_path / "model.gguf", architecture, n_trunk=4))
    assert not why_no_heads(shape)
    assert len(shape.heads) == 1
    assert shape.heads[0].k_width > 0
    assert not shape.heads[0].state_bytes
    bare = read_shape(write_with_heads(tmp_path / "bare.gguf", architecture, n_trunk=4, heads=Heads.MISSING))
    assert "leaves them out" in why_no_heads(bare)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (made("llama", n_predict=0), "it has no multi-token heads"),
        (made("glm4moe"), "its file promises such heads but leaves them out"),
        (made("glm4moe", HEAD, SECOND, n_predict=2), "it has 2 layers of multi-token heads"),
        (made("exaone-moe", HEAD), "cannot run the multi-token heads of the architecture exaone-moe"),
        (made("deepseek2", HEAD), "its file keeps uncompressed keys and values"),
    ],
)
def test_heads_when_they_cannot_guess_then_the_reason_is_told(shape: ModelShape, reason: str) -> None:
    assert reason in why_no_heads(shape)


def test_heads_when_there_are_several_and_llama_cpp_chooses_one_then_can_guess() -> None:
    assert not why_no_heads(made("step35", HEAD, SECOND, n_predict=2))
