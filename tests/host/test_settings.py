"""The settings file: kept, migrated, and never lost."""

import tomllib
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import Mock

import pytest

from runtime.errors import BadRequest, StorageFault
from runtime.host import settings as settings_module
from runtime.host.settings import (
    MAX_ALIASES,
    MAX_REMEMBERED_MODELS,
    MIGRATIONS,
    SETTINGS_VERSION,
    Settings,
    SettingsFile,
    StoredKey,
)
from runtime.options import ApiOptions, LoadOptions, ModelsOptions


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "settings.toml"


def broken_copies(path: Path) -> list[Path]:
    return list(path.parent.glob("settings.broken-*.toml"))


def test_when_there_is_no_file_then_defaults_hold_and_nothing_is_written(path: Path) -> None:
    file = SettingsFile(path)
    assert file.current.api == ApiOptions()
    assert file.problems == []
    assert not path.exists()


def test_when_changed_then_another_run_reads_the_same(path: Path) -> None:
    file = SettingsFile(path)
    api = ApiOptions(enabled=True, port=4321, allowed_origins=("https://example.org",))
    file.change(api=api, keys=(StoredKey("k", "ab" * 32, 5.0),))
    file.remember_load("a/b.c", LoadOptions(n_ctx=512, type_k="q8_0"))
    again = SettingsFile(path)
    assert again.current == file.current
    assert again.load_options("a/b.c") == LoadOptions(n_ctx=512, type_k="q8_0")
    assert again.load_options("other") == LoadOptions()
    assert again.current.last_model == "a/b.c"
    assert tomllib.loads(path.read_text())["version"] == SETTINGS_VERSION


def test_when_keys_are_unknown_then_they_are_kept(path: Path) -> None:
    path.write_text(
        'version = 1\nfuture = "x"\n[api]\nport = 99\nnew_thing = [1, 2]\n[models.m]\nn_ctx = 512\nodd = 1\n'
    )
    file = SettingsFile(path)
    assert file.problems == []
    assert file.current.api.port == 99
    file.change(last_model="m")
    raw = tomllib.loads(path.read_text())
    assert raw["future"] == "x"
    assert raw["api"]["new_thing"] == [1, 2]
    assert raw["models"]["m"] == {"odd": 1, "n_ctx": 512}


def test_when_file_is_newer_then_its_version_is_kept(path: Path) -> None:
    path.write_text("version = 999\n[api]\nport = 99\n")
    file = SettingsFile(path)
    assert file.current.api.port == 99
    file.change(last_model="m")
    assert tomllib.loads(path.read_text())["version"] == 999


