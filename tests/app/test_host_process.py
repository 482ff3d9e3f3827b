"""Starting, watching, restarting and ending a host, with a pretended one in a process of its own."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import psutil
import pytest
from pytestqt.qtbot import QtBot

import app.host_process
from app.host_process import MAX_DEATHS, HostProcess, host_command
from app.link import HostLink
from runtime.messages.api import HostFile
from runtime.options import ApiOptions
from runtime.paths import DataFolder
from tests.app.conftest import WAIT_MS, Wait
from tests.fakes.fake_host import FakeHost

ROOT = Path(__file__).resolve().parents[2]
Make = Callable[..., HostProcess]


def fake_command(*extra: str) -> Callable[[DataFolder], Sequence[str]]:
    return lambda folder: (
        sys.executable,
        "-m",
        "tests.fakes.fake_host",
        "--data-dir",
        str(folder.root),
        "--with-parent",
        *extra,
    )


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    one = DataFolder(tmp_path)
    one.ensure()
    return one


@pytest.fixture
def make(qtbot: QtBot, folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.chdir(ROOT)
    made: list[HostProcess] = []

    def build(*extra: str) -> HostProcess:
        made.append(HostProcess(folder, command=fake_command(*extra)))
        return made[-1]

    yield build
    for one in made:
        if one.state != "stopped":
            with qtbot.waitSignal(one.stopped, timeout=WAIT_MS):
                one.stop()


def start(host: HostProcess, qtbot: QtBot) -> HostFile:
    with qtbot.waitSignal(host.started, timeout=WAIT_MS) as started:
        host.start()
    found: HostFile = started.args[0]
    return found


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_when_the_real_host_is_named_then_it_is_this_interpreters(folder: DataFolder) -> None:
    command = host_command(folder)
    assert list(command) == [sys.executable, "-m", "runtime.host", "--data-dir", str(folder.root), "--with-parent"]


def test_when_started_then_it_answers_and_when_stopped_it_is_gone(make: Make, qtbot: QtBot, wait: Wait) -> None:
    host = make()
    states: list[str] = []
    host.state_changed.connect(states.append)
    found = start(host, qtbot)
    assert not host.is_attached
    wait(lambda: "fake host: ready" in host.last_lines)
    with qtbot.waitSignal(host.stopped, timeout=WAIT_MS):
        host.stop()
    assert states == ["starting", "running", "stopped"]
    wait(lambda: is_gone(found.pid))


def test_when_one_runs_already_then_it_is_attached_and_not_ended(
    make: Make, folder: DataFolder, qtbot: QtBot, fake_host: FakeHost
) -> None:
    folder.host_file.write_bytes(msgspec.json.encode(fake_host.host_file))
    host = make()
    assert start(host, qtbot) == fake_host.host_file
    assert host.is_attached
    with qtbot.waitSignal(host.stopped, timeout=WAIT_MS):
        host.stop()
    assert not fake_host.shutdown_asked.is_set()


def test_when_a_host_we_once_left_on_is_found_then_it_is_ours_to_end(
    make: Make, folder: DataFolder, qtbot: QtBot, fake_host: FakeHost
) -> None:
    folder.host_file.write_bytes(msgspec.json.encode(fake_host.host_file))
    host = make()
    host.set_kept_pid(fake_host.host_file.pid)
    start(host, qtbot)
    assert not host.is_attached
    with qtbot.waitSignal(host.stopped, timeout=WAIT_MS):
        host.stop()
    assert fake_host.shutdown_asked.is_set()


@pytest.mark.parametrize("raw", [b"", b"{}", b'{"address":"http://127.0.0.1:1","token":"x","pid":1,"version":"0"}'])
def test_when_the_file_of_a_dead_host_lies_there_then_a_new_one_is_started(
    make: Make, folder: DataFolder, qtbot: QtBot, raw: bytes
) -> None:
    folder.host_file.write_bytes(raw)
    host = make()
    assert start(host, qtbot).address != "http://127.0.0.1:1"
    assert not host.is_attached


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_when_it_is_killed_then_it_says_so_and_comes_back(make: Make, qtbot: QtBot) -> None:
    host = make()
    first = start(host, qtbot)
    with qtbot.waitSignals([host.died, host.started], timeout=WAIT_MS, order="strict"):
        os.kill(first.pid, signal.SIGKILL)
    assert host.host is not None
    assert host.host.pid != first.pid
    assert host.state == "running"


def test_when_it_dies_again_and_again_then_it_says_what_to_do_and_retry_begins_anew(
    make: Make, folder: DataFolder, qtbot: QtBot, wait: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.host_process, "BACKOFF_MS", (1,))
    host = make("--crash-at-once")
    said: list[str] = []
    host.died.connect(said.append)
    with qtbot.waitSignal(host.failed, timeout=3 * WAIT_MS) as failed:
        host.start()
    states: list[str] = []
    host.state_changed.connect(states.append)
    assert len(said) == MAX_DEATHS - 1
    assert "exit code 3" in failed.args[0]
    assert "fake host: cannot start" in failed.args[0]
    assert "deskside doctor" in failed.args[0]
    wait((folder.logs / "host-last-words.txt").exists)
    assert "cannot start" in (folder.logs / "host-last-words.txt").read_text()
    with qtbot.waitSignal(host.died, timeout=WAIT_MS):
        host.retry()
    assert states == ["stopped", "starting", "restarting"]


def test_when_the_program_does_not_exist_then_it_fails_with_the_systems_words(folder: DataFolder, qtbot: QtBot) -> None:
    host = HostProcess(folder, command=lambda _: ["/does/not/exist/deskside"])
    with qtbot.waitSignal(host.died, timeout=WAIT_MS) as died:
        host.start()
    assert "No such file" in died.args[0] or "cannot find" in died.args[0]
    with qtbot.waitSignal(host.stopped, timeout=WAIT_MS):
        host.stop()


def test_when_an_attached_host_ends_then_an_own_one_is_started(
    make: Make, folder: DataFolder, qtbot: QtBot, fake_host: FakeHost
) -> None:
    folder.host_file.write_bytes(msgspec.json.encode(fake_host.host_file))
    host = make()
    start(host, qtbot)
    fake_host.close()
    with qtbot.waitSignals([host.died, host.started], timeout=WAIT_MS, order="strict"):
        host.check()
    assert not host.is_attached
    assert host.host is not None
    assert host.host.pid != os.getpid()


def test_when_it_still_lives_after_the_link_was_lost_then_the_link_is_told_again(make: Make, qtbot: QtBot) -> None:
    host = make()
    found = start(host, qtbot)
    with qtbot.waitSignal(host.started, timeout=WAIT_MS) as again:
        host.check()
    assert again.args == [found]


def test_when_the_window_closes_with_the_api_kept_on_then_the_host_lives_on(
    make: Make, qtbot: QtBot, wait: Wait
) -> None:
    host = make()
    found = start(host, qtbot)
    link = HostLink()
    with qtbot.waitSignal(link.connected, timeout=WAIT_MS):
        link.attach(found)
    with qtbot.waitSignal(link.api_changed, timeout=WAIT_MS):
        link.set_api(ApiOptions(enabled=True, keep_when_window_closes=True))
    link.detach()
    with qtbot.waitSignal(host.stopped, timeout=WAIT_MS):
        host.stop(keep=True)
    assert not is_gone(found.pid)
    later = make()  # the next window finds it, and this one does not want it kept
    later.set_kept_pid(found.pid)
    assert start(later, qtbot) == found
    with qtbot.waitSignal(later.stopped, timeout=WAIT_MS):
        later.stop()
    wait(lambda: is_gone(found.pid))


PARENT = """
import sys
from pathlib import Path
from PySide6.QtCore import QCoreApplication
from app.host_process import HostProcess
from runtime.paths import DataFolder
from tests.app.test_host_process import fake_command

app = QCoreApplication(sys.argv)
folder = DataFolder(Path(sys.argv[1]))
host = HostProcess(folder, command=fake_command())
host.started.connect(lambda found: print(found.pid, flush=True))
host.start()
app.exec()
"""


@pytest.mark.e2e
@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_when_the_window_is_killed_then_the_host_ends_by_itself(folder: DataFolder, wait: Wait) -> None:
    window = psutil.Popen([sys.executable, "-c", PARENT, str(folder.root)], stdout=-1, cwd=ROOT)
    with window.stdout as output:
        host_pid = int(output.readline())
    window.kill()
    window.wait()
    wait(lambda: is_gone(host_pid))


def test_when_started_then_the_main_thread_is_not_held(make: Make, qtbot: QtBot) -> None:
    host = make()
    began_s = time.perf_counter()
    host.start()
    assert time.perf_counter() - began_s < 0.05
    qtbot.waitUntil(lambda: host.state == "running", timeout=WAIT_MS)
