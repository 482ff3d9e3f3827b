"""A worker process with a draft model beside its model: loaded by order, told in timings and health."""

from pathlib import Path

import pytest

from runtime.library.starter import find_starter
from runtime.messages.ipc import Generate, Load, LoadFailed, Ready, Shutdown
from runtime.options import GenerateOptions, LoadOptions, SamplingOptions
from tests.support.gguf_files import write_tiny_model
from tests.support.worker_process import WorkerUnderTest, text_of

pytestmark = pytest.mark.e2e
OPTIONS = LoadOptions(n_ctx=512, n_parallel=2, n_threads=1, draft_model="itself", n_draft_max=3)


def starter() -> Path:
    path = find_starter()
    assert path is not None
    return path


def test_when_a_draft_model_is_ordered_then_its_guesses_are_told(tmp_path: Path) -> None:
    with WorkerUnderTest(tmp_path / "worker.log") as worker:
        worker.send(Load(str(starter()), OPTIONS, draft_path=str(starter())))
        facts = worker.until(Ready).facts
        assert facts.resolved["speculation"] == "draft"
        assert sum(memory.draft_bytes for memory in facts.memory) > 0.8 * facts.size_bytes
        options = GenerateOptions(max_tokens=32, ignore_eos=True, sampling=SamplingOptions(temperature=0))
        messages, finished = worker.answer(Generate("a", prompt="The sea is", options=options))
        assert finished.usage.completion_tokens == 32
        assert text_of(messages, "a")
        assert 0 < finished.timings.draft_accepted <= finished.timings.draft_tokens
        while (health := worker.health.get(timeout=30)).draft_tokens < finished.timings.draft_tokens:
            pass
        assert health.draft_accepted == finished.timings.draft_accepted
        worker.send(Shutdown())
        assert worker.wait_for_exit() == 0


def test_when_the_draft_model_has_other_tokens_then_the_load_fails_with_the_reason(tmp_path: Path) -> None:
    with WorkerUnderTest(tmp_path / "worker.log") as worker:
        other = tmp_path / "other.gguf"
        write_tiny_model(other)
        worker.send(Load(str(starter()), OPTIONS, draft_path=str(other)))
        failure = worker.until(LoadFailed).failure
        assert "cannot draft for this model" in failure.message or "could not be loaded" in failure.message
        assert worker.wait_for_exit() == 3
