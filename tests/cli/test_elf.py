import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.cli.elf import needed_libraries

needs_compiler = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)


@needs_compiler
def test_when_a_library_names_others_then_they_are_read_in_order(tmp_path: Path) -> None:
    source = tmp_path / "empty.c"
    source.write_text("int answer(void) { return 42; }\n")
    for name in ("one", "two"):
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-o", tmp_path / f"lib{name}.so", f"-Wl,-soname,lib{name}.so.7", source],
            check=True,
        )
    user = tmp_path / "user.so"
    flags = ["-Wl,--no-as-needed", f"-L{tmp_path}", "-lone", "-ltwo", "-nostdlib"]
    subprocess.run(["cc", "-shared", "-fPIC", "-o", user, source, *flags], check=True)
    assert needed_libraries(user) == ("libone.so.7", "libtwo.so.7")


@needs_compiler
def test_when_a_file_is_cut_off_then_there_are_no_names_and_no_error(tmp_path: Path) -> None:
    whole = Path(sys.executable).resolve().read_bytes()
    for size in (5, 63, 64, 100, 2000):
        path = tmp_path / str(size)
        path.write_bytes(whole[:size])
        assert needed_libraries(path) == ()


def test_when_a_file_is_no_elf_then_there_are_no_names(tmp_path: Path) -> None:
    path = tmp_path / "script"
    path.write_text("#!/bin/sh\n")
    assert needed_libraries(path) == ()


def test_when_a_file_is_missing_then_that_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        needed_libraries(tmp_path / "missing")


@pytest.mark.parametrize("offset", [2**63, 2**64 - 1, 10**6])
def test_when_the_header_points_far_beyond_the_file_then_there_are_no_names_and_no_error(
    tmp_path: Path, offset: int
) -> None:
    head = b"\x7fELF\x02\x01" + bytes(26) + offset.to_bytes(8, "little") + bytes(14) + b"\x38\x00\x01\x00" + bytes(4)
    path = tmp_path / "odd.so"
    path.write_bytes(head + bytes(200))
    assert needed_libraries(path) == ()
