"""`deskside tools sign-in` on a terminal, without a host: the address is printed, the browser played by the test."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from runtime.cli import exit_codes
from runtime.cli.main import main
from runtime.host.settings import SettingsFile
from runtime.paths import DataFolder
from tests.fakes.oauth_server import oauth_server

NO_KEYRING = {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}


def begin(folder: list[str]) -> tuple["subprocess.Popen[str]", str]:
    """Start it; answers the process and the address it prints."""
    command = [sys.executable, "-m", "runtime.cli.main", "tools", "sign-in", *folder, "notes"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | NO_KEYRING
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    assert "in a browser" in first, process.communicate()
    return process, process.stdout.readline().strip()


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT to one process")
def test_when_signed_in_on_the_terminal_then_tools_work_until_signed_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(*NO_KEYRING.copy().popitem())
    folder = ["--data-dir", str(tmp_path)]
    with oauth_server() as server:
        assert main(["tools", "add", *folder, "notes", server.url]) == exit_codes.OK
        process, url = begin(folder)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) != exit_codes.OK
        process.communicate()
        with pytest.raises(httpx.ConnectError):
            httpx.get(url, follow_redirects=True)

        server.provider.refuse = "access_denied"
        process, url = begin(folder)
        httpx.get(url, follow_redirects=True)
        _, err = process.communicate(timeout=60)
        assert process.returncode != exit_codes.OK
        assert "refused in the browser" in err

        server.provider.refuse = ""
        process, url = begin(folder)
        httpx.get(url, follow_redirects=True)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (exit_codes.OK, "")
        assert "Signed in." in out
        capsys.readouterr()
        assert main(["tools", "test", *folder, "notes"]) == exit_codes.OK
        assert "who  Says which program asks." in capsys.readouterr().out
        assert SettingsFile(DataFolder(tmp_path).settings_file).current.tool_servers[0].signed_in
        assert main(["tools", "sign-out", *folder, "notes"]) == exit_codes.OK
        assert main(["tools", "test", *folder, "notes"]) != exit_codes.OK
        assert "who you are" in capsys.readouterr().err
