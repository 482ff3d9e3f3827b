"""Secrets of one kind by name: in the system's keyring, or in a private file where there is none."""

import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, Protocol, TypeVar

import msgspec

from runtime.atomic_files import write_atomically
from runtime.errors import StorageFault
from runtime.unreadable import UNREADABLE

T = TypeVar("T")

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
class SecretKind(Generic[T]):
    """What is kept.

    Attributes:
        what: for sentences, with its article: "The token".
        service: its name in the keyring.
        file_type: of the file, a JSON object with values by name.
        to_text: what the keyring gets.
        from_text: the value again; may raise anything.
        max_file_bytes: a larger file is not read.
    """

    what: str
    service: str
    file_type: type[dict[str, T]]
    to_text: Callable[[T], str]
    from_text: Callable[[str], T]
    max_file_bytes: int


class KeptSecrets(Generic[T]):
    """Home thread: any (locked); a keyring may block while it asks the person.

    A name has one place: what the keyring took is taken out of the file. So what is in the file is newer than what the
    keyring still has, and counts.
    """

    def __init__(self, kind: SecretKind[T], path: Path, keyring: Keyring | None = None) -> None:
        """Nothing is read yet. `path` is the file's; `keyring` is the system's by default."""
        self._kind = kind
        self._path = path
        self._keyring = keyring
        self._lock = threading.Lock()

    def get(self, name: str) -> tuple[T | None, Literal["", "keyring", "file"]]:
        """A secret and where it was found; None and "" where there is none."""
        with self._lock:
            if kept := self._read_file().get(name):
                return kept, "file"
            try:
                text = self._ring().get_password(self._kind.service, name)
                return (self._kind.from_text(text), "keyring") if text else (None, "")
            except Exception as error:  # noqa: BLE001 - a keyring's back end raises what it likes
                _log.debug("no keyring: %s", type(error).__name__)
                return None, ""

    def keep(self, name: str, secret: T) -> Literal["keyring", "file"]:
        """Keep a secret; answers where.

        Raises:
            StorageFault: neither the keyring nor the file could take it, or an older one stays in the file.
        """
        with self._lock:
            try:
                self._ring().set_password(self._kind.service, name, self._kind.to_text(secret))
            except Exception as error:  # noqa: BLE001 - as above; Windows refuses long ones too
                _log.info("%s is kept in a private file: no keyring (%s)", self._kind.what, type(error).__name__)
                self._change_file(name, secret)
                return "file"
            self._change_file(name, None)
            return "keyring"

    def forget(self, name: str) -> None:
        """Remove what was kept.

        Raises:
            StorageFault: the file cannot be written.
        """
        with self._lock:
            with contextlib.suppress(Exception):  # not there, or no keyring: both mean that it holds nothing
                self._ring().delete_password(self._kind.service, name)
            self._change_file(name, None)

    def _ring(self) -> Keyring:
        if self._keyring is None:
            import keyring  # slow to import, and only needed where there is a secret

            self._keyring = keyring
        return self._keyring

    def _read_file(self) -> dict[str, T]:
        try:
            if self._path.stat().st_size > self._kind.max_file_bytes:
                return {}
            return msgspec.json.decode(self._path.read_bytes(), type=self._kind.file_type)
        except (OSError, *UNREADABLE):
            return {}

    def _change_file(self, name: str, secret: T | None) -> None:
        kept = self._read_file()
        if kept.get(name) == secret:
            return
        kept.pop(name, None)
        if secret is not None:
            kept[name] = secret
        try:
            if kept:
                write_atomically(self._path, msgspec.json.encode(kept), private=True)
            else:
                self._path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageFault(
                f"{self._kind.what} cannot be kept in {self._path.name}: {error.strerror or error}.",
                hint="Check that Deskside's data folder may be written.",
                path=str(self._path),
            ) from error
