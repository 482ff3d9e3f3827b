import pytest

from runtime.library.names import MAX_ID_CHARS, model_id, readable_name, unique_id


@pytest.mark.parametrize(
    ("stem", "expected"),
    [
        ("SmolLM2-135M-Instruct.Q4_1", "smollm2-135m-instruct-q4_1"),
        ("Qwen2.5-7B-Instruct-Q4_K_M", "qwen2.5-7b-instruct-q4_k_m"),
        ("My Model (final) v2", "my-model-final-v2"),
        ("Größe Ñandú", "grosse-nandu"),
        ("模型", ""),
        ("模型-7B", "7b"),
        ("..weird--name..", "weird-name"),
        ("a/b:c", "a-b-c"),
    ],
)
def test_file_name_when_made_an_id_then_only_simple_characters_remain(stem: str, expected: str) -> None:
    assert model_id(stem) == expected


def test_very_long_name_when_made_an_id_then_is_cut() -> None:
    assert len(model_id("x" * 500)) == MAX_ID_CHARS


@pytest.mark.parametrize(
    ("stem", "own_name", "expected"),
    [
        ("SmolLM2-135M-Instruct.Q4_1", "Smollm2 135M 8k Lc100K Mix1 Ep2", "SmolLM2 135M Instruct"),
        ("Qwen2.5-7B-Instruct-Q4_K_M", "Qwen", "Qwen2.5 7B Instruct"),
        ("Llama-3.3-70B-UD-Q4_K_XL", "", "Llama 3.3 70B"),
        ("ggml-model-q4_0", "Real Name", "Real Name"),
        ("model", "", "model"),
        ("3f786850e387550fdab836ed7e6dc881de23001b", "From A Cache", "From A Cache"),
        ("模型-7B", "", "模型 7B"),
    ],
)
def test_file_name_when_made_readable_then_says_what_the_model_is(stem: str, own_name: str, expected: str) -> None:
    assert readable_name(stem, own_name) == expected


def test_id_when_taken_then_the_folder_and_then_the_fallback_tell_them_apart() -> None:
    assert unique_id("a", "repo", "f00", set()) == "a"
    assert unique_id("a", "Repo One", "f00", {"a"}) == "repo-one-a"
    assert unique_id("a", "repo", "f00", {"a", "repo-a"}) == "a-f00"
    assert unique_id("a", "repo", "f00", {"a", "repo-a", "a-f00"}) == "a-f00-2"
    assert unique_id("", "", "f00", set()) == "model-f00"
