from dataclasses import replace
from pathlib import Path

import pytest

from runtime.errors import FileTruncated, ModelLoadFailed
from runtime.gguf.header import GgufHeader, TensorInfo
from runtime.gguf.parts import check_parts, part_paths, read_headers, read_shape
from tests.support.gguf_files import write_tiny_model


def part(number: int, count: int = 2, *names: str) -> GgufHeader:
    tensors = tuple(TensorInfo(name, (32,), 0, 128 * index) for index, name in enumerate(names))
    return GgufHeader(3, False, {"split.no": number, "split.count": count}, tensors, 32, 512, 4096)


def test_name_of_any_part_when_asked_for_the_set_then_all_parts_are_told_in_order(tmp_path: Path) -> None:
    paths = part_paths(tmp_path / "big-Q4_0-00002-of-00003.gguf")
    assert [path.name for path in paths] == [f"big-Q4_0-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    assert part_paths(tmp_path / "whole.gguf") == (tmp_path / "whole.gguf",)


def test_whole_model_when_its_headers_are_read_then_there_is_one(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "a.gguf")
    assert len(read_headers(path)) == 1


def test_missing_part_when_read_then_the_error_names_it(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "big-00001-of-00002.gguf", split=(0, 2))
    with pytest.raises(FileTruncated, match="big-00002-of-00002"):
        read_headers(path)


def test_parts_of_different_models_when_read_then_are_refused(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "big-00001-of-00002.gguf", split=(0, 2))
    path = write_tiny_model(tmp_path / "big-00002-of-00002.gguf", split=(0, 2))
    with pytest.raises(ModelLoadFailed, match="do not belong together") as caught:
        read_shape(path)
    assert "part 2 of 2 calls itself part 1 of 2" in caught.value.message


def test_parts_that_belong_together_when_checked_then_are_accepted() -> None:
    first = replace(part(0, 2, "a"), metadata={"split.no": 0, "split.count": 2, "split.tensors.count": 3})
    check_parts((first, part(1, 2, "b", "c")), "big.gguf")
    check_parts((part(1, 2),), "big.gguf")


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ((part(0, 2, "a"), part(1, 3, "b")), "calls itself part 2 of 3"),
        ((part(0, 2, "a"), part(1, 2, "a")), "is in two parts"),
        (
            (
                GgufHeader(3, False, {"split.no": 0, "split.count": 2, "split.tensors.count": 9}, (), 32, 32, 32),
                part(1, 2, "b"),
            ),
            "9 tensors were split, 1 are there",
        ),
    ],
)
def test_parts_that_do_not_belong_together_when_checked_then_are_refused(
    headers: tuple[GgufHeader, ...], reason: str
) -> None:
    with pytest.raises(ModelLoadFailed, match=reason):
        check_parts(headers, "big.gguf")
