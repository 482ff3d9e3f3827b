from pathlib import Path

import pytest

from runtime.cli.targets import HubName, choose_file, hub_name, installed_of, plan_target
from runtime.errors import BadRequest, HubNotFound
from runtime.messages.api import InstalledModel
from runtime.messages.fit import PlanTarget
from runtime.messages.library import HubFile

MODELS = (InstalledModel("some-model-q4_k_m", "Some Model", "/models/a/b/Some-Model-Q4_K_M.gguf", 10),)


def file_of(name: str, quantization: str) -> HubFile:
    return HubFile(name, (name,), (1,), ("",), quantization, 1)


@pytest.mark.parametrize(
    ("raw", "repo", "choice"),
    [
        ("org/repo", "org/repo", ""),
        ("org/repo:Q4_K_M", "org/repo", "Q4_K_M"),
        ("org/repo/sub/file.gguf", "org/repo", "sub/file.gguf"),
        ("https://hub.example/org/repo", "org/repo", ""),
        ("https://hub.example/org/repo/blob/main/sub/file.gguf?download=true", "org/repo", "sub/file.gguf"),
        ("hub.example/org/repo:Q8_0", "org/repo", "Q8_0"),
        (" org/repo/ ", "org/repo", ""),
    ],
)
def test_when_a_repository_is_named_in_any_usual_way_then_it_is_understood(raw: str, repo: str, choice: str) -> None:
    assert hub_name(raw) == HubName(repo, choice)


@pytest.mark.parametrize("raw", ["", "model", "../x", "~/x", "./file", "/", "org/"])
def test_when_it_is_no_repository_then_none_is_made_up(raw: str) -> None:
    assert hub_name(raw) is None


@pytest.mark.parametrize("name", ["some-model-q4_k_m", "SOME MODEL", "some-model-q4_k_m.gguf", "Some-Model-Q4_K_M"])
def test_when_an_installed_model_is_named_then_it_is_found_in_any_case(name: str) -> None:
    assert installed_of(name, MODELS) is MODELS[0]
    assert plan_target(name, MODELS) == PlanTarget(model="some-model-q4_k_m")


def test_when_a_file_is_there_then_it_wins_over_a_repository_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert plan_target("org/repo", ()) == HubName("org/repo")
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "repo").write_bytes(b"x")
    assert plan_target("org/repo", ()) == PlanTarget(model=str(tmp_path / "org" / "repo"))


def test_when_a_file_is_meant_that_is_not_there_then_the_host_says_so() -> None:
    assert plan_target("a/b/c.gguf", ()) == PlanTarget(model="a/b/c.gguf")


def test_when_a_quantization_is_chosen_then_its_file_is_taken_in_any_case() -> None:
    files = [file_of("m-Q4_K_M.gguf", "Q4_K_M"), file_of("m-Q8_0.gguf", "Q8_0")]
    assert choose_file(files, "q8_0", "o/r") is files[1]
    assert choose_file(files, "M-Q4_K_M.GGUF", "o/r") is files[0]


def test_when_two_files_have_the_quantization_then_their_names_are_told() -> None:
    files = [file_of("a-Q8_0.gguf", "Q8_0"), file_of("b-Q8_0.gguf", "Q8_0")]
    with pytest.raises(BadRequest) as raised:
        choose_file(files, "Q8_0", "o/r")
    assert "a-Q8_0.gguf, b-Q8_0.gguf" in raised.value.hint
    assert choose_file(files, "b-Q8_0.gguf", "o/r") is files[1]


def test_when_there_is_no_such_file_then_the_nearest_and_all_are_told() -> None:
    with pytest.raises(HubNotFound) as raised:
        choose_file([file_of("m-Q4_K_M.gguf", "Q4_K_M")], "Q4_K", "o/r")
    assert "Did you mean Q4_K_M?" in raised.value.hint
