import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.errors import FileTruncated, ModelLoadFailed, ModelNotFound, NotGguf, StorageFault
from runtime.library.folder import Library
from runtime.library.starter import find_starter
from runtime.messages.api import InstalledModel
from runtime.paths import DataFolder
from tests.support.gguf_files import write_tiny_model


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    data = DataFolder(tmp_path / "data folder ü")
    data.ensure()
    return data


@pytest.fixture
def library(folder: DataFolder, tmp_path: Path) -> Library:
    return Library(folder, starter_path=tmp_path / "no starter.gguf")


def put(folder: DataFolder, *parts: str, **options: object) -> Path:
    path = folder.models.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_tiny_model(path, **options)  # type: ignore[arg-type]


def by_id(library: Library) -> dict[str, InstalledModel]:
    return {model.id: model for model in library.installed()}


def test_empty_or_missing_folder_when_looked_at_then_there_is_nothing(tmp_path: Path) -> None:
    assert Library(DataFolder(tmp_path / "none"), starter_path=tmp_path / "none.gguf").installed() == ()


def test_starter_model_when_installed_then_comes_first_with_its_licence(folder: DataFolder) -> None:
    put(folder, "AAA.gguf")
    first = Library(folder).installed()[0]
    assert first.id == "smollm2-135m-instruct-q4_1"
    assert first.starter
    assert first.licence == "Apache-2.0"
    assert first.n_params == 134_515_008
    assert first.problem == ""
    assert Path(first.path) == find_starter()


def test_model_in_the_usual_layout_when_looked_at_then_all_is_known(folder: DataFolder, library: Library) -> None:
    path = put(folder, "acme", "Tiny-GGUF", "Tiny-1B-Q4_K_M.gguf")
    model = by_id(library)["tiny-1b-q4_k_m"]
    assert model.name == "Tiny 1B"
    assert model.publisher == "acme"
    assert model.quantization == "Q4_K_M"
    assert model.architecture == "llama"
    assert model.kind == "chat"
    assert model.licence == "mit"
    assert (model.n_ctx_train, model.n_layer, model.n_params) == (2048, 2, 6464)
    assert model.size_bytes == path.stat().st_size
    assert Path(model.path) == path


def test_names_with_spaces_and_other_scripts_when_looked_at_then_can_be_found(
    folder: DataFolder, library: Library
) -> None:
    path = put(folder, "моё", "Модель 7B (новая).gguf")
    for name in ("7b", str(path), "Модель 7B (новая)", "модель 7b (новая).GGUF"):
        assert Path(library.resolve(name).path) == path


def test_parts_of_a_set_when_looked_at_then_are_one_model(folder: DataFolder, library: Library) -> None:
    paths = [put(folder, f"Big-Q8_0-0000{i}-of-00003.gguf", split=(i - 1, 3)) for i in (1, 2, 3)]
    models = library.installed()
    assert [model.id for model in models] == ["big-q8_0"]
    assert models[0].size_bytes == sum(path.stat().st_size for path in paths)
    assert models[0].n_params == 3 * 6464
    assert Path(models[0].path) == paths[0]
    assert Path(library.resolve(str(paths[0])).path) == paths[0]


def test_set_with_a_missing_part_when_looked_at_then_says_which_and_is_never_loaded(
    folder: DataFolder, library: Library
) -> None:
    for i in (1, 3):
        put(folder, f"Big-0000{i}-of-00003.gguf", split=(i - 1, 3))
    model = by_id(library)["big"]
    assert "part 2 is missing" in model.problem
    with pytest.raises(FileTruncated, match="part 2"):
        library.resolve("big")


def test_damaged_files_when_looked_at_then_are_listed_with_the_reason_and_never_loaded(
    folder: DataFolder, library: Library
) -> None:
    (folder.models / "page.gguf").write_text("<html>error</html>")
    (folder.models / "empty.gguf").touch()
    cut = put(folder, "cut.gguf")
    os.truncate(cut, cut.stat().st_size - 2000)
    found = by_id(library)
    assert "not a GGUF" in found["page"].problem
    assert "empty" in found["empty"].problem
    assert "incomplete" in found["cut"].problem
    for name, kind in (("page", NotGguf), ("empty", NotGguf), ("cut", FileTruncated)):
        with pytest.raises(kind):
            library.resolve(name)
        assert library.find(name).id == name


def test_files_beside_models_when_looked_at_then_are_no_models_of_their_own(
    folder: DataFolder, library: Library
) -> None:
    put(folder, "mmproj-F16.gguf", architecture="clip", general_type="mmproj")
    put(folder, "lora.gguf", general_type="adapter")
    found = by_id(library)
    assert found["mmproj-f16"].kind == "projector"
    assert found["lora"].kind == "other"
    for name in ("mmproj-f16", "lora"):
        assert found[name].problem
        with pytest.raises(ModelLoadFailed):
            library.resolve(name)


def test_unfinished_and_hidden_files_when_looked_at_then_are_passed_over(folder: DataFolder, library: Library) -> None:
    put(folder, "a.gguf").rename(folder.models / "a.gguf.partial")
    put(folder, "._b.gguf")
    put(folder, ".cache", "c.gguf")
    (folder.models / "notes.txt").write_text("x")
    assert library.installed() == ()


