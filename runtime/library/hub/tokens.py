"""Where the hub's access token is kept (`runtime.kept_secrets`).

A token belongs to one hub address; a mirror never gets the one of another hub.
"""

import threading
from dataclasses import dataclass
from typing import Literal

from huggingface_hub import constants, get_token

from runtime.kept_secrets import KeptSecrets, Keyring, SecretKind
from runtime.paths import DataFolder

SERVICE = "Deskside model hub"
TOKEN_FILE = "hub-tokens.json"  # noqa: S105 - a file's name

TokenPlace = Literal["", "keyring", "file", "environment"]
"""`environment`: HF_TOKEN, or what another program of the hub signed in with; never changed by us."""

_KIND = SecretKind(
    what="The token", service=SERVICE, file_type=dict[str, str], to_text=str, from_text=str, max_file_bytes=64 * 1024
)


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
        self._kept = KeptSecrets(_KIND, folder.root / TOKEN_FILE, keyring)
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
            place = self._kept.keep(endpoint, token)
            self._found[endpoint] = KeptToken(token, place)
            return place

    def forget(self, endpoint: str) -> None:
        """Sign out: remove what was kept here. A token of the environment stays.

        Raises:
            StorageFault: if the file cannot be written.
        """
        with self._lock:
            self._found.pop(endpoint, None)
            self._kept.forget(endpoint)

    def _look(self, endpoint: str) -> KeptToken:
        token, place = self._kept.get(endpoint)
        if token:
            return KeptToken(token, place)
        # The environment's token is for the environment's hub, not for a mirror that was set here.
        if self._use_environment and endpoint == constants.ENDPOINT.rstrip("/") and (token := get_token()):
            return KeptToken(token, "environment")
        return KeptToken()
