"""Signing in to a tool server (OAuth 2.1 as the protocol asks): the official client's flow with our bounds around it.

Found out by the server's own answer: who gives tokens, how this program is made known there (dynamic registration),
what to ask for. The flow is proved by PKCE, and its answer comes to a page on loopback.
"""

import logging
from collections.abc import Callable
from ipaddress import ip_address
from typing import Literal
from urllib.parse import parse_qs, urlsplit

import httpx
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.client.auth.utils import issuers_match
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl, ValidationError

from runtime.messages.tools import ToolServerConfig
from runtime.tool_servers.faults import Lost
from runtime.tool_servers.http import in_words, plain_client
from runtime.tool_servers.redirect import Came, Redirect
from runtime.tool_servers.sign_in_store import SignIn
from runtime.tool_servers.tokens import ends_at

STEP_S = 30.0
"""For each request on the way."""

_UNAUTHORIZED = 401
_FORBIDDEN = 403
_PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
_HEADER_HINT = "If the service gives tokens to people, put one into the header Authorization."

# The client library logs what servers send, whole.
logging.getLogger("mcp").setLevel(logging.CRITICAL)


class _Memory:
    """What the flow comes to, kept by whoever asked for it."""

    def __init__(self, client: OAuthClientInformationFull | None) -> None:
        self.client = client
        self.tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        """None: a sign-in begins anew."""
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class _Guarded(httpx.AsyncBaseTransport):
    """Lets the flow go only where tokens may go, and begins it also where the server lets anybody ask."""

    def __init__(self, inner: httpx.AsyncBaseTransport, server_url: str) -> None:
        self._inner = inner
        self._server_url = server_url
        self._has_begun = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        check_address(str(request.url), self._server_url)
        request.headers["accept-encoding"] = "identity"
        response = await self._inner.handle_async_request(request)
        if self._has_begun or response.status_code == _UNAUTHORIZED:
            self._has_begun = True
            return response
        self._has_begun = True
        await response.aclose()
        return httpx.Response(_UNAUTHORIZED)

    async def aclose(self) -> None:
        await self._inner.aclose()


async def sign_in(config: ToolServerConfig, before: SignIn | None, tell: Callable[[str], None]) -> SignIn:
    """Go through a sign-in; the caller bounds how long.

    Args:
        config: the server.
        before: an earlier sign-in there, whose registration is used again where that is possible.
        tell: gets the address that the person is to open in a browser, once.

    Raises:
        Lost: a sentence about why nobody is signed in now.
    """
    redirect = Redirect()
    try:
        await redirect.open(_port_of(before))
    except OSError as error:
        raise Lost(f"No port of this computer can be opened for the browser's answer ({error}).") from None
    try:
        return await _through(config, before, redirect, tell)
    finally:
        await redirect.close()


async def _through(
    config: ToolServerConfig, before: SignIn | None, redirect: Redirect, tell: Callable[[str], None]
) -> SignIn:
    memory = _Memory(_client_of(before, redirect.uri) if before is not None else None)

    async def send_person(address: str) -> None:
        check_address(address, config.url)
        redirect.state = parse_qs(urlsplit(address).query)["state"][0]
        tell(address)

    async def person_came() -> tuple[str, str | None]:
        came = await redirect.came()
        _check(came, provider)
        return came.code, redirect.state

    metadata = OAuthClientMetadata(
        client_name="Deskside",
        redirect_uris=[AnyUrl(redirect.uri)],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method="none",  # noqa: S106 - a kind, no secret
    )
    provider = OAuthClientProvider(config.url, metadata, memory, send_person, person_came)
    transport = _Guarded(httpx.AsyncHTTPTransport(), config.url)
    accept = {"accept": "application/json, text/event-stream"}
    timeout = httpx.Timeout(STEP_S)
    try:
        async with (
            plain_client(config.headers | accept, timeout, provider, transport) as client,
            client.stream("POST", config.url, json=_PING) as response,
        ):
            status = response.status_code
    except (OAuthFlowError, ValidationError, httpx.HTTPError, httpx.InvalidURL) as error:
        raise _said(error, provider, config) from error
    except UnicodeEncodeError as error:
        raise Lost("The server gave a token with letters that cannot be sent back.") from error
    if status in {_UNAUTHORIZED, _FORBIDDEN}:
        raise Lost(f"You are signed in, but the server still refuses ({status}).", hint="Is it the right account?")
    return _kept(config, redirect, memory, provider)


