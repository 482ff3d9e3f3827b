"""HTTP with the hub: one set of connections, redirects that never carry the token away, bodies that can be cut.

Metadata and files both come through here. huggingface_hub names the errors, the token and the address; the requests are
ours, because its own calls have no timeout, cannot be stopped, ask more than was asked for (its builder of headers asks
the hub for a list first), and start a broken download from zero.
"""

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

import httpx2
from huggingface_hub import constants
from huggingface_hub.utils._http import hf_raise_for_status

from runtime import __version__
from runtime.errors import BadRequest, HubFault, HubOffline
from runtime.library.hub.faults import fault_of, offline_by_choice

MAX_ANSWER_BYTES = 32 * 1024 * 1024
"""Longest answer to a question; a page of the largest file list is under 1 MB."""
MAX_ERROR_BYTES = 65_536
MAX_REDIRECTS = 6
MAX_CONNECTIONS = 64
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SAID = ("X-Linked-Etag", "X-Linked-Size", "ETag")
_STALE = frozenset({400, 401, 403, 404, 410})
"""What a file server answers to a signed address that has expired, or to one made for another machine."""
_ABOUT_BODY = frozenset({"content-length", "content-encoding", "transfer-encoding"})
_SHA256 = re.compile(r"^[0-9a-f]{64}$")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to wait for a connection, and for the next byte of one."""

    connect_s: float = 10.0
    read_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Base:
    """Which hub is asked, and as whom. `token` gives "" for nobody."""

    endpoint: str
    token: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Place:
    """A file at one commit of a repository."""

    repo: str
    commit: str
    path: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer: its body and its headers."""

    body: bytes
    headers: Mapping[str, str]


class Body:
    """A file, or the rest of one, as it comes in. `cut` may be called from any thread; the rest is one thread's.

    Attributes:
        status: 200, 206 or 416.
        start: where in the file the first byte stands.
        total_bytes: size of the whole file, as far as the answer tells.
        etag: validator of the body, "" if none or a weak one.
        sha256: hash of the whole file that the hub announced with this answer, "" if none.
    """

    def __init__(self, response: httpx2.Response, said: Mapping[str, str], endpoint: str, repo: str) -> None:
        self.status = response.status_code
        self.start, self.total_bytes = _extent(response, _number(said.get("X-Linked-Size", "")))
        self.etag = _etag(response.headers.get("ETag", ""))
        linked = _etag(said.get("X-Linked-Etag", "") or said.get("ETag", ""))
        self.sha256 = linked if _SHA256.fullmatch(linked) else ""
        self._response = response
        self._endpoint = endpoint
        self._repo = repo

    def chunks(self) -> Iterator[bytes]:
        """The bytes as they arrive, up to 64 KiB at a time, undecoded.

        Raises:
            HubOffline: if the connection breaks or nothing comes for the read timeout.
        """
        try:
            yield from self._response.iter_raw()
        except Exception as error:
            raise fault_of(error, endpoint=self._endpoint, repo=self._repo) from error

    def cut(self) -> None:
        """End it now: a read that waits for the next byte returns at once."""
        stream = self._response.extensions.get("network_stream")
        connection = stream.get_extra_info("socket") if stream is not None else None
        if isinstance(connection, socket.socket):
            # Not the method of a TLS socket, which would drop its state under the thread that reads.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)


