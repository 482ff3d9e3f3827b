import errno
import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import DiskFull, StorageFault
from runtime.library.downloads.partial import PartialFile, hash_file
from runtime.library.downloads.space import SpaceGuard, disk_fault, free_bytes, nearest
from runtime.library.downloads.stop import Stop, Stopped

ROOMY = 10**15


def opened(path: Path, size_bytes: int = 100, *, free: int = ROOMY, reserve: int = 0) -> PartialFile:
    return PartialFile(path, size_bytes, SpaceGuard(reserve, lambda _: free))


def test_bytes_when_appended_then_they_are_in_the_file_at_once_and_hashed(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "x.partial"
    with opened(path) as partial:
        partial.append(b"abc")
        assert path.read_bytes() == b"abc"
        partial.append(b"def")
        assert partial.length == 6
        assert partial.sha256() == hashlib.sha256(b"abcdef").hexdigest()


def test_file_that_is_there_when_opened_then_it_goes_on_after_its_hash_was_read(tmp_path: Path) -> None:
    path = tmp_path / "x.partial"
    path.write_bytes(b"abc")
    with opened(path) as partial:
        assert partial.length == 3
        with pytest.raises(ValueError, match="hashed"):
            partial.sha256()
        partial.hash_existing(Stop())
        partial.append(b"def")
        assert partial.sha256() == hashlib.sha256(b"abcdef").hexdigest()


def test_file_longer_than_the_whole_when_opened_then_it_is_emptied(tmp_path: Path) -> None:
    path = tmp_path / "x.partial"
    path.write_bytes(b"x" * 101)
    with opened(path) as partial:
        assert partial.length == 0
    assert path.stat().st_size == 0


def test_more_than_the_whole_when_appended_then_nothing_of_it_is_written(tmp_path: Path) -> None:
    with opened(tmp_path / "x.partial", 5) as partial:
        partial.append(b"abc")
        with pytest.raises(ValueError, match="more than announced"):
            partial.append(b"def")
        assert partial.length == 3


def test_cut_back_when_shorter_than_what_was_hashed_then_the_hash_begins_anew(tmp_path: Path) -> None:
    with opened(tmp_path / "x.partial") as partial:
        partial.append(b"abcdef")
        partial.truncate(2)
        partial.hash_existing(Stop())
        partial.append(b"Z")
        assert partial.sha256() == hashlib.sha256(b"abZ").hexdigest()


def test_no_room_left_when_appended_then_it_is_said_before_anything_is_written(tmp_path: Path) -> None:
    with opened(tmp_path / "x.partial", free=1000, reserve=999) as partial:
        with pytest.raises(DiskFull, match="is full") as caught:
            partial.append(b"abc")
        assert caught.value.details["free_bytes"] == 1000
        assert partial.length == 0


def test_reading_what_is_here_when_told_to_end_then_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    stop = Stop()
    stop.request("pause")
    with pytest.raises(Stopped):
        hash_file(path, stop)
    with opened(path) as partial, pytest.raises(Stopped):
        partial.hash_existing(stop)


def test_file_that_is_gone_when_hashed_then_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(StorageFault, match="cannot be read"):
        hash_file(tmp_path / "none", Stop())


def test_folder_in_the_place_of_the_file_when_opened_then_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "x.partial").mkdir()
    with pytest.raises(StorageFault, match="cannot be written"):
        opened(tmp_path / "x.partial")


@given(st.lists(st.binary(max_size=50), max_size=10), st.integers(0, 5))
def test_pieces_in_any_cut_when_appended_over_several_openings_then_file_and_hash_are_those_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], again_after: int
) -> None:
    path = tmp_path_factory.mktemp("p") / "x"
    whole = b"".join(pieces)
    first, second = pieces[:again_after], pieces[again_after:]
    for part in (first, second):
        with opened(path, max(len(whole), 1)) as partial:
            partial.hash_existing(Stop())
            for piece in part:
                partial.append(piece)
            assert partial.sha256() == hashlib.sha256(path.read_bytes()).hexdigest()
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (errno.ENOSPC, DiskFull, "full"),
        (errno.EDQUOT, DiskFull, "full"),
        (errno.EFBIG, StorageFault, "as large as"),
        (errno.EACCES, StorageFault, "cannot be written"),
        (errno.EIO, StorageFault, "cannot be written"),
    ],
)
def test_error_of_the_file_system_when_mapped_then_it_is_in_words(
    tmp_path: Path, code: int, kind: type[StorageFault], words: str
) -> None:
    fault = disk_fault(OSError(code, "said"), tmp_path / "x.gguf")
    assert type(fault) is kind
    assert words in fault.message
    assert fault.hint


def test_free_room_when_the_folder_is_not_there_yet_then_that_of_its_disk_is_told(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "a" / "b") > 0
    assert nearest(tmp_path / "a" / "b") == tmp_path
