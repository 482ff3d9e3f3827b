import json
from pathlib import Path

import pytest

from runtime.library.foreign.lm_studio import folders, models
from tests.library.model_files import PLATFORMS, put_model, surroundings


@pytest.mark.parametrize("platform", PLATFORMS)
def test_fresh_installation_when_looked_for_then_is_the_usual_folder(tmp_path: Path, platform: str) -> None:
    found = folders(surroundings(tmp_path, platform))
    assert found == (tmp_path / ".lmstudio" / "models", tmp_path / ".cache" / "lm-studio" / "models")


@pytest.mark.parametrize("platform", PLATFORMS)
def test_home_elsewhere_when_the_pointer_names_it_then_comes_first(tmp_path: Path, platform: str) -> None:
    (tmp_path / ".lmstudio-home-pointer").write_text(f"{tmp_path / 'big drive' / 'lms'}\n")
    assert folders(surroundings(tmp_path, platform))[0] == tmp_path / "big drive" / "lms" / "models"


@pytest.mark.parametrize(
    ("platform", "settings"),
    [
        ("linux", ".lmstudio/settings.json"),
        ("linux", ".config/LM Studio/settings.json"),
        ("darwin", "Library/Application Support/LM Studio/settings.json"),
        ("win32", "AppData/Roaming/LM Studio/settings.json"),
    ],
)
def test_models_moved_in_its_settings_when_looked_for_then_are_found(
    tmp_path: Path, platform: str, settings: str
) -> None:
    path = tmp_path / settings
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"downloadsFolder": str(tmp_path / "Modèles"), "language": "fr", "x": {"y": 1}}))
    assert folders(surroundings(tmp_path, platform))[0] == tmp_path / "Modèles"


@pytest.mark.parametrize(
    "content", ["", "{", '{"downloadsFolder": 3}', '{"downloadsFolder": "not/whole"}', "[]", '{"x":' + "[" * 60_000]
)
def test_settings_that_do_not_read_when_looked_for_then_the_usual_folder_is_used(tmp_path: Path, content: str) -> None:
    path = tmp_path / ".lmstudio" / "settings.json"
    path.parent.mkdir()
    path.write_text(content)
    assert folders(surroundings(tmp_path, "linux"))[0] == tmp_path / ".lmstudio" / "models"


def test_models_when_listed_then_are_all_files_and_none_that_is_not_whole(tmp_path: Path) -> None:
    file = put_model(tmp_path / "lmstudio-community" / "Tiny-GGUF" / "Tiny-Q4_K_M.gguf")
    put_model(tmp_path / "a" / "b" / "c.gguf").rename(tmp_path / "a" / "b" / "downloading_c.gguf.part")
    assert [found.path for found in models(tmp_path).files] == [file]
