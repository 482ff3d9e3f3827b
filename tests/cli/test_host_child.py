import os
import socket
import sys
from pathlib import Path

import msgspec
import psutil
import pytest

from runtime.cli.host_child import BorrowedHost
from runtime.errors import WorldFault
from runtime.messages.api import HostFile
from runtime.paths import DataFolder


@pytest.mark.e2e
def test_when_no_host_runs_then_one_is_started_and_ended_with_the_block(tmp_path: Path) -> None:
    with BorrowedHost(DataFolder(tmp_path)) as host:
        assert host.is_ours
        assert host.file.address.startswith("http://127.0.0.1:")
        process = psutil.Process(host.file.pid)
        assert process.is_running()
        with BorrowedHost(DataFolder(tmp_path)) as second:
            assert not second.is_ours
            assert second.file == host.file
        assert process.is_running()
    assert not psutil.pid_exists(host.file.pid)


def test_when_a_host_runs_then_it_is_used_and_left_alone(tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    data.ensure()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        file = HostFile(f"http://127.0.0.1:{listener.getsockname()[1]}", "token", os.getpid(), "0.1.0")
        data.host_file.write_bytes(msgspec.json.encode(file))
        with BorrowedHost(data) as host:
            assert host.file == file
            assert not host.is_ours
    assert data.host_file.exists()


@pytest.mark.e2e
@pytest.mark.skipif(sys.platform == "win32", reason="a folder below a file")
def test_when_the_host_cannot_start_then_its_own_words_are_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WorldFault, match="could not be started"), BorrowedHost(DataFolder(tmp_path / "file")):
        pass
