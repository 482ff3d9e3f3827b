"""Who may call the two listeners."""

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from runtime.errors import NotAllowed
from runtime.host.access import check_host, is_loopback, own_names, tidy_path
from runtime.messages.api import Notice
from runtime.options import ApiOptions
from tests.host.conftest import RunningHost

MakeHost = Callable[..., RunningHost]
ORIGIN = "https://example.org"


def set_api(running: RunningHost, /, **options: object) -> dict[str, object]:
    answer = running.private.put("/admin/api", json={"enabled": True, "port": 0, **options})
    assert answer.status_code == 200, answer.text
    state: dict[str, object] = answer.json()
    if state.get("addresses"):
        running.public.base_url = httpx.URL(state["addresses"][0])  # type: ignore[index]
    return state


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST:80", "127.0.0.1:1234", "[::1]:5", "localhost."])
def test_when_host_header_is_ours_then_it_passes(name: str) -> None:
    check_host(name, own_names("127.0.0.1"))


@pytest.mark.parametrize(
    "name", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[", None, "@localhost"]
)
def test_when_host_header_is_not_ours_then_it_is_refused(name: str | None) -> None:
    if name == "@localhost":
        check_host(name, own_names("127.0.0.1"))  # user information is no part of the name
        return
    with pytest.raises(NotAllowed):
        check_host(name, own_names("127.0.0.1"))


def test_when_address_is_loopback_then_it_is_known() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.1.2", "example.org", "")))


def test_when_path_is_untidy_then_it_is_tidied() -> None:
    assert [tidy_path(path) for path in ("//v1//models/", "/", "", "/v1/x")] == ["/v1/models", "/", "/", "/v1/x"]


def test_when_name_was_rebound_then_both_listeners_refuse(host: RunningHost) -> None:
    for client in (host.public, host.private):
        answer = client.get("/v1/models", headers={"host": "evil.example"})
        assert answer.status_code == 403
        assert "allowed hosts" in answer.json()["error"]["message"]


def test_when_a_web_page_asks_then_it_is_refused(host: RunningHost) -> None:
    for headers in (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
    ):
        answer = host.public.get("/v1/models", headers=headers)
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers
    assert host.public.get("/v1/models", headers={"sec-fetch-site": "none"}).status_code == 200


def test_when_private_token_is_missing_or_wrong_then_401(host: RunningHost) -> None:
    for headers in ({}, {"authorization": "Bearer x"}, {"authorization": f"Basic {host.token}"}, {"x-api-key": "é"}):
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        answer = httpx.get(f"{host.address}/admin/status", headers=raw)
        assert answer.status_code == 401
        assert answer.json()["kind"] == "NotAuthorized"
        assert answer.headers["www-authenticate"] == "Bearer"
    assert httpx.get(f"{host.address}/health").status_code == 200


def test_when_origin_is_allowed_then_it_gets_exact_answers(make_host: MakeHost) -> None:
    host = make_host()
    set_api(host, allowed_origins=[ORIGIN])
    preflight = host.public.options(
        "/v1/chat/completions",
        headers={
            "origin": ORIGIN,
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type,x-stainless-os",
            "access-control-request-private-network": "true",
        },
    )
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-origin"] == ORIGIN
    assert "POST" in preflight.headers["access-control-allow-methods"]
    assert preflight.headers["access-control-allow-headers"] == "authorization,content-type,x-stainless-os"
    assert preflight.headers["access-control-allow-private-network"] == "true"
    answer = host.public.get("/v1/models", headers={"origin": ORIGIN})
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert answer.headers["vary"] == "Origin"
    refused = host.public.post("/v1/chat/completions", headers={"origin": ORIGIN}, content=b"{")
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (400, ORIGIN)
    assert host.public.get("/v1/models", headers={"origin": f"{ORIGIN}:444"}).status_code == 403


@pytest.mark.parametrize("origin", ["*", "example.org", "https://example.org/path", "https://*.example.org"])
def test_when_allowed_origin_cannot_be_meant_then_it_is_refused(host: RunningHost, origin: str) -> None:
    answer = host.private.put("/admin/api", json={"enabled": True, "port": 0, "allowed_origins": [origin]})
    assert answer.status_code == 400
    assert answer.json()["details"]["param"] == "allowed_origins"


def test_when_host_is_allowed_by_name_then_it_passes(make_host: MakeHost) -> None:
    host = make_host()
    assert host.public.get("/v1/models", headers={"host": "pc.local"}).status_code == 403
    set_api(host, allowed_hosts=["PC.local"])
    assert host.public.get("/v1/models", headers={"host": "pc.local:9"}).status_code == 200


def test_when_keys_exist_then_one_of_them_is_needed(make_host: MakeHost) -> None:
    host = make_host()
    key = host.private.post("/admin/keys", json={"name": "first"}).json()["key"]
    second = host.private.post("/admin/keys", json={"name": "second"}).json()["key"]
    missing = host.public.get("/v1/models")
    assert (missing.status_code, missing.json()["error"]["type"]) == (401, "authentication_error")
    assert host.public.get("/v1/models", headers={"authorization": "Bearer wrong"}).status_code == 401
    assert host.public.get("/v1/models", headers={"authorization": f"bearer {key}"}).status_code == 200
    assert host.public.get("/v1/models", headers={"x-api-key": second}).status_code == 200
    assert host.public.get("/health").status_code == 200
    assert host.public.get("/metrics").status_code == 401
    assert key not in host.data.settings_file.read_text()
    host.private.delete("/admin/keys/first")
    assert host.public.get("/v1/models", headers={"authorization": f"Bearer {key}"}).status_code == 401
    assert host.private.delete("/admin/keys/first").status_code == 400


def test_when_a_key_is_given_for_one_run_then_it_is_needed_and_not_kept(make_host: MakeHost) -> None:
    host = make_host(api_key="my key")
    assert host.public.get("/v1/models").status_code == 401
    assert host.public.get("/v1/models", headers={"authorization": "Bearer my key"}).status_code == 200
    assert host.private.get("/admin/api").json().get("keys", []) == []


def test_when_other_machines_could_reach_it_then_a_key_is_needed(make_host: MakeHost) -> None:
    host = make_host(api_enabled=False)
    state = set_api(host, host="0.0.0.0")
    assert not state["running"]
    assert "no API key" in str(state["problem"])
    host.private.post("/admin/keys", json={"name": "lan"})
    state = host.private.get("/admin/api").json()
    assert state["running"]
    assert state["addresses"][0].startswith("http://127.0.0.1:")
    assert httpx.get(f"{state['addresses'][0]}/health").status_code == 200


def test_when_the_last_key_goes_then_answer_and_notice_say_what_ends_with_it(make_host: MakeHost) -> None:
    host = make_host(api_enabled=False)
    for name in ("lan", "other"):
        host.private.post("/admin/keys", json={"name": name})
    set_api(host, host="0.0.0.0")
    state = host.private.delete("/admin/keys/other").json()
    assert state["running"]
    assert "problem" not in state
    state = host.private.delete("/admin/keys/lan").json()
    assert not state.get("running")
    assert "there is no API key. Make a key, or serve this machine alone at 127.0.0.1." in state["problem"]
    notice = host.wait_for(lambda event: isinstance(event, Notice) and "last API key" in event.text)
    assert isinstance(notice, Notice)
    assert (notice.level, state["problem"] in notice.text) == ("warning", True)


@pytest.mark.parametrize("length", [2, 200_000])
def test_when_an_unwanted_body_comes_after_its_head_then_the_answer_and_the_connection_survive(
    host: RunningHost, length: int
) -> None:
    address = httpx.URL(host.address_of_api)
    head = f"POST /v1/nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n\r\n".encode()
    with socket.create_connection((address.host, address.port or 80), timeout=20) as sock:
        for _ in range(3):
            sock.sendall(head)
            sock.sendall(b"x" * length)
            answer = b""
            while b"There is nothing at" not in answer:
                answer += (piece := sock.recv(65_536))
                assert piece, answer
            assert answer.startswith(b"HTTP/1.1 404")
            assert b"connection: close" not in answer.lower()


def test_when_an_unwanted_body_is_endless_then_the_connection_is_closed_after_the_answer(host: RunningHost) -> None:
    address = httpx.URL(host.address_of_api)
    head = b"POST /v1/nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection((address.host, address.port or 80), timeout=20) as sock:
        sock.sendall(head)
        answer = b""
        while piece := sock.recv(65_536):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 404")
    assert b"connection: close" in answer.lower()


def test_when_options_are_default_then_api_is_off_and_local() -> None:
    assert ApiOptions() == ApiOptions(enabled=False, host="127.0.0.1", port=1234)


def new_key(running: RunningHost, name: str, **limits: int) -> dict[str, str]:
    """Headers with a new key."""
    made = running.private.post("/admin/keys", json={"name": name, "limits": limits})
    assert made.status_code == 201, made.text
    return {"authorization": f"Bearer {made.json()['key']}"}


def test_when_a_limit_is_reached_then_each_dialect_says_which_and_when_to_come_back(make_host: MakeHost) -> None:
    host = make_host()
    key = new_key(host, "editor", requests_per_minute=1)
    chat = {"model": "fake", "max_tokens": 5, "messages": [{"role": "user", "content": "say 1"}]}
    assert host.public.post("/v1/chat/completions", json=chat, headers=key).status_code == 200
    for path, body in (
        ("/v1/chat/completions", chat),
        ("/v1/messages", chat),
        ("/v1/responses", {"model": "fake", "input": "say 1"}),
        ("/api/chat", {**chat, "stream": True}),
        ("/completion", {"prompt": "say 1"}),
        ("/v1/embeddings", {"model": "fake", "input": "a"}),
    ):
        answer = host.public.post(path, json=body, headers=key)
        assert answer.status_code == 429, path
        assert 1 <= int(answer.headers["retry-after"]) <= 61
        assert "1 requests a minute" in answer.text
        assert path != "/v1/embeddings" or answer.json()["error"]["code"] == "rate_limit_exceeded"
    other = new_key(host, "other")
    assert host.public.post("/v1/chat/completions", json=chat, headers=other).status_code == 200
    assert host.private.put("/admin/keys/editor", json={"max_concurrent": 1}).json()["limits"] == {"max_concurrent": 1}
    assert host.public.post("/v1/chat/completions", json=chat, headers=key).status_code == 200
    rows = host.private.get("/admin/requests").json()
    assert [row.get("key", "") for row in rows][-2:] == ["other", "editor"]
    told = {info["name"]: info for info in host.private.get("/admin/api").json()["keys"]}
    assert (told["editor"]["n_requests"], told["editor"].get("n_running", 0)) == (2, 0)
    assert told["editor"]["n_tokens"] > 0
    assert told["editor"]["used_s"] > 0


def test_when_a_key_is_deleted_then_what_runs_with_it_ends(make_host: MakeHost) -> None:
    host = make_host()
    key = new_key(host, "editor")
    new_key(host, "other")
    body = {"model": "fake", "stream": True, "messages": [{"role": "user", "content": "slowly 5000"}]}
    with host.public.stream("POST", "/v1/chat/completions", json=body, headers=key) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("data: ")
        assert host.private.delete("/admin/keys/editor").status_code == 200
        rest = list(lines)
    assert any("was deleted" in line for line in rest)
    assert host.private.get("/admin/requests").json()[-1]["state"] == "failed"
    assert host.public.get("/v1/models", headers=key).status_code == 401


def test_when_a_key_is_deleted_while_its_request_waits_for_a_load_then_it_ends(make_host: MakeHost) -> None:
    host = make_host()
    key = new_key(host, "editor")
    new_key(host, "other")
    body = {"model": "slow-loading", "messages": [{"role": "user", "content": "say 1"}]}
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(host.public.post, "/v1/chat/completions", json=body, headers=key)
        host.until(lambda: any(row["state"] == "loading" for row in host.private.get("/admin/requests").json()))
        host.private.delete("/admin/keys/editor")
        answer = asked.result(20)
    assert answer.status_code == 401
    assert "was deleted" in answer.json()["error"]["message"]
