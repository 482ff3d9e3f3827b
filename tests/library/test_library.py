"""The library over several folders and programs, over starts, and beside a second process."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.errors import ModelLoadFailed, NotAllowed
from runtime.library import facts, looking
from runtime.library.catalogue import Catalogue
from runtime.library.disk import DiskFile
from runtime.library.folder import Library
from runtime.messages.api import InstalledModel
from runtime.messages.fit import LoadRecord
from tests.library.conftest import Shelf
from tests.library.model_files import (
    PLATFORMS,
    OllamaStore,
    put_fused,
    put_in_hf_cache,
    put_model,
    put_projector,
    sha256_of,
)

Rows = Callable[[Library], dict[str, InstalledModel]]

needs_links = pytest.mark.skipif(sys.platform == "win32", reason="needs symbolic links")
GPT4ALL = {
    "linux": ".local/share/nomic.ai/GPT4All",
    "darwin": "Library/Application Support/nomic.ai/GPT4All",
    "win32": "AppData/Local/nomic.ai/GPT4All",
}
JAN = {"linux": ".local/share", "darwin": "Library/Application Support", "win32": "AppData/Roaming"}


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file below a folder, with size and time: equal before and after means untouched."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in folder.rglob("*")
    }


def fill_home(shelf: Shelf, platform: str, scratch: Path) -> None:
    home = shelf.home
    put_model(home / ".lmstudio/models/lmstudio-community/Tiny-GGUF/Tiny-1B-Q4_K_M.gguf", name="A")
    put_projector(home / ".lmstudio/models/lmstudio-community/Tiny-GGUF/mmproj-model-f16.gguf")
    put_model(home / GPT4ALL[platform] / "Meta-Llama-3-8B-Instruct.Q4_0.gguf", name="B")
    jan = home / JAN[platform] / "Jan/data/llamacpp/models/janhq/Jan-v1-Q4_K_M"
    put_model(jan / "model.gguf", name="C")
    (jan / "model.yml").write_text("model_path: llamacpp/models/janhq/Jan-v1-Q4_K_M/model.gguf\nname: Jan\n")
    put_in_hf_cache(
        home / ".cache/huggingface/hub", "unsloth/Cached-GGUF", "c" * 40, "Cached-Q8_0.gguf", _tiny(scratch, "D")
    )
    store = OllamaStore(home / ".ollama/models")
    store.put_manifest("gemma3", "1b", ("model", store.put_blob(put_fused(scratch / "E.gguf"))))
    store.put_manifest("llama3.2", "1b", ("model", store.put_blob(_tiny(scratch, "F"))))


def _tiny(scratch: Path, name: str) -> Path:
    return put_model(scratch / f"{name}.gguf", name=name)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_models_of_other_programs_when_listed_then_are_used_in_place_and_never_touched(
    shelf: Shelf, rows: Rows, tmp_path: Path, platform: str
) -> None:
    fill_home(shelf, platform, tmp_path / "scratch")
    before = snapshot(shelf.home)
    library = shelf.library(platform)
    found = rows(library)
    assert {model.id: model.origin for model in found.values()} == {
        "tiny-1b-q4_k_m": "lm_studio",
        "meta-llama-3-8b-instruct-q4_0": "gpt4all",
        "jan-v1-q4_k_m": "jan",
        "cached-q8_0": "hf_cache",
        "llama3.2-1b": "ollama",
        "gemma3-1b": "ollama",
    }
    assert found["tiny-1b-q4_k_m"].is_vision
    assert found["tiny-1b-q4_k_m"].n_files == 2
    assert found["tiny-1b-q4_k_m"].publisher == "lmstudio-community"
    assert found["cached-q8_0"].publisher == "unsloth"
    assert Path(library.resolve("llama3.2-1b").path).name.startswith("sha256-")
    assert "Ollama's own engine" in found["gemma3-1b"].problem
    with pytest.raises(ModelLoadFailed, match="Ollama's own engine"):
        library.resolve("gemma3-1b")
    for name in found:
        with pytest.raises(NotAllowed, match="belongs to"):
            library.remove(name)
        with pytest.raises(NotAllowed, match="belongs to"):
            library.import_path(found[name].path, "move")
    assert snapshot(shelf.home) == before
    shelf.with_options(use_other_programs=False)
    library.set_options(shelf.options)
    assert library.installed() == ()


def test_state_when_asked_for_then_tells_every_folder_with_its_room(shelf: Shelf, tmp_path: Path) -> None:
    fill_home(shelf, "linux", tmp_path / "scratch")
    own = shelf.put("acme", "Own", "own-Q8_0.gguf")
    extra = put_model(tmp_path / "extra" / "x.gguf", name="X")
    shelf.with_options(folders=(str(tmp_path / "extra"), str(tmp_path / "unplugged drive")))
    state = shelf.library().state()
    by_path = {folder.path: folder for folder in state.folders}
    main = by_path[str(shelf.data.models)]
    assert (main.is_main, main.origin, main.n_models, main.used_bytes) == (True, "deskside", 1, own.stat().st_size)
    assert by_path[str(tmp_path / "extra")].used_bytes == extra.stat().st_size
    assert "another drive" in by_path[str(tmp_path / "unplugged drive")].problem
    assert {folder.origin for folder in state.folders} == {
        "deskside", "folder", "lm_studio", "gpt4all", "jan", "hf_cache", "ollama",
    }  # fmt: skip
    assert state.used_bytes == sum(folder.used_bytes for folder in state.folders)
    assert state.free_bytes == main.free_bytes > 0
    assert all(not folder.problem for path, folder in by_path.items() if "unplugged" not in path)


def test_folder_of_another_program_when_added_by_hand_then_stays_theirs(
    shelf: Shelf, rows: Rows, tmp_path: Path
) -> None:
    fill_home(shelf, "linux", tmp_path / "scratch")
    shelf.with_options(folders=(str(shelf.home / ".lmstudio"),), use_other_programs=False)
    library = shelf.library()
    assert rows(library)["tiny-1b-q4_k_m"].origin == "lm_studio"
    before = snapshot(shelf.home)
    with pytest.raises(NotAllowed, match="LM Studio"):
        library.remove("tiny-1b-q4_k_m")
    assert snapshot(shelf.home) == before


@needs_links
def test_link_into_another_programs_folder_when_in_ours_then_its_files_stay_theirs(
    shelf: Shelf, rows: Rows, tmp_path: Path
) -> None:
    fill_home(shelf, "linux", tmp_path / "scratch")
    (shelf.data.models / "linked").symlink_to(shelf.home / ".lmstudio" / "models")
    library = shelf.library()
    assert [model.id for model in library.installed()].count("tiny-1b-q4_k_m") == 1
    assert rows(library)["tiny-1b-q4_k_m"].origin == "lm_studio"
    with pytest.raises(NotAllowed):
        library.remove("tiny-1b-q4_k_m")


@needs_links
def test_one_content_under_several_names_when_listed_then_is_one_model_of_ours(shelf: Shelf) -> None:
    theirs = put_model(shelf.home / ".lmstudio/models/p/r/Tiny-Q8_0.gguf")
    os.link(theirs, shelf.data.models / "Tiny-Q8_0.gguf")
    (shelf.data.models / "zz-Tiny-Q8_0.gguf").symlink_to(theirs)
    library = shelf.library()
    (model,) = library.installed()
    assert (model.id, model.origin) == ("tiny-q8_0", "deskside")
    answer = library.remove("tiny-q8_0")
    assert answer.freed_bytes == 0, "the other name still holds the content"
    assert theirs.is_file()
    (model,) = library.installed()
    assert model.path.endswith("zz-Tiny-Q8_0.gguf")
    assert library.remove(model.id).freed_bytes == 0
    assert theirs.is_file()
    assert [model.origin for model in library.installed()] == ["lm_studio"]


def test_model_when_moved_by_hand_then_what_was_known_of_it_goes_along(shelf: Shelf, rows: Rows) -> None:
    path = shelf.put("a", "b", "Tiny-Q8_0.gguf")
    library = shelf.library()
    library.record_arrival([path], [sha256_of(path)])
    assert rows(library)["tiny-q8_0"].verified == "ok"
    (shelf.data.models / "elsewhere").mkdir()
    path.rename(shelf.data.models / "elsewhere" / "Renamed-Q8_0.gguf")
    assert {model.id: model.verified for model in library.installed()} == {"renamed-q8_0": "ok"}
    shutil.copy2(shelf.data.models / "elsewhere" / "Renamed-Q8_0.gguf", shelf.data.models / "Renamed-Q8_0.gguf")
    copy = next(model for model in library.installed() if "elsewhere" not in model.path)
    assert copy.verified == "", "the bytes of a copy were never looked at"
    assert "as announced" in library.verify(copy.path)


def test_second_start_when_nothing_changed_then_no_header_is_read(
    shelf: Shelf, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.put("a.gguf")
    (shelf.data.models / "broken.gguf").write_text("no")
    first = rows(shelf.library())

    def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(looking, "read_file", fail)
    again = shelf.library()
    assert rows(again) == first
    with pytest.raises(ModelLoadFailed):
        again.resolve("broken")


def test_file_that_vanishes_before_its_header_is_read_when_listed_then_is_left_out(
    shelf: Shelf, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        shelf.put(f"{name}.gguf", name=name)
    real = facts.read_file

    def vanish(file: DiskFile) -> facts.Reading:
        if file.path.name == "b.gguf":
            file.path.unlink(missing_ok=True)
        return real(file)

    monkeypatch.setattr(looking, "read_file", vanish)
    assert set(rows(shelf.library())) == {"a", "c"}


def test_file_replaced_by_hand_when_listed_then_what_was_announced_of_the_old_one_is_forgotten(
    shelf: Shelf, rows: Rows
) -> None:
    path = shelf.put("a.gguf")
    library = shelf.library()
    library.record_arrival([path], [sha256_of(path)])
    library.installed()
    put_model(path, template="a longer template than the one before" * 3)
    assert rows(library)["a"].verified == ""
    assert "No hash is known" in library.verify("a")


def test_drive_that_comes_back_when_listed_then_nothing_was_forgotten(
    shelf: Shelf, rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put_model(tmp_path / "drive" / "x-Q8_0.gguf")
    shelf.with_options(folders=(str(tmp_path / "drive"),))
    library = shelf.library()
    digest = sha256_of(path)
    assert digest in library.verify("x-q8_0")
    (tmp_path / "drive").rename(tmp_path / "away")
    assert library.installed() == ()
    (tmp_path / "away").rename(tmp_path / "drive")
    monkeypatch.setattr(looking, "read_file", lambda *_: pytest.fail("was read again"))
    again = shelf.library()
    assert set(rows(again)) == {"x-q8_0"}
    assert "unchanged" in again.verify("x-q8_0")


def test_ids_when_a_second_file_of_that_name_comes_then_the_first_keeps_its_own(shelf: Shelf, rows: Rows) -> None:
    first = shelf.put("zeta", "repo", "same.gguf", name="first")
    library = shelf.library()
    assert rows(library)["same"].path == str(first)
    older = shelf.put("alpha", "other", "same.gguf", name="second")
    os.utime(older, (1_000_000, 1_000_000))
    assert rows(library)["same"].path == str(first)
    assert rows(shelf.library())["same"].path == str(first)
    theirs = put_model(shelf.home / ".lmstudio/models/p/r/same.gguf", name="third")
    os.utime(theirs, (1_000, 1_000))
    assert rows(library)["same"].path == str(first)
    assert len(rows(library)) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="names are text elsewhere")
def test_name_that_is_no_text_when_listed_then_says_so_and_can_be_sent(shelf: Shelf, rows: Rows) -> None:
    import msgspec

    source = shelf.put("x.gguf")
    os.rename(os.fsencode(source), os.fsencode(shelf.data.models) + b"/caf\xe9.gguf")  # noqa: PTH104
    library = shelf.library()
    (model,) = library.installed()
    assert "not readable text" in model.problem
    assert msgspec.json.encode(model)
    assert rows(shelf.library()) == {model.id: model}


def test_load_when_recorded_then_shows_when_the_model_was_used(shelf: Shelf, rows: Rows) -> None:
    shelf.put("a.gguf")
    library = shelf.library()
    assert rows(library)["a"].used_s == 0.0
    assert library.records is not None
    library.records.save_load(LoadRecord("a", 123.0, None, ()))
    assert rows(library)["a"].used_s == 123.0
    record = library.load_record("a")
    assert record is not None
    assert record.at_s == 123.0


def test_damaged_catalogue_when_listed_then_the_models_are_all_there(shelf: Shelf, rows: Rows) -> None:
    for i in range(60):
        shelf.put(f"m{i}.gguf", name=f"{i}")
    library = shelf.library()
    listed = rows(library)
    for catalogue in shelf.opened:
        catalogue.close()
    raw = bytearray(shelf.data.catalogue_file.read_bytes())
    raw[4096:] = b"\xa5" * (len(raw) - 4096)
    shelf.data.catalogue_file.write_bytes(raw)
    again = shelf.library()
    assert rows(again) == listed
    assert "damaged" in shelf.opened[-1].problem
    assert rows(again) == listed


def test_two_processes_when_one_learns_something_then_the_other_sees_it(shelf: Shelf, rows: Rows) -> None:
    path = shelf.put("a.gguf")
    library = shelf.library()
    assert rows(library)["a"].verified == ""
    program = f"""
