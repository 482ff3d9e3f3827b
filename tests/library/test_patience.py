"""Drives that do not answer: what asks them comes back late or never, here as long as a test holds it."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtime.errors import StorageFault
from runtime.gguf.source import FileSource
from runtime.library import patience
from runtime.library.folder import Library
from runtime.library.patience import Lane, NotAnswering, touch
from runtime.messages.api import InstalledModel
from tests.library.conftest import Shelf
from tests.library.model_files import put_model

Rows = Callable[[Library], dict[str, InstalledModel]]

needs_links = pytest.mark.skipif(sys.platform == "win32", reason="needs symbolic links")
SILENT_AFTER_S = 0.15


class DeadDrive:
    """Everything that lists a folder, follows a link or opens a file below `place` waits until `connect`."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._place = str(place)
        self._connected = threading.Event()
        self.n_waiting = 0
        scandir, realpath, is_dir = os.scandir, os.path.realpath, Path.is_dir
        monkeypatch.setattr(os, "scandir", lambda path=".": scandir(self._wait(path)))
        monkeypatch.setattr(os.path, "realpath", lambda path, **more: realpath(self._wait(path), **more))
        monkeypatch.setattr(Path, "is_dir", lambda path, **more: is_dir(Path(self._wait(path)), **more))
        opened = FileSource.__init__

        def opens(source: FileSource, path: Path) -> None:
            self._wait(path)
            opened(source, path)

        monkeypatch.setattr(FileSource, "__init__", opens)

    def connect(self) -> None:
        self._connected.set()

    def _wait(self, asked: str | os.PathLike[str]) -> str | os.PathLike[str]:
        path = os.fspath(asked)
        with contextlib.suppress(OSError):
            path = os.path.join(Path(path).parent, Path(path).readlink())  # noqa: PTH118
        if path.startswith(self._place) and not self._connected.is_set():
            self.n_waiting += 1
            assert self._connected.wait(60), "nobody connected the drive"
        return asked


@pytest.fixture
def kill(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], DeadDrive]]:
    monkeypatch.setattr(patience, "SILENT_AFTER_S", SILENT_AFTER_S)
    made: list[DeadDrive] = []

    def make(place: Path) -> DeadDrive:
        made.append(DeadDrive(place, monkeypatch))
        return made[-1]

    yield make
    for drive in made:
        drive.connect()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "did not come about"
        threading.Event().wait(0.01)


def problems(library: Library) -> dict[str, str]:
    return {Path(folder.path).name: folder.problem for folder in library.state().folders}


def test_folder_that_does_not_answer_when_listed_then_the_others_are_and_it_is_named(
    shelf: Shelf, tmp_path: Path, rows: Rows, kill: Callable[[Path], DeadDrive]
) -> None:
    nas = tmp_path / "nas"
    shelf.put("here.gguf", name="A")
    put_model(nas / "there.gguf", name="B")
    shelf.with_options(folders=(str(nas),))
    library = shelf.library()
    drive = kill(nas)
    began_at = time.monotonic()
    assert set(rows(library)) == {"here"}
    assert time.monotonic() - began_at < 10
    assert str(nas) in problems(library)["nas"]
    assert "does not answer" in problems(library)["nas"]
    assert problems(library)[shelf.data.models.name] == ""
    asked = drive.n_waiting
    assert asked == 1
    assert set(rows(library)) == {"here"}  # asked no second time while the first still waits
    assert drive.n_waiting == asked
    drive.connect()
    until(lambda: set(rows(library)) == {"here", "there"})
    assert problems(library)["nas"] == ""
    library.check_silent("there")


def test_name_of_a_model_when_its_folder_does_not_answer_then_that_is_said(
    shelf: Shelf, tmp_path: Path, kill: Callable[[Path], DeadDrive]
) -> None:
    nas = tmp_path / "nas"
    put_model(nas / "there.gguf", name="B")
    shelf.with_options(folders=(str(nas),))
    library = shelf.library()
    assert library.find("there").id == "there"
    kill(nas)
    with pytest.raises(StorageFault, match="does not answer") as caught:
        library.resolve("there")
    assert caught.value.status == 503


def test_path_when_another_folder_does_not_answer_then_it_is_found_and_one_in_there_is_not_waited_for(
    shelf: Shelf, tmp_path: Path, kill: Callable[[Path], DeadDrive]
) -> None:
    nas = tmp_path / "nas"
    there, elsewhere = put_model(nas / "there.gguf", name="B"), put_model(tmp_path / "else" / "one.gguf", name="C")
    here = shelf.put("here.gguf", name="A")
    shelf.with_options(folders=(str(nas),))
    library = shelf.library()
    drive = kill(nas)
    assert library.resolve(str(elsewhere)).path == str(elsewhere)
    assert library.resolve(str(here)).id == "here"
    asked = drive.n_waiting
    with pytest.raises(StorageFault, match="does not answer"):
        library.resolve(str(there))
    assert drive.n_waiting == asked


