import os
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.errors import BadRequest, DiskFull, HashMismatch, NotAllowed, NotGguf, StorageFault
from runtime.library import copying, importing
from runtime.library.folder import Library
from runtime.library.importing import MAX_NAME_BYTES, safe_name
from runtime.library.progress import Cancelled, Progress
from runtime.messages.api import InstalledModel
from tests.library.conftest import Shelf
from tests.library.model_files import OllamaStore, put_model, put_projector, sha256_of

Rows = Callable[[Library], dict[str, InstalledModel]]


@pytest.fixture(params=["rename", "copy"])
def disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Moves on one disk, and to another one."""
    if request.param == "copy":
        monkeypatch.setattr(importing, "_on_one_disk", lambda *_: False)
    return str(request.param)


def leftovers(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.name.endswith((".copying", ".partial"))]


def test_file_when_copied_in_then_stands_below_its_publisher_and_the_source_stays(
    shelf: Shelf, rows: Rows, tmp_path: Path
) -> None:
    source = put_model(tmp_path / "Mes modèles" / "Tiny-1B-Q4_K_M.gguf")
    library = shelf.library()
    seen: list[Progress] = []
    assert "Copied Tiny-1B-Q4_K_M.gguf" in library.import_path(str(source), "copy", seen.append)
    model = rows(library)["tiny-1b-q4_k_m"]
    assert Path(model.path) == shelf.data.models / "Testers" / "tiny-1b" / "Tiny-1B-Q4_K_M.gguf"
    assert sha256_of(Path(model.path)) == sha256_of(source)
    assert Path(model.path).stat().st_mtime_ns == source.stat().st_mtime_ns
    assert seen[-1].fraction == 1.0
    assert leftovers(shelf.data.models) == []


@pytest.mark.usefixtures("disk")
def test_set_with_projector_when_moved_in_then_all_files_come(shelf: Shelf, rows: Rows, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    paths = [put_model(folder / f"Big-Q8_0-0000{i}-of-00002.gguf", split=(i - 1, 2)) for i in (1, 2)]
    put_projector(folder / "mmproj-Big-f16.gguf")
    library = shelf.library()
    library.import_path(str(paths[1]), "move")
    model = rows(library)["big-q8_0"]
    assert (model.n_files, model.is_vision, model.problem) == (3, True, "")
    assert list(folder.iterdir()) == []


def test_folder_when_imported_then_every_whole_model_in_it_comes(shelf: Shelf, rows: Rows, tmp_path: Path) -> None:
    for name in ("a/One-Q8_0.gguf", "b/c/Two-Q8_0.gguf"):
        put_model(tmp_path / "in" / name, name=name)
    (tmp_path / "in" / "broken.gguf").write_text("no")
    put_model(tmp_path / "in" / "Half-00001-of-00002.gguf", split=(0, 2))
    library = shelf.library()
    assert library.import_path(str(tmp_path / "in")).startswith("Copied 2 models to")
    assert set(rows(library)) == {"one-q8_0", "two-q8_0"}


def test_what_is_no_model_when_imported_then_says_why(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "page.gguf").write_text("<html>")
    (tmp_path / "empty").mkdir()
    library = shelf.library()
    with pytest.raises(NotGguf):
        library.import_path(str(tmp_path / "page.gguf"))
    with pytest.raises(BadRequest, match="no whole GGUF"):
        library.import_path(str(tmp_path / "empty"))
    with pytest.raises(BadRequest, match="no file"):
        library.import_path(str(tmp_path / "nothing.gguf"))
    assert list(shelf.data.models.iterdir()) == []


def test_blob_of_ollama_when_copied_in_then_has_a_telling_name_and_is_checked(
    shelf: Shelf, rows: Rows, tmp_path: Path
) -> None:
    store = OllamaStore(shelf.home / ".ollama" / "models")
    digest = store.put_blob(put_model(tmp_path / "x.gguf"))
    store.put_manifest("llama3.2", "1b", ("model", digest))
    library = shelf.library()
    blob = rows(library)["llama3.2-1b"].path
    library.import_path(blob)
    own = [model for model in library.installed() if model.origin == "deskside"]
    assert [Path(model.path).name for model in own] == ["llama3.2-1b-Q4_K_M.gguf"]
    assert own[0].verified == "ok"
    with pytest.raises(NotAllowed, match="belongs to Ollama"):
        library.import_path(blob, "move")
    Path(blob).write_bytes(Path(blob).read_bytes()[:-1] + b"\x07")
    with pytest.raises(HashMismatch):
        library.import_path(blob)


def test_same_file_when_imported_again_then_nothing_is_doubled(shelf: Shelf, tmp_path: Path) -> None:
    source = put_model(tmp_path / "x-Q8_0.gguf")
    library = shelf.library()
    library.import_path(str(source))
    library.import_path(str(source))
    library.import_path(str(source), "move")
    assert not source.exists()
    other = put_model(tmp_path / "x-Q8_0.gguf", file_type=7)
    library.import_path(str(other))
    assert sorted(Path(model.path).name for model in library.installed()) == ["x-Q8_0-2.gguf", "x-Q8_0.gguf"]


@pytest.mark.parametrize("place", [("Testers", "x", "x-Q8_0.gguf"), ("x-Q8_0.gguf",)])
def test_file_of_the_main_folder_when_imported_then_stays_as_it_is(shelf: Shelf, place: tuple[str, ...]) -> None:
    path = shelf.put(*place)
    library = shelf.library()
    assert "Already" in library.import_path(str(path), "copy")
    assert "Already" in library.import_path(str(path), "move")
    assert "Already" in library.import_path(str(path), "use_in_place")
    assert [Path(model.path) for model in library.installed()] == [path]


@pytest.mark.usefixtures("disk")
def test_second_name_of_our_own_file_when_moved_in_then_the_content_stays(shelf: Shelf, tmp_path: Path) -> None:
    path = shelf.put("Testers", "x", "x-Q8_0.gguf")
    os.link(path, tmp_path / "x-Q8_0.gguf")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "x-Q8_0.gguf").symlink_to(path)
    library = shelf.library()
    for name in ("x-Q8_0.gguf", "linked/x-Q8_0.gguf"):
        library.import_path(str(tmp_path / name), "move")
    assert path.is_file()
    assert [Path(model.path) for model in library.installed()] == [path]


def test_file_when_used_in_place_then_is_listed_over_starts_and_only_forgotten(
    shelf: Shelf, rows: Rows, tmp_path: Path
) -> None:
    source = put_model(tmp_path / "my files" / "x-Q8_0.gguf")
    library = shelf.library()
    assert "without copying" in library.import_path(str(source), "use_in_place")
    assert "Already listed" in library.import_path(str(source), "use_in_place")
    again = shelf.library()
    assert rows(again)["x-q8_0"].origin == "folder"
    assert rows(again)["x-q8_0"].path == str(source)
    assert again.state().used_bytes == source.stat().st_size
    assert again.remove("x-q8_0").paths == ()
    assert source.is_file()
    assert library.installed() == ()


def test_full_disk_when_imported_then_says_how_much_is_missing(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = put_model(tmp_path / "x.gguf")
    library = shelf.library()
    monkeypatch.setattr(copying, "free_bytes", lambda _: 1000)
    with pytest.raises(DiskFull) as caught:
        library.import_path(str(source))
    assert caught.value.details["needed_bytes"] == source.stat().st_size
    assert caught.value.details["free_bytes"] == 1000


@pytest.mark.usefixtures("disk")
def test_import_when_cancelled_then_source_is_whole_and_nothing_half_is_left(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "CHUNK_BYTES", 512)
    source = put_model(tmp_path / "x.gguf")
    digest = sha256_of(source)
    library = shelf.library()
    asked = iter(range(1000))
    with pytest.raises(Cancelled):
        library.import_path(str(source), "move", is_cancelled=lambda: next(asked) > 0)
    found = [path for path in (source, *shelf.data.models.rglob("*.gguf")) if path.is_file()]
    assert [sha256_of(path) for path in found] == [digest]
    assert leftovers(shelf.data.models) == []


def test_copy_that_differs_when_read_back_then_is_refused(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = put_model(tmp_path / "x.gguf")
    monkeypatch.setattr(copying, "hash_file", lambda *_: "0" * 64)
    with pytest.raises(StorageFault, match="differs"):
        shelf.library().import_path(str(source), "copy")
    assert source.is_file()
    assert [path for path in shelf.data.models.rglob("*") if path.is_file()] == []


def test_unfinished_copy_of_a_program_that_ended_when_imported_then_goes_after_a_day(
    shelf: Shelf, tmp_path: Path
) -> None:
    old, fresh = shelf.data.models / "old.gguf.copying", shelf.data.models / "fresh.gguf.copying"
    old.touch()
    fresh.touch()
    os.utime(old, (1_000_000, 1_000_000))
    shelf.library().import_path(str(put_model(tmp_path / "x.gguf")))
    assert not old.exists()
    assert fresh.exists()


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ("plain.gguf", "plain.gguf"),
        ('a<b>:"c|d?*.gguf', "a-b-c-d-.gguf"),
        ("..\\..\\up/x.gguf", "-..-up-x.gguf"),
        ("con.gguf", "_con.gguf"),
        ("dots...", "dots"),
        ("caf\udce9.gguf", "caf-.gguf"),
        ("...", "fallback"),
        ("", "fallback"),
        ("Модель 7B.gguf", "Модель 7B.gguf"),
    ],
)
def test_name_when_made_safe_then_every_system_can_hold_it(raw: str, name: str) -> None:
    assert safe_name(raw, fallback="fallback") == name


def test_very_long_name_when_made_safe_then_is_cut_between_characters_and_keeps_its_ending() -> None:
    name = safe_name("ü" * 300 + ".gguf", fallback="x")
    assert name.endswith("ü.gguf")
    assert len(name.encode()) <= MAX_NAME_BYTES
