"""The rules about memory, held against what llama.cpp allocates for a small model of each architecture."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.errors import ModelLoadFailed
from runtime.gguf.architecture import EMBEDDING, ModelShape, bytes_of, shape_of
from runtime.gguf.attention import memory_of
from runtime.gguf.header import GgufHeader, MetaValue, read_header
from runtime.gguf.source import FileSource
from tests.support.architectures import (
    CASES,
    N_CTX,
    N_SEQ,
    Case,
    Report,
    measure,
    measure_file,
    write_metadata,
    write_with_predictor,
)

F16_BYTES = 2
PRINTED_BYTES = 0.011 * 1024 * 1024
"""llama.cpp prints sizes in MiB with two decimals."""

INDEXED = ("glm-dsa", "deepseek32", "minimax-m3", "hy_v4", "dots3note", "glm5-next", "qwen4exp")
"""Their sparse attention keeps the keys of an indexer in a second cache of the same length."""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, tuple[Path, Report | str]]:
    folder = tmp_path_factory.mktemp("architectures")
    paths = [write_metadata(case, folder / f"{case.label}.gguf") for case in CASES]
    found = measure(CASES, paths)
    return {case.label: (path, report) for case, path, report in zip(CASES, paths, found, strict=True)}


def header_at(path: Path) -> GgufHeader:
    with FileSource(path) as source:
        return read_header(source)


def measured(reports: Mapping[str, tuple[Path, Report | str]], case: Case) -> tuple[GgufHeader, Report]:
    path, report = reports[case.label]
    assert isinstance(report, Report), report
    header = header_at(path)
    if case.is_saved:
        header = replace(header, tensors=header_at(path.with_suffix(".model.gguf")).tensors)
    return header, report


@pytest.mark.e2e
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_cache_of_an_architecture_when_predicted_then_is_what_llama_cpp_makes(
    reports: Mapping[str, tuple[Path, Report | str]], case: Case
) -> None:
    header, report = measured(reports, case)
    layers = shape_of([header]).layers
    caches = [cache for cache in report.caches if cache.kind == "kv_cache"]
    states = [cache for cache in report.caches if cache.kind == "memory_recurrent"]
    n_caches = max(len(caches), 1)
    assert sum(layer.k_width for layer in layers) * F16_BYTES * N_CTX == pytest.approx(
        sum(cache.k_bytes for cache in caches), abs=PRINTED_BYTES * n_caches
    )
    assert sum(layer.v_width for layer in layers) * F16_BYTES * N_CTX == pytest.approx(
        sum(cache.v_bytes for cache in caches), abs=PRINTED_BYTES * n_caches
    )
    assert sum(layer.state_bytes for layer in layers) * N_SEQ == pytest.approx(
        sum(cache.k_bytes + cache.v_bytes for cache in states), abs=2 * PRINTED_BYTES
    )
    windowed = {layer.index for layer in layers if layer.n_swa}
    cached = {layer.index for layer in layers if layer.k_width}
    without_heads = {layer.index for layer in layers if not layer.n_head_kv}
    assert cached == {index for cache in caches for index in cache.layers} - without_heads
    assert {layer.index for layer in layers if layer.state_bytes} == {i for cache in states for i in cache.layers}
    if windowed:
        assert windowed == set(caches[-1].layers)
    elif case.architecture not in INDEXED:
        assert len([cache for cache in caches if cache.n_layers]) <= 1


@pytest.mark.e2e
@pytest.mark.parametrize("case", [case for case in CASES if case.is_saved], ids=lambda case: case.label)
def test_weights_of_an_architecture_when_summed_then_are_what_llama_cpp_loads(
    reports: Mapping[str, tuple[Path, Report | str]], case: Case
) -> None:
    header, report = measured(reports, case)
    shape = shape_of([header])
    assert loaded_bytes(shape, header) == pytest.approx(sum(report.weights.values()), abs=PRINTED_BYTES)
    assert shape.n_layer == report.n_layer
    assert shape.skipped_bytes == 0


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("label", "layer"), [(label, 3) for label in ("qwen35", "glm4moe", "qwen3next", "deepseek2", "mimo2")]
)
def test_layer_that_predicts_a_further_token_when_summed_then_is_left_out_as_llama_cpp_does(
    reports: Mapping[str, tuple[Path, Report | str]], tmp_path: Path, label: str, layer: int
) -> None:
    saved = reports[label][0].with_suffix(".model.gguf")
    path = write_with_predictor(saved, tmp_path / "predictor.gguf", layer=layer)
    report, header = measure_file(path), header_at(path)
    assert isinstance(report, Report), report
    shape = shape_of([header])
    assert shape.n_layer == 5
    assert loaded_bytes(shape, header) == pytest.approx(sum(report.weights.values()), abs=PRINTED_BYTES)
    assert shape.skipped_bytes > 0
    assert {layer.index for layer in shape.layers if layer.k_width} == {
        index for cache in report.caches if cache.kind == "kv_cache" for index in cache.layers
    }


def loaded_bytes(shape: ModelShape, header: GgufHeader) -> int:
    """All on one device, where tied embeddings are there once."""
    once = bytes_of(tensor for tensor in header.tensors if tensor.name == EMBEDDING) if shape.is_tied else 0
    return shape.input_bytes + shape.layers_bytes + shape.output_bytes - once


def header_of(architecture: str, **keys: MetaValue) -> GgufHeader:
    metadata: dict[str, MetaValue] = {
        "general.architecture": architecture,
        f"{architecture}.block_count": 4,
        f"{architecture}.embedding_length": 64,
        f"{architecture}.attention.head_count": 4,
    }
    metadata |= {f"{architecture}.{key.replace('__', '.')}": value for key, value in keys.items()}
    return GgufHeader(3, False, metadata, (), 32, 1024, 1024)


def test_layers_that_predict_further_tokens_when_looked_at_then_have_no_cache() -> None:
    header = header_of("glm4moe", block_count=5, nextn_predict_layers=1)
    memory = memory_of(header)
    assert memory.n_trunk == 4
    assert [layer.k_width for layer in memory.layers] == [64, 64, 64, 64, 0]


def test_unknown_architecture_when_looked_at_then_is_taken_for_ordinary_and_says_so() -> None:
    shape = shape_of([header_of("flux-capacitor", attention__head_count_kv=2)])
    assert shape.kv_source == "estimated"
    assert [layer.k_width for layer in shape.layers] == [32] * 4


def test_router_layer_of_granite_switch_when_looked_at_then_is_one_more_with_one_head() -> None:
    layers = memory_of(header_of("graniteswitch", attention__head_count_kv=2)).layers
    assert [(layer.n_head_kv, layer.k_width) for layer in layers] == [(2, 32)] * 4 + [(1, 16)]


def test_compressed_keys_of_deepseek4_when_looked_at_then_are_estimated() -> None:
    header = header_of(
        "deepseek4",
        attention__head_count_kv=1,
        attention__key_length=64,
        attention__sliding_window=128,
        attention__compress_ratios=(0, 4, 128, 0),
        attention__indexer__key_length=16,
    )
    shape = shape_of([header])
    assert shape.kv_source == "estimated"
    assert [(layer.k_width, layer.v_width, layer.n_swa) for layer in shape.layers] == [
        (64, 0, 128),
        (20, 0, 0),
        (1, 0, 0),
        (64, 0, 128),
    ]


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"block_count": 0}, "0 layers"),
        ({"block_count": 513}, "513 layers"),
        ({"block_count": -1}, "block_count"),
        ({"block_count": 2.5}, "block_count"),
        ({"attention__head_count": (4, 4)}, "2 entries for 4 layers"),
        ({"attention__head_count": ("a", "b", "c", "d")}, "head_count"),
        ({"embedding_length": 1 << 40}, "embedding_length"),
        ({"embedding_length": "x" * 10_000}, "embedding_length"),
    ],
)
def test_number_that_cannot_be_true_when_looked_at_then_is_refused(keys: dict[str, MetaValue], reason: str) -> None:
    with pytest.raises(ModelLoadFailed, match=reason) as caught:
        memory_of(header_of("llama", **keys))
    assert len(caught.value.message) < 300


def test_interval_of_zero_when_looked_at_then_is_refused() -> None:
    with pytest.raises(ModelLoadFailed, match="full_attention_interval"):
        memory_of(header_of("qwen3next", full_attention_interval=0))


def test_more_loops_than_layers_can_be_when_looked_at_then_is_refused() -> None:
    with pytest.raises(ModelLoadFailed, match="layers"):
        memory_of(header_of("nanbeige", num_loops=1 << 31))
