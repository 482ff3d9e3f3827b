"""Who may call: Host and Origin checks, keys, and cross-origin answers, as one ASGI layer for each listener.

A web page anywhere can make a browser call a port of this machine. The Host check stops names that were pointed at
us (DNS rebinding), the Origin check stops every page the person did not allow, and neither can be had by default.
"""

import asyncio
import contextlib
import hmac
import ipaddress
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import psutil
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runtime.errors import BadRequest, NotAllowed, NotAuthorized, RuntimeFault
from runtime.host.caller import KEY_IN_SCOPE
from runtime.host.keys import find_key

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
WRONG_KEY_DELAY_S = 0.25
"""A wrong key is answered so late. Keys made here cannot be guessed; one that a person chose might be. Nobody is ever
locked out for another's guesses."""
_MAX_HEADER_CHARS = 2048
_PREFLIGHT_AGE_S = 600
MAX_UNWANTED_BYTES = 1024 * 1024
"""A body up to this size is read to its end before it is refused."""
UNWANTED_WITHIN_S = 2.0


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """What a listener demands at the moment.

    Attributes:
        hosts: names accepted in the Host header, lower case, without port.
        origins: web origins that may call, exactly as browsers write them.
        keys: names of the keys by their SHA-256; none means that no key is asked for.
        token: the one secret of the private listener, instead of keys; empty on the public one.
        open_paths: paths that need no key.
    """

    hosts: frozenset[str]
    origins: frozenset[str] = frozenset()
    keys: Mapping[str, str] = field(default_factory=dict)
    token: str = ""
    open_paths: frozenset[str] = frozenset({"/health"})


def own_names(bound_host: str) -> frozenset[str]:
    """Host names by which a listener bound to this address may be called."""
    if is_loopback(bound_host):
        return LOOPBACK_NAMES | {bound_host.lower()}
    names = {bound_host.lower(), socket.gethostname().lower(), f"{socket.gethostname().lower()}.local"}
    return LOOPBACK_NAMES | names | frozenset(own_addresses())


def own_addresses() -> tuple[str, ...]:
    """IP addresses of this machine, IPv4 first, loopback and link-local ones left out."""
    found: list[str] = []
    for entries in psutil.net_if_addrs().values():
        for entry in entries:
            if entry.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            address = ipaddress.ip_address(entry.address.partition("%")[0])
            if not (address.is_loopback or address.is_link_local):
                found.append(str(address))
    return tuple(sorted(set(found), key=lambda text: (":" in text, text)))


