"""A small tool server that asks who you are: the official package's server side, with sign-in, in a thread.

Dynamic registration, PKCE, refresh, the well-known documents: all are the package's own. What a person would click is
`refuse`; what goes wrong is set by the test.
"""

import contextlib
import secrets
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.fastmcp import FastMCP
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl

from runtime import units

SCOPE = "notes"


@dataclass
class Provider(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Keeps everything in memory. Written by the server's thread, read by the test."""

    life_s: int = 3600
    refuse: str = ""
    """The error that the person's browser brings back, in place of a code."""

    refuses_codes: bool = False
    refuses_renewal: bool = False
    clients: dict[str, OAuthClientInformationFull] = field(default_factory=dict)
    codes: dict[str, AuthorizationCode] = field(default_factory=dict)
    access: dict[str, AccessToken] = field(default_factory=dict)
    refresh: dict[str, RefreshToken] = field(default_factory=dict)
    asked: list[AuthorizationParams] = field(default_factory=list)
    n_renewed: int = 0

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        assert client_info.client_id is not None
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        self.asked.append(params)
        uri = str(params.redirect_uri)
        if self.refuse:
            return construct_redirect_uri(uri, error=self.refuse, error_description="said no", state=params.state)
        code = secrets.token_urlsafe(16)
        assert client.client_id is not None
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [SCOPE],
            expires_at=units.now() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(uri, code=code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        del client
        return None if self.refuses_codes else self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._tokens(client, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        del client
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        if self.refuses_renewal:
            raise TokenError("invalid_grant", "taken back")
        del self.refresh[refresh_token.token]  # each holds once
        self.n_renewed += 1
        return self._tokens(client, scopes or refresh_token.scopes, refresh_token.resource)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)

    def forget_access(self) -> None:
        """All access tokens are worth nothing from now on; those that renew still are."""
        self.access.clear()

    def _tokens(self, client: OAuthClientInformationFull, scopes: list[str], resource: str | None) -> OAuthToken:
        access, refresh = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
        assert client.client_id is not None
        self.access[access] = AccessToken(
            token=access,
            client_id=client.client_id,
            scopes=scopes,
            expires_at=int(units.now()) + self.life_s,
            resource=resource,
        )
        self.refresh[refresh] = RefreshToken(
            token=refresh, client_id=client.client_id, scopes=scopes, resource=resource
        )
        return OAuthToken(access_token=access, expires_in=self.life_s, refresh_token=refresh, scope=" ".join(scopes))


@dataclass(frozen=True)
class OAuthServer:
    """A running one."""

    url: str
    provider: Provider


@contextlib.contextmanager
def oauth_server(*, registers: bool = True) -> Iterator[OAuthServer]:
    """A server with one tool that says who asks. Without `registers` it knows no dynamic registration."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{sock.getsockname()[1]}"
    provider = Provider()
    server: FastMCP[Any] = FastMCP(
        "Notes",
        auth_server_provider=provider,
        auth=AuthSettings(
            issuer_url=AnyHttpUrl(address),
            resource_server_url=AnyHttpUrl(f"{address}/mcp"),
            client_registration_options=ClientRegistrationOptions(
                enabled=registers, valid_scopes=[SCOPE], default_scopes=[SCOPE]
            ),
            required_scopes=[SCOPE],
            validate_token_resource=True,
        ),
    )

    @server.tool()
    def who() -> str:
        """Says which program asks."""
        token = get_access_token()
        assert token is not None
        return f"{provider.clients[token.client_id].client_name} with {' '.join(token.scopes)}"

    running = uvicorn.Server(
        uvicorn.Config(server.streamable_http_app(), log_level="error", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=running.run, kwargs={"sockets": [sock]})
    sock.listen()
    thread.start()
    try:
        yield OAuthServer(f"{address}/mcp", provider)
    finally:
        running.should_exit = True
        thread.join(10)
        sock.close()
