"""Pictures named by a web address: fetched when allowed, and never from where only this machine reaches."""

import asyncio
import base64
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from runtime.errors import BadRequest, PayloadTooLarge
from runtime.host.api import picture_fetch
from runtime.host.api.picture_fetch import PictureFetcher, is_public

PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 100


class Site(ThreadingHTTPServer):
    """A web site on this machine."""

    seen: list[str]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        site = self.server
        assert isinstance(site, Site)
        site.seen.append(f"{self.headers['host']}{self.path}")
        match self.path:
            case "/p.png":
                self._answer(200, PNG)
            case "/big":
                self._answer(200, PNG * 1000)
            case "/text":
                self._answer(200, b"secret", "text/plain")
            case "/gzip":
                self._answer(200, PNG, **{"content-encoding": "gzip"})
            case "/moved":
                self._answer(302, b"", location="/p.png")
            case "/loop":
                self._answer(302, b"", location="/loop")
            case "/inward":
                self._answer(302, b"", location="http://router.lan/p.png")
            case "/file":
                self._answer(302, b"", location="file:///etc/passwd")
            case "/slow":
                self._answer(200, PNG[:20], **{"content-length": "120"})
                site.slow.wait(20)  # type: ignore[attr-defined]
            case _:
                self._answer(404, b"")

    def _answer(self, status: int, body: bytes, mime: str = "image/png", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-type": mime, "content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class' name
        del format, args


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    server = Site(("127.0.0.1", 0), Handler)
    server.seen = []
    server.slow = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.slow.set()  # type: ignore[attr-defined]
    server.shutdown()
    thread.join()
    server.server_close()


async def look_up(host: str, _port: int) -> tuple[str, ...]:
    """Every public name is this machine; one name is both there and here."""
    known = {"pictures.example": ("127.0.0.1",), "both.example": ("127.0.0.1", "10.0.0.1"), "router.lan": ("10.0.0.1",)}
    if host not in known:
        raise OSError
    return known[host]


def filled(raw: dict[str, Any], *, allowed: bool = True) -> dict[str, Any]:
    async def run() -> dict[str, Any]:
        fetcher = PictureFetcher(lambda: allowed, look_up=look_up, may_reach=lambda ip: ip == "127.0.0.1")
        return await fetcher.filled(raw)

    return asyncio.run(run())


def chat(url: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}


def url_of(site: Site, path: str, host: str = "pictures.example") -> str:
    return f"http://{host}:{site.server_address[1]}{path}"


DATA = base64.b64encode(PNG).decode()


@pytest.mark.parametrize("path", ["/p.png", "/moved"])
def test_when_allowed_then_each_dialects_address_becomes_the_picture(site: Site, path: str) -> None:
    url = url_of(site, path)
    assert filled(chat(url)) == chat(f"data:image/png;base64,{DATA}")
    responses = {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]}
    assert filled(responses)["input"][0]["content"][0]["image_url"] == f"data:image/png;base64,{DATA}"
    block = {"type": "image", "source": {"type": "url", "url": url}}
    anthropic = {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": [block]}]}]}
    assert filled(anthropic)["messages"][0]["content"][0]["content"][0]["source"] == {
        "type": "base64",
        "media_type": "image/png",
        "data": DATA,
    }
    assert site.seen[-1] == f"pictures.example:{site.server_address[1]}/p.png"


def test_when_several_are_fetched_then_certificates_are_read_once_and_not_by_the_event_loop(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_by: list[int] = []
    real = ssl.create_default_context

    def read(*args: Any, **named: Any) -> ssl.SSLContext:
        read_by.append(threading.get_ident())
        return real(*args, **named)

    monkeypatch.setattr(ssl, "create_default_context", read)
    picture_fetch._tls.cache_clear()
    url = url_of(site, "/moved")
    filled({"messages": [*chat(url)["messages"], *chat(url)["messages"]]})
    assert len(read_by) == 1
    assert read_by[0] != threading.get_ident()


def test_when_not_allowed_then_nothing_is_asked(site: Site) -> None:
    before = len(site.seen)
    url = url_of(site, "/p.png")
    assert filled(chat(url), allowed=False) == chat(url)
    assert len(site.seen) == before


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda site: url_of(site, "/p.png", "router.lan"), "not on the public internet"),
        (lambda site: url_of(site, "/p.png", "both.example"), "not on the public internet"),
        (lambda site: url_of(site, "/inward"), "not on the public internet"),
        (lambda site: url_of(site, "/file"), "no web address"),
        (lambda site: url_of(site, "/loop"), "leads from one to another"),
        (lambda site: url_of(site, "/text"), "there is no picture"),
        (lambda site: url_of(site, "/gzip"), "there is no picture"),
        (lambda site: url_of(site, "/nothing"), "answered with 404"),
        (lambda _site: "http://unknown.example/p.png", "no host named"),
        (lambda _site: "ftp://pictures.example/p.png", "no web address"),
        (lambda _site: "file:///etc/passwd", "no web address"),
        (lambda _site: "http://user:word@pictures.example/p.png", "no web address"),
        (lambda _site: "http://pictures.example:99999/p.png", "no web address"),
        (lambda _site: "http://[::1", "no web address"),
        (lambda _site: "http://pictures.example:1/p.png", "could not be fetched"),
        (lambda _site: "", "no web address"),
    ],
)
def test_when_an_address_is_not_good_then_it_is_refused_by_name(
    site: Site, make: Callable[[Site], str], sentence: str
) -> None:
    with pytest.raises(BadRequest, match=sentence) as told:
        filled(chat(make(site)))
    assert told.value.details["param"] == "messages[0].content[0].image_url.url"


def test_when_a_picture_is_too_large_or_too_slow_or_too_many_then_it_is_given_up(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picture_fetch, "MAX_PICTURE_BYTES", 5000)
    with pytest.raises(PayloadTooLarge):
        filled(chat(url_of(site, "/big")))
    monkeypatch.setattr(picture_fetch, "FETCH_WITHIN_S", 0.3)
    with pytest.raises(BadRequest, match=r"did not come within|could not be fetched"):
        filled(chat(url_of(site, "/slow")))
    part = {"type": "image_url", "image_url": {"url": url_of(site, "/p.png")}}
    with pytest.raises(BadRequest, match="names 9 pictures"):
        filled({"messages": [{"role": "user", "content": [part] * 9}]})


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "64:ff9b::101:101"])
def test_when_an_ip_is_public_then_it_may_be_asked(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1%eth0",
        "fd00::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "nonsense",
    ],
)
def test_when_an_ip_is_not_public_then_it_is_never_asked(address: str) -> None:
    assert not is_public(address)