class Transport:
    """The connections. Home thread: any; every call blocks."""

    def __init__(self, timeouts: Timeouts = Timeouts()) -> None:
        self._timeouts = timeouts
        self._lock = threading.Lock()
        self._client: httpx2.Client | None = None
        self._closed = False

    def close(self) -> None:
        """Close what is idle and refuse what comes later. Idempotent."""
        with self._lock:
            self._closed = True
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def get(
        self, base: Base, path: str, params: Mapping[str, str | Sequence[str]] | None = None, *, repo: str = ""
    ) -> Answer:
        """Ask and read the whole answer.

        Args:
            base: which hub, as whom.
            path: begins with a slash, already quoted.
            params: appended as a query; a sequence repeats its name.
            repo: what the question is about, for messages.

        Raises:
            HubOffline, HubRefused, HubNotFound, HubFault: as it answered.
        """
        url = base.endpoint + path
        if params:
            url = str(httpx2.URL(url).copy_merge_params(httpx2.QueryParams(params)))
        with self._opened(base, url, {}, repo) as (response, _), self._mapped(base, repo):
            if response.status_code >= 400:  # noqa: PLR2004
                hf_raise_for_status(_shortened(response))
            return Answer(_read_all(response, base.endpoint), dict(response.headers))

    @contextlib.contextmanager
    def open_file(
        self, base: Base, place: Place, *, start: int = 0, n_bytes: int | None = None, if_range: str = ""
    ) -> Iterator[Body]:
        """Ask for a file from `start` on. The address on the hub is asked each time: signed ones of a CDN expire.

        Args:
            base: which hub, as whom.
            place: which file.
            start: first byte wanted; the answer may begin elsewhere, see `Body.start`.
            n_bytes: how many are wanted; all that follow by default.
            if_range: validator of bytes that are here already; if the file has another one, it comes whole.

        Raises:
            HubOffline, HubRefused, HubNotFound, HubFault: as it answered. A 416 is no error: `Body.status` tells.
        """
        headers = {"Accept-Encoding": "identity"}
        if start or n_bytes is not None:
            headers["Range"] = f"bytes={start}-{'' if n_bytes is None else start + n_bytes - 1}"
            if if_range:
                headers["If-Range"] = f'"{if_range}"'
        url = f"{base.endpoint}/{place.repo}/resolve/{quote(place.commit, safe='')}/{quote(place.path)}"
        with self._opened(base, url, headers, place.repo) as (response, said):
            with self._mapped(base, place.repo):
                if response.status_code in _STALE and _origin(str(response.url)) != _origin(base.endpoint):
                    raise HubFault(
                        f"The hub's file server does not accept the address that the hub gave for {place.path}.",
                        hint="Deskside asks for a new one.",
                        repo=place.repo,
                        status=502,
                    )
                if response.status_code >= 400 and response.status_code != 416:  # noqa: PLR2004
                    hf_raise_for_status(_shortened(response))
                if response.status_code not in (200, 206, 416):
                    raise HubFault(
                        f"The hub at {base.endpoint} answered a download with status {response.status_code}.",
                        endpoint=base.endpoint,
                        status=response.status_code,
                    )
                if response.headers.get("Content-Encoding", "identity").lower() not in ("", "identity"):
                    raise HubFault(
                        f"The hub at {base.endpoint} sends {place.path} in an encoding that was not asked for.",
                        hint="A proxy between here and the hub changes files. Try another network.",
                        endpoint=base.endpoint,
                    )
                body = Body(response, said, base.endpoint, place.repo)
            yield body

    @contextlib.contextmanager
    def _opened(
        self, base: Base, url: str, headers: Mapping[str, str], repo: str
    ) -> Iterator[tuple[httpx2.Response, Mapping[str, str]]]:
        """The last answer after redirects, and what the hub itself said of the file on the way there."""
        said: dict[str, str] = {}
        with_token = True
        with contextlib.ExitStack() as stack:
            with self._mapped(base, repo):
                response = self._send(base, url, headers, with_token=True)
            stack.callback(response.close)
            for _ in range(MAX_REDIRECTS):
                if with_token:
                    said |= {name: response.headers[name] for name in _SAID if name in response.headers}
                if response.status_code not in _REDIRECTS or "Location" not in response.headers:
                    break
                response.close()
                with self._mapped(base, repo):
                    target = str(httpx2.URL(url).join(response.headers["Location"]))
                    _check_redirect(url, target, base.endpoint)
                    # Once away from the hub the token stays away, whatever the next address is.
                    with_token = with_token and _origin(target) == _origin(base.endpoint)
                    url = target
                    response = self._send(base, url, headers, with_token=with_token)
                stack.callback(response.close)
            else:
                raise HubFault(f"The hub at {base.endpoint} redirects in circles.", endpoint=base.endpoint)
            yield response, said

    def _send(self, base: Base, url: str, headers: Mapping[str, str], *, with_token: bool) -> httpx2.Response:
        token = base.token() if with_token else ""
        full = {"User-Agent": f"deskside/{__version__}", **headers}
        if token:
            full["Authorization"] = f"Bearer {token}"
        client = self._ready(base.endpoint)
        return client.send(client.build_request("GET", url, headers=full), stream=True)

    def _ready(self, endpoint: str) -> httpx2.Client:
        if constants.is_offline_mode():
            raise offline_by_choice(endpoint)
        with self._lock:
            if self._closed:
                raise HubOffline("Deskside is closing.", endpoint=endpoint, chosen=True)
            if self._client is None:
                limit = self._timeouts
                self._client = httpx2.Client(
                    follow_redirects=False,
                    trust_env=True,  # proxies of the environment
                    timeout=httpx2.Timeout(limit.read_s, connect=limit.connect_s),
                    limits=httpx2.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=8),
                )
            return self._client

    @contextlib.contextmanager
    def _mapped(self, base: Base, repo: str) -> Iterator[None]:
        try:
            yield
        except BadRequest:
            raise
        except Exception as error:
            raise fault_of(error, endpoint=base.endpoint, repo=repo) from error