def _kept(config: ToolServerConfig, redirect: Redirect, memory: _Memory, provider: OAuthClientProvider) -> SignIn:
    tokens, client, context = memory.tokens, memory.client, provider.context
    if tokens is None or client is None:
        raise Lost("The server let the sign-in pass without giving a token.")
    found = context.oauth_metadata
    base = context.get_authorization_base_url(config.url)
    return SignIn(
        url=config.url,
        access_token=tokens.access_token,
        token_endpoint=str(found.token_endpoint) if found is not None else f"{base}/token",
        client_id=client.client_id or "",
        refresh_token=tokens.refresh_token or "",
        expires_at_s=ends_at(tokens.expires_in),
        client_secret=client.client_secret or "",
        auth_method=client.token_endpoint_auth_method or "",
        redirect_uri=redirect.uri,
        issuer=client.issuer or "",
        resource=context.get_resource_url() if context.should_include_resource_param(None) else "",
    )


def _check(came: Came, provider: OAuthClientProvider) -> None:
    """Refuse an answer that is an error, or that another authorization server gave (RFC 9207)."""
    if came.error == "access_denied":
        raise Lost("The sign-in was refused in the browser.", hint="Press Sign in to try again.")
    if came.error:
        words = f"{came.error}: {came.description}" if came.description else came.error
        raise Lost(f"The sign-in ended with an error of the server ({words}).", hint="Press Sign in to try again.")
    found = provider.context.oauth_metadata
    if came.issuer and found is not None and not issuers_match(came.issuer, str(found.issuer)):
        raise Lost("Another server than the one asked answered the sign-in, so it was not taken.")


def _said(error: Exception, provider: OAuthClientProvider, config: ToolServerConfig) -> Lost:
    """What went wrong, in words."""
    if isinstance(error, OAuthRegistrationError):
        if provider.context.oauth_metadata is None:
            return Lost("The server offers no sign-in that Deskside knows.", hint=_HEADER_HINT)
        return Lost("The server does not let new programs register by themselves.", hint=_HEADER_HINT)
    if isinstance(error, OAuthTokenError):
        return Lost(f"The server gave no token in the end. {_short(error)}", hint="Press Sign in to try again.")
    if isinstance(error, OAuthFlowError):
        return Lost(f"The server's sign-in breaks the protocol. {_short(error)}")
    if isinstance(error, ValidationError):
        return Lost("The server's description of its sign-in breaks the protocol.")
    if isinstance(error, httpx.InvalidURL):
        return Lost(f"The sign-in leads to an address that is none ({_short(error)}).")
    return in_words(error, config) if isinstance(error, httpx.HTTPError) else Lost(_short(error))


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())[:300]
    return text if text.endswith(".") else f"{text}."


def _port_of(before: SignIn | None) -> int:
    if before is None or not before.redirect_uri:
        return 0
    try:
        return urlsplit(before.redirect_uri).port or 0
    except ValueError:
        return 0


def _client_of(before: SignIn, redirect_uri: str) -> OAuthClientInformationFull | None:
    """The registration of an earlier sign-in; it holds for its own redirect address alone."""
    methods: dict[str, Literal["none", "client_secret_post", "client_secret_basic"]] = {
        "client_secret_post": "client_secret_post",
        "client_secret_basic": "client_secret_basic",
    }
    if before.redirect_uri != redirect_uri or not before.client_id:
        return None
    return OAuthClientInformationFull(
        redirect_uris=[AnyUrl(redirect_uri)],
        client_id=before.client_id,
        client_secret=before.client_secret or None,
        token_endpoint_auth_method=methods.get(before.auth_method, "none"),
        issuer=before.issuer or None,
    )


def check_address(address: str, server_url: str) -> None:
    """Let a sign-in go to encrypted addresses alone; to this machine only where the server is on it.

    Raises:
        Lost: the server sends it elsewhere.
    """
    parts, server = urlsplit(address), urlsplit(server_url)
    if is_loopback(parts.hostname) and not is_loopback(server.hostname):
        raise Lost("The server's sign-in leads to this computer, which is refused.")
    same_host = (parts.scheme, parts.hostname) == (server.scheme, server.hostname)
    if parts.scheme == "https" or (parts.scheme == "http" and (is_loopback(parts.hostname) or same_host)):
        return
    raise Lost(f"The server's sign-in leads to {address[:100]}, which is not encrypted.")


def is_loopback(host: str | None) -> bool:
    """Whether a host of an address is this machine."""
    if host is None:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
