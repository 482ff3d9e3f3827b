import json
from pathlib import Path

import pytest

from runtime.library.foreign.jan import folders, models
from tests.library.model_files import PLATFORMS, put_model, put_projector, sha256_of, surroundings

DATA = {"linux": ".local/share", "darwin": "Library/Application Support", "win32": "AppData/Roaming"}


def describe(folder: Path, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.yml").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("platform", PLATFORMS)
def test_fresh_installation_when_looked_for_then_is_the_usual_folder(tmp_path: Path, platform: str) -> None:
    found = folders(surroundings(tmp_path, platform))
    assert tmp_path / DATA[platform] / "Jan" / "data" / "llamacpp" / "models" in found
    assert tmp_path / "jan" / "models" in found


@pytest.mark.parametrize("platform", PLATFORMS)
def test_data_folder_moved_in_its_settings_when_looked_for_then_comes_first(tmp_path: Path, platform: str) -> None:
    settings = tmp_path / DATA[platform] / "Jan" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"data_folder": str(tmp_path / "D" / "jan"), "quick_ask": False}))
    assert folders(surroundings(tmp_path, platform))[0] == tmp_path / "D" / "jan" / "llamacpp" / "models"
    around = surroundings(tmp_path, platform, JAN_DATA_FOLDER=str(tmp_path / "chosen"))
    assert folders(around)[0] == tmp_path / "chosen" / "llamacpp" / "models"


def test_model_in_its_data_folder_when_listed_then_is_called_by_its_id(tmp_path: Path) -> None:
    root = tmp_path / "data" / "llamacpp" / "models"
    file = put_model(root / "janhq" / "Jan-v1-4B-Q4_K_M" / "model.gguf")
    projector = put_projector(root / "janhq" / "Jan-v1-4B-Q4_K_M" / "mmproj.gguf")
    describe(
        file.parent,
        "model_path: llamacpp/models/janhq/Jan-v1-4B-Q4_K_M/model.gguf\n"
        "mmproj_path: 'llamacpp/models/janhq/Jan-v1-4B-Q4_K_M/mmproj.gguf'\n"
        "name: Jan v1\nsize_bytes: 2500\nembedding: false\n"
        f"model_sha256: {sha256_of(file)}\nmmproj_sha256: not-a-hash\n",
    )
    listing = models(root)
    assert listing.files == ()
    (model,) = listing.models
    assert model.stem == "Jan-v1-4B-Q4_K_M"
    assert model.publisher == "janhq"
    assert model.files[0].path == tmp_path / "data" / "llamacpp/models/janhq/Jan-v1-4B-Q4_K_M/model.gguf"
    assert model.projector is not None
    assert model.projector.path.name == projector.name
    assert model.sha256 == {file: sha256_of(file)}


def test_model_imported_in_place_when_listed_then_is_the_file_elsewhere(tmp_path: Path) -> None:
    elsewhere = put_model(tmp_path / "my models" / "own.gguf")
    root = tmp_path / "data" / "llamacpp" / "models"
    describe(root / "own", f'model_path: "{elsewhere}"\nname: own\nsize_bytes: 1\n')
    (model,) = models(root).models
    assert model.files[0].path == elsewhere
    assert model.stem == "own"


def test_descriptions_of_files_that_are_gone_when_listed_then_are_passed_over(tmp_path: Path) -> None:
    root = tmp_path / "data" / "llamacpp" / "models"
    describe(root / "gone", "model_path: llamacpp/models/gone/model.gguf\n")
    describe(root / "empty", "")
    describe(root / "odd", "model_path: [1, 2]\n- x\n\x00")
    assert models(root).models == ()


def test_older_layout_when_listed_then_described_and_loose_files_are_found(tmp_path: Path) -> None:
    root = tmp_path / "data" / "models"
    described = put_model(root / "cortex.so" / "tinyllama" / "1b" / "model.gguf")
    describe(described.parent, "model: tinyllama:1b\nfiles:\n- models/cortex.so/tinyllama/1b/model.gguf\nversion: 2\n")
    loose = put_model(root / "loose" / "loose-Q8_0.gguf")
    listing = models(root)
    assert [model.files[0].path for model in listing.models] == [described]
    assert [file.path for file in listing.files] == [loose]
