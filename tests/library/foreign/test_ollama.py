import os
import sys
from pathlib import Path

import pytest

from runtime.library.foreign.ollama import folders, models
from tests.library.model_files import PLATFORMS, OllamaStore, put_model, put_projector, surroundings


@pytest.fixture
def store(tmp_path: Path) -> OllamaStore:
    return OllamaStore(tmp_path / ".ollama" / "models")


@pytest.mark.parametrize("platform", PLATFORMS)
def test_store_when_looked_for_then_the_variable_comes_first(tmp_path: Path, platform: str) -> None:
    assert folders(surroundings(tmp_path, platform))[0] == tmp_path / ".ollama" / "models"
    around = surroundings(tmp_path, platform, OLLAMA_MODELS=f'"{tmp_path / "big"}"')
    assert folders(around)[0] == tmp_path / "big"


def test_service_on_linux_when_looked_for_then_its_unit_is_read(tmp_path: Path) -> None:
    around = surroundings(tmp_path, "linux")
    unit = around.system / "etc/systemd/system/ollama.service.d/override.conf"
    unit.parent.mkdir(parents=True)
    unit.write_text(f'[Service]\nEnvironment="OLLAMA_HOST=0.0.0.0"\nEnvironment="OLLAMA_MODELS={tmp_path / "data"}"\n')
    assert folders(around) == (
        tmp_path / ".ollama" / "models",
        tmp_path / "data",
        around.system / "usr/share/ollama/.ollama/models",
    )
    assert tmp_path / "data" not in folders(surroundings(tmp_path, "darwin"))


def test_models_when_listed_then_names_come_from_the_manifests(tmp_path: Path, store: OllamaStore) -> None:
    weights = store.put_blob(put_model(tmp_path / "a.gguf"))
    other = store.put_blob(put_model(tmp_path / "b.gguf", name="B"))
    projector = store.put_blob(put_projector(tmp_path / "p.gguf"))
    store.put_manifest("llava", "7b", ("model", weights), ("projector", projector), ("template", "sha256:11"))
    store.put_manifest("Llama-3.2-3B-Instruct-GGUF", "Q4_K_M", ("model", other), host="hf.co", namespace="bartowski")
    found = {model.stem: model for model in models(store.folder).models}
    assert set(found) == {"llava-7b", "Llama-3.2-3B-Instruct-GGUF-Q4_K_M"}
    llava = found["llava-7b"]
    assert llava.files[0].path.name == weights.replace(":", "-")
    assert llava.projector is not None
    assert llava.publisher == ""
    assert llava.sha256[llava.files[0].path] == weights.removeprefix("sha256:")
    assert found["Llama-3.2-3B-Instruct-GGUF-Q4_K_M"].publisher == "bartowski"


def test_tags_of_one_blob_when_listed_then_it_is_listed_once_by_the_telling_one(
    tmp_path: Path, store: OllamaStore
) -> None:
    weights = store.put_blob(put_model(tmp_path / "a.gguf"))
    for tag in ("latest", "3b", "3b-instruct-q4_K_M"):
        store.put_manifest("llama3.2", tag, ("model", weights))
    assert [model.stem for model in models(store.folder).models] == ["llama3.2-3b-instruct-q4_K_M"]


def test_model_with_only_the_default_tag_when_listed_then_the_tag_is_left_out(
    tmp_path: Path, store: OllamaStore
) -> None:
    store.put_manifest("qwen2.5-coder", "latest", ("model", store.put_blob(put_model(tmp_path / "a.gguf"))))
    assert [model.stem for model in models(store.folder).models] == ["qwen2.5-coder"]


def test_what_llama_cpp_cannot_use_when_listed_then_says_why(tmp_path: Path, store: OllamaStore) -> None:
    base = store.put_blob(put_model(tmp_path / "a.gguf"))
    second = store.put_blob(put_model(tmp_path / "b.gguf", name="B"))
    store.put_manifest("tuned", "latest", ("model", base), ("adapter", second))
    store.put_manifest("parts", "latest", ("model", second), ("model", base))
    problems = {model.stem: model.problem for model in models(store.folder).models}
    assert "adapter" in problems["tuned"]
    assert "several parts" in problems["parts"]


def test_manifests_that_do_not_read_when_listed_then_are_passed_over(tmp_path: Path, store: OllamaStore) -> None:
    good = store.put_blob(put_model(tmp_path / "a.gguf"))
    store.put_manifest("good", "1b", ("model", good))
    store.put_manifest("broken", "1b").write_text("{")
    store.put_manifest("list", "1b").write_text("[]")
    store.put_manifest("gone", "1b", ("model", "sha256:" + "0" * 64))
    store.put_manifest("outside", "1b", ("model", "sha256:../../../../etc/passwd"))
    store.put_manifest("cloud", "latest")
    (store.folder / "manifests" / ".DS_Store").touch()
    assert [model.stem for model in models(store.folder).models] == ["good-1b"]


def test_older_blob_names_when_listed_then_are_found(tmp_path: Path, store: OllamaStore) -> None:
    digest = store.put_blob(put_model(tmp_path / "a.gguf"))
    blob = store.folder / "blobs" / digest.replace(":", "-")
    try:
        blob.rename(blob.with_name(digest))
    except OSError:
        pytest.skip("this file system allows no colon")
    store.put_manifest("old", "7b", ("model", digest))
    assert [model.stem for model in models(store.folder).models] == ["old-7b"]


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="needs permissions that bind")
def test_store_of_another_user_when_it_cannot_be_read_then_says_so(store: OllamaStore) -> None:
    store.put_manifest("x", "1b")
    (store.folder / "manifests").chmod(0)
    try:
        assert "cannot be read" in models(store.folder).problem
    finally:
        (store.folder / "manifests").chmod(0o700)