from pathlib import Path
from runtime.library.catalogue import Catalogue
from runtime.library.disk import DiskFile
from runtime.library.folder import Library
from runtime.options import ModelsOptions
from runtime.paths import DataFolder
data = DataFolder(Path({str(shelf.data.root)!r}))
library = Library(data, ModelsOptions(use_other_programs=False), Catalogue(data.catalogue_file))
library.record_arrival([Path({str(path)!r})], [{sha256_of(path)!r}])
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert rows(library)["a"].verified == "ok"


def test_many_threads_when_they_look_and_change_at_once_then_every_answer_is_whole(shelf: Shelf) -> None:
    from concurrent.futures import ThreadPoolExecutor

    for i in range(20):
        shelf.put(f"m{i}.gguf", name=f"{i}")
    library = shelf.library()
    other = shelf.library()
    with ThreadPoolExecutor(8) as pool:
        looks = [pool.submit((library if i % 2 else other).installed) for i in range(24)]
        checks = [pool.submit(library.verify, f"m{i}") for i in range(8)]
        removals = [pool.submit(other.remove, f"m{i}") for i in range(10, 14)]
        for check in checks:
            check.result(timeout=60)
        for removal in removals:
            removal.result(timeout=60)
        assert all(len(future.result(timeout=60)) >= 16 for future in looks)
    assert len(library.installed()) == 16


