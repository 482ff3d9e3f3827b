from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.library.disk import DiskFile, walk
from runtime.library.facts import FileFacts, read_file
from runtime.library.grouping import Group, base_name, group
from tests.library.model_files import put_model, put_projector


def facts_of(file: DiskFile) -> FileFacts | None:
    return read_file(file).facts


@pytest.fixture
def grouped(tmp_path: Path) -> Callable[[], dict[str, Group]]:
    return lambda: {one.files[0].path.name: one for one in group(walk(tmp_path).files, facts_of, tmp_path)}


def projector_of(one: Group) -> str:
    return one.projector.path.name if one.projector is not None else ""


@pytest.mark.parametrize(
    ("stem", "base"),
    [
        ("mmproj-Qwen2.5-VL-7B-f16", "qwen2.5-vl-7b"),
        ("Qwen2.5-VL-7B-Instruct-UD-Q4_K_XL", "qwen2.5-vl-7b-instruct"),
        ("mmproj-model-f16", ""),
        ("mmproj-BF16", ""),
        ("llava-v1.5-7b-mmproj-Q8_0", "llava-v1.5-7b"),
    ],
)
def test_name_when_stripped_then_only_the_model_is_left(stem: str, base: str) -> None:
    assert base_name(stem) == base


def test_repository_with_one_projector_when_grouped_then_every_quantization_has_it(
    tmp_path: Path, grouped: Callable[[], dict[str, Group]]
) -> None:
    for quantization in ("Q4_K_M", "Q8_0"):
        put_model(tmp_path / "acme" / "Seer-GGUF" / f"Seer-2B-{quantization}.gguf")
    put_projector(tmp_path / "acme" / "Seer-GGUF" / "mmproj-model-f16.gguf")
    found = grouped()
    assert {name: projector_of(one) for name, one in found.items()} == {
        "Seer-2B-Q4_K_M.gguf": "mmproj-model-f16.gguf",
        "Seer-2B-Q8_0.gguf": "mmproj-model-f16.gguf",
    }


def test_several_number_formats_of_a_projector_when_grouped_then_f16_is_used_and_none_is_alone(
    tmp_path: Path, grouped: Callable[[], dict[str, Group]]
) -> None:
    put_model(tmp_path / "a" / "b" / "Seer-Q4_K_M.gguf")
    for name, file_type in (("F32", 0), ("F16", 1), ("BF16", 32)):
        put_projector(tmp_path / "a" / "b" / f"mmproj-{name}.gguf", file_type=file_type)
    (one,) = grouped().values()
    assert projector_of(one) == "mmproj-F16.gguf"
    assert sorted(file.path.name for file in one.spares) == ["mmproj-BF16.gguf", "mmproj-F32.gguf"]


def test_projector_of_another_width_when_grouped_then_is_not_taken(
    tmp_path: Path, grouped: Callable[[], dict[str, Group]]
) -> None:
    put_model(tmp_path / "a" / "b" / "Seer-Q4_K_M.gguf")
    put_projector(tmp_path / "a" / "b" / "mmproj-F16.gguf", n_embd=96)
    found = grouped()
    assert projector_of(found["Seer-Q4_K_M.gguf"]) == ""
    assert found["mmproj-F16.gguf"].projector is None


def test_flat_folder_of_many_when_grouped_then_projectors_go_by_name(
    tmp_path: Path, grouped: Callable[[], dict[str, Group]]
) -> None:
    for name in ("Seer-2B-Q4_K_M", "Other-7B-Q4_K_M", "Third-Q8_0"):
        put_model(tmp_path / f"{name}.gguf")
    put_projector(tmp_path / "mmproj-Seer-2B-f16.gguf")
    put_projector(tmp_path / "Other-7B-mmproj-f16.gguf")
    found = grouped()
    assert projector_of(found["Seer-2B-Q4_K_M.gguf"]) == "mmproj-Seer-2B-f16.gguf"
    assert projector_of(found["Other-7B-Q4_K_M.gguf"]) == "Other-7B-mmproj-f16.gguf"
    assert projector_of(found["Third-Q8_0.gguf"]) == ""


def test_split_set_in_a_folder_below_when_grouped_then_takes_the_projector_above(
    tmp_path: Path, grouped: Callable[[], dict[str, Group]]
) -> None:
    repo = tmp_path / "unsloth" / "Seer-GGUF"
    for i in (1, 2):
        put_model(repo / "UD-Q4_K_XL" / f"Seer-UD-Q4_K_XL-0000{i}-of-00002.gguf", split=(i - 1, 2))
    put_projector(repo / "mmproj-F16.gguf")
    (one,) = grouped().values()
    assert [file.path.name[-20:] for file in one.files] == ["-00001-of-00002.gguf", "-00002-of-00002.gguf"]
    assert projector_of(one) == "mmproj-F16.gguf"


def test_embedding_model_beside_a_projector_when_grouped_then_takes_none(
    tmp_path: Path, grouped: Callable[[], dict[str, Group]]
) -> None:
    put_model(tmp_path / "embed.gguf", architecture="bert")
    put_projector(tmp_path / "mmproj-F16.gguf")
    assert {projector_of(one) for one in grouped().values()} == {""}