@needs_links
def test_link_to_a_drive_that_does_not_answer_when_listed_then_the_rest_of_the_folder_is(
    shelf: Shelf, tmp_path: Path, rows: Rows, kill: Callable[[Path], DeadDrive]
) -> None:
    nas = tmp_path / "nas"
    put_model(nas / "deep" / "there.gguf", name="B")
    shelf.put("a.gguf", name="A")
    shelf.put("z", "b.gguf", name="C")
    (shelf.data.models / "link").symlink_to(nas)
    library = shelf.library()
    drive = kill(nas)
    assert set(rows(library)) == {"a", "b"}
    assert str(shelf.data.models / "link") in problems(library)[shelf.data.models.name]
    drive.connect()
    until(lambda: set(rows(library)) == {"a", "b", "there"})


@needs_links
def test_many_linked_files_of_a_dead_drive_when_listed_then_one_is_waited_for(
    shelf: Shelf, tmp_path: Path, rows: Rows, kill: Callable[[Path], DeadDrive]
) -> None:
    nas = tmp_path / "nas"
    shelf.put("zz.gguf", name="A")
    for i in range(20):
        put_model(nas / f"there{i}.gguf", name=f"B{i}")
        (shelf.data.models / f"link{i}.gguf").symlink_to(nas / f"there{i}.gguf")
    library = shelf.library()
    drive = kill(nas)
    assert set(rows(library)) == {"zz"}
    assert drive.n_waiting == 1
    drive.connect()
    until(lambda: len(rows(library)) == 21)


def test_header_that_does_not_come_when_read_then_only_that_file_is_left_out(
    shelf: Shelf, rows: Rows, kill: Callable[[Path], DeadDrive]
) -> None:
    slow = shelf.put("slow.gguf", name="A")
    shelf.put("fast.gguf", name="B")
    library = shelf.library()
    drive = kill(slow)
    assert set(rows(library)) == {"fast"}
    assert "slow.gguf" in problems(library)[shelf.data.models.name]
    drive.connect()
    until(lambda: set(rows(library)) == {"fast", "slow"})


def test_folder_of_another_program_when_it_does_not_answer_then_it_is_named(
    shelf: Shelf, rows: Rows, kill: Callable[[Path], DeadDrive]
) -> None:
    theirs = shelf.home / ".lmstudio" / "models"
    put_model(theirs / "p" / "r" / "there.gguf", name="B")
    shelf.put("here.gguf", name="A")
    library = shelf.library()
    kill(theirs)
    assert set(rows(library)) == {"here"}
    assert any(str(theirs) in folder.problem for folder in library.state().folders)


def test_folder_to_import_when_it_does_not_answer_then_it_is_said(
    shelf: Shelf, tmp_path: Path, kill: Callable[[Path], DeadDrive]
) -> None:
    nas = tmp_path / "nas" / "inner"
    put_model(nas / "there.gguf", name="B")
    library = shelf.library()
    kill(nas)
    with pytest.raises(StorageFault, match="does not answer"):
        library.import_path(str(nas.parent))


def test_lane_when_the_work_goes_on_slowly_then_what_was_found_before_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "AGAIN_WITHIN_S", 0.1)
    gate, turn = threading.Event(), iter((1, 2, 3))
    gate.set()

    def work() -> int:
        number = next(turn)
        while not gate.wait(0.01):
            touch("still/there")
        return number

    lane = Lane(work)
    lane.begin()
    assert lane.finish(time.monotonic()).value == 1
    gate.clear()
    lane.begin()
    answer = lane.finish(time.monotonic())
    assert (answer.value, answer.is_old, answer.silent) == (1, True, ())
    gate.set()
    lane.begin()
    answer = lane.finish(time.monotonic())
    assert answer.value in (2, 3)
    assert not answer.is_old


def test_lane_when_nothing_answers_then_it_gives_up_with_a_bound_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "SILENT_AFTER_S", 0.02)
    held, started = threading.Event(), []

    def work() -> None:
        for i in range(100):
            try:
                touch(f"/drive{i}/x")
            except NotAnswering:
                continue
            started.append(i)
            held.wait(60)

    lane = Lane(work)
    for _ in range(3):
        lane.begin()
        answer = lane.finish(time.monotonic())
        assert answer.value is None
        assert len(answer.silent) == len(started) == patience.MAX_STUCK
    held.set()
    until(lambda: lane.silent == ())


def test_lane_when_the_work_fails_then_it_is_told_to_who_waits() -> None:
    def work() -> None:
        raise ValueError("no")

    lane = Lane(work)
    lane.begin()
    with pytest.raises(ValueError, match="no"):
        lane.finish(time.monotonic())
    lane.begin()
    with pytest.raises(ValueError, match="no"):
        lane.finish(time.monotonic())
