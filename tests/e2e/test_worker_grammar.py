"""Grammars and schemas through a real worker process."""

import json
import time
from collections.abc import Iterator

import jsonschema
import pytest

from runtime.messages.ipc import Failed, Generate
from runtime.messages.shared import AnswerShape, Message
from runtime.options import GenerateOptions, LoadOptions, SamplingOptions
from tests.fakes.engine_rig import starter
from tests.grammar.test_matcher import HOSTILE
from tests.support.worker_process import WorkerUnderTest, text_of, worker_with_starter

pytestmark = pytest.mark.e2e

QUESTION = (Message("user", "Describe a person as JSON."),)
LIMIT_S = 25.0
"""Below the time after which the supervisor would replace a worker that is stuck."""


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerUnderTest]:
    options = LoadOptions(n_ctx=1024, n_parallel=4)
    with worker_with_starter(tmp_path_factory.mktemp("worker"), options) as worker:
        yield worker


def test_grammars_that_are_too_ambiguous_when_sent_one_after_the_other_then_each_fails_alone(
    worker: WorkerUnderTest,
) -> None:
    # The likeliest token of all is "a", so that the model walks into every grammar.
    (a_token,) = starter().vocab.tokenize("a", add_special=False, parse_special=False)
    for index, grammar in enumerate([*HOSTILE.values()] * 2):
        before_s = time.monotonic()
        sampling = SamplingOptions(temperature=0, grammar=grammar, logit_bias={a_token: 80.0})
        options = GenerateOptions(max_tokens=200, sampling=sampling)
        worker.send(Generate(f"hostile-{index}", messages=QUESTION, options=options))
        failed = worker.until(Failed, lambda message, index=index: message.request_id == f"hostile-{index}")  # type: ignore[misc]
        assert "too ambiguous" in failed.failure.message
        assert failed.failure.status == 400
        assert time.monotonic() - before_s < LIMIT_S
    messages, finished = worker.answer(
        Generate("after", messages=QUESTION, options=GenerateOptions(max_tokens=4, ignore_eos=True))
    )
    assert finished.reasons == ("length",)
    assert text_of(messages, "after")


def test_schema_when_asked_for_then_every_choice_fits(worker: WorkerUnderTest) -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "born": {"type": "string", "format": "date"},
            "tags": {"type": "array", "items": {"enum": ["kind", "old", "tall"]}, "uniqueItems": True, "maxItems": 2},
        },
        "required": ["name", "born", "tags"],
        "additionalProperties": False,
    }
    options = GenerateOptions(max_tokens=150, n=2, sampling=SamplingOptions(temperature=1.2, seed=4))
    shape = AnswerShape(json_schema=json.dumps(schema))
    messages, finished = worker.answer(Generate("schema", messages=QUESTION, options=options, shape=shape))
    assert finished.reasons == ("stop", "stop")
    for choice in range(2):
        value = json.loads(text_of(messages, "schema", choice))
        jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker()).validate(value)


def test_schema_that_cannot_be_kept_when_asked_for_then_is_refused_by_its_keyword(worker: WorkerUnderTest) -> None:
    worker.send(Generate("not", messages=QUESTION, shape=AnswerShape(json_schema='{"not": {}}')))
    failed = worker.until(Failed, lambda message: message.request_id == "not")
    assert (failed.failure.status, failed.failure.details["keyword"]) == (400, "not")
