from pathlib import Path

import pytest

from runtime.library.foreign.gpt4all import folders, models
from tests.library.model_files import PLATFORMS, put_model, surroundings

USUAL = {
    "linux": ".local/share/nomic.ai/GPT4All",
    "darwin": "Library/Application Support/nomic.ai/GPT4All",
    "win32": "AppData/Local/nomic.ai/GPT4All",
}
SETTINGS = {
    "linux": ".config/nomic.ai/GPT4All.ini",
    "darwin": ".config/nomic.ai/GPT4All.ini",
    "win32": "AppData/Roaming/nomic.ai/GPT4All.ini",
}


@pytest.mark.parametrize("platform", PLATFORMS)
def test_fresh_installation_when_looked_for_then_is_the_usual_folder(tmp_path: Path, platform: str) -> None:
    assert folders(surroundings(tmp_path, platform))[0] == tmp_path / USUAL[platform]


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize(
    ("line", "folder"),
    [
        ("modelPath={home}/models/", "models"),
        ('modelPath="{home}/two words, one comma/"', "two words, one comma"),
        ("modelPath={home}/\\x41c\\x43e\\x434\\x435\\x43b\\x438/", "Модели"),
    ],
)
def test_folder_in_its_settings_when_looked_for_then_comes_first(
    tmp_path: Path, platform: str, line: str, folder: str
) -> None:
    path = tmp_path / SETTINGS[platform]
    path.parent.mkdir(parents=True)
    path.write_text(f"[General]\nchatTheme=Dark\n{line.format(home=tmp_path)}\n[model-x]\nname=y\n", encoding="utf-8")
    assert folders(surroundings(tmp_path, platform))[0] == tmp_path / folder


def test_unfinished_downloads_when_listed_then_are_passed_over(tmp_path: Path) -> None:
    whole = put_model(tmp_path / "Meta-Llama-3-8B-Instruct.Q4_0.gguf")
    put_model(tmp_path / "incomplete-Phi-3.gguf")
    assert [file.path for file in models(tmp_path).files] == [whole]
