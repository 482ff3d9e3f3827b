"""`deskside keys`, without a host and with one."""

import json
from pathlib import Path

import msgspec
import pytest

from runtime.cli import exit_codes
from runtime.cli.main import main
from runtime.host.keys import hash_key
from runtime.host.settings import SettingsFile
from runtime.options import ApiOptions, KeyLimits
from runtime.paths import DataFolder
from tests.fakes.fake_host import FakeHost


def test_when_keys_are_made_limited_listed_and_removed_then_the_settings_follow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ["--data-dir", str(tmp_path)]
    assert main(["keys", *folder]) == exit_codes.OK
    assert "No key yet" in capsys.readouterr().out
    assert main(["keys", "add", *folder, "--requests-per-minute", "10", "editor"]) == exit_codes.OK
    key = capsys.readouterr().out.strip().splitlines()[-1]
    (stored,) = SettingsFile(DataFolder(tmp_path).settings_file).current.keys
    assert (stored.name, stored.sha256, stored.limits) == ("editor", hash_key(key), KeyLimits(requests_per_minute=10))
    assert main(["keys", "limit", *folder, "--tokens-per-day", "50000", "editor"]) == exit_codes.OK
    assert "50,000 tokens a day" in capsys.readouterr().out
    assert main(["keys", *folder]) == exit_codes.OK
    listed = capsys.readouterr().out
    assert "editor" in listed
    assert "never" in listed
    assert key not in listed
    assert main(["keys", "--json", *folder]) == exit_codes.OK
    assert json.loads(capsys.readouterr().out)[0]["limits"] == {"tokens_per_day": 50000}
    assert main(["keys", "remove", *folder, "editor"]) == exit_codes.OK
    assert SettingsFile(DataFolder(tmp_path).settings_file).current.keys == ()


def test_when_the_last_key_of_an_open_api_is_removed_then_a_sentence_says_what_ends_and_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ["--data-dir", str(tmp_path)]
    SettingsFile(DataFolder(tmp_path).settings_file).change(api=ApiOptions(enabled=True, host="0.0.0.0"))
    for name in ("first", "second"):
        main(["keys", "add", *folder, name])
    main(["keys", "remove", *folder, "first"])
    assert capsys.readouterr().err.count("API is off") == 0
    assert main(["keys", "remove", *folder, "second"]) == exit_codes.OK
    said = capsys.readouterr().err
    assert "The API is off" in said
    assert "Make a key, or serve this machine alone" in said
    main(["keys", *folder])
    assert "The API is off" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (["remove", "nobody"], "There is no key named"),
        (["add", "a/b"], "cannot be the name of a key"),
        (["add", "--max-concurrent", "0", "guest"], "--max-concurrent 0 is out of range"),
    ],
)
def test_when_it_cannot_be_done_then_a_sentence_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], typed: list[str], sentence: str
) -> None:
    assert main(["keys", *typed, "--data-dir", str(tmp_path)]) != exit_codes.OK
    assert sentence in capsys.readouterr().err


def test_when_a_host_runs_then_it_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = DataFolder(tmp_path)
    data.ensure()
    with FakeHost() as host:
        data.host_file.write_bytes(msgspec.json.encode(host.host_file))
        assert main(["keys", "add", "--data-dir", str(tmp_path), "editor"]) == exit_codes.OK
        assert "sk-editor" in capsys.readouterr().out
        assert [key.name for key in host.api.keys] == ["editor"]
