"""What a sign-in to a tool server left: tokens, and who we are there. Kept in the keyring (`runtime.kept_secrets`)."""

from pathlib import Path

import msgspec

from runtime.kept_secrets import KeptSecrets, Keyring, SecretKind

SIGN_INS_FILE = "tool-sign-ins.json"


class SignIn(msgspec.Struct, frozen=True, omit_defaults=True):
    """A sign-in at one address.

    Attributes:
        url: address of the tool server; a sign-in is used for no other one.
        access_token: sent with each request.
        token_endpoint: where it is renewed.
        client_id: what the authorization server calls this program.
        refresh_token: renews it; "" where there is none.
        expires_at_s: wall clock; 0 where the server does not say.
        client_secret: of this program there; "" for a public client.
        auth_method: how the secret is sent ("client_secret_post" or "client_secret_basic").
        redirect_uri: the loopback address this program is registered with.
        issuer: name of the authorization server.
        resource: what the token is for (RFC 8707); "" where it was not asked for.
    """

    url: str
    access_token: str
    token_endpoint: str
    client_id: str
    refresh_token: str = ""
    expires_at_s: float = 0.0
    client_secret: str = ""
    auth_method: str = ""
    redirect_uri: str = ""
    issuer: str = ""
    resource: str = ""


_KIND = SecretKind(
    what="The sign-in to a tool server",
    service="Deskside tool sign-ins",
    file_type=dict[str, SignIn],
    to_text=lambda one: msgspec.json.encode(one).decode(),
    from_text=msgspec.json.Decoder(SignIn).decode,
    max_file_bytes=4 * 1024 * 1024,
)


class SignInStore:
    """The sign-in of each server. Home thread: any (locked); a keyring may block while it asks the person."""

    def __init__(self, folder: Path, keyring: Keyring | None = None) -> None:
        """Nothing is read yet. `keyring` is the system's by default."""
        self._kept = KeptSecrets(_KIND, folder / SIGN_INS_FILE, keyring)

    def get(self, server: str) -> SignIn | None:
        """A server's sign-in."""
        return self._kept.get(server)[0]

    def keep(self, server: str, sign_in: SignIn) -> None:
        """Keep it.

        Raises:
            StorageFault: neither the keyring nor the file could take it.
        """
        self._kept.keep(server, sign_in)

    def forget(self, server: str) -> None:
        """Remove it.

        Raises:
            StorageFault: the file cannot be written.
        """
        self._kept.forget(server)