def is_loopback(host: str) -> bool:
    """True for addresses and names that only this machine reaches."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_host(raw_host: str | None, allowed: Iterable[str]) -> None:
    """Check the Host header.

    Raises:
        NotAllowed: it is missing or names someone else.
    """
    name = _host_name(raw_host or "")
    if name and name in allowed:
        return
    raise NotAllowed(
        f"The Host header {raw_host!r} is not a name of this server." if raw_host else "The Host header is missing.",
        hint="Use the address Deskside shows, or add the name to the allowed hosts.",
    )


def check_origin(headers: Mapping[str, str], allowed: Iterable[str]) -> str | None:
    """Check Origin and the browser's fetch metadata; the answer is the allowed origin, if there is one.

    Raises:
        NotAllowed: a web page that was not allowed asks.
    """
    origin = headers.get("origin")
    if origin is not None:
        if origin in allowed:
            return origin
        raise NotAllowed(
            f"Web pages of {origin[:200]!r} may not call this server.",
            hint="Add that origin to the allowed origins if you trust it.",
        )
    # Images and scripts of a page carry no Origin, but say where they come from.
    if headers.get("sec-fetch-site") in ("cross-site", "same-site") and headers.get("sec-fetch-mode") != "navigate":
        raise NotAllowed("A web page may not load this address.", hint="Add its origin to the allowed origins.")
    return None


def check_key(headers: Mapping[str, str], policy: AccessPolicy) -> str:
    """Check the token or the API key, in constant time; the answer is the key's name, "" where none is asked for.

    Raises:
        NotAuthorized: none, or a wrong one.
    """
    given = _given_key(headers)
    if policy.token:
        name = "" if hmac.compare_digest(given.encode("utf-8", "replace"), policy.token.encode()) else None
    elif policy.keys:
        name = find_key(given, policy.keys)
    else:
        return ""
    if name is not None:
        return name
    if not given:
        raise NotAuthorized("No API key was sent.", hint="Send it as `Authorization: Bearer KEY` or `x-api-key: KEY`.")
    raise NotAuthorized("The API key is not known.", hint="Use a key that was made in Deskside and not deleted.")


def _given_key(headers: Mapping[str, str]) -> str:
    scheme, _, value = headers.get("authorization", "").partition(" ")
    key = value.strip() if scheme.lower() == "bearer" else ""
    return key or headers.get("x-api-key", "").strip()


def _host_name(raw_host: str) -> str:
    try:
        return (urlsplit(f"//{raw_host}").hostname or "").rstrip(".").lower()
    except ValueError:
        return ""


class Gate:
    """The ASGI layer. Also tidies the path, so that `//v1//models/` is `/v1/models`."""

    def __init__(
        self, app: ASGIApp, policy: Callable[[], AccessPolicy], refuse: Callable[[RuntimeFault, Scope], ASGIApp]
    ) -> None:
        self._app = app
        self._policy = policy
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request. Part of ASGI."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        scope["path"] = path = tidy_path(scope["path"])
        headers = Headers(scope=scope)
        policy = self._policy()
        origin = None
        if "content-length" in headers or "transfer-encoding" in headers:
            receive, send = _closing_if_unread(receive, send, is_short=_is_short(headers))
        try:
            if "content-length" in headers and "transfer-encoding" in headers:
                # A proxy before us may believe the other one, and see one request where we see two (RFC 9112, 6.1).
                raise BadRequest("The request has both a length and chunks.", hint="Send one of them.")
            check_host(headers.get("host"), policy.hosts)
            origin = check_origin(headers, policy.origins)
            if origin is not None and scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
                await _answer_preflight(headers, origin, send)
                return
            if path not in policy.open_paths:
                scope[KEY_IN_SCOPE] = check_key(headers, policy)
        except RuntimeFault as error:
            if isinstance(error, NotAuthorized) and _given_key(headers):
                await asyncio.sleep(WRONG_KEY_DELAY_S)
            await self._refuse(error, scope)(scope, receive, _with_origin(send, origin))
            return
        await self._app(scope, receive, _with_origin(send, origin))


def _is_short(headers: Headers) -> bool:
    """Whether the body is one to read to its end, though nobody wants it."""
    length = headers.get("content-length", "")
    has_other_end = "expect" in headers or "transfer-encoding" in headers
    return length.isdecimal() and int(length[:20]) <= MAX_UNWANTED_BYTES and not has_other_end


def _closing_if_unread(receive: Receive, send: Send, *, is_short: bool) -> tuple[Receive, Send]:
    """Deal with an answer that did not wait for the body.

    A short body is read first: a connection that is closed while bytes of it come is reset, and the caller loses the
    answer. Of others the connection is closed after the answer, since an endless one would be read for ever.
    """
    is_read = False

    async def watched_receive() -> Message:
        nonlocal is_read
        message = await receive()
        is_read = is_read or not message.get("more_body", False)
        return message

    async def closing_send(message: Message) -> None:
        if message["type"] == "http.response.start" and not is_read:
            if is_short:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(UNWANTED_WITHIN_S):
                        while not is_read:
                            await watched_receive()
            if not is_read:
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
        await send(message)

    return watched_receive, closing_send


def tidy_path(path: str) -> str:
    """One slash where several stand, none at the end."""
    return "/" + "/".join(part for part in path.split("/") if part)


def _with_origin(send: Send, origin: str | None) -> Send:
    if origin is None:
        return send

    async def send_with_origin(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [
                *message.get("headers", ()),
                (b"access-control-allow-origin", origin.encode("latin-1")),
                (b"access-control-expose-headers", b"x-request-id, retry-after"),
                (b"vary", b"Origin"),
            ]
        await send(message)

    return send_with_origin


async def _answer_preflight(headers: Headers, origin: str, send: Send) -> None:
    wanted = headers.get("access-control-request-headers", "")[:_MAX_HEADER_CHARS]
    answer = [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-allow-methods", b"GET, POST, DELETE"),
        (b"access-control-allow-headers", wanted.encode("latin-1", "ignore")),
        (b"access-control-max-age", str(_PREFLIGHT_AGE_S).encode()),
        (b"vary", b"Origin, Access-Control-Request-Headers"),
    ]
    if headers.get("access-control-request-private-network") == "true":
        answer.append((b"access-control-allow-private-network", b"true"))
    await send({"type": "http.response.start", "status": 204, "headers": answer})
    await send({"type": "http.response.body", "body": b""})
