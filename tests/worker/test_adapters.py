"""LoRA adapters: what is refused, what they do to logits, and that requests with different scales keep apart."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from runtime.errors import BadRequest, ModelLoadFailed
from runtime.options import Adapter, AdapterScale, GenerateOptions, LoadOptions
from runtime.scheduler.adapters import AdapterSet, adapter_set, chosen_adapters
from runtime.scheduler.plan import BatchPlan
from runtime.scheduler.types import EngineRequest
from runtime.worker.backend import LlamaBackend
from runtime.worker.load import LlamaModel, load_model
from tests.fakes.engine_rig import GREEDY, EngineRig, running, starter_path
from tests.fakes.tiny_gguf import write_transformer
from tests.fakes.tiny_lora import TARGETS, random_pairs, shapes_of, write_lora

pytestmark = pytest.mark.e2e

ALPHA, RANK = 8.0, 4


def load(path: Path, *adapters: Path, scale: float = 1.0) -> LlamaModel:
    options = LoadOptions(
        n_threads=1, n_parallel=4, n_ctx=1024, flash_attn="off",
        lora=tuple(Adapter(str(adapter), scale) for adapter in adapters),
    )  # fmt: skip
    return load_model(path, options, lambda _stage, _fraction: None)


def logits(model: LlamaModel, chosen: AdapterSet | None) -> NDArray[np.float32]:
    tokens = [260 + index * index % 60 for index in range(24)]
    backend = LlamaBackend(model)
    backend.clear()
    plan = BatchPlan(tokens, list(range(24)), [0] * 24, [23], adapters=chosen)
    assert backend.decode(plan) == 0
    found = backend.logits.row(0).copy()
    backend.clear()
    model.adapters.apply(model.context, None)
    return found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A model, an adapter, and another one."""
    folder = tmp_path_factory.mktemp("lora")
    base = write_transformer(folder / "base.gguf")
    shapes = shapes_of(base)
    first = write_lora(folder / "first.gguf", random_pairs(shapes, rank=RANK), alpha=ALPHA)
    second = write_lora(folder / "second.gguf", random_pairs(shapes, rank=2, seed=9), alpha=4.0)
    return base, first, second


@pytest.fixture(scope="module")
def model(files: tuple[Path, Path, Path]) -> Iterator[LlamaModel]:
    base, first, second = files
    loaded = load(base, first, second)
    yield loaded
    loaded.close()


def scaled(model: LlamaModel, *scales: float) -> AdapterSet | None:
    return adapter_set([fact.key for fact in model.adapters.facts], scales)


# --- what they do -------------------------------------------------------------------------------------------


def test_when_all_scales_are_zero_then_the_model_is_as_without_adapters(
    files: tuple[Path, Path, Path], model: LlamaModel
) -> None:
    plain = load(files[0])
    try:
        assert scaled(model, 0.0, 0.0) is None
        np.testing.assert_array_equal(logits(model, None), logits(plain, None))
    finally:
        plain.close()


@pytest.mark.parametrize("scale", [1.0, 0.5, -0.5])
def test_when_an_adapter_is_applied_then_logits_are_those_of_the_merged_weights(
    files: tuple[Path, Path, Path], model: LlamaModel, tmp_path: Path, scale: float
) -> None:
    pairs = random_pairs(shapes_of(files[0]), rank=RANK)
    added = {name: (scale * ALPHA / RANK * (b @ a)).astype(np.float32) for name, (a, b) in pairs.items()}
    merged = load(write_transformer(tmp_path / "merged.gguf", added=added))
    try:
        wanted = logits(merged, None)
        np.testing.assert_allclose(logits(model, scaled(model, scale, 0.0)), wanted, atol=2e-2)
        assert np.abs(wanted - logits(model, None)).max() > 0.5
    finally:
        merged.close()


def test_when_two_adapters_are_applied_then_both_count(model: LlamaModel) -> None:
    both = logits(model, scaled(model, 1.0, 1.0))
    for one in (scaled(model, 1.0, 0.0), scaled(model, 0.0, 1.0)):
        assert np.abs(both - logits(model, one)).max() > 0.1


def test_when_loaded_then_facts_and_memory_tell_of_the_adapters(
    files: tuple[Path, Path, Path], model: LlamaModel
) -> None:
    first, second = model.facts.adapters
    assert (first.file_name, first.rank, first.scale, second.rank) == ("first.gguf", RANK, 1.0, 2)
    assert first.key != second.key
    plain = load(files[0])
    try:
        (taken,), (without,) = model.facts.memory, plain.facts.memory
        assert taken.weight_bytes - without.weight_bytes == first.size_bytes + second.size_bytes
    finally:
        plain.close()


# --- requests -----------------------------------------------------------------------------------------------


def ask(rig: EngineRig, chosen: AdapterSet | None, seed: int) -> str:
    name = f"{seed}-{chosen.salt if chosen else 0}-{next(rig._names)}"
    prompt = tuple(260 + index * seed % 60 for index in range(40))
    options = GenerateOptions(max_tokens=24, ignore_eos=True, sampling=GREEDY)
    rig.engine.submit(EngineRequest(name, prompt, options, adapters=chosen))
    return name


