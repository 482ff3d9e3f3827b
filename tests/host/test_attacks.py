"""What hostile pages, machines and programs try, as raw bytes where a client library would be too polite."""

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from runtime.host import listener
from tests.host.conftest import RunningHost

MakeHost = Callable[..., RunningHost]
CHAT = json.dumps({"model": "fake", "messages": [{"role": "user", "content": "say 1"}]}).encode()
PAGE = "https://evil.example"


@pytest.fixture
def sock(host: RunningHost) -> Iterator[socket.socket]:
    with connected(host) as sock:
        yield sock


def connected(host: RunningHost) -> socket.socket:
    url = httpx.URL(host.address_of_api)
    sock = socket.create_connection((url.host, url.port or 80))
    sock.settimeout(15)
    return sock


def answer_to(sock: socket.socket, data: bytes) -> bytes:
    """Everything that comes until the server closes."""
    sock.sendall(data)
    parts = []
    while part := sock.recv(65536):
        parts.append(part)
    return b"".join(parts)


def is_alive(host: RunningHost) -> bool:
    return host.public.get("/health").status_code == 200


# --- web pages ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/chat", "/v1/messages", "/completion", "/api/pull"])
@pytest.mark.parametrize("mime", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_when_a_page_posts_without_asking_first_then_nothing_is_done(host: RunningHost, path: str, mime: str) -> None:
    before = len(host.private.get("/admin/requests").json())
    headers = {"origin": PAGE, **({"content-type": mime} if mime else {})}
    answer = host.public.post(path, content=CHAT, headers=headers)
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert len(host.private.get("/admin/requests").json()) == before


def test_when_a_page_asks_first_then_it_gets_no_leave(host: RunningHost) -> None:
    for origin in (PAGE, "null", "http://localhost:9999", "file://"):
        answer = host.public.options(
            "/v1/chat/completions", headers={"origin": origin, "access-control-request-method": "POST"}
        )
        assert answer.status_code == 403
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_when_a_page_is_allowed_then_never_with_credentials_or_a_star(make_host: MakeHost) -> None:
    host = make_host()
    state = host.private.put("/admin/api", json={"enabled": True, "port": 0, "allowed_origins": [PAGE]}).json()
    asked = {"origin": PAGE, "access-control-request-method": "POST"}
    answers = [
        httpx.options(f"{state['addresses'][0]}/v1/models", headers=asked),
        httpx.get(f"{state['addresses'][0]}/v1/models", headers={"origin": PAGE}),
    ]
    for answer in answers:
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert "access-control-allow-credentials" not in answer.headers
        assert "Origin" in answer.headers["vary"]


@pytest.mark.parametrize(
    "name", [b"evil.example", b"127.0.0.1.evil.example", b"localhost@evil.example", b"", b"127.0.0.1, evil.example"]
)
def test_when_a_name_was_rebound_to_us_then_it_is_refused(host: RunningHost, sock: socket.socket, name: bytes) -> None:
    del host
    answer = answer_to(sock, b"GET /v1/models HTTP/1.1\r\nHost: " + name + b"\r\nConnection: close\r\n\r\n")
    assert answer.split(b" ")[1] in (b"400", b"403")


# --- paths --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/admin/status",
        "//admin//status",
        "/admin/status/",
        "/v1/../admin/status",
        "/%61dmin/status",
        "/v1/%2e%2e/admin/status",
        "/health/../admin/status",
        "/health;/admin/status",
        "/v1/models/../../admin/status",
        "\\admin\\status",
        "http://127.0.0.1/admin/status",
    ],
)
def test_when_admin_routes_are_asked_of_the_public_listener_then_there_are_none(host: RunningHost, path: str) -> None:
    for method, token in (("GET", host.token), ("POST", "")):
        with connected(host) as sock:
            head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
            answer = answer_to(sock, f"{head}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())
        assert answer.split(b" ")[1] in (b"400", b"404", b"405"), answer[:200]
        assert b"data_dir" not in answer


# --- bytes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: +5\r\n\r\nhello",
        b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
        b"\x16\x03\x01\x00\x01nonsense\r\n\r\n",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
    ],
)
def test_when_the_bytes_are_no_clean_request_then_400_and_the_end(
    host: RunningHost, sock: socket.socket, head: bytes
) -> None:
    try:
        answer = answer_to(sock, head)
    except ConnectionError:  # it closed while we were still sending
        answer = b""
    assert not answer or answer.split(b" ")[1].startswith(b"4"), answer[:200]
    assert answer.count(b"HTTP/1.1") <= 1
    assert is_alive(host)


def test_when_length_and_chunks_are_both_given_then_no_second_request_is_smuggled(
    host: RunningHost, sock: socket.socket
) -> None:
    inner = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    outer = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
    answer = answer_to(sock, outer + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner)
    assert answer.startswith(b"HTTP/1.1 4")
    assert is_alive(host)


def test_when_a_chunked_body_has_no_end_then_it_is_cut_off(host: RunningHost, sock: socket.socket) -> None:
    sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    sent = 0
    with contextlib.suppress(OSError):  # it closes while we send
        for _ in range(200):
            sock.sendall(chunk)
            sent += 1
    assert sent < 100
    assert is_alive(host)


def test_when_a_body_trickles_in_then_it_is_given_up(
    host: RunningHost, sock: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.host.api.http.BODY_WITHIN_S", 0.5)
    sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
    sock.settimeout(0.05)
    answer = b""
    deadline = time.monotonic() + 10
    while b"stopped coming" not in answer:
        assert time.monotonic() < deadline
        try:
            sock.sendall(b" ")
            answer += sock.recv(4096)
        except TimeoutError:
            continue
    assert answer.startswith(b"HTTP/1.1 400")
    assert is_alive(host)


def test_when_another_machine_opens_all_it_can_then_others_get_in(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "MAX_PER_ADDRESS", 5)
    host = make_host()
    monkeypatch.setattr(listener, "is_loopback", lambda address: address != "127.0.0.1")
    held = [connected(host) for _ in range(12)]
    try:
        ended = 0
        for sock in held[-7:]:
            assert sock.recv(1) == b""
            ended += 1
        assert ended == 7
        for sock in held[:5]:
            sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert sock.recv(100).startswith(b"HTTP/1.1 200")
    finally:
        for sock in held:
            sock.close()


def test_when_keys_are_guessed_then_each_costs_time_and_the_right_one_none(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.host.access.WRONG_KEY_DELAY_S", 0.5)
    host = make_host(api_key="chosen by a person")
    began_at = time.monotonic()
    assert host.public.get("/v1/models", headers={"x-api-key": "guess"}).status_code == 401
    assert time.monotonic() - began_at >= 0.5
    for _ in range(3):
        assert host.public.get("/v1/models", headers={"x-api-key": "chosen by a person"}).status_code == 200
