"""Where the secrets of tool servers are kept: the system's keyring, or a private file where there is none."""

import contextlib
import logging
import os
import threading
from pathlib import Path
from typing import Protocol

import msgspec

from runtime.errors import StorageFault
from runtime.messages.tools import SecretsPlace

SERVICE = "Deskside tool servers"
SECRETS_FILE = "tool-secrets.json"
MAX_FILE_BYTES = 4 * 1024 * 1024

log = logging.getLogger(__name__)


class Keyring(Protocol):
    """What is used of the `keyring` package."""

    def get_password(self, service_name: str, username: str) -> str | None:
        """The stored secret."""

    def set_password(self, service_name: str, username: str, password: str) -> None:
        """Store a secret."""

    def delete_password(self, service_name: str, username: str) -> None:
        """Forget a secret."""


class Secrets(msgspec.Struct, frozen=True, omit_defaults=True):
    """The secret values of one server, by name."""

    env: dict[str, str] = {}
    headers: dict[str, str] = {}


class SecretStore:
    """The secrets of each server. Home thread: any (locked); a keyring may block while it asks the person."""

    def __init__(self, folder: Path, keyring: Keyring | None = None) -> None:
        """Nothing is read yet. `keyring` is the system's by default."""
        self._path = folder / SECRETS_FILE
        self._keyring = keyring
        self._lock = threading.Lock()

    def get(self, server: str) -> tuple[Secrets, SecretsPlace]:
        """A server's secrets and where they were found; empty ones and "" where there are none."""
        with self._lock:
            kept = self._read_file().get(server)
            if kept is not None:
                return kept, "file"
            try:
                text = self._ring().get_password(SERVICE, server)
                return (msgspec.json.decode(text, type=Secrets), "keyring") if text else (Secrets(), "")
            except Exception as error:  # noqa: BLE001 - a keyring's back end raises what it likes
                log.debug("no keyring: %s", type(error).__name__)
                return Secrets(), ""

    def keep(self, server: str, secrets: Secrets) -> SecretsPlace:
        """Keep a server's secrets; answers where. Empty ones are forgotten.

        Raises:
            StorageFault: neither the keyring nor the file could take them.
        """
        if not secrets.env and not secrets.headers:
            self.forget(server)
            return ""
        with self._lock:
            try:
                self._ring().set_password(SERVICE, server, msgspec.json.encode(secrets).decode())
            except Exception as error:  # noqa: BLE001 - as above; Windows refuses long ones too
                log.info("no keyring takes the secrets (%s); they are kept in a private file", type(error).__name__)
                self._change_file(server, secrets)
                return "file"
            self._change_file(server, None)
            return "keyring"

    def forget(self, server: str) -> None:
        """Remove what was kept.

        Raises:
            StorageFault: the file cannot be written.
        """
        with self._lock:
            with contextlib.suppress(Exception):  # not there, or no keyring: both mean that it holds nothing
                self._ring().delete_password(SERVICE, server)
            self._change_file(server, None)

    def _ring(self) -> Keyring:
        if self._keyring is None:
            import keyring  # slow to import, and only needed where there is a secret

            self._keyring = keyring
        return self._keyring

    def _read_file(self) -> dict[str, Secrets]:
        try:
            if self._path.stat().st_size > MAX_FILE_BYTES:
                return {}
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, Secrets])
        except (OSError, msgspec.DecodeError):
            return {}

    def _change_file(self, server: str, secrets: Secrets | None) -> None:
        kept = self._read_file()
        if kept.get(server) == secrets:
            return
        kept.pop(server, None)
        if secrets is not None:
            kept[server] = secrets
        try:
            if kept:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                _write_private(self._path, msgspec.json.encode(kept))
            else:
                self._path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageFault(
                f"The secrets cannot be kept in {self._path.name}: {error.strerror or error}.",
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
