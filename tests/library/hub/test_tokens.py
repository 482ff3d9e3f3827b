import os
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants

from runtime.errors import StorageFault
from runtime.library.hub.tokens import SERVICE, TOKEN_FILE, TokenStore
from runtime.paths import DataFolder
from tests.fakes.download_rig import NoKeyring

HUB, MIRROR = "https://hub.test", "https://mirror.test"


class MemoryKeyring:
    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}
        self.n_asked = 0

    def get_password(self, service_name: str, username: str) -> str | None:
        self.n_asked += 1
        return self.kept.get((service_name, username))

    def set_password(self, service_name: str, username: str, password: str) -> None:
        self.kept[service_name, username] = password

    def delete_password(self, service_name: str, username: str) -> None:
        del self.kept[service_name, username]


@pytest.fixture
def data(tmp_path: Path) -> DataFolder:
    return DataFolder(tmp_path / "data")


def test_token_when_kept_then_it_is_in_the_keyring_and_in_no_file(data: DataFolder) -> None:
    ring = MemoryKeyring()
    store = TokenStore(data, keyring=ring, use_environment=False)
    assert store.keep(HUB, "hf_x") == "keyring"
    assert ring.kept == {(SERVICE, HUB): "hf_x"}
    assert not (data.root / TOKEN_FILE).exists()
    assert TokenStore(data, keyring=ring, use_environment=False).get(HUB).token == "hf_x"


def test_token_of_one_hub_when_a_mirror_is_asked_then_it_does_not_get_it(data: DataFolder) -> None:
    store = TokenStore(data, keyring=MemoryKeyring(), use_environment=False)
    store.keep(HUB, "hf_x")
    assert store.get(MIRROR).token == ""


def test_keyring_when_asked_again_then_it_was_asked_once(data: DataFolder) -> None:
    ring = MemoryKeyring()
    store = TokenStore(data, keyring=ring, use_environment=False)
    assert [store.get(HUB).token for _ in range(3)] == [""] * 3
    assert ring.n_asked == 1


def test_no_keyring_when_kept_then_it_is_in_a_file_only_the_person_can_read(data: DataFolder) -> None:
    store = TokenStore(data, keyring=NoKeyring(), use_environment=False)
    assert store.keep(HUB, "hf_x") == "file"
    path = data.root / TOKEN_FILE
    if sys.platform != "win32":
        assert path.stat().st_mode & 0o777 == 0o600
    again = TokenStore(data, keyring=NoKeyring(), use_environment=False).get(HUB)
    assert (again.token, again.place) == ("hf_x", "file")


def test_signed_out_when_a_file_was_used_then_the_file_is_gone(data: DataFolder) -> None:
    store = TokenStore(data, keyring=NoKeyring(), use_environment=False)
    store.keep(HUB, "hf_x")
    store.keep(MIRROR, "hf_y")
    store.forget(HUB)
    assert store.get(HUB).token == ""
    assert store.get(MIRROR).token == "hf_y"
    store.forget(MIRROR)
    assert not (data.root / TOKEN_FILE).exists()


def test_keyring_that_came_later_when_kept_then_the_file_no_longer_holds_it(data: DataFolder) -> None:
    TokenStore(data, keyring=NoKeyring(), use_environment=False).keep(HUB, "hf_old")
    ring = MemoryKeyring()
    assert TokenStore(data, keyring=ring, use_environment=False).keep(HUB, "hf_new") == "keyring"
    assert not (data.root / TOKEN_FILE).exists()


def test_keyring_that_takes_nothing_new_when_kept_then_the_old_token_it_has_is_not_used(data: DataFolder) -> None:
    class FullKeyring(MemoryKeyring):
        def set_password(self, service_name: str, username: str, password: str) -> None:
            raise RuntimeError(f"no room for {service_name} {username} {len(password)}")

    ring = FullKeyring()
    ring.kept[SERVICE, HUB] = "hf_old"
    assert TokenStore(data, keyring=ring, use_environment=False).keep(HUB, "hf_new") == "file"
    again = TokenStore(data, keyring=ring, use_environment=False).get(HUB)
    assert (again.token, again.place) == ("hf_new", "file")


@pytest.mark.parametrize("raw", [b"", b"[1]", b"{", b'{"a": 1}', b"x" * 100_000])
def test_file_that_is_damaged_when_read_then_nobody_is_signed_in(data: DataFolder, raw: bytes) -> None:
    data.root.mkdir()
    (data.root / TOKEN_FILE).write_bytes(raw)
    assert TokenStore(data, keyring=NoKeyring(), use_environment=False).get(HUB).token == ""


def test_folder_that_refuses_when_kept_then_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = TokenStore(DataFolder(tmp_path / "file"), keyring=NoKeyring(), use_environment=False)
    with pytest.raises(StorageFault, match="cannot be kept"):
        store.keep(HUB, "hf_x")


def test_token_of_the_environment_when_another_address_is_set_then_it_stays_at_home(
    data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "HF_TOKEN", "hf_env")
    store = TokenStore(data, keyring=NoKeyring())
    assert store.get(constants.ENDPOINT).place == "environment"
    assert store.get(constants.ENDPOINT).token == "hf_env"
    assert store.get(MIRROR).token == ""
