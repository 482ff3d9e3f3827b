import os
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.errors import BadRequest, Busy, DiskFull, StorageFault
from runtime.library import copying, moving
from runtime.library.folder import Library
from runtime.library.progress import Cancelled, Meter, Progress
from runtime.messages.api import InstalledModel
from tests.library.conftest import Shelf
from tests.library.model_files import put_model, put_projector, sha256_of

Rows = Callable[[Library], dict[str, InstalledModel]]


@pytest.fixture(params=["rename", "copy"])
def disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "copy":
        monkeypatch.setattr(moving, "_is_one_disk", lambda *_: False)
    return str(request.param)


def fill(shelf: Shelf) -> dict[str, str]:
    """Models of several kinds; their hashes by name."""
    paths = [shelf.put("acme", "Big", f"Big-0000{i}-of-00002.gguf", split=(i - 1, 2)) for i in (1, 2)]
    paths.append(put_projector(shelf.data.models / "acme" / "Big" / "mmproj-F16.gguf"))
    paths.append(shelf.put("own.gguf", name="own"))
    return {path.name: sha256_of(path) for path in paths}


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: sha256_of(path) for path in folder.rglob("*.gguf")}


def switch(shelf: Shelf, library: Library, target: Path) -> None:
    shelf.with_options(main_folder=str(target))
    library.set_options(shelf.options)


def test_main_folder_when_moved_then_everything_is_there_and_the_old_one_is_empty(
    shelf: Shelf, rows: Rows, tmp_path: Path, disk: str
) -> None:
    wanted = fill(shelf)
    partial = shelf.data.models / "acme" / "New" / "new.gguf.partial"
    partial.parent.mkdir()
    partial.write_bytes(b"half")
    notes = shelf.data.models / "notes.txt"
    notes.write_text("mine")
    library = shelf.library()
    library.record_arrival([shelf.data.models / "own.gguf"], [wanted["own.gguf"]])
    before = rows(library)
    target = tmp_path / "Großes Laufwerk" / "models"
    seen: list[Progress] = []
    assert library.move_main(str(target), seen.append).startswith("Moved 2 models to")
    assert set(rows(library)) == set(before), "both folders are searched until the new one is in use"
    switch(shelf, library, target)
    assert hashes(target) == wanted
    assert (target / "acme" / "New" / "new.gguf.partial").read_bytes() == b"half"
    assert hashes(shelf.data.models) == {}
    assert notes.read_text() == "mine"
    after = rows(library)
    assert set(after) == {"big", "own"}
    assert after["own"].verified == "ok"
    assert after["own"].path == str(target / "own.gguf")
    assert after["own"].publisher == before["own"].publisher
    assert library.state().folders[0].path == str(target)
    assert rows(shelf.library()) == after
    assert seen[-1].fraction == 1.0
    assert disk in ("rename", "copy")


@pytest.mark.usefixtures("disk")
def test_move_when_cancelled_then_all_is_as_before(shelf: Shelf, rows: Rows, tmp_path: Path) -> None:
    wanted = fill(shelf)
    library = shelf.library()
    before = rows(library)
    target = tmp_path / "new"
    asked = iter(range(1000))
    with pytest.raises(Cancelled):
        library.move_main(str(target), is_cancelled=lambda: next(asked) > 4)
    assert hashes(shelf.data.models) == wanted
    assert list(target.rglob("*")) == []
    assert rows(library) == before
    assert rows(shelf.library()) == before


