"""The public listener, started, stopped and moved while the private one goes on."""

import socket
from collections.abc import Callable, Iterator

import httpx
import pytest

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


def test_when_switched_off_then_running_answers_are_cut_off(make_host: MakeHost) -> None:
    host = make_host()
    body = {"model": "fake", "stream": True, "messages": [{"role": "user", "content": "slowly 100000"}]}
    with host.public.stream("POST", "/v1/chat/completions", json=body) as answer:
        lines = answer.iter_lines()
        next(lines)
        put(host, enabled=False)
        with pytest.raises(httpx.RemoteProtocolError):
            for _line in lines:
                pass
    host.until(lambda: host.private.get("/admin/requests").json()[-1]["state"] == "cancelled")
