from pathlib import Path

import pytest

from runtime.library.foreign.hf_cache import folders, models, publisher_of
from tests.library.model_files import PLATFORMS, put_in_hf_cache, put_model, sha256_of, surroundings

REPO = "unsloth/Qwen3-0.6B-GGUF"


@pytest.mark.parametrize("platform", PLATFORMS)
def test_cache_when_looked_for_then_the_variables_come_first(tmp_path: Path, platform: str) -> None:
    assert folders(surroundings(tmp_path, platform)) == (tmp_path / ".cache" / "huggingface" / "hub",)
    around = surroundings(tmp_path, platform, HF_HOME=str(tmp_path / "hf"), HF_HUB_CACHE=str(tmp_path / "cache"))
    assert folders(around)[:2] == (tmp_path / "cache", tmp_path / "hf" / "hub")


@pytest.mark.parametrize("linked", [True, False])
def test_snapshot_when_listed_then_its_files_have_their_own_names(tmp_path: Path, linked: bool) -> None:
    source = put_model(tmp_path / "x.gguf")
    digest = sha256_of(source)
    path = put_in_hf_cache(tmp_path / "hub", REPO, "c" * 40, "UD/Qwen3-0.6B-UD-Q4_K_XL.gguf", source, linked=linked)
    listing = models(tmp_path / "hub")
    assert [file.path for file in listing.files] == [path]
    assert listing.sha256 == ({path: digest} if linked else {})
    assert publisher_of(path) == "unsloth"


def test_several_snapshots_when_listed_then_each_content_once_by_the_newest_name(tmp_path: Path) -> None:
    old = put_in_hf_cache(tmp_path / "hub", REPO, "a" * 40, "m-Q8_0.gguf", put_model(tmp_path / "x.gguf"))
    blob = old.resolve()
    new = put_in_hf_cache(tmp_path / "hub", REPO, "b" * 40, "other-Q8_0.gguf", put_model(tmp_path / "y.gguf", name="Y"))
    same = new.parent / "m-Q8_0.gguf"
    same.symlink_to(blob)
    assert [file.path for file in models(tmp_path / "hub").files] == [same, new]


def test_unfinished_and_broken_when_listed_then_are_passed_over(tmp_path: Path) -> None:
    path = put_in_hf_cache(tmp_path / "hub", REPO, "a" * 40, "m.gguf", put_model(tmp_path / "x.gguf"))
    path.resolve().rename(path.resolve().with_suffix(".incomplete"))
    (tmp_path / "hub" / "models--broken").mkdir()
    (tmp_path / "hub" / ".locks").mkdir()
    listing = models(tmp_path / "hub")
    assert listing.files == ()
    assert listing.problem == ""
    assert models(tmp_path / "none").problem == ""
