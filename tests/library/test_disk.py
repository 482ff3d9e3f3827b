import os
import shutil
import sys
from pathlib import Path

import pytest

from runtime.library import disk
from runtime.library.disk import extended, is_below, look_at, walk

needs_links = pytest.mark.skipif(sys.platform == "win32", reason="needs symbolic links")


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    return path


def names(root: Path) -> list[str]:
    return [str(file.path.relative_to(root)) for file in walk(root).files]


def test_tree_when_walked_then_model_files_come_in_order_and_nothing_else(tmp_path: Path) -> None:
    for name in ("b/two.GGUF", "b/one.gguf", "a.gguf", "c.gguf.partial", "c.bin", ".hidden/d.gguf", ".e.gguf"):
        touch(tmp_path / name)
    (tmp_path / "folder.gguf").mkdir()
    touch(tmp_path / "folder.gguf" / "inside.gguf")
    assert names(tmp_path) == ["a.gguf", "b/one.gguf", "b/two.GGUF", "folder.gguf/inside.gguf"]


def test_root_that_is_not_there_when_walked_then_has_a_problem_and_no_files(tmp_path: Path) -> None:
    assert "another drive" in walk(tmp_path / "unplugged").problem
    assert "not a folder" in walk(touch(tmp_path / "file")).problem


@needs_links
def test_links_when_walked_then_are_followed_once_and_know_where_they_really_are(tmp_path: Path) -> None:
    real = touch(tmp_path / "elsewhere" / "m.gguf")
    root = tmp_path / "root"
    root.mkdir()
    (root / "linked").symlink_to(tmp_path / "elsewhere")
    (root / "again").symlink_to(tmp_path / "elsewhere")
    (root / "loop").symlink_to(root)
    (root / "broken.gguf").symlink_to(tmp_path / "nothing")
    (root / "name.gguf").symlink_to(real)
    found = {str(file.path.relative_to(root)): file for file in walk(root).files}
    assert set(found) == {"again/m.gguf", "name.gguf"}
    assert found["again/m.gguf"].real == str(real.resolve())
    assert not found["again/m.gguf"].is_link
    assert found["name.gguf"].is_link
    assert found["name.gguf"].real == str(root.resolve() / "name.gguf")
    assert found["name.gguf"].identity == found["again/m.gguf"].identity


def test_two_names_of_one_content_when_looked_at_then_have_one_identity(tmp_path: Path) -> None:
    first = touch(tmp_path / "a.gguf")
    os.link(first, tmp_path / "b.gguf")
    files = walk(tmp_path).files
    assert files[0].identity == files[1].identity
    assert files[0].n_links == 2


def test_folder_that_vanishes_meanwhile_when_walked_then_the_rest_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a/1.gguf", "b/2.gguf", "c/3.gguf"):
        touch(tmp_path / name)
    enter = disk._enter

    def vanish(entry: "os.DirEntry[str]", real: str, visited: set[str]) -> str | None:
        if entry.name == "b":
            shutil.rmtree(entry.path)
        return enter(entry, real, visited)

    monkeypatch.setattr(disk, "_enter", vanish)
    assert names(tmp_path) == ["a/1.gguf", "c/3.gguf"]


def test_file_that_vanishes_meanwhile_when_walked_then_the_rest_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("1.gguf", "2.gguf", "3.gguf"):
        touch(tmp_path / name)
    make = disk._file

    def vanish(entry: "os.DirEntry[str]", folder: str, real: str) -> disk.DiskFile:
        if entry.name == "2.gguf":
            Path(entry.path).unlink()
        return make(entry, folder, real)

    monkeypatch.setattr(disk, "_file", vanish)
    assert names(tmp_path) == ["1.gguf", "3.gguf"]


def test_very_deep_and_very_many_when_walked_then_the_walk_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path.joinpath(*("d" for _ in range(disk.MAX_DEPTH + 3)))
    touch(deep / "too deep.gguf")
    for i in range(5):
        touch(tmp_path / f"{i}.gguf")
    monkeypatch.setattr(disk, "MAX_FILES", 3)
    assert names(tmp_path) == ["0.gguf", "1.gguf", "2.gguf"]
    monkeypatch.setattr(disk, "MAX_FILES", 30)
    assert len(names(tmp_path)) == 5


def test_long_windows_paths_when_extended_then_have_the_form_without_a_limit() -> None:
    long = "C:\\" + "x" * 300
    assert extended(long, "win32") == "\\\\?\\" + long
    assert extended("\\\\server\\share\\" + "x" * 300, "win32").startswith("\\\\?\\UNC\\server\\share\\")
    assert extended("\\\\?\\" + long, "win32") == "\\\\?\\" + long
    assert extended("C:\\short", "win32") == "C:\\short"
    assert extended(long, "linux") == long


def test_very_long_path_when_it_can_be_made_then_is_listed(tmp_path: Path) -> None:
    folder = tmp_path
    for _ in range(9):
        folder /= "ü" * 100
    touch(folder / ("m" * 240 + ".gguf"))
    assert len(walk(tmp_path).files) == 1
    assert look_at(walk(tmp_path).files[0].path) is not None


def test_path_below_a_folder_when_compared_then_names_that_only_begin_alike_are_not() -> None:
    folder = str(Path("/a/b"))
    assert is_below(str(Path("/a/b/c")), folder)
    assert is_below(folder, folder)
    assert not is_below(str(Path("/a/bc")), folder)


@pytest.mark.parametrize("path", ["x" * 5000, "a\0b"])
def test_path_that_cannot_be_when_looked_at_then_there_is_nothing(path: str) -> None:
    assert look_at(Path(path)) is None
