import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.errors import ModelNotFound, NotAllowed, StorageFault
from runtime.library.folder import Library
from runtime.library.starter import find_starter
from runtime.messages.api import InstalledModel
from tests.library.conftest import Shelf
from tests.library.model_files import put_model, put_projector

Rows = Callable[[Library], dict[str, InstalledModel]]


def test_model_when_removed_then_all_its_files_are_in_the_trash_and_empty_folders_go(shelf: Shelf) -> None:
    paths = [shelf.put("acme", "Big-GGUF", f"Big-0000{i}-of-00002.gguf", split=(i - 1, 2)) for i in (1, 2)]
    paths += [
        put_projector(shelf.data.models / "acme" / "Big-GGUF" / f"mmproj-{name}.gguf", file_type=number)
        for name, number in (("F16", 1), ("BF16", 32))
    ]
    size_bytes = sum(path.stat().st_size for path in paths)
    library = shelf.library()
    answer = library.remove("big")
    assert answer.in_trash
    assert set(answer.paths) == {str(path) for path in paths}
    assert answer.freed_bytes == size_bytes
    assert shelf.trash.names == sorted(path.name for path in paths)
    assert library.installed() == ()
    assert shelf.data.models.is_dir()
    assert not (shelf.data.models / "acme").exists()
    with pytest.raises(ModelNotFound):
        library.remove("big")


def test_projector_that_another_model_uses_when_one_is_removed_then_stays(shelf: Shelf, rows: Rows) -> None:
    for name in ("Q4_K_M", "Q8_0"):
        shelf.put("acme", "Seer", f"Seer-{name}.gguf", name=name)
    put_projector(shelf.data.models / "acme" / "Seer" / "mmproj-F16.gguf")
    library = shelf.library()
    assert [Path(path).name for path in library.remove("seer-q4_k_m").paths] == ["Seer-Q4_K_M.gguf"]
    assert rows(library)["seer-q8_0"].is_vision
    library.remove("seer-q8_0")
    assert shelf.trash.names == ["Seer-Q4_K_M.gguf", "Seer-Q8_0.gguf", "mmproj-F16.gguf"]


def test_files_beside_a_model_when_it_is_removed_then_stay(shelf: Shelf) -> None:
    path = shelf.put("acme", "Own", "own.gguf")
    notes = path.with_name("notes.txt")
    notes.write_text("mine")
    shelf.library().remove("own")
    assert notes.read_text() == "mine"


def test_disk_without_a_trash_when_removed_then_it_is_deleted_and_said(shelf: Shelf) -> None:
    path = shelf.put("own.gguf")
    shelf.trash.refuses = True
    answer = shelf.library().remove("own")
    assert not answer.in_trash
    assert answer.freed_bytes > 0
    assert not path.exists()


def test_file_that_cannot_be_moved_when_removed_then_it_stays_and_says_why(shelf: Shelf) -> None:
    path = shelf.put("own.gguf")
    library = shelf.library()

    def busy(_: str) -> None:
        raise PermissionError(13, "Permission denied")

    library._to_trash = busy
    with pytest.raises(StorageFault, match="Permission denied"):
        library.remove("own")
    assert path.exists()
    assert len(library.installed()) == 1


def test_file_that_is_gone_already_when_removed_then_is_no_error(shelf: Shelf) -> None:
    paths = [shelf.put(f"Big-0000{i}-of-00002.gguf", split=(i - 1, 2)) for i in (1, 2)]
    library = shelf.library()
    library.installed()

    def gone_first(path: str) -> None:
        paths[1].unlink(missing_ok=True)
        shelf.trash(path)

    library._to_trash = gone_first
    assert library.remove("big").paths == (str(paths[0]),)


def test_starter_model_when_removed_then_stays(shelf: Shelf) -> None:
    library = Library(shelf.data, shelf.options, to_trash=shelf.trash)
    with pytest.raises(NotAllowed, match="part of Deskside"):
        library.remove("smollm2-135m-instruct-q4_1")
    starter = find_starter()
    assert starter is not None
    assert starter.is_file()


def test_folder_that_is_a_root_when_its_last_model_goes_then_stays(shelf: Shelf, tmp_path: Path) -> None:
    put_model(tmp_path / "extra" / "x.gguf")
    shelf.with_options(folders=(str(tmp_path / "extra"),))
    shelf.library().remove("x")
    assert (tmp_path / "extra").is_dir()


@pytest.mark.e2e
@pytest.mark.skipif(sys.platform != "linux", reason="reads the trash of freedesktop systems")
def test_system_trash_when_a_model_is_removed_then_has_the_file_and_where_it_was(shelf: Shelf, tmp_path: Path) -> None:
    path = shelf.put("own.gguf")
    size_bytes = path.stat().st_size
    program = f"""
from pathlib import Path
from runtime.library.folder import Library
from runtime.paths import DataFolder
answer = Library(DataFolder(Path({str(shelf.data.root)!r}))).remove("own")
assert answer.in_trash and answer.freed_bytes == {size_bytes}, answer
"""
    (tmp_path / "home of trash").mkdir()
    environ = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "xdg"), "HOME": str(tmp_path / "home of trash")}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, env=environ)
    assert not path.exists()
    trashed = list(tmp_path.rglob("Trash*/files/own.gguf"))
    assert [one.stat().st_size for one in trashed] == [size_bytes]
    info = next(tmp_path.rglob("Trash*/info/own.gguf.trashinfo")).read_text()
    assert "own.gguf" in info
