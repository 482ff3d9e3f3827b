"""Grammars in a running engine: bad ones end their own request only."""

import json
import time
from collections.abc import Iterator

import pytest

from runtime.errors import BadRequest
from runtime.grammar.answer import AnswerPlan
from runtime.options import GenerateOptions, SamplingOptions
from runtime.scheduler.types import Done, Ended, EngineRequest
from tests.fakes.engine_rig import EngineRig, chat, running, starter
from tests.grammar.test_matcher import HARMLESS, HOSTILE

GREEDY = SamplingOptions(temperature=0)


@pytest.fixture(scope="module")
def rig() -> Iterator[EngineRig]:
    with running(starter()) as found:
        yield found


def ask(rig: EngineRig, plan: AnswerPlan, prompt: str = "Hello", **options: object) -> tuple[list[str], Done]:
    name = f"plan-{time.monotonic_ns()}"
    chosen = GenerateOptions(**{"max_tokens": 80, "sampling": GREEDY, **options})  # type: ignore[arg-type]
    rig.engine.submit(EngineRequest(name, chat(rig.model, prompt), chosen, plan=plan))
    ending = rig.wait(name)
    assert isinstance(ending, Done)
    return [rig.texts[name, choice] for choice in range(chosen.n)], ending


def test_when_a_grammar_is_too_ambiguous_then_its_request_fails_and_the_others_go_on(rig: EngineRig) -> None:
    other = rig.submit("Tell me a long story.", max_tokens=60, ignore_eos=True)
    names = []
    for grammar in HOSTILE.values():
        # The model is made to walk into it: only the letters of the grammar are likely.
        bias = dict.fromkeys(rig.model.vocab.tokenize("aaaaaaaa", add_special=False, parse_special=False), 50.0)
        sampling = SamplingOptions(temperature=0, grammar=grammar, logit_bias=bias)
        try:
            names.append(rig.submit("Write aaaa", sampling=sampling, max_tokens=60, n=2))
        except BadRequest as error:
            assert "too ambiguous" in error.message  # noqa: PT017 - some cannot even begin
    assert len(names) >= 2
    for name in names:
        rig.wait_until(lambda name=name: bool(rig.ends[name]))  # type: ignore[misc]
        ending = rig.ends[name][0]
        assert isinstance(ending, Ended)
        assert "too ambiguous" in ending.failure.message
        assert ending.failure.status == 400
        assert len(rig.ends[name]) == 1
    done = rig.wait(other)
    assert isinstance(done, Done)
    assert done.reasons == ("length",)
    assert rig.engine._scheduler.n_active == 0


def test_when_a_grammar_is_ambiguous_but_small_then_it_is_followed(rig: EngineRig) -> None:
    for grammar, _text in HARMLESS.values():
        sampling = SamplingOptions(temperature=0, grammar=grammar)
        _text, done = rig.ask("Hi", sampling=sampling, max_tokens=16)
        assert done.reasons[0] in {"stop", "length"}


def test_when_several_choices_follow_a_grammar_then_each_is_led_by_itself(rig: EngineRig) -> None:
    grammar = 'root ::= "{\\"n\\": " [0-9]{1,6} ", \\"w\\": \\"" [a-z]{1,9} "\\"}"'
    texts, done = ask(rig, AnswerPlan(grammar=grammar), n=3, sampling=SamplingOptions(temperature=2.0, seed=5))
    assert done.reasons == ("stop",) * 3
    assert len({json.dumps(json.loads(text)) for text in texts}) > 1


def test_when_a_grammar_and_a_stop_string_meet_then_the_stop_string_ends_the_answer(rig: EngineRig) -> None:
    texts, done = ask(rig, AnswerPlan(grammar='root ::= "one two three"'), stop=("two",))
    assert (texts, done.stop_strings) == (["one "], ("two",))
