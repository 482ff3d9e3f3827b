"""Stored prompts go with the model."""

from pathlib import Path

from runtime.library.folder import Library
from runtime.library.states import remove_states
from runtime.paths import STATES_NOTE, DataFolder
from tests.support.gguf_files import write_tiny_model


def stored_for(folder: Path, key: str, model_path: str) -> Path:
    place = folder / key
    place.mkdir(parents=True)
    (place / STATES_NOTE).write_text(model_path, "utf-8")
    (place / "x.state").write_bytes(b"x")
    return place


def test_when_states_of_a_model_are_removed_then_those_of_others_stay(tmp_path: Path) -> None:
    first, second = stored_for(tmp_path, "k1", "/m/a.gguf"), stored_for(tmp_path, "k2", "/m/a.gguf")
    other = stored_for(tmp_path, "k3", "/m/b.gguf")
    remove_states(tmp_path, "/m/a.gguf")
    assert (first.exists(), second.exists(), other.exists()) == (False, False, True)


def test_when_there_is_no_folder_then_nothing_happens(tmp_path: Path) -> None:
    remove_states(tmp_path / "none", "/m/a.gguf")
    assert not (tmp_path / "none").exists()


def test_when_a_model_is_removed_then_what_was_stored_for_it_goes_too(tmp_path: Path) -> None:
    data = DataFolder(tmp_path / "data")
    data.ensure()
    path = write_tiny_model(data.models / "tiny.gguf")
    library = Library(data, to_trash=lambda name: Path(name).unlink())
    model = next(model for model in library.installed() if Path(model.path).name == path.name)
    place = stored_for(data.states, "k1", model.path)
    library.remove(model.id)
    assert not path.exists()
    assert not place.exists()
