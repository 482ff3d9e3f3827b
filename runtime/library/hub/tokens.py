"""Where the hub's access token is kept: the system's keyring, or a private file where there is none.

A token belongs to one hub address; a mirror never gets the one of another hub.
"""

import contextlib
import logging
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import msgspec
from huggingface_hub import constants, get_token

from runtime.errors import StorageFault
from runtime.paths import DataFolder

SERVICE = "Deskside model hub"
TOKEN_FILE = "hub-tokens.json"  # noqa: S105 - a file's name
MAX_FILE_BYTES = 65_536

TokenPlace = Literal["", "keyring", "file", "environment"]
"""`environment`: HF_TOKEN, or what another program of the hub signed in with; never changed by us."""

_log = logging.getLogger(__name__)


class Keyring(Protocol):
    """What is used of the `keyring` package."""

    def get_password(self, service_name: str, username: str) -> str | None:
        """The stored secret."""

    def set_password(self, service_name: str, username: str, password: str) -> None:
        """Store a secret."""

    def delete_password(self, service_name: str, username: str) -> None:
        """Forget a secret."""


@dataclass(frozen=True, slots=True)
class KeptToken:
    """A token and where it was found; both "" when there is none."""

    token: str = ""
    place: TokenPlace = ""


class TokenStore:
    """One token for each hub address. Home thread: any (locked); a keyring may block while it asks the person.

    What was found is remembered, so that requests do not ask the keyring again.
    """

    def __init__(self, folder: DataFolder, *, keyring: Keyring | None = None, use_environment: bool = True) -> None:
        """Nothing is read yet.

        Args:
            folder: where the file stands that is used without a keyring.
            keyring: the system's by default.
            use_environment: whether HF_TOKEN and the token of the hub's own tools count.
        """
        self._path = folder.root / TOKEN_FILE
        self._keyring = keyring
        self._use_environment = use_environment
        self._lock = threading.Lock()
        self._found: dict[str, KeptToken] = {}

    def get(self, endpoint: str) -> KeptToken:
        """The token for an address, if there is one."""
        with self._lock:
            if endpoint not in self._found:
                self._found[endpoint] = self._look(endpoint)
            return self._found[endpoint]

    def keep(self, endpoint: str, token: str) -> TokenPlace:
        """Keep a token for an address; answers where.

        Raises:
            StorageFault: if neither the keyring nor the file could take it.
        """
        with self._lock:
            place: TokenPlace = "keyring"
            try:
                self._ring().set_password(SERVICE, endpoint, token)
                self._change_file(endpoint, "")
            except Exception as error:  # noqa: BLE001 - a keyring's back end raises what it likes
                _log.info("no keyring takes the token (%s); it is kept in a private file", type(error).__name__)
                self._change_file(endpoint, token)
                place = "file"
            self._found[endpoint] = KeptToken(token, place)
            return place

    def forget(self, endpoint: str) -> None:
        """Sign out: remove what was kept here. A token of the environment stays.

        Raises:
            StorageFault: if the file cannot be written.
        """
        with self._lock:
            self._found.pop(endpoint, None)
            with contextlib.suppress(Exception):  # not there, or no keyring: both mean that it holds nothing
                self._ring().delete_password(SERVICE, endpoint)
            self._change_file(endpoint, "")

    def _look(self, endpoint: str) -> KeptToken:
        try:
            token = self._ring().get_password(SERVICE, endpoint)
        except Exception as error:  # noqa: BLE001 - as above
            _log.debug("no keyring: %s", type(error).__name__)
            token = None
        if token:
            return KeptToken(token, "keyring")
        if token := self._read_file().get(endpoint, ""):
            return KeptToken(token, "file")
        # The environment's token is for the environment's hub, not for a mirror that was set here.
        if self._use_environment and endpoint == constants.ENDPOINT.rstrip("/") and (token := get_token()):
            return KeptToken(token, "environment")
        return KeptToken()

    def _ring(self) -> Keyring:
        if self._keyring is None:
            import keyring  # slow to import, and only needed where somebody signs in

            self._keyring = keyring
        return self._keyring

    def _read_file(self) -> dict[str, str]:
        try:
            if self._path.stat().st_size > MAX_FILE_BYTES:
                return {}
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, str])
        except (OSError, msgspec.DecodeError):
            return {}

    def _change_file(self, endpoint: str, token: str) -> None:
        tokens = self._read_file()
        if tokens.get(endpoint, "") == token:
            return
        tokens.pop(endpoint, None)
        if token:
            tokens[endpoint] = token
        try:
            if not tokens:
                self._path.unlink(missing_ok=True)
                return
            self._path.parent.mkdir(parents=True, exist_ok=True)
            _write_private(self._path, msgspec.json.encode(tokens))
        except OSError as error:
            raise StorageFault(
                f"The token cannot be kept in {self._path.name}: {error.strerror or error}.",
                hint="Check that Deskside's data folder may be written.",
                path=str(self._path),
            ) from error


def _write_private(path: Path, data: bytes) -> None:
    """Only the person may read it; on Windows the folder below the profile sees to that."""
    partial = path.with_name(f"{path.name}.partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