def test_full_disk_when_listed_then_models_are_shown_all_the_same(shelf: Shelf, rows: Rows) -> None:
    shelf.put("a.gguf")
    library = shelf.library()
    with shelf.opened[-1].connection(writes=False) as connection:
        (n_pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {n_pages}")
    for i in range(40):
        shelf.put(f"long name {'x' * 150} {i}.gguf", name=f"{i}")
    assert len(rows(library)) == 41
    assert len(rows(library)) == 41


def test_library_without_a_catalogue_when_used_then_remembers_while_it_lives(shelf: Shelf, tmp_path: Path) -> None:
    elsewhere = put_model(tmp_path / "else" / "x.gguf")
    library = Library(shelf.data, starter_path=tmp_path / "none.gguf", to_trash=shelf.trash)
    library.import_path(str(elsewhere), "use_in_place")
    assert [model.id for model in library.installed()] == ["x"]
    assert library.remove("x").paths == ()
    assert library.installed() == ()
    assert elsewhere.is_file()
    assert library.load_record("x") is None


def test_catalogue_in_memory_when_the_folder_cannot_be_written_then_models_are_listed(
    shelf: Shelf, tmp_path: Path
) -> None:
    shelf.put("a.gguf")
    (tmp_path / "file").touch()
    catalogue = Catalogue(tmp_path / "file" / "models.sqlite3")
    library = Library(shelf.data, shelf.options, catalogue, starter_path=tmp_path / "none.gguf")
    assert [model.id for model in library.installed() if model.origin == "deskside"] == ["a"]
    catalogue.close()
