"""The public listener, started, stopped and moved while the private one goes on."""

import socket
from collections.abc import Callable, Iterator

import httpx
import pytest

from runtime.host import api_switch
from runtime.messages.api import ApiChanged
from tests.host.conftest import RunningHost

MakeHost = Callable[..., RunningHost]


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield int(sock.getsockname()[1])


def put(running: RunningHost, /, **options: object) -> dict[str, object]:
    state: dict[str, object] = running.private.put("/admin/api", json=options).json()
    return state


def address(state: dict[str, object]) -> str:
    addresses = state["addresses"]
    assert isinstance(addresses, list)
    return str(addresses[0])


def test_when_switched_on_off_and_moved_then_only_the_public_one_moves(make_host: MakeHost) -> None:
    host = make_host(api_enabled=False)
    assert not host.private.get("/admin/api").json()["running"]
    first = address(put(host, enabled=True, port=0))
    assert httpx.get(f"{first}/v1/models").status_code == 200
    state = put(host, enabled=True, port=0, host="localhost")
    second = address(state)
    assert httpx.get(f"{second}/v1/models").status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{first}/v1/models")
    put(host)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{second}/v1/models")
    assert host.private.get("/admin/status").status_code == 200
    told = [event.api.running for event in host.events if isinstance(event, ApiChanged)]
    assert told == [False, True, True, False]


def test_when_only_origins_change_then_the_listener_stays(make_host: MakeHost) -> None:
    host = make_host(api_enabled=False)
    first = address(put(host, enabled=True, port=0))
    assert address(put(host, enabled=True, port=0, allowed_origins=["https://example.org"])) == first


def test_when_port_is_taken_then_the_problem_names_it(make_host: MakeHost, taken_port: int) -> None:
    host = make_host(api_enabled=False)
    state = put(host, enabled=True, port=taken_port)
    assert not state["running"]
    assert f"Port {taken_port} is already used" in str(state["problem"])
    assert put(host, enabled=True, port=0)["running"]


@pytest.mark.parametrize(
    ("name", "words"), [("203.0.113.7", "is not an address of this machine"), ("no such name", "no address")]
)
def test_when_address_is_not_ours_then_the_problem_says_so(make_host: MakeHost, name: str, words: str) -> None:
    host = make_host(api_enabled=False)
    host.private.post("/admin/keys", json={"name": "k"})
    state = put(host, enabled=True, port=0, host=name)
    assert not state["running"]
    assert words in str(state["problem"])


def test_when_options_are_wrong_then_they_are_refused(make_host: MakeHost) -> None:
    host = make_host(api_enabled=False)
    for options in ({"port": 70_000}, {"port": "x"}, {"unknown": 1}):
        answer = host.private.put("/admin/api", json=options)
        assert answer.status_code == 400
        assert answer.json()["kind"] == "BadRequest"


def test_when_restarted_then_saved_options_hold_and_a_run_overrides_them(make_host: MakeHost) -> None:
    first = make_host(api_enabled=False)
    port = int(address(put(first, enabled=True, port=0)).rpartition(":")[2])
    put(first, enabled=True, port=port)
    first.close()
    second = make_host(api_enabled=None, api_port=None)
    assert address(second.private.get("/admin/api").json()).endswith(f":{port}")
    second.close()
    third = make_host(api_enabled=False, api_port=None)
    assert not third.private.get("/admin/api").json()["running"]
    third.close()
    fourth = make_host(api_enabled=None, api_port=None)
    assert fourth.private.get("/admin/api").json()["running"]


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/v1/chat/completions", 'data: {"error":{"message":"The API was switched off'),
        ("/v1/messages", "event: error"),
        ("/v1/responses", "event: response.failed"),
        ("/api/chat", '{"error":"The API was switched off'),
        ("/completion", 'data: {"error":{"message":"The API was switched off'),
    ],
)
def test_when_switched_off_then_long_answers_end_with_their_dialects_error(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch, path: str, error: str
) -> None:
    monkeypatch.setattr(api_switch, "DRAIN_S", 0.3)
    host = make_host()
    text = "slowly 100000"
    row = {"role": "user", "content": text}
    body = {"model": "fake", "stream": True, "messages": [row], "input": text, "prompt": text, "max_tokens": 100000}
    if path == "/v1/responses":
        del body["prompt"]
    with host.public.stream("POST", path, json=body) as answer:
        assert answer.status_code == 200
        lines = answer.iter_lines()
        next(lines)
        put(host, enabled=False)
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{host.address_of_api}/health")
        told = list(lines)
        assert any(line.startswith(error) for line in told), told[-8:]
    host.until(lambda: host.private.get("/admin/requests").json()[-1]["state"] == "failed")


def test_when_switched_off_or_moved_then_a_short_answer_is_finished(make_host: MakeHost) -> None:
    host = make_host()
    body = {"model": "fake", "stream": True, "messages": [{"role": "user", "content": "slowly 40"}]}
    with host.public.stream("POST", "/v1/chat/completions", json=body) as answer:
        lines = answer.iter_lines()
        next(lines)
        assert address(put(host, enabled=True, port=0, host="localhost")) != host.address_of_api
        assert list(lines)[-2:] == ["data: [DONE]", ""]
    assert host.private.get("/admin/requests").json()[-1]["state"] == "finished"


def test_when_many_are_closed_one_after_the_other_then_their_answers_are_bounded(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_switch, "MAX_DRAINING", 1)
    host = make_host()
    body = {"model": "fake", "stream": True, "messages": [{"role": "user", "content": "slowly 100000"}]}
    with host.public.stream("POST", "/v1/chat/completions", json=body) as answer:
        lines = answer.iter_lines()
        next(lines)
        put(host, enabled=False)
        put(host, enabled=True, port=0)
        put(host, enabled=False)
        assert any("switched off or moved" in line for line in lines)
