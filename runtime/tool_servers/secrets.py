"""Where the secrets of tool servers are kept (`runtime.kept_secrets`)."""

from pathlib import Path

import msgspec

from runtime.kept_secrets import KeptSecrets, Keyring, SecretKind
from runtime.messages.tools import SecretsPlace

SECRETS_FILE = "tool-secrets.json"


class Secrets(msgspec.Struct, frozen=True, omit_defaults=True):
    """The secret values of one server, by name."""

    env: dict[str, str] = {}
    headers: dict[str, str] = {}


_KIND = SecretKind(
    what="The secrets of a tool server",
    service="Deskside tool servers",
    file_type=dict[str, Secrets],
    to_text=lambda secrets: msgspec.json.encode(secrets).decode(),
    from_text=msgspec.json.Decoder(Secrets).decode,
    max_file_bytes=4 * 1024 * 1024,
)


class SecretStore:
    """The secrets of each server. Home thread: any (locked); a keyring may block while it asks the person."""

    def __init__(self, folder: Path, keyring: Keyring | None = None) -> None:
        """Nothing is read yet. `keyring` is the system's by default."""
        self._kept = KeptSecrets(_KIND, folder / SECRETS_FILE, keyring)

    def get(self, server: str) -> tuple[Secrets, SecretsPlace]:
        """A server's secrets and where they were found; empty ones and "" where there are none."""
        secrets, place = self._kept.get(server)
        return secrets or Secrets(), place

    def keep(self, server: str, secrets: Secrets) -> SecretsPlace:
        """Keep a server's secrets; answers where. Empty ones are forgotten.

        Raises:
            StorageFault: neither the keyring nor the file could take them.
        """
        if not secrets.env and not secrets.headers:
            self.forget(server)
            return ""
        return self._kept.keep(server, secrets)

    def forget(self, server: str) -> None:
        """Remove what was kept.

        Raises:
            StorageFault: the file cannot be written.
        """
        self._kept.forget(server)
