"""Pictures that a request names by a web address, fetched where the person allows it.

Whoever may call this server must not reach through it what only this machine reaches (its own ports, the router, other
machines of the network, a cloud's metadata). So only http and https, and only addresses that are public: names are
looked up once, every address found must be public, and the connection goes to one of those, also after a redirect.
Proxies of the environment are not used: they would look names up themselves.
"""

import asyncio
import base64
import functools
import ipaddress
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urljoin, urlsplit

from runtime.errors import BadRequest, PayloadTooLarge
from runtime.host.api.http import MAX_BODY_BYTES
from runtime.host.api.media import MAX_PICTURE_BYTES

MAX_FETCHED = 8
"""Pictures of one request that are fetched; all of them together may be as large as a body."""

FETCH_WITHIN_S = 15.0
MAX_REDIRECTS = 3
MAX_AT_ONCE = 4
"""Fetches of all requests together; others wait."""

_MAX_URL_CHARS = 4096
_REDIRECTS = (301, 302, 303, 307, 308)
_OK = 200
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
"""IPv4 addresses inside IPv6 ones (RFC 6052)."""

_log = logging.getLogger(__name__)

Resolve = Callable[[str, int], Awaitable[tuple[str, ...]]]


async def resolve(host: str, port: int) -> tuple[str, ...]:
    """Addresses of a name.

    Raises:
        OSError: there are none.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public internet."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if found.teredo is not None:
            return False
        if inner is not None:
            return is_public(str(inner))
    return found.is_global and not found.is_multicast


@functools.cache
def _tls() -> ssl.SSLContext:
    """What is trusted, read once. Blocks: importing the library and reading all certificates takes a while."""
    import httpx  # late: it costs start-up time

    return httpx.create_ssl_context(trust_env=False)


class PictureFetcher:
    """Home: the event loop."""

    def __init__(
        self,
        is_allowed: Callable[[], bool],
        *,
        look_up: Resolve = resolve,
        may_reach: Callable[[str], bool] = is_public,
    ) -> None:
        """`is_allowed` says what the person wants now; without it addresses are left, and refused later by name."""
        self._is_allowed = is_allowed
        self._look_up = look_up
        self._may_reach = may_reach
        self._places = asyncio.Semaphore(MAX_AT_ONCE)

    async def filled(self, raw: dict[str, Any]) -> dict[str, Any]:
        """The body of a request with the pictures themselves in place of their addresses.

        Raises:
            BadRequest: an address may not be fetched, or there is no picture.
            PayloadTooLarge: a picture is, or all together are, too large.
        """
        if not self._is_allowed():
            return raw
        places: list[tuple[dict[str, Any], str, str]] = []
        for field in ("messages", "input"):
            _find(raw.get(field), field, places)
        if len(places) > MAX_FETCHED:
            raise BadRequest(
                f"The request names {len(places)} pictures by address.",
                hint=f"Name at most {MAX_FETCHED}, or send them as base64.",
                param="messages",
            )
        left_bytes = MAX_BODY_BYTES
        for holder, key, where in places:
            data, mime = await self._fetched(str(holder[key]), where, min(MAX_PICTURE_BYTES, left_bytes))
            left_bytes -= len(data)
            text = base64.b64encode(data).decode()
            if holder.get("type") == "url":  # Anthropic's form
                holder.clear()
                holder.update(type="base64", media_type=mime, data=text)
            else:
                holder[key] = f"data:{mime};base64,{text}"
        return raw

    async def _fetched(self, url: str, where: str, limit_bytes: int) -> tuple[bytes, str]:
        try:
            async with asyncio.timeout(FETCH_WITHIN_S), self._places:
                for _ in range(MAX_REDIRECTS + 1):
                    answer = await self._get(url, where, limit_bytes)
                    if not isinstance(answer, str):
                        return answer
                    url = urljoin(url, answer)
        except TimeoutError:
            raise BadRequest(
                f"The picture of `{where}` did not come within {FETCH_WITHIN_S:.0f} s.",
                hint="Send it as base64.",
                param=where,
            ) from None
        raise BadRequest(f"The address of `{where}` leads from one to another.", hint="Name the last one.", param=where)

    async def _get(self, url: str, where: str, limit_bytes: int) -> tuple[bytes, str] | str:
        """The picture, or where it is said to be."""
        host, port, address = await self._checked(url, where)
        tls = await asyncio.to_thread(_tls)
        import httpx  # late, as above

        try:
            target = httpx.URL(url).copy_with(host=address, fragment=None)
            async with (
                # One for each request: a kept connection to an address may have been made for another name.
                httpx.AsyncClient(
                    verify=tls, trust_env=False, follow_redirects=False, timeout=FETCH_WITHIN_S
                ) as client,
                client.stream(
                    "GET",
                    target,
                    headers={
                        "host": _host_header(host, port, target.scheme),
                        "accept": "image/*",
                        "accept-encoding": "identity",
                        "user-agent": "Deskside",
                    },
                    extensions={"sni_hostname": host},
                ) as answer,
            ):
                if answer.status_code in _REDIRECTS:
                    return str(answer.headers.get("location", ""))
                if answer.status_code != _OK:
                    raise BadRequest(
                        f"The address of `{where}` answered with {answer.status_code}.", hint="Check it.", param=where
                    )
                mime = str(answer.headers.get("content-type", "")).partition(";")[0].strip().lower()
                if not mime.startswith("image/") or answer.headers.get("content-encoding", "identity") != "identity":
                    raise BadRequest(
                        f"At the address of `{where}` there is no picture.",
                        hint="Name a PNG, JPEG, GIF or BMP file.",
                        param=where,
                    )
                return await _read(answer.aiter_raw(), where, limit_bytes), mime
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            _log.info("a picture could not be fetched from %s: %s", host, error)
            raise BadRequest(
                f"The picture of `{where}` could not be fetched from {host}.", hint="Send it as base64.", param=where
            ) from None

    async def _checked(self, url: str, where: str) -> tuple[str, int, str]:
        """Name, port and one address that may be reached.

        Raises:
            BadRequest: it may not.
        """
        try:
            parts = urlsplit(url)
            host = (parts.hostname or "").encode("idna").decode("ascii").lower()
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except (ValueError, UnicodeError):
            host, port, parts = "", 0, urlsplit("")
        if parts.scheme not in ("http", "https") or not host or parts.username or len(url) > _MAX_URL_CHARS:
            raise BadRequest(
                f"`{where}` is no web address that can be fetched.", hint="Write https://host/picture.png.", param=where
            )
        try:
            addresses = await self._look_up(host, port)
        except OSError:
            raise BadRequest(f"`{where}`: there is no host named {host}.", hint="Check it.", param=where) from None
        if not addresses or not all(map(self._may_reach, addresses)):
            raise BadRequest(
                f"`{where}`: {host} is not on the public internet, so it is not asked.",
                hint="Send the picture as base64.",
                param=where,
            )
        return host, port, addresses[0]


def _find(value: object, where: str, places: list[tuple[dict[str, Any], str, str]]) -> None:
    """Pictures named by a web address: what holds it, under which key, and where that is.

    The depth is bounded by the decoder of JSON.
    """
    if isinstance(value, list):
        for index, inner in enumerate(value):
            _find(inner, f"{where}[{index}]", places)
        return
    if not isinstance(value, dict):
        return
    kind = value.get("type")
    if kind in ("image_url", "input_image"):
        place = value.get("image_url")
        if isinstance(place, dict) and _is_web(place.get("url")):
            places.append((place, "url", f"{where}.image_url.url"))
        elif _is_web(place):
            places.append((value, "image_url", f"{where}.image_url"))
        return
    source = value.get("source")
    if kind == "image" and isinstance(source, dict) and source.get("type") == "url" and _is_web(source.get("url")):
        places.append((source, "url", f"{where}.source.url"))
        return
    for key in ("content", "output"):
        if isinstance(value.get(key), list):
            _find(value[key], f"{where}.{key}", places)


def _is_web(value: object) -> bool:
    return isinstance(value, str) and not value[:5].lower().startswith("data:")


async def _read(chunks: Any, where: str, limit_bytes: int) -> bytes:  # noqa: ANN401 - httpx's iterator
    parts: list[bytes] = []
    size_bytes = 0
    async for chunk in chunks:
        size_bytes += len(chunk)
        if size_bytes > limit_bytes:
            raise PayloadTooLarge(
                f"The picture of `{where}` is over the limit of {limit_bytes} bytes.",
                hint="Use a smaller one.",
                limit_bytes=limit_bytes,
                param=where,
            )
        parts.append(chunk)
    return b"".join(parts)


def _host_header(host: str, port: int, scheme: str) -> str:
    name = f"[{host}]" if ":" in host else host
    return name if port == (443 if scheme == "https" else 80) else f"{name}:{port}"