@pytest.mark.parametrize("content", [b"= broken", b"\xff\xfe", b"version = 'x'", b"version = -1", b"version = true"])
def test_when_file_is_broken_then_it_is_moved_aside_and_said(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    file = SettingsFile(path)
    assert file.current.api == ApiOptions()
    assert "could not be read" in file.problems[0]
    (kept,) = broken_copies(path)
    assert kept.read_bytes() == content
    assert kept.name in file.problems[0]
    assert not path.exists()


def test_when_a_section_is_wrong_then_only_that_is_left_out_and_a_copy_is_kept(path: Path) -> None:
    path.write_text('version = 1\nlast_model = "m"\n[api]\nport = "x"\n')
    file = SettingsFile(path)
    assert file.current.last_model == "m"
    assert file.current.api == ApiOptions()
    assert "port" in file.problems[0]
    assert len(broken_copies(path)) == 1
    assert path.exists()


def test_when_a_section_stays_wrong_over_many_starts_then_one_copy_is_kept(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = (datetime(2026, 11, 30, 12, 0, second, tzinfo=UTC) for second in range(60))
    monkeypatch.setattr(settings_module, "now_local", lambda: next(times))
    path.write_text('version = 1\n[api]\nport = "x"\n')
    problems = {SettingsFile(path).problems[0] for _ in range(3)}
    (kept,) = broken_copies(path)
    assert kept.read_text() == path.read_text()
    assert len(problems) == 1
    path.write_text('version = 1\n[api]\nport = "y"\n')
    SettingsFile(path)
    assert len(broken_copies(path)) == 2


def test_when_the_same_broken_file_comes_back_then_one_copy_is_kept(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = (datetime(2026, 11, 30, 12, 0, second, tzinfo=UTC) for second in range(60))
    monkeypatch.setattr(settings_module, "now_local", lambda: next(times))
    for _ in range(2):
        path.write_bytes(b"= broken")
        assert "could not be read" in SettingsFile(path).problems[0]
        assert not path.exists()
    assert [kept.read_bytes() for kept in broken_copies(path)] == [b"= broken"]


def test_when_the_disk_has_no_room_for_the_copy_then_no_part_of_one_is_left(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", Mock(side_effect=OSError(28, "No space left on device")))
    path.write_text('version = 1\n[api]\nport = "x"\n')
    assert "still settings.toml" in SettingsFile(path).problems[0]
    assert list(path.parent.iterdir()) == [path]


def test_when_one_option_of_the_api_is_wrong_then_the_others_hold(path: Path) -> None:
    path.write_text('version = 1\n[api]\ntls = "own"\nrequest_log = "on"\nport = 99\nnewer = 1\n')
    file = SettingsFile(path)
    assert file.current.api == ApiOptions(tls="own", port=99)
    assert "request_log" in file.problems[0]
    assert len(broken_copies(path)) == 1


@pytest.mark.parametrize("entry", ['tls = "sure"', "tls = true"])
def test_when_the_encryption_is_not_understood_then_other_machines_are_not_served_in_the_clear(
    path: Path, entry: str
) -> None:
    path.write_text(f"version = 1\n[api]\nenabled = true\n{entry}\n")
    file = SettingsFile(path)
    assert file.current.api == ApiOptions(enabled=True, tls="own")
    assert "tls" in file.problems[0]


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ('tool_servers = ["no table", {name = "time", command = "uvx"}]', ["time"]),
        ('tool_servers = [{name = "/", command = "x"}, {name = "time", command = "uvx", later = 1}]', ["time"]),
        ("tool_servers = 5", []),
        ("[tool_servers]\ntime = 1", []),
    ],
)
def test_when_a_tool_server_is_not_understood_then_it_costs_only_itself(
    path: Path, written: str, names: list[str]
) -> None:
    path.write_text(f'version = 1\nlast_model = "m"\n{written}\n')
    file = SettingsFile(path)
    assert [server.name for server in file.current.tool_servers] == names
    assert file.current.last_model == "m"
    assert "tool_servers" in file.problems[0]
    assert len(broken_copies(path)) == 1


def test_when_keys_cannot_be_read_then_the_api_stays_off(path: Path) -> None:
    path.write_text("version = 1\n[api]\nenabled = true\n[keys]\nodd = 1\n")
    file = SettingsFile(path)
    assert not file.current.api.enabled
    assert "stays off" in file.problems[0]


def test_when_many_models_were_loaded_then_the_oldest_is_forgotten(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_module, "MAX_REMEMBERED_MODELS", 3)
    file = SettingsFile(path)
    for name in "abcd":
        file.remember_load(name, LoadOptions(n_ctx=512))
    assert list(file.current.load_options) == ["b", "c", "d"]
    assert MAX_REMEMBERED_MODELS >= 100


def test_when_it_cannot_be_written_then_storage_fault_and_the_run_goes_on(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    file = SettingsFile(tmp_path / "settings.toml")
    file._path = blocked / "settings.toml"
    with pytest.raises(StorageFault, match="could not be saved"):
        file.change(last_model="m")
    assert file.current.last_model == "m"


def test_when_migrated_0_to_1_then_a_file_without_version_is_taken_as_it_stands(path: Path) -> None:
    path.write_text("[api]\nport = 99\n")
    file = SettingsFile(path)
    assert file.current.api.port == 99
    file.change(last_model="m")
    assert tomllib.loads(path.read_text())["version"] == 1


def test_when_a_migration_exists_then_it_has_a_test() -> None:
    assert sorted(MIGRATIONS) == list(range(SETTINGS_VERSION))
    for version in MIGRATIONS:
        assert f"test_when_migrated_{version}_to_{version + 1}_" in Path(__file__).read_text()


def test_when_options_for_all_models_change_then_another_run_reads_them(path: Path) -> None:
    file = SettingsFile(path)
    options = ModelsOptions(max_loaded=2, folders=("/a folder/ü",), nodes=("10.0.0.5:50052",), offline=True)
    file.change(models_options=options)
    file.remember_options("m", LoadOptions(n_ctx=512))
    again = SettingsFile(path)
    assert again.current.models_options == options
    assert again.load_options("m") == LoadOptions(n_ctx=512)
    assert again.current.last_model == ""  # remembering is not loading
    raw = tomllib.loads(path.read_text())
    assert "idle_unload_s" not in raw["models_options"]  # automatic is stored as automatic


def test_when_many_settings_are_remembered_then_the_oldest_go(path: Path) -> None:
    file = SettingsFile(path)
    names = [f"m{number}" for number in range(MAX_REMEMBERED_MODELS)]
    file.current = Settings(load_options=dict.fromkeys(names, LoadOptions(n_ctx=512)))
    file.remember_options("one more", LoadOptions(n_ctx=1024))
    assert len(file.current.load_options) == MAX_REMEMBERED_MODELS
    assert "m0" not in file.current.load_options


def test_when_a_further_name_is_given_then_it_outlives_the_run_until_taken_away(path: Path) -> None:
    settings = SettingsFile(path)
    settings.set_alias("gpt-of-old", "fake")
    assert SettingsFile(path).meant_by("gpt-of-old") == "fake"
    assert SettingsFile(path).meant_by("other") == "other"
    settings.set_alias("gpt-of-old", "")
    assert SettingsFile(path).current.aliases == {}


def test_when_there_are_too_many_further_names_then_one_more_is_refused(path: Path) -> None:
    settings = SettingsFile(path)
    settings.change(aliases={f"name-{number}": "fake" for number in range(MAX_ALIASES)})
    with pytest.raises(BadRequest, match="already"):
        settings.set_alias("one-more", "fake")
