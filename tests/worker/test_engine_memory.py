"""The three ways a model's memory can be reused, each with a tiny model of that kind, against reading anew."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtime.options import LoadOptions
from runtime.scheduler.types import EngineRequest
from runtime.worker.breakdown import read_breakdown
from runtime.worker.load import LlamaModel, load_model
from tests.fakes.engine_rig import EngineRig, running
from tests.fakes.tiny_gguf import write_mamba, write_transformer

pytestmark = pytest.mark.e2e

WRITERS: dict[str, Callable[[Path], Path]] = {
    "attention": write_transformer,
    "sliding window": lambda path: write_transformer(path, architecture="gemma3", sliding_window=32),
    "recurrent": write_mamba,
}


@pytest.fixture(scope="module", params=WRITERS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaModel]:
    path = WRITERS[request.param](tmp_path_factory.mktemp("tiny") / "tiny.gguf")
    # Float32 cells: with half precision the last bits depend on the batch, and random weights are near ties.
    options = LoadOptions(n_parallel=3, n_ctx=512, type_k="f32", type_v="f32", host_cache_bytes=32 * 1024 * 1024)
    loaded = load_model(path, options, lambda _stage, _fraction: None)
    yield loaded
    loaded.close()


def prompt(seed: int, length: int) -> tuple[int, ...]:
    return tuple(260 + (seed * 17 + index * index) % 60 for index in range(length))


def fresh(rig: EngineRig, tokens: tuple[int, ...], n: int = 24) -> str:
    """The answer with nothing to reuse."""
    rig.engine._scheduler.placement.reset()
    rig.engine._scheduler.placement.host.clear()
    text, done = rig.ask(tokens, max_tokens=n, ignore_eos=True)
    assert done.usage.cached_tokens == 0
    return text


def test_when_memory_is_of_a_kind_then_the_engine_knows(model: LlamaModel) -> None:
    expected = "shared" if model.facts.architecture == "llama" else "points"
    assert model.memory_kind == expected
    assert model.facts.kv_bytes > 0


def test_when_conversations_run_together_then_each_is_the_one_it_is_alone(model: LlamaModel) -> None:
    with running(model) as rig:
        prompts = [prompt(seed, 30 + 9 * seed) for seed in range(6)]
        names = [rig.submit(tokens, max_tokens=24, ignore_eos=True) for tokens in prompts]
        for name in names:
            rig.wait(name)
        together = [rig.texts[name, 0] for name in names]
        alone = [fresh(rig, tokens) for tokens in prompts]
        assert len(set(alone)) == 6
        # A near tie may still fall the other way; a mix-up would change nearly all.
        assert sum(left == right for left, right in zip(together, alone, strict=True)) >= 5


def test_when_a_conversation_goes_on_from_a_saved_point_then_the_answer_is_that_of_reading_anew(
    model: LlamaModel,
) -> None:
    with running(model) as rig:
        first = prompt(1, 90)
        second = (*first[:80], *prompt(2, 20))
        expected = fresh(rig, second)
        rig.engine._scheduler.placement.reset()
        rig.engine._scheduler.placement.host.clear()
        rig.engine.submit(EngineRequest("turn1", first, save_points=(80,)))
        rig.wait_until(lambda: bool(rig.ends["turn1"]))
        text, done = rig.ask(second, max_tokens=24, ignore_eos=True)
        assert done.usage.cached_tokens == 80
        assert text == expected


def test_when_a_conversation_goes_on_where_it_ended_then_its_answer_is_not_read_again(model: LlamaModel) -> None:
    with running(model) as rig:
        first = prompt(3, 60)
        request_id = rig.submit(first, max_tokens=8, ignore_eos=True, logprobs=True)
        rig.wait(request_id)
        sequence = next(iter(rig.engine._scheduler.placement._idle))
        held = tuple(rig.engine._scheduler.placement.tree.tokens(sequence))
        assert held[:60] == first
        assert len(held) == 67
        _text, done = rig.ask((*held, *prompt(4, 5)), max_tokens=2)
        assert done.usage.cached_tokens == 67


def test_when_choices_share_a_prompt_then_each_goes_on_from_it_alone(model: LlamaModel) -> None:
    with running(model) as rig:
        tokens = prompt(5, 50)
        expected = fresh(rig, tokens)
        request_id = rig.submit(tokens, n=3, max_tokens=24, ignore_eos=True)
        rig.wait(request_id)
        # Greedy: every choice is the same answer, each from a sequence of its own.
        assert [rig.texts[request_id, choice] for choice in range(3)] == [expected] * 3


def test_when_a_conversation_lost_its_sequence_then_it_comes_back_from_host_memory(model: LlamaModel) -> None:
    with running(model) as rig:
        tokens = prompt(6, 80)
        longer = (*tokens, *prompt(7, 10))
        expected = fresh(rig, longer)
        rig.engine._scheduler.placement.reset()
        rig.engine._scheduler.placement.host.clear()
        rig.ask(tokens, max_tokens=1)
        for seed in range(8, 16):
            rig.ask(prompt(seed, 60), max_tokens=1)
        assert rig.engine.figures.host_cache_bytes >= 0
        text, done = rig.ask(longer, max_tokens=24, ignore_eos=True)
        assert done.usage.cached_tokens >= 79
        assert text == expected


def test_when_the_model_was_used_to_the_full_then_it_takes_what_was_told_at_the_load(model: LlamaModel) -> None:
    told = sum(part.compute_bytes for part in model.facts.memory)
    with running(model) as rig:
        names = [rig.submit(prompt(20 + seed, 300), max_tokens=24, ignore_eos=True) for seed in range(3)]
        for name in names:
            rig.wait(name)
    uses = read_breakdown(model.context)
    assert uses is not None
    assert sum(use.compute_bytes for use in uses) == told > 0