@pytest.mark.usefixtures("disk")
def test_program_that_ends_in_the_middle_when_started_again_then_nothing_is_hidden_and_the_move_goes_on(
    shelf: Shelf, rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = fill(shelf)
    library = shelf.library()
    target = tmp_path / "new"
    n_done = 0

    class Died(BaseException):
        pass

    def die(_: Progress) -> None:
        nonlocal n_done
        n_done += 1
        if n_done > 5:
            raise Died

    with pytest.raises(Died):
        library.move_main(str(target), die)
    again = shelf.library()
    assert set(rows(again)) == {"big", "own"}
    assert {model.problem for model in again.installed()} == {""}
    assert hashes(shelf.data.models) == wanted
    copied: list[Path] = []
    real = copying.copy_file

    def count(source: Path, place: Path, meter: Meter) -> str:
        copied.append(source)
        return real(source, place, meter)

    monkeypatch.setattr(moving, "copy_file", count)
    again.move_main(str(target))
    assert len(copied) < len(wanted), "what was copied is not copied again"
    switch(shelf, again, target)
    assert hashes(target) == wanted
    assert hashes(shelf.data.models) == {}
    assert set(rows(again)) == {"big", "own"}


def test_program_that_ends_before_the_old_files_are_deleted_when_started_again_then_they_go(
    shelf: Shelf, rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "_is_one_disk", lambda *_: False)
    wanted = fill(shelf)
    target = tmp_path / "new"
    shelf.library().move_main(str(target))
    assert hashes(shelf.data.models) == wanted
    shelf.with_options(main_folder=str(target))
    again = shelf.library()
    assert hashes(shelf.data.models) == {}
    assert hashes(target) == wanted
    assert set(rows(again)) == {"big", "own"}


def test_copy_that_was_changed_meanwhile_when_the_move_is_finished_then_the_original_stays(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "_is_one_disk", lambda *_: False)
    wanted = fill(shelf)
    target = tmp_path / "new"
    library = shelf.library()
    library.move_main(str(target))
    (target / "own.gguf").write_bytes(b"cut off")
    switch(shelf, library, target)
    assert hashes(shelf.data.models) == {"own.gguf": wanted["own.gguf"]}


@pytest.mark.usefixtures("disk")
def test_names_that_are_taken_in_the_new_folder_when_moved_then_both_stay(shelf: Shelf, tmp_path: Path) -> None:
    ours = shelf.put("own.gguf", name="ours")
    digest = sha256_of(ours)
    theirs = put_model(tmp_path / "new" / "own.gguf", name="theirs", file_type=7)
    their_digest = sha256_of(theirs)
    library = shelf.library()
    library.move_main(str(tmp_path / "new"))
    switch(shelf, library, tmp_path / "new")
    assert hashes(tmp_path / "new") == {"own.gguf": their_digest, "own-2.gguf": digest}
    assert not ours.exists()
    assert len(library.installed()) == 2


def test_disk_that_is_full_when_moved_then_nothing_begins(
    shelf: Shelf, rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "_is_one_disk", lambda *_: False)
    wanted = fill(shelf)
    library = shelf.library()
    monkeypatch.setattr(copying, "free_bytes", lambda _: 1000)
    with pytest.raises(DiskFull):
        library.move_main(str(tmp_path / "new"))
    assert hashes(shelf.data.models) == wanted
    assert set(rows(library)) == {"big", "own"}


def test_drive_that_fails_in_the_middle_when_moved_then_the_old_folder_is_whole(
    shelf: Shelf, rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "_is_one_disk", lambda *_: False)
    wanted = fill(shelf)
    library = shelf.library()
    real = copying.copy_file

    def fail(source: Path, target: Path, meter: Meter) -> str:
        if source.name == "own.gguf":
            raise StorageFault("The disk reported an error.")
        return real(source, target, meter)

    monkeypatch.setattr(moving, "copy_file", fail)
    with pytest.raises(StorageFault):
        library.move_main(str(tmp_path / "new"))
    assert hashes(shelf.data.models) == wanted
    assert set(rows(library)) == {"big", "own"}


def test_move_that_failed_when_another_place_is_chosen_then_nothing_is_left_at_the_first(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "_is_one_disk", lambda *_: False)
    wanted = fill(shelf)
    library = shelf.library()

    def fail(progress: Progress) -> None:
        if progress.fraction > 0.6:
            raise StorageFault("The disk reported an error.")

    with pytest.raises(StorageFault):
        library.move_main(str(tmp_path / "first"), fail)
    assert hashes(tmp_path / "first"), "checked copies stay for the next try"
    library.move_main(str(tmp_path / "second"))
    switch(shelf, library, tmp_path / "second")
    assert list((tmp_path / "first").rglob("*")) == []
    assert hashes(tmp_path / "second") == wanted


def test_folders_that_cannot_be_the_new_one_when_moved_then_say_why(shelf: Shelf, tmp_path: Path) -> None:
    fill(shelf)
    library = shelf.library()
    (tmp_path / "file").touch()
    for path, words in (
        (shelf.data.models, "already"),
        (shelf.data.models / "inside", "lies inside"),
        (tmp_path / "file", "not a folder"),
        (Path("relative"), "whole path"),
    ):
        with pytest.raises(BadRequest, match=words):
            library.move_main(str(path))
    with pytest.raises((BadRequest, StorageFault)):
        library.move_main(str(tmp_path / "file" / "below"))


def test_files_of_another_program_when_the_main_folder_is_theirs_then_are_not_moved(
    shelf: Shelf, tmp_path: Path
) -> None:
    theirs = put_model(shelf.home / ".lmstudio" / "models" / "p" / "r" / "theirs.gguf", name="theirs")
    ours = put_model(shelf.home / ".lmstudio" / "models" / "p" / "s" / "ours.gguf", name="ours")
    shelf.with_options(main_folder=str(shelf.home / ".lmstudio" / "models"))
    library = shelf.library()
    library.record_arrival([ours], [sha256_of(ours)])
    assert {model.id: model.origin for model in library.installed()} == {"theirs": "lm_studio", "ours": "deskside"}
    library.move_main(str(tmp_path / "new"))
    switch(shelf, library, tmp_path / "new")
    assert theirs.is_file()
    assert not ours.exists()
    assert {model.id: model.origin for model in library.installed()} == {"theirs": "lm_studio", "ours": "deskside"}


def test_second_process_when_one_moves_then_neither_moves_nor_takes_back(
    shelf: Shelf, rows: Rows, tmp_path: Path
) -> None:
    wanted = fill(shelf)
    library = shelf.library()
    target = tmp_path / "new"
    seen: list[set[str]] = []

    def look_from_elsewhere(progress: Progress) -> None:
        if len(seen) < 3 and progress.fraction > 0.6:
            other = shelf.library()
            seen.append(set(rows(other)))
            for place in (target, tmp_path / "another"):
                with pytest.raises(Busy):
                    other.move_main(str(place))

    library.move_main(str(target), look_from_elsewhere)
    switch(shelf, library, target)
    assert hashes(target) == wanted
    assert seen
    assert all({"big", "own"} <= names for names in seen)


def test_modification_times_when_moved_by_copy_then_are_kept(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "_is_one_disk", lambda *_: False)
    path = shelf.put("own.gguf")
    os.utime(path, (1_600_000_000, 1_600_000_000))
    shelf.library().move_main(str(tmp_path / "new"))
    assert (tmp_path / "new" / "own.gguf").stat().st_mtime == 1_600_000_000
