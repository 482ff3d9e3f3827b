"""Drafts on real models: random weights in float32, whose likeliest tokens do not depend on the rows of a step."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from runtime.errors import BadRequest, ModelLoadFailed, StorageFault
from runtime.grammar.answer import AnswerPlan
from runtime.messages.ipc import Load
from runtime.messages.shared import Timings
from runtime.options import GenerateOptions, LoadOptions, SamplingOptions
from runtime.scheduler.types import EngineRequest
from runtime.worker.load import LlamaModel, load_model
from runtime.worker.process import WorkerProcess
from runtime.worker.speculation import load_draft
from tests.fakes.engine_rig import EngineRig, running
from tests.fakes.tiny_gguf import write_mamba, write_transformer

PROMPTS = ["Tell me of the sea.", "one two three one two three one two", "A list:\n- a\n- b\n- a\n- b\n"]


def quiet(_stage: str, _fraction: float) -> None:
    pass


def options(**changed: Any) -> LoadOptions:
    return LoadOptions(**{"n_parallel": 3, "n_ctx": 512, "n_threads": 1, **changed})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tiny")
    write_transformer(made / "model.gguf")
    write_transformer(made / "other.gguf", seed=2)
    write_transformer(made / "window.gguf", architecture="gemma3", sliding_window=64)
    write_mamba(made / "mamba.gguf")
    return made


def loaded(folder: Path, name: str = "model", draft: str = "", **changed: Any) -> LlamaModel:
    chosen = options(**changed, draft_model=draft)
    model = load_model(folder / f"{name}.gguf", chosen, quiet)
    try:
        if draft:
            load_draft(model, folder / f"{draft}.gguf", None, quiet)
    except BaseException:
        model.close()
        raise
    return model


@pytest.fixture(scope="module")
def plain(folder: Path) -> Iterator[EngineRig]:
    model = loaded(folder)
    with running(model) as rig:
        yield rig
    model.close()


def always_drafts(rig: EngineRig) -> EngineRig:
    """Whatever a step takes, drafts pay."""
    speculation = rig.engine._scheduler._speculation
    assert speculation is not None

    def measure(n_rows: int, step_s: float) -> None:
        speculation.costs.add(n_rows, min(step_s, 0.0) + 0.01)

    speculation.measure = measure  # type: ignore[method-assign]
    return rig


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("model", {"draft": "model"}),
        ("model", {"draft": "other"}),
        ("model", {"draft": "model", "draft_p_min": 0.9, "n_draft_max": 7}),
        ("model", {"speculation": "lookup"}),
        ("window", {"speculation": "lookup"}),
        ("window", {"draft": "window"}),
    ],
)
def test_when_tokens_are_drafted_then_the_text_is_the_one_without(folder: Path, name: str, chosen: Any) -> None:
    bare = loaded(folder, name, speculation="off")
    with running(bare) as rig:
        expected = [rig.ask(prompt, max_tokens=150, ignore_eos=True)[0] for prompt in PROMPTS]
    bare.close()
    model = loaded(folder, name, **chosen)
    with running(model) as rig:
        always_drafts(rig)
        timings: list[Timings] = []
        for _round in range(2):
            names = [rig.submit(prompt, max_tokens=150, ignore_eos=True) for prompt in PROMPTS]
            timings = [rig.wait(request).timings for request in names]
            assert [rig.texts[request, 0] for request in names] == expected
        if chosen.get("draft") == name:
            assert sum(one.draft_accepted for one in timings) > 0.5 * sum(one.draft_tokens for one in timings) > 0
        assert rig.engine.figures.draft_tokens >= rig.engine.figures.draft_accepted
    model.close()


def test_when_the_draws_are_at_random_then_a_draft_changes_none_of_them(folder: Path, plain: EngineRig) -> None:
    # Seeded requests are never drafted for; here one is, to see that each token takes one draw and no more.
    sampling = SamplingOptions(temperature=0.9, seed=7, repeat_penalty=1.2, repeat_last_n=20)
    prompt = [260 + index % 7 for index in range(40)]
    expected, _done = plain.ask(prompt, max_tokens=120, sampling=sampling, ignore_eos=True)
    model = loaded(folder, draft="model")
    with running(model) as rig:
        always_drafts(rig)
        made = rig.engine._scheduler.submit

        def submit(request: EngineRequest, samplers: tuple[object, ...], now_s: float) -> None:
            made(request, samplers, now_s)
            for job in rig.engine._scheduler._jobs.values():
                for unit in job.units:
                    unit.may_draft = True

        rig.engine._scheduler.submit = submit  # type: ignore[method-assign]
        text, done = rig.ask(prompt, max_tokens=120, sampling=sampling, ignore_eos=True)
        assert text == expected
        assert done.timings.draft_tokens > 0
    model.close()


def test_when_a_grammar_holds_then_only_what_came_goes_through_it(folder: Path, plain: EngineRig) -> None:
    grammar = 'root ::= ("ab" | "cd" | "a" "c")+ "."'

    def ask(rig: EngineRig) -> str:
        request = EngineRequest(
            "grammar",
            tuple(range(300, 320)),
            GenerateOptions(max_tokens=60, sampling=SamplingOptions(temperature=0, grammar=grammar)),
            plan=AnswerPlan(grammar=grammar),
        )
        rig.engine.submit(request)
        rig.wait("grammar")
        return rig.texts["grammar", 0]

    expected = ask(plain)
    for chosen in ({"draft": "model"}, {"speculation": "lookup"}):
        model = loaded(folder, **chosen)
        with running(model) as rig:
            assert ask(always_drafts(rig)) == expected
        model.close()


def test_when_logprobs_are_asked_for_then_each_token_has_its_own(folder: Path, plain: EngineRig) -> None:
    _text, done = plain.ask(PROMPTS[0], max_tokens=40, logprobs=True, top_logprobs=2, name="lp", ignore_eos=True)
    model = loaded(folder, draft="model")
    with running(model) as rig:
        always_drafts(rig)
        _text, drafted = rig.ask(PROMPTS[0], max_tokens=40, logprobs=True, top_logprobs=2, name="lp", ignore_eos=True)
        assert drafted.usage == done.usage

        def told(outputs: list[Any]) -> list[Any]:
            return [one for output in outputs for one in getattr(output, "logprobs", ()) if output.request_id == "lp"]

        ours, theirs = told(rig.outputs), told(plain.outputs)
        assert [one.chosen.token_id for one in ours] == [one.chosen.token_id for one in theirs]
        assert [one.chosen.logprob for one in ours] == pytest.approx([one.chosen.logprob for one in theirs], abs=1e-3)
    model.close()


def test_when_a_request_is_cancelled_or_forks_while_drafting_then_the_others_go_on(
    folder: Path, plain: EngineRig
) -> None:
    expected = plain.ask(PROMPTS[1], max_tokens=100, ignore_eos=True)[0]
    model = loaded(folder, draft="model")
    with running(model) as rig:
        always_drafts(rig)
        long = rig.submit(PROMPTS[0], max_tokens=400, ignore_eos=True)
        twice = rig.submit(PROMPTS[1], max_tokens=100, n=2, ignore_eos=True)
        rig.wait_until(lambda: bool(rig.texts[long, 0]))
        rig.engine.cancel(long)
        rig.wait(long)
        rig.wait(twice)
        assert rig.texts[twice, 0] == rig.texts[twice, 1] == expected
    model.close()


def test_when_the_draft_model_has_no_room_then_answers_come_all_the_same(folder: Path, plain: EngineRig) -> None:
    expected = [plain.ask(prompt, max_tokens=200, ignore_eos=True)[0] for prompt in PROMPTS]
    model = load_model(folder / "model.gguf", options(draft_model="model"), quiet)
    small = replace(model.resolved, n_cells=256, n_outputs_max=model.resolved.n_seq_max, speculation="off")
    load_draft(model, folder / "model.gguf", small, quiet)
    with running(model) as rig:
        always_drafts(rig)
        for _round in range(2):
            names = [rig.submit(prompt, max_tokens=200, ignore_eos=True) for prompt in PROMPTS]
            timings = [rig.wait(name).timings for name in names]
            assert [rig.texts[name, 0] for name in names] == expected
            assert sum(one.draft_accepted for one in timings) > 0
    model.close()


def test_when_memory_cannot_go_back_then_nothing_is_drafted(folder: Path) -> None:
    model = loaded(folder, "mamba", speculation="lookup")
    assert model.resolved.speculation == "off"
    assert model.facts.resolved["speculation"] == "off"
    with running(model) as rig:
        _text, done = rig.ask(PROMPTS[1], max_tokens=20, ignore_eos=True)
        assert done.timings.draft_tokens == 0
    model.close()


def test_when_the_draft_model_speaks_otherwise_then_the_load_says_so(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadFailed, match=r"cannot take back a wrong guess") as caught:
        loaded(folder, draft="mamba")
    assert caught.value.details["param"] == "draft_model"
    write_transformer(tmp_path / "odd.gguf", extra_tokens=200)
    model = load_model(folder / "model.gguf", options(draft_model="odd"), quiet)
    with pytest.raises(ModelLoadFailed, match="vocabularies have"):
        load_draft(model, tmp_path / "odd.gguf", None, quiet)
    model.close()


def test_when_a_draft_is_asked_for_without_a_draft_model_then_it_is_refused(folder: Path) -> None:
    with pytest.raises(BadRequest, match="needs a draft model"):
        loaded(folder, speculation="draft")


def test_when_a_draft_model_is_loaded_then_facts_count_its_memory(folder: Path) -> None:
    model = loaded(folder, draft="other")
    (memory,) = model.facts.memory
    assert memory.draft_bytes > 0.5 * memory.weight_bytes
    assert model.facts.resolved["speculation"] == "draft"
    assert model.facts.resolved["draft_model"] == "tiny llama"
    model.close()
    assert model.draft is None


def test_when_the_host_orders_a_draft_model_then_the_worker_loads_it_and_tells(folder: Path) -> None:
    stages: list[str] = []
    process = WorkerProcess(("127.0.0.1", 1), "")

    def note(stage: str, fraction: float) -> None:
        stages.append(f"{stage} {fraction}")

    process._on_progress = note  # type: ignore[method-assign]
    path = folder / "model.gguf"
    order = Load(str(path), options(draft_model="other"), draft_path=str(folder / "other.gguf"))
    model, _language, facts = process._load(path, order)
    assert model.draft is not None
    assert facts.resolved["speculation"] == "draft"
    assert any("draft model" in stage for stage in stages)
    model.close()
    missing = Load(str(path), options(draft_model="gone"), draft_path=str(folder / "gone.gguf"))
    with pytest.raises(StorageFault, match=r"draft model gone\.gguf"):
        process._load(path, missing)