def test_two_files_of_one_name_when_looked_at_then_the_older_keeps_the_id(folder: DataFolder, library: Library) -> None:
    older = put(folder, "zeta", "repo", "same.gguf")
    newer = put(folder, "alpha", "Other Repo", "same.gguf")
    os.utime(older, (1_000_000, 1_000_000))
    assert {model.id: Path(model.path) for model in library.installed()} == {
        "same": older,
        "other-repo-same": newer,
    }


@pytest.mark.parametrize(
    "name", ["tiny-1b-q4_k_m", "TINY-1B-Q4_K_M", "Tiny-1B-Q4_K_M.gguf", "Tiny-1B-Q4_K_M", "tiny 1b", "tiny-1b", "tiny"]
)
def test_name_when_written_in_any_usual_way_then_finds_the_model(
    folder: DataFolder, library: Library, name: str
) -> None:
    put(folder, "Tiny-1B-Q4_K_M.gguf")
    assert library.resolve(name).id == "tiny-1b-q4_k_m"


def test_beginning_of_two_names_when_asked_for_then_none_is_guessed(folder: DataFolder, library: Library) -> None:
    put(folder, "Tiny-1B-Q4_K_M.gguf")
    put(folder, "Tiny-1B-Q8_0.gguf")
    with pytest.raises(ModelNotFound) as caught:
        library.resolve("tiny")
    assert "tiny-1b-q4_k_m" in caught.value.hint
    assert library.resolve("tiny-1b-q8_0").quantization == "Q8_0"


def test_misspelt_name_when_asked_for_then_the_nearest_are_told(folder: DataFolder, library: Library) -> None:
    put(folder, "Tiny-1B-Q4_K_M.gguf")
    put(folder, "Gemma.gguf")
    with pytest.raises(ModelNotFound) as caught:
        library.resolve("tinny-1b-q4km")
    assert caught.value.hint.startswith("Did you mean tiny-1b-q4_k_m")
    assert caught.value.details == {"model": "tinny-1b-q4km"}


def test_file_elsewhere_when_named_by_its_path_then_is_described(library: Library, tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "elsewhere.gguf")
    assert library.resolve(str(path)).id == "elsewhere"
    assert library.installed() == ()
    path.write_bytes(b"GGML")
    with pytest.raises(NotGguf):
        library.resolve(str(path))
    with pytest.raises(ModelNotFound, match="no model file"):
        library.resolve(str(tmp_path / "missing.gguf"))
    with pytest.raises(ModelNotFound, match="is a folder"):
        library.resolve(str(tmp_path))


@pytest.mark.parametrize("name", ["~nobody-of-that-name/x.gguf", "x" * 5000, "a\0b.gguf"])
def test_name_that_is_no_path_when_resolved_then_it_is_not_found(library: Library, name: str) -> None:
    with pytest.raises(ModelNotFound):
        library.resolve(name)


def test_changed_file_when_looked_at_again_then_is_read_again(folder: DataFolder, library: Library) -> None:
    path = put(folder, "a.gguf", file_type=15)
    assert library.resolve("a").quantization == "Q4_K_M"
    path = put(folder, "a.gguf", file_type=7)
    os.utime(path, ns=(1, 1))
    assert library.resolve("a").quantization == "Q8_0"
    path.unlink()
    assert library.installed() == ()


def test_unchanged_files_when_looked_at_again_then_are_not_opened(
    folder: DataFolder, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, "a.gguf")
    library.installed()

    def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("runtime.library.looking.read_file", fail)
    assert [model.id for model in library.installed()] == ["a"]


def test_cache_when_files_are_gone_then_forgets_them(folder: DataFolder, library: Library) -> None:
    for i in range(5):
        put(folder, f"m{i}.gguf")
    library.installed()
    for i in range(5):
        (folder.models / f"m{i}.gguf").unlink()
    library.installed()
    assert library._table._rows == {}


@pytest.mark.skipif(sys.platform == "win32", reason="needs symbolic links")
def test_folders_that_link_to_each_other_when_looked_at_then_the_walk_ends(
    folder: DataFolder, library: Library
) -> None:
    put(folder, "a", "x.gguf")
    (folder.models / "a" / "loop").symlink_to(folder.models)
    assert len(library.installed()) == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes in folders")
def test_pipe_that_is_called_like_a_model_when_looked_at_then_is_passed_over_and_never_opened(
    folder: DataFolder, library: Library
) -> None:
    put(folder, "x.gguf")
    os.mkfifo(folder.models / "pipe.gguf")  # to open it is to wait for somebody who writes, for ever
    (folder.models / "link.gguf").symlink_to(folder.models / "pipe.gguf")
    put(folder, "set-00001-of-00002.gguf")
    os.mkfifo(folder.models / "set-00002-of-00002.gguf")
    assert set(by_id(library)) == {"x", "set"}
    with pytest.raises(ModelNotFound, match="no ordinary file"):
        library.resolve(str(folder.models / "pipe.gguf"))


@pytest.mark.parametrize("make", [lambda path: path.touch(), lambda path: path.mkdir()])
def test_models_path_that_is_no_plain_folder_of_files_when_looked_at_then_nothing_breaks(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    data = DataFolder(tmp_path / "d")
    data.root.mkdir()
    make(data.models)
    library = Library(data, starter_path=tmp_path / "none.gguf")
    try:
        models = library.installed()
    except StorageFault as fault:
        assert str(data.models) in str(fault.details["path"])  # noqa: PT017 - which of the two depends on the system
    else:
        assert models == ()
