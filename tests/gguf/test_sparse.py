import errno
import os
import sys
from pathlib import Path

import pytest

from runtime.errors import DiskFull, StorageFault
from runtime.gguf import sparse
from runtime.gguf.facts import read_facts
from runtime.gguf.header import read_header
from runtime.gguf.remote import read_remote_header
from runtime.gguf.source import FileSource, MemorySource
from runtime.gguf.sparse import write_sparse
from runtime.library.starter import find_starter
from tests.support.gguf_files import pack_header


def test_stand_in_when_written_then_has_the_size_and_takes_no_room(tmp_path: Path) -> None:
    path = tmp_path / "größe 1.gguf"
    write_sparse(b"GGUF" * 10, 50 * 1024**3, path)
    assert path.stat().st_size == 50 * 1024**3
    with path.open("rb") as file:
        assert file.read(44) == b"GGUF" * 10 + b"\0" * 4
    if sys.platform != "win32":
        assert path.stat().st_blocks * 512 < 1024 * 1024
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_stand_in_of_the_starter_when_read_then_is_whole_and_has_its_header(tmp_path: Path) -> None:
    starter = find_starter()
    assert starter is not None
    with FileSource(starter) as source:
        header, head = read_remote_header(source)
        write_sparse(head, source.size_bytes, tmp_path / starter.name)
    with FileSource(tmp_path / starter.name) as source:
        assert read_header(source) == header
    read_facts(tmp_path / starter.name).check_whole()


def test_file_of_that_name_when_written_again_then_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(b"old" * 100)
    write_sparse(b"new", 1000, path)
    assert path.stat().st_size == 1000
    assert path.read_bytes()[:6] == b"new\0\0\0"


def test_size_smaller_than_the_head_when_written_then_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="smaller"):
        write_sparse(b"1234", 3, tmp_path / "a.gguf")


def test_folder_that_is_not_there_when_written_to_then_the_fault_names_it(tmp_path: Path) -> None:
    with pytest.raises(StorageFault) as caught:
        write_sparse(b"x", 10, tmp_path / "none" / "a.gguf")
    assert caught.value.details["path"] == str(tmp_path / "none")
    assert caught.value.hint


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.ENOSPC, DiskFull, "no room"),
        (errno.EFBIG, StorageFault, "without taking that room"),
        (errno.EACCES, StorageFault, "cannot be written"),
    ],
)
def test_system_that_refuses_when_written_to_then_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StorageFault], words: str
) -> None:
    def fail(_self: Path, _target: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(kind, match=words) as caught:
        write_sparse(b"x", 10, tmp_path / "a.gguf")
    assert type(caught.value) is kind
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows tells no blocks")
def test_file_system_without_holes_when_written_to_then_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse, "_SLACK_BYTES", -1)
    with pytest.raises(StorageFault, match="without taking that room"):
        write_sparse(pack_header([]), 1 << 30, tmp_path / "a.gguf")
    assert list(tmp_path.iterdir()) == []


def test_header_in_memory_when_asked_for_its_bytes_then_they_end_where_tensors_begin() -> None:
    data = pack_header([]) + b"\1" * 100
    header, head = read_remote_header(MemorySource(data))
    assert head == data[: header.data_offset]
