"""One host for a data folder."""

import errno
from pathlib import Path

import pytest

from runtime.errors import AlreadyRunning, StorageFault
from runtime.host.ownership import Ownership, read_host_file
from runtime.messages.api import HostFile
from runtime.paths import DataFolder

TOLD = HostFile("http://127.0.0.1:5", "t", 77, "1")


def test_when_taken_then_a_second_is_told_by_whom(tmp_path: Path) -> None:
    data = DataFolder(tmp_path / "data")
    with Ownership(data) as first:
        first.publish(TOLD)
        assert read_host_file(data) == TOLD
        with pytest.raises(AlreadyRunning, match="process 77") as raised, Ownership(data):
            pass
        assert raised.value.details == {"pid": 77, "address": "http://127.0.0.1:5"}
    assert read_host_file(data) is None
    with Ownership(data):
        pass


def test_when_a_killed_host_left_its_file_then_the_folder_is_free(tmp_path: Path) -> None:
    data = DataFolder(tmp_path / "data")
    data.ensure()
    data.host_file.write_bytes(b"{broken")
    data.lock_file.touch()
    with Ownership(data) as owner:
        owner.publish(TOLD)
        assert read_host_file(data) == TOLD


def test_when_the_folder_cannot_be_made_then_storage_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageFault, match="cannot be used"), Ownership(DataFolder(tmp_path / "file" / "data")):
        pass


def test_when_the_disk_is_full_then_storage_fault_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_path: Path, _content: bytes, *, private: bool) -> None:
        raise OSError(errno.ENOSPC, f"No space left on device ({private})")

    monkeypatch.setattr("runtime.host.ownership.write_atomically", full)
    with (
        Ownership(DataFolder(tmp_path / "data")) as owner,
        pytest.raises(StorageFault, match="No space left") as raised,
    ):
        owner.publish(TOLD)
    assert "Make room" in raised.value.hint
