"""A model's own multi-token heads on tiny models: the text never changes, and guesses are those of fresh heads."""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from runtime.errors import BadRequest
from runtime.messages.shared import Timings
from runtime.options import LoadOptions, SamplingOptions
from runtime.scheduler.plan import BatchPlan
from runtime.scheduler.speculation import Wish
from runtime.worker import native, parameters
from runtime.worker.batch import BatchArrays
from runtime.worker.load import LlamaModel, load_model
from runtime.worker.speculation import load_draft
from runtime.worker.speculation_heads import HeadsDrafter
from tests.fakes.engine_rig import EngineRig, running
from tests.fakes.tiny_gguf import N_VOCAB, write_mamba, write_transformer
from tests.fakes.tiny_heads import Heads, write_with_heads

ARCHITECTURES = ("glm4moe", "deepseek2", "qwen35", "mimo2")
PROMPTS = ["Tell me of the sea.", "one two three one two three one two", "A list:\n- a\n- b\n- a\n- b\n"]
LONG = [260 + index * 7 % 50 for index in range(180)]


def quiet(_stage: str, _fraction: float) -> None:
    pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("heads")
    for one in ARCHITECTURES:
        write_with_heads(made / f"{one}-random.gguf", one, n_trunk=4, seed=2)  # no near ties in the answers below
        write_with_heads(made / f"{one}-agreeing.gguf", one, heads=Heads.AGREEING, n_trunk=4)
    return made


def loaded(folder: Path, name: str, **changed: Any) -> LlamaModel:
    chosen = LoadOptions(**{"n_parallel": 3, "n_ctx": 512, "n_threads": 1, "speculation": "mtp", **changed})
    return load_model(folder / f"{name}.gguf", chosen, quiet)


@dataclass
class Guess:
    """What the heads guessed: behind these tokens, knowing them from position `known_from` on."""

    tokens: list[int]
    known_from: int
    guessed: list[int]


@dataclass
class Guessing:
    """An engine whose heads always guess, and what they guessed."""

    rig: EngineRig
    guesses: list[Guess] = field(default_factory=list)

    @property
    def drafter(self) -> HeadsDrafter:
        drafter = self.rig.engine._backend.heads
        assert drafter is not None
        return drafter


def always(rig: EngineRig) -> None:
    """Whatever a step takes, and however often guesses are wrong, the longest is made."""
    speculation = rig.engine._scheduler._speculation
    assert speculation is not None
    speculation._rate = lambda unit: 0.99 + 0 * unit.index  # type: ignore[method-assign]
    speculation.measure = lambda n_rows, step_s: speculation.costs.add(n_rows, 0.01 + 0 * step_s)  # type: ignore[method-assign]


@contextmanager
def guessing(model: LlamaModel) -> Iterator[Guessing]:
    with running(model) as rig:
        found = Guessing(rig)
        drafter = found.drafter
        always(rig)
        real = drafter.draft

        def draft(wishes: Sequence[Wish]) -> None:
            real(wishes)
            drafter.token_s = 0.0
            for wish in wishes:
                unit = wish.unit
                if wish.tokens:
                    known_from = native.memory_seq_pos_min(drafter._memory, unit.seq_id)
                    found.guesses.append(Guess(list(unit.tokens), known_from, list(wish.tokens)))

        drafter.draft = draft  # type: ignore[method-assign]
        yield found


