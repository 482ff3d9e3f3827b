"""The tokens of a sign-in on each request, renewed when they are old or refused. Never asks the person."""

import asyncio
import logging
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable
from urllib.parse import quote

import httpx
import msgspec

from runtime import units
from runtime.errors import StorageFault
from runtime.tool_servers.sign_in_store import SignIn
from runtime.unreadable import UNREADABLE

EARLY_S = 30.0
"""Renewed so long before its end, since a request takes its time."""

MAX_LIFE_S = 10 * 365 * 24 * 3600
"""Longest life of a token that is believed; a date that overflows helps nobody."""

_OK = 200
_REFUSED = frozenset({400, 401, 403})
_UNAUTHORIZED = 401

log = logging.getLogger(__name__)


class _Renewed(msgspec.Struct, frozen=True):
    """An answer of a token endpoint (RFC 6749, section 5.1)."""

    access_token: str
    refresh_token: str | None = None
    expires_in: float | None = None


class TokenAuth(httpx.Auth):
    """Home: one event loop."""

    requires_request_body = True

    def __init__(self, sign_in: SignIn, save: Callable[[SignIn], None]) -> None:
        """`save` keeps renewed tokens; it may block and is called in a thread."""
        self._sign_in = sign_in
        self._save = save
        self._lock = asyncio.Lock()
        self._is_over = not sign_in.refresh_token
        """Whether they cannot be renewed (any more)."""

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Put the token on; where the server refuses it, renew it once and send again."""
        async with self._lock:
            if self._is_old and not self._is_over:
                answer = yield self._renewal()
                await self._take(answer)
        token = self._put_on(request)
        response = yield request
        if response.status_code != _UNAUTHORIZED or self._is_over:
            return
        async with self._lock:
            if self._sign_in.access_token == token:  # no other request renewed it meanwhile
                answer = yield self._renewal()
                await self._take(answer)
        self._put_on(request)
        yield request

    @property
    def _is_old(self) -> bool:
        ends_at_s = self._sign_in.expires_at_s
        return bool(ends_at_s) and units.now() > ends_at_s - EARLY_S

    def _put_on(self, request: httpx.Request) -> str:
        request.headers["Authorization"] = f"Bearer {self._sign_in.access_token}"
        return self._sign_in.access_token

    def _renewal(self) -> httpx.Request:
        one = self._sign_in
        form = {"grant_type": "refresh_token", "refresh_token": one.refresh_token, "client_id": one.client_id}
        headers = {"accept": "application/json", "accept-encoding": "identity"}
        if one.resource:
            form["resource"] = one.resource
        if one.client_secret and one.auth_method == "client_secret_basic":
            pair = f"{quote(one.client_id, safe='')}:{quote(one.client_secret, safe='')}"
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        elif one.client_secret:
            form["client_secret"] = one.client_secret
        return httpx.Request("POST", one.token_endpoint, data=form, headers=headers)

    async def _take(self, answer: httpx.Response) -> None:
        """Take the new tokens; an endpoint that is out of order leaves the old ones for another time."""
        raw = await answer.aread()
        if answer.status_code in _REFUSED:
            log.info("a tool server's sign-in cannot be renewed any more (%s)", answer.status_code)
            self._is_over = True
        if answer.status_code != _OK:
            return
        try:
            renewed = msgspec.json.decode(raw, type=_Renewed)
        except UNREADABLE:
            renewed = _Renewed("")
        if not renewed.access_token.isascii() or not renewed.access_token.isprintable() or not renewed.access_token:
            log.info("a tool server's token endpoint answered something else than tokens")  # it could not be sent
            return
        self._sign_in = msgspec.structs.replace(
            self._sign_in,
            access_token=renewed.access_token,
            refresh_token=renewed.refresh_token or self._sign_in.refresh_token,
            expires_at_s=ends_at(renewed.expires_in),
        )
        try:
            await asyncio.to_thread(self._save, self._sign_in)
        except StorageFault as error:
            log.warning("renewed tokens are not kept: %s", error)


def ends_at(life_s: float | None) -> float:
    """Wall clock at which a token of this life ends; 0 where it is not known."""
    return units.now() + min(life_s, MAX_LIFE_S) if life_s is not None and life_s > 0 else 0.0