def test_when_requests_with_different_scales_run_together_then_each_gets_what_it_gets_alone(model: LlamaModel) -> None:
    sets = [None, scaled(model, 1.0, 0.0), scaled(model, 0.25, 0.0), scaled(model, 0.0, 1.0)]
    with running(model) as rig:
        alone = []
        for chosen in sets:
            name = ask(rig, chosen, 7)
            rig.wait(name)
            alone.append(rig.texts[name, 0])
        assert len(set(alone)) == len(sets)
        names = [ask(rig, chosen, 7) for chosen in sets for _ in range(2)]
        for index, name in enumerate(names):
            rig.wait(name)
            assert rig.texts[name, 0] == alone[index // 2]


def test_when_the_same_prompt_comes_with_another_scale_then_nothing_is_reused(model: LlamaModel) -> None:
    first, other = scaled(model, 1.0, 0.0), scaled(model, 0.5, 0.0)
    with running(model) as rig:
        assert rig.wait(ask(rig, first, 11)).usage.cached_tokens == 0
        assert rig.wait(ask(rig, first, 11)).usage.cached_tokens == 39
        assert rig.wait(ask(rig, other, 11)).usage.cached_tokens == 0
        assert rig.wait(ask(rig, None, 11)).usage.cached_tokens == 0
        assert rig.wait(ask(rig, other, 11)).usage.cached_tokens == 39


def test_when_texts_are_read_then_the_scales_of_the_load_hold(
    files: tuple[Path, Path, Path], model: LlamaModel
) -> None:
    text = [260 + index % 60 for index in range(30)]
    plain = load(files[0])
    try:
        with running(model) as rig, running(plain) as other:
            read = rig.read(text, adapters=chosen_adapters(model.facts.adapters, None))
            (vector,) = rig.wait(read).vectors
            assert float(np.frombuffer(vector, dtype="<f4") @ other.vectors(text)[0]) < 0.999
    finally:
        plain.close()


def test_when_a_request_names_no_scales_then_those_of_the_load_hold(model: LlamaModel) -> None:
    facts = model.facts.adapters
    assert chosen_adapters(facts, None) == scaled(model, 1.0, 1.0)
    assert chosen_adapters(facts, ()) is None
    assert chosen_adapters(facts, (AdapterScale(1, 0.5),)) == scaled(model, 0.0, 0.5)
    with pytest.raises(BadRequest, match="none with the id 5"):
        chosen_adapters(facts, (AdapterScale(5, 1.0),))
    with pytest.raises(BadRequest, match="without adapters"):
        chosen_adapters((), (AdapterScale(0, 1.0),))
    assert chosen_adapters((), None) is None


def test_when_the_starter_has_an_adapter_then_its_answer_changes_and_scale_zero_is_the_base(tmp_path: Path) -> None:
    path = starter_path()
    adapter = write_lora(tmp_path / "a.gguf", random_pairs(shapes_of(path), rank=8, spread=0.5))
    model = load(path, adapter, scale=0.0)
    try:
        base = logits(model, chosen_adapters(model.facts.adapters, None))
        changed = logits(model, chosen_adapters(model.facts.adapters, (AdapterScale(0, 1.0),)))
        assert np.abs(base - changed).max() > 0.5
        np.testing.assert_array_equal(base, logits(model, None))
    finally:
        model.close()


# --- refusing -----------------------------------------------------------------------------------------------


def refusal(base: Path, adapter: Path) -> str:
    with pytest.raises(ModelLoadFailed) as caught:
        load(base, adapter)
    assert adapter.name in caught.value.message
    return caught.value.message


def test_when_a_file_is_no_adapter_of_this_model_then_it_says_why(
    files: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    base = files[0]
    pairs = random_pairs(shapes_of(base))
    assert "no LoRA adapter" in refusal(base, base)
    assert "of the kind 'control'" in refusal(base, write_lora(tmp_path / "b.gguf", pairs, adapter_type="control"))
    assert "kind 'qwen2', this one is 'llama'" in refusal(
        base, write_lora(tmp_path / "c.gguf", pairs, architecture="qwen2")
    )
    assert "does not have" in refusal(
        base, write_lora(tmp_path / "d.gguf", {"blk.9.attn_q.weight": pairs["blk.0.attn_q.weight"]})
    )
    wide = random_pairs({"blk.0.attn_q.weight": (64, 128)})
    assert "which is 64x64" in refusal(base, write_lora(tmp_path / "e.gguf", wide))
    a, b = pairs[TARGETS[0]]
    assert "64x4 and 2x64" in refusal(base, write_lora(tmp_path / "f.gguf", {TARGETS[0]: (a, b[:, :2].copy())}))


def test_when_an_adapter_is_cut_off_or_missing_then_it_says_so(files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    base, first, _second = files
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(first.read_bytes()[:-2000])
    assert "incomplete" in refusal(base, cut)
    with pytest.raises(Exception, match=r"gone\.gguf"):
        load(base, tmp_path / "gone.gguf")