class FreshHeads:
    """Contexts of their own, in which every conversation is read from its beginning at once."""

    def __init__(self, model: LlamaModel) -> None:
        resolved = model.resolved
        self._main = native.init_from_model(model.model, parameters.context_params(resolved))
        self._heads = native.init_from_model(model.model, parameters.heads_params(resolved))
        native.set_embeddings_nextn(self._main, True, False)
        native.set_embeddings_nextn(self._heads, True, model.gives_output_rows)
        self._gives_output_rows = model.gives_output_rows
        self._n_embd = int(native.model_n_embd_out(model.model))
        self._arrays = BatchArrays(resolved.n_batch)
        self._hidden = np.zeros((resolved.n_batch, self._n_embd), dtype=np.float32)

    def close(self) -> None:
        native.free(self._heads)
        native.free(self._main)

    def guess(self, tokens: Sequence[int], known_from: int, n_tokens: int) -> list[int]:
        for context in (self._main, self._heads):
            native.memory_clear(native.get_memory(context), False)
        hidden = self._decode(self._main, tokens[:-1], 0, None)
        before = np.concatenate([np.zeros((1, self._n_embd), dtype=np.float32), hidden])
        rows = before[known_from:]
        last, guessed = self._step(tokens[known_from:], known_from, rows)
        while len(guessed) < n_tokens:
            position = len(tokens) + len(guessed) - 1
            last, more = self._step(guessed[-1:], position, last)
            guessed += more
        return guessed

    def _step(
        self, tokens: Sequence[int], position: int, rows: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], list[int]]:
        last = self._decode(self._heads, tokens, position, rows)[-1:]
        logits = _view(native.get_logits(self._heads), 1, N_VOCAB)
        return last, [int(logits[0].argmax())]

    def _decode(
        self, context: int, tokens: Sequence[int], position: int, rows: NDArray[np.float32] | None
    ) -> NDArray[np.float32]:
        count = len(tokens)
        self._arrays.fill(
            BatchPlan(list(tokens), list(range(position, position + count)), [0] * count, output_rows=[count - 1])
        )
        self._arrays.batch.embd = None
        if rows is not None:
            self._hidden[:count] = rows
            self._arrays.batch.embd = self._hidden.ctypes.data
        assert native.decode(context, self._arrays.batch) == 0
        return _view(
            native.get_embeddings_nextn(context),
            1 if rows is not None and self._gives_output_rows else count,
            self._n_embd,
        ).copy()


def _view(address: int, n_rows: int, width: int) -> NDArray[np.float32]:
    return np.ctypeslib.as_array((ctypes.c_float * (n_rows * width)).from_address(address)).reshape(n_rows, width)


