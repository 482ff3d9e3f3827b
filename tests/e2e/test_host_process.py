"""`python -m runtime.host` as the window starts it."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.e2e.conftest import HostUnderTest, alive, poll

pytestmark = pytest.mark.e2e


def start_second(host: HostUnderTest) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "runtime.host", "--data-dir", str(host.data.root)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_when_started_then_host_file_is_private_and_admin_answers(own_host: HostUnderTest) -> None:
    if os.name != "nt":
        assert stat.S_IMODE(own_host.data.host_file.stat().st_mode) == 0o600
    status = own_host.private.get("/admin/status").json()
    assert status["pid"] == own_host.process.pid
    assert status["api"]["running"] is False
    assert httpx.get(f"{own_host.file.address}/admin/status").status_code == 401


def test_when_a_second_starts_on_the_same_folder_then_it_says_who_has_it(own_host: HostUnderTest) -> None:
    second = start_second(own_host)
    assert second.returncode == 3
    assert f"process {own_host.process.pid}" in second.stderr
    assert own_host.file.address in second.stderr


def test_when_parent_is_gone_then_the_host_ends_and_cleans_up(own_host: HostUnderTest) -> None:
    assert own_host.process.stdin is not None
    own_host.process.stdin.close()
    assert own_host.process.wait(20) == 0
    assert not own_host.data.host_file.exists()


def test_when_the_api_is_to_stay_then_the_host_outlives_the_parent(own_host: HostUnderTest) -> None:
    state = own_host.private.put(
        "/admin/api", json={"enabled": True, "port": 0, "keep_when_window_closes": True}
    ).json()
    assert own_host.process.stdin is not None
    own_host.process.stdin.close()
    log = own_host.data.logs / "host.log"
    poll(lambda: True if "the API stays on" in log.read_text() else None, timeout_s=10)
    assert httpx.get(f"{state['addresses'][0]}/health").status_code == 200
    assert own_host.private.post("/admin/shutdown").status_code == 204
    assert own_host.process.wait(20) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_when_signalled_while_a_model_runs_then_it_ends_soon_without_orphans(
    own_host: HostUnderTest, number: signal.Signals
) -> None:
    own_host.load_starter(n_ctx=512)
    worker = own_host.worker()
    own_host.process.send_signal(number)
    assert own_host.process.wait(15) == 0
    assert not alive(worker)
    assert not own_host.data.host_file.exists()


def test_when_the_data_folder_cannot_be_made_then_one_sentence_says_so(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    command = [sys.executable, "-m", "runtime.host", "--data-dir", str(blocked / "data")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "data folder" in ended.stderr
