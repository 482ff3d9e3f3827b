"""Turns of several clients at a whole host, and what becomes of those who wait."""

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from runtime.host.config import HostConfig
from runtime.options import LoadOptions
from runtime.paths import DataFolder
from tests.fakes.host_parts import FAKE_WORKER
from tests.host.conftest import RunningHost

MakeHost = Callable[..., RunningHost]
ROUTES = {
    "openai": ("/v1/chat/completions", {}),
    "completions": ("/v1/completions", {}),
    "responses": ("/v1/responses", {}),
    "anthropic": ("/v1/messages", {"max_tokens": 10_000}),
    "ollama chat": ("/api/chat", {}),
    "ollama generate": ("/api/generate", {}),
    "llama.cpp": ("/completion", {"n_predict": 10_000}),
}


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    executor = ThreadPoolExecutor(40)
    yield executor
    executor.shutdown(wait=False, cancel_futures=True)  # the host ends what still waits


def one_slot(make_host: MakeHost) -> RunningHost:
    host = make_host(model="fake", load_options=LoadOptions(n_parallel=1))
    host.until(lambda: host.private.get("/health").json()["status"] == "ok")
    return host


@pytest.fixture(scope="module")
def one_slot_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHost]:
    """One for several tests."""
    data = DataFolder(tmp_path_factory.mktemp("host") / "data")
    options = LoadOptions(n_parallel=1)
    running = RunningHost(
        data,
        HostConfig(data, api_enabled=True, api_port=0, model="fake", load_options=options, worker_command=FAKE_WORKER),
    )
    running.until(lambda: running.private.get("/health").json()["status"] == "ok")
    yield running
    running.close()


def body_of(route: str, text: str, *, stream: bool = False) -> dict[str, object]:
    """The same wish in each dialect."""
    path, more = ROUTES[route]
    asked: dict[str, object] = {"model": "fake", "stream": stream, **more}
    if path in ("/v1/completions", "/api/generate", "/completion"):
        return {**asked, "prompt": text}
    if path == "/v1/responses":
        return {**asked, "input": text}
    return {**asked, "messages": [{"role": "user", "content": text}]}


def asked(host: RunningHost, text: str, key: str = "") -> httpx.Response:
    headers = {"x-api-key": key} if key else {}
    return host.public.post("/v1/chat/completions", json=body_of("openai", text), headers=headers, timeout=60)


def rows(host: RunningHost, *states: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = host.private.get("/admin/requests").json()
    return [row for row in found if row["state"] in states]


def wait_until(condition: Callable[[], bool], timeout_s: float = 15.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def key_of(host: RunningHost, name: str) -> str:
    key: str = host.private.post("/admin/keys", json={"name": name}).json()["key"]
    return key


def test_when_one_key_floods_then_anothers_first_answer_comes_before_the_flood_is_over(
    make_host: MakeHost, pool: ThreadPoolExecutor
) -> None:
    host = one_slot(make_host)
    greedy, modest = key_of(host, "greedy"), key_of(host, "modest")
    flood = [pool.submit(asked, host, "slowly 10", greedy) for _ in range(20)]
    wait_until(lambda: len(rows(host, "queued", "generating", "prompt")) >= 15)
    assert asked(host, "slowly 1", modest).status_code == 200
    done = sum(future.done() for future in flood)
    assert done <= 10, "the newcomer waited for more than what was being answered"
    assert {future.result(60).status_code for future in flood} == {200}


def test_when_the_queue_is_full_then_429_says_when_to_come_back(make_host: MakeHost, pool: ThreadPoolExecutor) -> None:
    host = make_host(model="fake", load_options=LoadOptions(n_parallel=1, max_waiting=2))
    host.until(lambda: host.private.get("/health").json()["status"] == "ok")
    held = [pool.submit(asked, host, "slowly 50") for _ in range(3)]
    wait_until(lambda: len(rows(host, "queued", "generating", "prompt")) == 3)
    for route, (path, _) in ROUTES.items():
        refused = host.public.post(path, json=body_of(route, "say 1", stream=True))
        assert refused.status_code == 429, route
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert "waiting already" in refused.text
    assert [future.result(30).status_code for future in held] == [200] * 3


def raw_post(host: RunningHost, path: str, body: dict[str, object]) -> socket.socket:
    """Ask, and leave the answer unread; closing the socket is what a client does that goes away."""
    url = httpx.URL(host.address_of_api)
    encoded = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(encoded)}\r\n\r\n"
    sock = socket.create_connection((url.host, url.port or 80))
    sock.sendall(head.encode() + encoded)
    return sock


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize("route", ROUTES)
def test_when_a_client_leaves_then_its_place_is_free_at_once(
    one_slot_host: RunningHost, route: str, *, is_streamed: bool
) -> None:
    host = one_slot_host
    path, _ = ROUTES[route]

    def of_route(*states: str) -> int:
        return sum(row["route"] == path for row in rows(host, *states))

    before = of_route("cancelled")
    with raw_post(host, path, body_of(route, "slowly 5000", stream=is_streamed)):
        wait_until(lambda: of_route("generating") == 1)
    wait_until(lambda: of_route("cancelled") == before + 1)
    wait_until(lambda: asked(host, "active").json()["choices"][0]["message"]["content"] == "0")

    holding = body_of("completions", "silence", stream=True)
    # Two are with the worker: one in the slot, one ahead.
    with raw_post(host, "/v1/completions", holding), raw_post(host, "/v1/completions", holding):
        wait_until(lambda: len(rows(host, "prompt")) == 2)
        with raw_post(host, path, body_of(route, "say 1", stream=is_streamed)):
            wait_until(lambda: of_route("queued") == 1)
        wait_until(lambda: of_route("queued") == 0)
        assert len(rows(host, "prompt")) == 2
    wait_until(lambda: not rows(host, "prompt", "queued"))
    wait_until(lambda: asked(host, "active").json()["choices"][0]["message"]["content"] == "0")


def test_when_a_client_leaves_while_its_model_is_loaded_then_its_request_is_gone(one_slot_host: RunningHost) -> None:
    host = one_slot_host
    for route, (path, _) in ROUTES.items():
        before = len(rows(host, "cancelled"))
        with raw_post(host, path, {**body_of(route, "say 1", stream=True), "model": "slow-loading"}):
            wait_until(lambda: len(rows(host, "loading")) == 1)
        wait_until(lambda: not rows(host, "loading"))
        assert len(rows(host, "cancelled")) == before + 1, route


def test_when_the_worker_dies_then_those_who_wait_are_answered_by_the_next(
    make_host: MakeHost, pool: ThreadPoolExecutor
) -> None:
    host = one_slot(make_host)
    held = [pool.submit(asked, host, "silence") for _ in range(2)]  # in the slot and ahead
    wait_until(lambda: len(rows(host, "prompt")) == 2)
    rest = [pool.submit(asked, host, "say 3") for _ in range(4)]
    wait_until(lambda: len(rows(host, "queued")) == 4)
    os.kill(host.private.get("/admin/status").json()["models"][0]["pid"], signal.SIGKILL)
    assert [future.result(30).status_code for future in held] == [503] * 2
    assert [future.result(30).status_code for future in rest] == [200] * 4