def share_as_fresh(model: LlamaModel, guesses: Sequence[Guess], *, most: int = 50) -> float:
    """Share of the guesses that heads make too which read all of the same tokens at once."""
    fresh = FreshHeads(model)
    looked_at = guesses[:: max(1, len(guesses) // most)]
    try:
        same = [fresh.guess(one.tokens, one.known_from, len(one.guessed)) == one.guessed for one in looked_at]
        return sum(same) / len(same)
    finally:
        fresh.close()


@pytest.mark.parametrize("name", [f"{one}-{kind}" for one in ARCHITECTURES for kind in ("random", "agreeing")])
def test_when_heads_guess_then_the_text_is_the_one_without(folder: Path, name: str) -> None:
    bare = loaded(folder, name, speculation="off")
    with running(bare) as rig:
        expected = [rig.ask(prompt, max_tokens=100, ignore_eos=True)[0] for prompt in PROMPTS]
    bare.close()
    model = loaded(folder, name)
    with guessing(model) as made:
        rig = made.rig
        timings: list[Timings] = []
        for _round in range(2):
            names = [rig.submit(prompt, max_tokens=100, ignore_eos=True) for prompt in PROMPTS]
            timings = [rig.wait(request).timings for request in names]
            assert [rig.texts[request, 0] for request in names] == expected
        drafted = sum(one.draft_tokens for one in timings)
        accepted = sum(one.draft_accepted for one in timings)
        assert drafted > 200
        assert accepted > 0.95 * drafted if name.endswith("agreeing") else accepted < 0.2 * drafted
    model.close()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_when_guesses_were_wrong_and_others_run_beside_then_the_next_ones_are_those_of_fresh_heads(
    folder: Path, architecture: str
) -> None:
    model = loaded(folder, f"{architecture}-random")
    with guessing(model) as made:
        names = [made.rig.submit([start, *LONG], max_tokens=60, ignore_eos=True) for start in (270, 280, 290)]
        for name in names:
            made.rig.wait(name)
    assert len(made.guesses) > 100
    assert {guess.known_from for guess in made.guesses} == {0}
    assert share_as_fresh(model, made.guesses) == 1.0
    model.close()


@pytest.mark.parametrize("architecture", ["glm4moe", "deepseek2"])
def test_when_conversations_share_and_go_on_then_their_heads_know_what_was_said_before(
    folder: Path, architecture: str
) -> None:
    model = loaded(folder, f"{architecture}-random")
    with guessing(model) as made:
        rig = made.rig
        first = rig.submit(LONG, max_tokens=60, ignore_eos=True)
        rig.wait_until(lambda: bool(rig.texts[first, 0]))
        beside = rig.submit([*LONG[:150], *LONG[:20]], max_tokens=40, ignore_eos=True)
        rig.wait(first)
        rig.wait(beside)
        further = rig.ask([*LONG, 270, 271, 272], max_tokens=40, ignore_eos=True)[1]
        rig.ask(LONG[:100], max_tokens=20, n=2, ignore_eos=True)
    assert further.usage.cached_tokens >= len(LONG) - 1
    assert len(made.guesses) > 100
    assert {guess.known_from for guess in made.guesses} == {0}
    # The hidden row before a place where a prefix was cut is not known any more: one row of a hundred is another one.
    assert share_as_fresh(model, made.guesses) > 0.85
    model.close()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_when_a_conversation_comes_back_from_host_memory_then_its_heads_know_all_of_it(
    folder: Path, architecture: str
) -> None:
    model = loaded(folder, f"{architecture}-random", n_parallel=1)
    prompts = [[260 + start + index * 3 % 40 for index in range(120)] for start in (0, 5, 10, 15)]
    with guessing(model) as made:
        rig = made.rig
        for prompt in prompts:
            rig.ask(prompt, max_tokens=1, ignore_eos=True)
        made.guesses.clear()
        done = rig.ask([*prompts[0], 270, 271], max_tokens=30, ignore_eos=True)[1]
    assert done.usage.cached_tokens == len(prompts[0])
    behind = len(prompts[0]) - 32 if architecture == "mimo2" else 0  # a window of attention is all that is kept there
    assert {guess.known_from for guess in made.guesses} == {behind}
    assert share_as_fresh(model, made.guesses) == 1.0
    model.close()


def test_when_a_state_has_nothing_of_the_heads_then_they_begin_behind_it(folder: Path) -> None:
    bare = loaded(folder, "glm4moe-random", speculation="off")
    with running(bare) as rig:
        expected = rig.ask(LONG, max_tokens=30, ignore_eos=True)[0]
    bare.close()
    model = loaded(folder, "glm4moe-random")
    with guessing(model) as made:
        backend = made.rig.engine._backend
        made.drafter.save = lambda seq_id: b"" if seq_id == 0 else b"?"  # type: ignore[method-assign]
        made.rig.ask(LONG, max_tokens=2, ignore_eos=True)
        state = backend.save(0, 2**24)
        assert state is not None
        backend.remove_range(0, -1, -1)
        assert backend.restore(0, state)
        made.guesses.clear()
        text, done = made.rig.ask(LONG, max_tokens=30, ignore_eos=True)
    assert text == expected
    assert {guess.known_from for guess in made.guesses} == {done.usage.cached_tokens}
    assert done.usage.cached_tokens == len(LONG) - 1
    model.close()


def test_when_a_state_was_saved_with_heads_then_a_load_without_reads_it_too(folder: Path) -> None:
    bare = loaded(folder, "qwen35-random", speculation="off")
    model = loaded(folder, "qwen35-random")
    with running(model) as rig:
        rig.ask(LONG, max_tokens=5, ignore_eos=True)
    saved = rig.engine._backend.save(0, 2**24)
    small = rig.engine._backend.save(0, len(saved or b"") - 1)
    assert saved is not None
    assert small is not None
    with running(bare) as other:
        own = other.engine._backend
    for state in (saved, small):
        assert own.restore(1, state)
        assert own.last_position(1) == len(LONG) + 3
        own.remove_range(1, -1, -1)
    model.close()
    bare.close()


@pytest.mark.parametrize("name", ["glm4moe-agreeing", "qwen35-random"])
def test_when_requests_are_cancelled_or_the_context_is_full_then_the_others_go_on(folder: Path, name: str) -> None:
    bare = loaded(folder, name, speculation="off")
    with running(bare) as rig:
        expected = [rig.ask(prompt, max_tokens=None, ignore_eos=True)[0] for prompt in PROMPTS[:2]]
    bare.close()
    model = loaded(folder, name)
    with guessing(model) as made:
        rig = made.rig
        long = rig.submit(LONG, max_tokens=300, ignore_eos=True)
        names = [rig.submit(prompt, max_tokens=None, ignore_eos=True) for prompt in PROMPTS[:2]]
        rig.wait_until(lambda: bool(rig.texts[long, 0]))
        rig.engine.cancel(long)
        rig.wait(long)
        for request in names:
            assert rig.wait(request).reasons == ("length",)
        assert [rig.texts[request, 0] for request in names] == expected
    model.close()


def test_when_a_decode_is_given_up_then_no_half_written_snapshot_is_gone_on_with(folder: Path) -> None:
    bare = loaded(folder, "qwen35-random", speculation="off")
    with running(bare) as rig:
        expected = rig.ask(PROMPTS[0], max_tokens=60, ignore_eos=True)[0]
    bare.close()
    model = loaded(folder, "qwen35-random")
    with guessing(model) as made:
        speculation = made.rig.engine._scheduler._speculation
        assert speculation is not None
        speculation.n_draft_max = 1  # two rows, fewer than there are snapshots
        backend = made.rig.engine._backend
        real = backend.decode
        codes: list[int] = []

        def decode(plan: BatchPlan) -> int:
            if len(codes) in (10, 20, 21, 33):
                backend.abort.set()
            codes.append(real(plan))
            return codes[-1]

        backend.decode = decode  # type: ignore[method-assign]
        text = made.rig.ask(PROMPTS[0], max_tokens=60, ignore_eos=True)[0]
        assert codes.count(2) == 4
        assert text == expected
    model.close()


def test_when_the_heads_cannot_compute_then_answers_come_without_guesses(folder: Path) -> None:
    bare = loaded(folder, "glm4moe-random", speculation="off")
    with running(bare) as rig:
        expected = rig.ask(PROMPTS[0], max_tokens=60, ignore_eos=True)[0]
    bare.close()
    model = loaded(folder, "glm4moe-random")
    with guessing(model) as made:
        made.drafter._context = made.drafter._main  # rows with tokens and hidden rows are no batch for it
        text, done = made.rig.ask(PROMPTS[0], max_tokens=60, ignore_eos=True)
        assert text == expected
        assert done.timings.draft_tokens == 0
        assert made.drafter._is_broken
    model.close()


def test_when_a_seed_is_given_then_its_request_is_not_guessed_for(folder: Path) -> None:
    model = loaded(folder, "glm4moe-agreeing")
    with guessing(model) as made:
        sampling = SamplingOptions(temperature=0, seed=3)
        text, done = made.rig.ask(PROMPTS[0], max_tokens=40, sampling=sampling, ignore_eos=True)
        assert done.timings.draft_tokens == 0
        plain, later = made.rig.ask(PROMPTS[0], max_tokens=40, ignore_eos=True)
        assert plain == text
        assert later.timings.draft_accepted > 0.8 * later.timings.draft_tokens > 0
    model.close()


@pytest.mark.parametrize("by_draft", [False, True])
def test_when_snapshots_of_states_can_be_kept_then_others_may_guess_for_a_hybrid_model(
    folder: Path, tmp_path: Path, *, by_draft: bool
) -> None:
    bare = loaded(folder, "qwen35-agreeing", speculation="off")
    with running(bare) as rig:
        expected = [rig.ask(prompt, max_tokens=100, ignore_eos=True)[0] for prompt in PROMPTS]
    bare.close()
    if by_draft:  # that guesses nothing right
        draft = write_transformer(tmp_path / "draft.gguf")
        model = loaded(folder, "qwen35-agreeing", speculation="draft", draft_model=str(draft))
        load_draft(model, draft, None, quiet)
    else:
        model = loaded(folder, "qwen35-agreeing", speculation="lookup")
    assert model.resolved.n_rs_seq == model.resolved.n_draft_max == 3
    with running(model) as rig:
        always(rig)
        names = [rig.submit(prompt, max_tokens=100, ignore_eos=True) for prompt in PROMPTS]
        timings = [rig.wait(name).timings for name in names]
        assert [rig.texts[name, 0] for name in names] == expected
        assert sum(one.draft_tokens for one in timings) > 50
    model.close()


def test_when_a_model_has_no_heads_then_the_load_says_so(tmp_path: Path) -> None:
    write_transformer(tmp_path / "plain.gguf")
    write_mamba(tmp_path / "mamba.gguf")
    write_with_heads(tmp_path / "missing.gguf", "glm4moe", heads=Heads.MISSING)
    write_with_heads(tmp_path / "two.gguf", "glm4moe", n_predict=2)
    for name, reason in (
        ("plain", "it has no multi-token heads"),
        ("mamba", "it has no multi-token heads"),
        ("missing", "its file promises such heads but leaves them out"),
        ("two", "it has 2 layers of multi-token heads, and the built-in llama.cpp runs one"),
    ):
        with pytest.raises(BadRequest, match=reason) as caught:
            loaded(tmp_path, name)
        assert caught.value.details["param"] == "speculation"
