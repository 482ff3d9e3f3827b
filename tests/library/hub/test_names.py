from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import BadRequest, HubFault
from runtime.library.hub.names import check_repo, check_revision, is_safe_path, local_path


@pytest.mark.parametrize("repo", ["acme/Tiny-GGUF", "Qwen/Qwen3-0.6B-GGUF", "a/b", "01-ai/Yi_1.5"])
def test_name_of_a_repository_when_it_can_be_one_then_it_is_taken(repo: str) -> None:
    assert check_repo(repo) == repo


@pytest.mark.parametrize(
    "repo",
    [
        "",
        "acme",
        "acme/",
        "/x",
        "a/b/c",
        "../x",
        "a/..",
        "a/b..c",
        "a b/c",
        "a/b?x=1",
        "a/b#c",
        "nul/x",
        "a/con",
        "é/x",
        "a/b\n",
    ],
)
def test_name_of_a_repository_when_it_cannot_be_one_then_it_is_refused(repo: str) -> None:
    with pytest.raises(BadRequest, match="no name of a repository"):
        check_repo(repo)


@pytest.mark.parametrize("revision", ["", "../x", "a b", "-x", "x?y", "a" * 300])
def test_revision_when_it_cannot_be_one_then_it_is_refused(revision: str) -> None:
    with pytest.raises(BadRequest, match="revision"):
        check_revision(revision)


@pytest.mark.parametrize("path", ["a.gguf", "Q4_K_M/a-00001-of-00002.gguf", "ünï 大.gguf", "x/y/z.gguf"])
def test_path_when_it_stays_below_its_folder_then_it_is_safe(path: str) -> None:
    assert is_safe_path(path)
    assert local_path("acme/Tiny", path) == PurePosixPath("acme/Tiny") / path


@pytest.mark.parametrize(
    "path",
    [
        "", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a\\b", "c:a", "a:b", "con", "CON.gguf", "com1.txt", "lpt9",
        "a.", "a ", " a", "a\0b", "a\nb", "a?b", "a*b", "a|b", "x" * 300, "\u202egguf.exe",
    ],
)  # fmt: skip
def test_path_when_a_system_would_read_it_otherwise_then_it_is_not_safe(path: str) -> None:
    assert not is_safe_path(path)
    with pytest.raises(HubFault, match="cannot be a file"):
        local_path("acme/Tiny", path)


@given(st.text(max_size=60))
def test_any_text_when_taken_for_safe_then_its_path_is_below_the_folder(text: str) -> None:
    if is_safe_path(text):
        parts = PurePosixPath(text).parts
        assert parts
        assert ".." not in parts
        assert not text.startswith("/")
        assert "\\" not in text