def check_endpoint(endpoint: str) -> str:
    """A base address, without a slash at the end.

    Raises:
        BadRequest: if it is none.
    """
    parts = urlsplit(endpoint.strip())
    try:
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_address = False
    if not is_address or parts.query or parts.fragment or parts.username:
        raise BadRequest(
            f"{endpoint[:200]!r} is no address of a hub.",
            hint="Write it as https://host, or leave it empty for the hub itself.",
            param="hub_endpoint",
        )
    return endpoint.strip().rstrip("/")


def _origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or (443 if parts.scheme == "https" else 80)


def _check_redirect(origin: str, target: str, endpoint: str) -> None:
    if urlsplit(origin).scheme == "https" and urlsplit(target).scheme != "https":
        raise HubFault(
            f"The hub at {endpoint} leads to an address that is not encrypted.",
            hint="Deskside does not follow there. Check the hub address in the settings.",
            endpoint=endpoint,
        )


def _read_all(response: httpx2.Response, endpoint: str) -> bytes:
    parts: list[bytes] = []
    size_bytes = 0
    for part in response.iter_bytes():
        size_bytes += len(part)
        if size_bytes > MAX_ANSWER_BYTES:
            raise HubFault(f"The hub at {endpoint} gave an answer that is far too long.", endpoint=endpoint)
        parts.append(part)
    return b"".join(parts)


def _shortened(response: httpx2.Response) -> httpx2.Response:
    """The same answer with only the beginning of its body, where the hub's own words stand."""
    kept = b""
    with contextlib.suppress(httpx2.HTTPError, httpx2.StreamError):
        for part in response.iter_bytes():
            kept += part
            if len(kept) >= MAX_ERROR_BYTES:
                break
    headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in _ABOUT_BODY]
    return httpx2.Response(
        response.status_code, headers=headers, content=kept[:MAX_ERROR_BYTES], request=response.request
    )


def _etag(raw: str) -> str:
    """The strong validator without its quotes; "" for a weak one, which says nothing about bytes."""
    raw = raw.strip()
    return "" if raw.startswith("W/") else raw.strip('"')


def _extent(response: httpx2.Response, linked: int | None) -> tuple[int, int | None]:
    """Where the body begins in the file, and how long the file is (`linked` where the answer does not tell).

    Source: RFC 9110, 14.4 (`Content-Range: bytes 5-9/100`, `bytes */100` with a 416).
    """
    if response.status_code in (206, 416):
        match = re.match(r"^\s*bytes\s+(?:(\d+)-(\d+)|\*)/(\d+|\*)\s*$", response.headers.get("Content-Range", ""))
        if match is None:
            return (-1, linked)
        total = _number(match[3])
        return (int(match[1]) if match[1] else -1, linked if total is None else total)
    length = _number(response.headers.get("Content-Length", ""))
    return (0, linked if length is None else length)


def _number(raw: str) -> int | None:
    return int(raw) if raw.isascii() and raw.isdigit() and len(raw) < 20 else None  # noqa: PLR2004 - 64 bits
