"""The program as it is started: `python -m app`."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.app.ui.conftest import WAIT_MS

pytestmark = pytest.mark.e2e


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to send")
def test_when_the_program_is_asked_to_end_then_it_saves_and_ends_in_order(tmp_path: Path) -> None:
    environ = os.environ | {"QT_QPA_PLATFORM": "offscreen"}
    command = [sys.executable, "-m", "app", "--data-dir", str(tmp_path)]
    process = subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL)
    end_s = time.monotonic() + WAIT_MS * 3 / 1000
    host_file = tmp_path / "run" / "host.json"
    while not host_file.exists() and time.monotonic() < end_s and process.poll() is None:
        time.sleep(0.01)
    assert host_file.exists()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 0
    assert (tmp_path / "window.toml").exists()
    assert not host_file.exists()


def test_when_the_data_folder_is_a_file_then_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    del capsys
    said: list[str] = []
    monkeypatch.setattr("app.main.QMessageBox.critical", lambda _parent, _title, text: said.append(text))
    monkeypatch.setattr("app.main.QApplication", lambda _arguments: _application())
    blocked = tmp_path / "blocked"
    blocked.write_text("a file")
    from app.main import main

    assert main(["--data-dir", str(blocked)]) == 1
    assert str(blocked) in said[0]


def _application() -> object:
    from PySide6.QtWidgets import QApplication

    return QApplication.instance() or QApplication([])
