"""`deskside tools`, without a host."""

import sys
from pathlib import Path

import pytest

from runtime import kept_secrets
from runtime.cli import exit_codes
from runtime.cli.main import main
from runtime.host.settings import SettingsFile
from runtime.paths import DataFolder
from tests.fakes.keyring import FakeKeyring
from tests.fakes.tool_programs import SERVER


@pytest.fixture(autouse=True)
def _no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_secrets.KeptSecrets, "_ring", lambda _self: FakeKeyring(is_there=False))


def test_when_servers_are_added_listed_tried_and_removed_then_the_settings_follow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ["--data-dir", str(tmp_path)]
    assert main(["tools", *folder]) == exit_codes.OK
    assert "No tool server yet" in capsys.readouterr().out
    added = [
        "tools",
        "add",
        *folder,
        "--env",
        "KEY=s3cret",
        "every",
        "--",
        sys.executable,
        str(SERVER),
        "--mode",
        "junk",
    ]
    assert main(added) == exit_codes.OK
    assert main(["tools", "add", *folder, "web", "http://127.0.0.1:9/mcp", "--header", "X-Key: 1"]) == exit_codes.OK
    every, web = SettingsFile(DataFolder(tmp_path).settings_file).current.tool_servers
    assert (every.command, every.args[1:], every.env) == (sys.executable, ("--mode", "junk"), {"KEY": ""})
    assert (web.transport, web.url, web.headers) == ("http", "http://127.0.0.1:9/mcp", {"X-Key": ""})
    capsys.readouterr()
    assert main(["tools", "test", *folder, "every"]) == exit_codes.OK
    assert "echo  Says the text again." in capsys.readouterr().out
    assert main(["tools", "test", *folder, "web"]) != exit_codes.OK
    assert "cannot be reached" in capsys.readouterr().err
    assert main(["tools", "remove", *folder, "every"]) == exit_codes.OK
    assert main(["tools", "list", *folder]) == exit_codes.OK
    out = capsys.readouterr().out
    assert "web" in out
    assert "s3cret" not in "".join(path.read_text(errors="replace") for path in tmp_path.glob("*.toml"))


def test_when_a_program_is_named_from_the_folder_one_is_in_then_it_is_found_from_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "server"
    program.parent.mkdir()
    program.touch()
    monkeypatch.chdir(tmp_path)
    folder = ["--data-dir", str(tmp_path / "data")]
    relative = str(Path("bin", "server"))

    assert main(["tools", "add", *folder, "mine", "--", relative]) == exit_codes.OK
    assert main(["tools", "add", *folder, "elsewhere", "--folder", str(tmp_path), "--", relative]) == exit_codes.OK
    assert main(["tools", "add", *folder, "named", "--", "bin"]) == exit_codes.OK

    servers = SettingsFile(DataFolder(tmp_path / "data").settings_file).current.tool_servers
    assert [server.command for server in servers] == [str(program), relative, "bin"]


def test_when_a_server_is_given_wrongly_then_it_says_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ["--data-dir", str(tmp_path)]
    assert main(["tools", "add", *folder, "--env", "KEY", "x", "--", "program"]) != exit_codes.OK
    assert "has no '='" in capsys.readouterr().err
    assert main(["tools", "remove", *folder, "nobody"]) != exit_codes.OK
    assert "no tool server" in capsys.readouterr().err
