"""A long prompt over the end of its process: real workers, one after the other, the starter model."""

from pathlib import Path

import pytest

from runtime.library.starter import find_starter
from runtime.messages.ipc import Finished, Generate, Load, Ready, Shutdown
from runtime.options import GenerateOptions, LoadOptions, SamplingOptions
from tests.support.worker_process import WorkerUnderTest, text_of

pytestmark = pytest.mark.e2e

GREEDY = GenerateOptions(max_tokens=16, sampling=SamplingOptions(temperature=0))
STORY = "Once upon a time there was a sailor who counted every wave. " * 24
OPTIONS = LoadOptions(n_ctx=1024, n_parallel=1, disk_cache_bytes=200_000_000)


def ask(worker: WorkerUnderTest, name: str, prompt: str) -> tuple[str, Finished]:
    messages, finished = worker.answer(Generate(name, prompt=prompt, options=GREEDY))
    return text_of(messages, name), finished


class Run:
    """One worker from load to unload."""

    def __init__(self, folder: Path, states: Path, options: LoadOptions = OPTIONS) -> None:
        path = find_starter()
        assert path is not None
        self.worker = WorkerUnderTest(folder / f"worker-{len(list(folder.iterdir()))}.log")
        self.worker.__enter__()
        self.worker.send(Load(str(path), options, states_folder=str(states)))
        self.worker.until(Ready)

    def end(self) -> None:
        self.worker.send(Shutdown(0.0))
        assert self.worker.wait_for_exit() == 0, self.worker.log_text()

    def __enter__(self) -> WorkerUnderTest:
        return self.worker

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.end()
        self.worker.__exit__()


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data") / "cache" / "states"


@pytest.fixture(scope="module")
def before(states: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the first process answered when all but the last token was there already."""
    with Run(tmp_path_factory.mktemp("logs"), states) as worker:
        _text, cold = ask(worker, "cold", STORY)
        assert cold.usage.cached_tokens == 0
        text, warm = ask(worker, "warm", STORY)
        assert warm.usage.cached_tokens == warm.usage.prompt_tokens - 1
    return text


def files(states: Path) -> list[Path]:
    return sorted(states.glob("*/*.state"))


def test_when_the_model_is_loaded_again_then_a_long_prompt_goes_on_and_the_answer_is_the_same(
    before: str, states: Path, tmp_path: Path
) -> None:
    assert len(files(states)) == 1
    with Run(tmp_path, states) as worker:
        text, finished = ask(worker, "again", STORY)
        assert finished.usage.cached_tokens == finished.usage.prompt_tokens - 1
        assert text == before
        _other, beginning = ask(worker, "beginning", STORY[: len(STORY) // 2] + "And then?")
        assert beginning.usage.cached_tokens > 100
    assert sum(file.stat().st_size for file in files(states)) <= 200_000_000


@pytest.mark.usefixtures("before")
def test_when_it_is_loaded_with_other_numbers_in_its_cache_then_nothing_is_reused(states: Path, tmp_path: Path) -> None:
    options = LoadOptions(n_ctx=1024, n_parallel=1, type_k="q8_0", disk_cache_bytes=200_000_000)
    with Run(tmp_path, states, options) as worker:
        _text, finished = ask(worker, "other", STORY)
        assert finished.usage.cached_tokens == 0


@pytest.mark.usefixtures("before")
def test_when_stored_files_are_damaged_then_they_go_and_the_worker_answers(states: Path, tmp_path: Path) -> None:
    damaged = files(states)
    assert damaged
    for file in damaged:
        raw = bytearray(file.read_bytes())
        raw[len(raw) // 2] ^= 0xFF
        file.write_bytes(raw)
    run = Run(tmp_path, states)
    with run as worker:
        text, finished = ask(worker, "damaged", STORY)
        assert finished.usage.cached_tokens == 0
        assert finished.usage.completion_tokens > 0
        assert text
    assert "is deleted: the checksum does not fit" in run.worker.log_text()


def test_when_it_is_switched_off_then_nothing_is_written_or_read(tmp_path: Path) -> None:
    logs, states = tmp_path / "logs", tmp_path / "states"
    logs.mkdir()
    with Run(logs, states, LoadOptions(n_ctx=1024, n_parallel=1, disk_cache_bytes=0)) as worker:
        _text, finished = ask(worker, "off", STORY)
        assert finished.usage.cached_tokens == 0
    assert not states.exists()
