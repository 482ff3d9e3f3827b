"""Thinking off, on and within a budget through a real worker: the starter model behind a template that thinks."""

import json
from collections.abc import Iterator

import pytest

from runtime.library.starter import find_starter
from runtime.messages.ipc import Finished, FromWorker, Generate
from runtime.messages.shared import AnswerShape, Message, ReasoningMode, Tool
from runtime.options import GenerateOptions, LoadOptions, SamplingOptions
from tests.support.gguf_files import write_with_template
from tests.support.worker_process import WorkerUnderTest, deltas

pytestmark = pytest.mark.e2e

THINKS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
QUESTION = (Message("user", "Write a long story about a fox."),)
BUDGET = 12


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerUnderTest]:
    path = find_starter()
    assert path is not None
    folder = tmp_path_factory.mktemp("thinks")
    with WorkerUnderTest(folder / "worker.log") as worker:
        ready = worker.load(
            write_with_template(path, folder / "thinks.gguf", THINKS), LoadOptions(n_ctx=1024, n_parallel=2)
        )
        assert ready.facts.reasoning
        yield worker


def ask(worker: WorkerUnderTest, shape: AnswerShape, max_tokens: int = 60) -> tuple[list[FromWorker], Finished]:
    options = GenerateOptions(max_tokens=max_tokens, sampling=SamplingOptions(temperature=0.7, seed=3))
    return worker.answer(Generate("a", messages=QUESTION, options=options, shape=shape))


def texts(messages: list[FromWorker]) -> dict[str, str]:
    found = {"reasoning": "", "content": "", "tool_call": ""}
    for delta in deltas(messages, "a"):
        found[delta.kind] += delta.text
    return found


def test_thought_that_is_left_alone_when_the_template_opened_it_then_all_is_thought(worker: WorkerUnderTest) -> None:
    found = texts(ask(worker, AnswerShape(), max_tokens=30)[0])
    assert found["reasoning"]
    assert not found["content"]


def test_thought_when_it_is_off_then_there_is_none(worker: WorkerUnderTest) -> None:
    messages, finished = ask(worker, AnswerShape(reasoning="off"), max_tokens=20)
    assert texts(messages)["content"]
    assert not texts(messages)["reasoning"]
    assert not finished.usage.reasoning_tokens


def test_thought_with_a_budget_when_it_is_used_up_then_the_answer_begins(worker: WorkerUnderTest) -> None:
    messages, finished = ask(worker, AnswerShape(reasoning_budget=BUDGET))
    found = texts(messages)
    assert found["reasoning"]
    assert found["content"]
    assert "</think>" not in found["reasoning"] + found["content"]
    # The closing tag is a few tokens of this vocabulary.
    assert BUDGET <= finished.usage.reasoning_tokens <= BUDGET + 8


@pytest.mark.parametrize("reasoning", ["auto", "off"])
def test_call_that_is_required_when_the_model_thinks_first_then_comes_behind_the_thought(
    worker: WorkerUnderTest, reasoning: ReasoningMode
) -> None:
    tool = Tool("now", "", '{"type": "object", "properties": {}, "additionalProperties": false}')
    shape = AnswerShape(
        tools=(tool,),
        tool_choice="required",
        parallel_tool_calls=False,
        reasoning=reasoning,
        reasoning_budget=BUDGET,
    )
    messages, finished = ask(worker, shape, max_tokens=90)
    found = texts(messages)
    assert json.loads(found["tool_call"]) == {}
    assert not found["content"]
    assert bool(found["reasoning"]) == (reasoning == "auto")
    assert finished.reasons == ("tool_calls",)


def test_json_that_is_required_when_the_model_thinks_first_then_is_all_of_the_answer(worker: WorkerUnderTest) -> None:
    schema = '{"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}'
    found = texts(ask(worker, AnswerShape(json_schema=schema, reasoning_budget=BUDGET), max_tokens=90)[0])
    assert found["reasoning"]
    assert isinstance(json.loads(found["content"])["ok"], bool)
