"""The parts of a worker's life that need no process: what stops a load before llama.cpp, and progress."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.errors import FileTruncated, NotGguf, RuntimeFault, StorageFault
from runtime.messages.ipc import Load, LoadProgress
from runtime.worker.process import WorkerProcess
from tests.support.gguf_files import write_tiny_model


def make() -> WorkerProcess:
    return WorkerProcess(("127.0.0.1", 1), "token")


def cut(path: Path, n_bytes: int) -> None:
    os.truncate(write_tiny_model(path), n_bytes)


@pytest.mark.parametrize(
    ("prepare", "kind", "words"),
    [
        (lambda path: path.write_text("<html>Not found</html>"), NotGguf, "not a GGUF"),
        (lambda path: path.touch(), NotGguf, "empty"),
        (lambda path: cut(path, 20_000), FileTruncated, "inside its own header"),
        (lambda path: cut(path, 64_000), FileTruncated, "is incomplete"),
        (lambda path: path.mkdir(), StorageFault, "cannot be read"),
        (lambda path: path.with_name("elsewhere"), StorageFault, "cannot be read"),
    ],
    ids=["other file", "empty", "cut in its header", "cut in its tensors", "folder", "missing"],
)
def test_file_that_cannot_be_loaded_when_tried_then_the_reason_is_its_own(
    tmp_path: Path, prepare: Callable[[Path], object], kind: type[RuntimeFault], words: str
) -> None:
    path = tmp_path / "model.gguf"
    prepare(path)
    with pytest.raises(kind, match=words) as caught:
        make()._load(path, Load(str(path)))
    assert type(caught.value) is kind
    assert "model.gguf" in caught.value.message


def test_progress_when_told_a_thousand_times_then_few_words_go_out_and_the_last_is_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = make()
    now = [0.0]
    monkeypatch.setattr("runtime.worker.process.time.monotonic", lambda: now[0])
    for i in range(1001):
        now[0] = i / 1000
        worker._on_progress("Reading", i / 1000)
    items = worker._outbox.take()
    assert items is not None
    told = [item for item in items if isinstance(item, LoadProgress)]
    assert 10 <= len(told) <= 22
    assert told[-1].fraction == 1.0


def test_progress_when_a_new_stage_begins_then_is_told_at_once() -> None:
    worker = make()
    worker._on_progress("Reading", 0.1)
    worker._on_progress("Warming up", 0.1)
    worker._on_progress("Warming up", 1.5)
    items = worker._outbox.take()
    assert items == [LoadProgress("Reading", 0.1), LoadProgress("Warming up", 0.1), LoadProgress("Warming up", 1.0)]
