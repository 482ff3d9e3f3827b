import pytest

from runtime.library.hub.answers import Lfs, TreeRecord
from runtime.library.hub.files import files_of

HASH = "a" * 64


def entry(path: str, size: int = 1000, sha256: str = HASH) -> TreeRecord:
    return TreeRecord("file", path, 130, Lfs(sha256, size))


def names(*paths: str) -> list[str]:
    return [file.name for file in files_of(map(entry, paths), None).models]


def test_parts_of_a_set_when_listed_in_any_order_then_they_are_one_file() -> None:
    listed = files_of(
        [entry("Q8_0/M-Q8_0-00002-of-00002.gguf", 20), entry("Q8_0/M-Q8_0-00001-of-00002.gguf", 10, "b" * 64)], None
    )
    (file,) = listed.models
    assert file.name == "Q8_0/M-Q8_0.gguf"
    assert file.paths == ("Q8_0/M-Q8_0-00001-of-00002.gguf", "Q8_0/M-Q8_0-00002-of-00002.gguf")
    assert file.sizes_bytes == (10, 20)
    assert file.sha256 == ("b" * 64, HASH)
    assert file.size_bytes == 30
    assert file.quantization == "Q8_0"


def test_set_with_a_missing_part_when_listed_then_it_is_left_out() -> None:
    assert names("M-Q8_0-00001-of-00003.gguf", "M-Q8_0-00003-of-00003.gguf", "M-Q4_0.gguf") == ["M-Q4_0.gguf"]


@pytest.mark.parametrize(
    "path",
    ["README.md", "imatrix.gguf", "mtp-M-Q4_0.gguf", "eagle3-M.gguf", "M.gguf.part1of2", "M.safetensors", "../x.gguf"],
)
def test_what_is_no_model_when_listed_then_it_is_left_out(path: str) -> None:
    assert names(path) == []


def test_quantization_when_only_the_folder_tells_it_then_it_is_known() -> None:
    (file,) = files_of([entry("Q5_K_M/model.gguf")], None).models
    assert file.quantization == "Q5_K_M"
    assert file.quality == "very_good"
    assert file.note


def test_dynamic_quantization_when_listed_then_its_name_is_whole() -> None:
    assert files_of([entry("M-UD-Q4_K_XL.gguf")], None).models[0].quantization == "UD-Q4_K_XL"


def test_models_when_listed_then_the_largest_comes_first() -> None:
    listed = files_of([entry("M-Q4_0.gguf", 4), entry("M-Q8_0.gguf", 8), entry("M-Q2_K.gguf", 2)], None)
    assert [file.size_bytes for file in listed.models] == [8, 4, 2]


def test_bits_per_weight_when_parameters_are_known_then_they_are_their_share() -> None:
    assert files_of([entry("M-Q4_0.gguf", 4_500)], 8_000).models[0].bits_per_weight == 4.5


@pytest.mark.parametrize("n_params", [None, 0, 100, 10**9])
def test_bits_per_weight_when_parameters_cannot_be_those_of_the_file_then_nothing_is_said(n_params: int | None) -> None:
    assert files_of([entry("M-Q4_0.gguf", 4_500)], n_params).models[0].bits_per_weight == 0.0


def test_projectors_when_several_then_f16_is_taken_and_the_nearest_folder_first() -> None:
    listed = files_of(
        [
            entry("A/M-Q4_0.gguf"),
            entry("M-Q8_0.gguf"),
            entry("mmproj-BF16.gguf"),
            entry("mmproj-F16.gguf"),
            entry("mmproj-F32.gguf"),
            entry("A/mmproj-F32.gguf"),
        ],
        None,
    )
    assert {file.name: file.projector for file in listed.models} == {
        "A/M-Q4_0.gguf": "A/mmproj-F32.gguf",
        "M-Q8_0.gguf": "mmproj-F16.gguf",
    }
    assert len(listed.projectors) == 4
    assert all(file.is_projector for file in listed.projectors)


def test_hash_when_it_is_none_then_it_is_empty() -> None:
    records = [entry("a-Q4_0.gguf", sha256="nonsense"), TreeRecord("file", "b-Q4_0.gguf", 5)]
    assert all(file.sha256 == ("",) for file in files_of(records, None).models)


def test_folder_or_empty_file_when_listed_then_it_is_left_out() -> None:
    assert files_of([TreeRecord("directory", "x.gguf", 0), entry("y.gguf", 0)], None).models == ()
