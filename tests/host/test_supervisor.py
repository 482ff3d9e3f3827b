"""What the host does when workers die, hang, refuse and give way, with the fake worker."""

import asyncio
import contextlib
import errno
import os
import random
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest

from runtime.host.model_slot import RestartPolicy
from runtime.host.worker_session import Patience
from runtime.messages.api import ModelChanged, ModelGone, Notice
from tests.fakes.host_parts import FAKE_WORKER
from tests.host.conftest import RunningHost

MakeHost = Callable[..., RunningHost]


def ask(host: RunningHost, text: str, model: str = "fake", **extra: object) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": text}], **extra}
    return host.public.post("/v1/chat/completions", json=body)


def content(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


def error(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["message"])


def states(host: RunningHost) -> dict[str, str]:
    return {model["id"]: model["state"] for model in host.private.get("/admin/status").json()["models"]}


def pid_of(host: RunningHost, model: str = "fake") -> int:
    models = host.private.get("/admin/status").json()["models"]
    return int(next(entry["pid"] for entry in models if entry["id"] == model))


def notices(host: RunningHost) -> list[str]:
    return [event.text for event in host.events if isinstance(event, Notice)]


def test_when_request_names_a_model_then_it_is_loaded_once_for_all(make_host: MakeHost) -> None:
    host = make_host()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda index: content(ask(host, f"number {index}")), range(8)))
    assert answers == [f"echo: number {index}" for index in range(8)]
    ready = [event for event in host.events if isinstance(event, ModelChanged) and event.model.state == "ready"]
    assert len({event.model.pid for event in ready}) == 1


def test_when_no_model_is_named_then_the_loaded_one_answers(make_host: MakeHost) -> None:
    host = make_host()
    refused = host.public.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "x"}]})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "model")
    ask(host, "x")
    assert content(ask(host, "x", model="")) == "echo: x"


def test_when_one_model_is_the_most_then_another_replaces_it_after_its_answers(make_host: MakeHost) -> None:
    host = make_host()
    host.private.put("/admin/models/options", json={"max_loaded": 1})
    assert content(ask(host, "x")) == "echo: x"
    first_pid = pid_of(host)
    with ThreadPoolExecutor(3) as pool:
        slow = pool.submit(ask, host, "slowly 40")
        host.until(lambda: any(row["state"] == "generating" for row in host.private.get("/admin/requests").json()))
        other = pool.submit(ask, host, "y", "other")
        again = pool.submit(ask, host, "slowly 3")
        assert len(content(slow.result()).split()) == 40
        assert content(other.result()) == "echo: y"
        assert len(content(again.result()).split()) == 3
    host.until(lambda: len(states(host)) == 1)
    host.until(lambda: not psutil.pid_exists(first_pid))


def test_when_both_models_are_asked_in_turn_then_every_request_is_answered(make_host: MakeHost) -> None:
    host = make_host()
    names = ["fake", "other"] * 4
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda pair: content(ask(host, f"n {pair[0]}", pair[1])), enumerate(names)))
    assert answers == [f"echo: n {index}" for index in range(8)]


def test_when_loaded_without_replace_then_both_stay(make_host: MakeHost) -> None:
    host = make_host()
    ask(host, "x")
    host.private.post("/admin/models/load", json={"model": "other", "replace": False})
    host.until(lambda: states(host) == {"fake": "ready", "other": "ready"})
    assert content(ask(host, "x")) == "echo: x"
    assert content(ask(host, "y", "other")) == "echo: y"
    assert states(host) == {"fake": "ready", "other": "ready"}


def test_when_worker_is_killed_mid_answer_then_error_says_so_and_next_request_works(make_host: MakeHost) -> None:
    host = make_host()
    ask(host, "x")
    pid = pid_of(host)
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(ask, host, "slowly 100000") for _ in range(2)]
        host.until(lambda: [r["state"] for r in host.private.get("/admin/requests").json()][1:] == ["generating"] * 2)
        os.kill(pid, signal.SIGKILL)
        for answer in running:
            assert answer.result().status_code == 503
            assert "was ended by SIGKILL" in error(answer.result())
    assert content(ask(host, "again")) == "echo: again"
    assert pid_of(host) != pid
    assert any("SIGKILL" in text and "loaded again" in text for text in notices(host))
    assert 'deskside_worker_restarts_total{model="fake"} 1' in host.public.get("/metrics").text


def test_when_worker_dies_mid_stream_then_the_stream_ends_with_the_error(make_host: MakeHost) -> None:
    host = make_host()
    lines = ask(host, "die", stream=True).text.split("\n\n")
    assert '"content":"w1 "' in lines[2]
    assert "SIGKILL" in lines[-3]
    assert lines[-2] == "data: [DONE]"


def test_when_worker_sends_garbage_then_it_is_replaced(make_host: MakeHost) -> None:
    host = make_host()
    answer = ask(host, "garbage")
    assert answer.status_code == 503
    assert "cannot be read" in error(answer)
    assert content(ask(host, "again")) == "echo: again"


def test_when_engine_is_stuck_then_it_is_replaced(make_host: MakeHost) -> None:
    host = make_host()
    answer = ask(host, "hang")
    assert answer.status_code == 503
    assert "The engine was stuck: its last step was 99 s ago" in error(answer)
    assert content(ask(host, "again")) == "echo: again"


def test_when_process_is_frozen_then_it_is_replaced(make_host: MakeHost) -> None:
    host = make_host(policy=RestartPolicy(backoff_s=(0.01,), patience=Patience(silent_limit_s=2.0)))
    ask(host, "x")
    pid = pid_of(host)
    answer = ask(host, "freeze")
    assert answer.status_code == 503
    assert "has not reported for 2 s" in error(answer)
    assert not psutil.pid_exists(pid)
    assert content(ask(host, "again")) == "echo: again"


def test_when_it_dies_again_and_again_then_it_is_left_stopped_until_loaded(make_host: MakeHost) -> None:
    host = make_host(policy=RestartPolicy(most=2, backoff_s=(0.01,)))
    for _ in range(3):
        assert ask(host, "exit").status_code == 503
    host.wait_for(lambda event: isinstance(event, ModelChanged) and event.model.state == "failed")
    answer = ask(host, "x")
    assert answer.status_code == 503
    assert "ended 3 times in 5 minutes" in error(answer)
    assert host.public.get("/health").json()["status"] == "failed"
    host.private.post("/admin/models/load", json={"model": "fake"})
    assert content(ask(host, "x")) == "echo: x"


def test_when_load_is_refused_then_the_reason_passes_through(make_host: MakeHost) -> None:
    host = make_host()
    answer = ask(host, "x", model="refuse")
    assert answer.status_code == 500
    assert error(answer).startswith("The model needs 9.0 GB and 2.0 GB are free. Choose a smaller one.")
    assert answer.json()["error"]["code"] == "model_load_failed"
    assert ask(host, "x", model="refuse").status_code == 500
    starts = [event for event in host.events if isinstance(event, ModelChanged) and event.model.stage == "starting"]
    assert len(starts) == 1  # the second request did not load it again


def test_when_worker_crashes_while_loading_then_it_is_not_tried_again(make_host: MakeHost) -> None:
    host = make_host()
    answer = ask(host, "x", model="crash-loading")
    assert answer.status_code == 503
    assert "ended while it was being loaded" in error(answer)
    assert "GGML_ASSERT" not in error(answer)
    assert "worker.log" in error(answer)
    assert states(host) == {"crash-loading": "failed"}


def test_when_worker_never_calls_back_then_the_load_fails_with_its_words(make_host: MakeHost) -> None:
    host = make_host(worker_command=(*FAKE_WORKER, "--never-calls"))
    answer = ask(host, "x")
    assert answer.status_code == 503
    assert "exited with code 9" in error(answer)
    (model,) = host.private.get("/admin/status").json()["models"]
    assert "no way" in model["failure"]["details"]["last_lines"]


def test_when_worker_cannot_be_started_then_the_load_fails(make_host: MakeHost) -> None:
    host = make_host(worker_command=("/nonexistent/fake",))
    answer = ask(host, "x")
    assert answer.status_code == 500
    assert "could not be started" in error(answer)


def test_when_loading_then_health_tells_percent_and_requests_wait(make_host: MakeHost) -> None:
    host = make_host()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, host, "x", "slow-loading")
        host.wait_for(lambda event: isinstance(event, ModelChanged) and event.model.fraction == 0.25)
        health = host.public.get("/health")
        assert (health.status_code, health.json()) == (503, {"status": "loading", "percent": 25})
        host.data.models.joinpath("slow-loading.gguf.go").touch()
        assert content(waiting.result()) == "echo: x"
    assert host.public.get("/health").status_code == 200


def test_when_client_leaves_while_loading_then_nothing_is_sent_to_the_model(make_host: MakeHost) -> None:
    host = make_host()
    with pytest.raises(httpx.ReadTimeout):
        host.public.post(
            "/v1/chat/completions",
            json={"model": "slow-loading", "messages": [{"role": "user", "content": "slowly 100000"}]},
            timeout=0.5,
        )
    host.until(lambda: host.private.get("/admin/requests").json()[-1]["state"] == "cancelled")
    host.data.models.joinpath("slow-loading.gguf.go").touch()
    host.until(lambda: states(host) == {"slow-loading": "ready"})
    assert content(ask(host, "active", model="slow-loading")) == "0"


def test_when_nobody_waits_for_a_load_any_more_then_another_model_does_not_either(make_host: MakeHost) -> None:
    host = make_host()
    with ThreadPoolExecutor(1) as pool:
        abandoned = pool.submit(
            httpx.post,
            f"{host.address_of_api}/v1/chat/completions",
            json={"model": "slow-loading", "messages": [{"role": "user", "content": "x"}]},
            timeout=2.0,
        )
        host.wait_for(lambda event: isinstance(event, ModelChanged) and event.model.fraction == 0.25)
        assert content(ask(host, "x")) == "echo: x"
        assert isinstance(abandoned.exception(), httpx.ReadTimeout)


def test_when_unloaded_then_the_process_is_gone_and_requests_end(make_host: MakeHost) -> None:
    host = make_host()
    ask(host, "x")
    pid = pid_of(host)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(ask, host, "slowly 100000")
        host.until(lambda: host.private.get("/admin/requests").json()[-1]["state"] == "generating")
        assert host.private.post("/admin/models/unload", json={"model": "fake"}).status_code == 204
        assert not psutil.pid_exists(pid)
        assert running.result().status_code == 503
        assert "was unloaded" in error(running.result())
    host.wait_for(lambda event: isinstance(event, ModelGone))
    assert states(host) == {}
    assert host.public.get("/health").json() == {"status": "idle"}


def test_when_unloaded_while_loading_then_the_process_is_gone(make_host: MakeHost) -> None:
    host = make_host()
    host.private.post("/admin/models/load", json={"model": "slow-loading"})
    host.wait_for(lambda event: isinstance(event, ModelChanged) and event.model.fraction == 0.25)
    pid = pid_of(host, "slow-loading")
    host.private.post("/admin/models/unload", json={"model": "slow-loading"})
    assert not psutil.pid_exists(pid)
    assert states(host) == {}


def test_when_loaded_with_options_then_they_are_remembered(make_host: MakeHost) -> None:
    host = make_host()
    host.private.post("/admin/models/load", json={"model": "fake", "options": {"n_ctx": 512}})
    host.until(lambda: states(host) == {"fake": "ready"})
    host.private.post("/admin/models/unload", json={"model": "fake"})
    ask(host, "x")
    facts = host.private.get("/admin/status").json()["models"][0]["facts"]
    assert facts["n_ctx"] == 512
    host.private.post("/admin/models/load", json={"model": "fake", "options": {}})
    host.until(lambda: host.private.get("/admin/status").json()["models"][0].get("facts", {}).get("n_ctx") == 4096)


def test_when_a_draft_model_is_named_then_the_worker_gets_its_file(make_host: MakeHost) -> None:
    host = make_host()
    options = {"draft_model": "other"}
    host.private.post("/admin/models/load", json={"model": "fake", "options": options})
    host.until(lambda: states(host) == {"fake": "ready"})
    facts = host.private.get("/admin/status").json()["models"][0]["facts"]
    assert facts["resolved"]["draft"].startswith("other")


def test_when_the_draft_model_is_not_there_then_the_load_says_so(make_host: MakeHost) -> None:
    host = make_host()
    options = {"draft_model": "nothing-like-it"}
    host.private.post("/admin/models/load", json={"model": "fake", "options": options})
    host.until(lambda: states(host) == {"fake": "failed"})
    failure = host.private.get("/admin/status").json()["models"][0]["failure"]
    assert "draft model 'nothing-like-it'" in failure["message"]
    host.private.post("/admin/models/load", json={"model": "fake", "options": options | {"speculation": "off"}})
    host.until(lambda: states(host) == {"fake": "ready"})


def test_when_the_file_of_the_draft_model_is_damaged_then_the_load_says_what_is_wrong_with_it(
    make_host: MakeHost,
) -> None:
    host = make_host()
    os.truncate(host.files.find("other").path, 0)
    options = {"draft_model": "other"}
    host.private.post("/admin/models/load", json={"model": "fake", "options": options})
    host.until(lambda: states(host) == {"fake": "failed"})
    failure = host.private.get("/admin/status").json()["models"][0]["failure"]
    assert "other.gguf is empty" in failure["message"]


def test_when_a_load_fails_then_its_options_are_not_remembered(make_host: MakeHost) -> None:
    host = make_host()
    host.private.post("/admin/models/load", json={"model": "refuse", "options": {"n_ctx": 100_000_000}})
    host.until(lambda: states(host) == {"refuse": "failed"})
    host.private.post("/admin/models/load", json={"model": "refuse"})
    host.until(lambda: states(host) == {"refuse": "failed"})
    assert host.private.get("/admin/status").json()["models"][0]["options"] == {}


def test_when_settings_cannot_be_saved_then_the_model_is_loaded_all_the_same(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_path: object, _content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    host = make_host()
    monkeypatch.setattr("runtime.host.settings.write_atomically", full)
    answer = host.private.post("/admin/models/load", json={"model": "fake", "options": {"n_ctx": 512}})
    assert answer.status_code == 202
    host.wait_for(lambda event: isinstance(event, Notice) and "No space left" in event.text)
    host.until(lambda: states(host) == {"fake": "ready"})


def test_when_host_ends_then_running_answers_finish_and_no_process_stays(make_host: MakeHost) -> None:
    host = make_host()
    ask(host, "x")
    pid = pid_of(host)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(ask, host, "slowly 20")
        host.until(lambda: host.private.get("/admin/requests").json()[-1]["state"] == "generating")
        host.private.post("/admin/shutdown")
        assert len(content(running.result()).split()) == 20
    host.close()
    assert not psutil.pid_exists(pid)


def test_when_strangers_call_the_worker_port_then_they_are_turned_away(make_host: MakeHost) -> None:
    import socket

    host = make_host()
    assert host.host is not None
    address, _, port = host.host._models.supervisor._gate.address.rpartition(":")
    ends: list[bytes] = []

    def call(data: bytes) -> None:
        with socket.create_connection((address, int(port)), timeout=15) as sock:
            sock.sendall(data)
            with contextlib.suppress(ConnectionError):
                ends.append(sock.recv(1))

    threads = [
        threading.Thread(target=call, args=(data,))
        for data in (b"\xff\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n", b"\x01\0\0\0\xc1")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(end == b"" for end in ends)
    assert content(ask(host, "x")) == "echo: x"


def test_when_many_clients_come_and_go_then_nothing_stays_behind(make_host: MakeHost) -> None:
    host = make_host()
    texts = ("slowly 30", "say 50", "silence", "flood", "busy", "fail late", "slowly 1000")

    async def one(client: httpx.AsyncClient, number: int) -> None:
        chance = random.Random(number)
        body = {
            "model": "other" if number % 10 == 9 else "fake",
            "stream": chance.random() < 0.7,
            "messages": [{"role": "user", "content": chance.choice(texts)}],
        }
        with contextlib.suppress(TimeoutError, httpx.ReadError):
            async with asyncio.timeout(chance.uniform(0.02, 1.0)):
                async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
                    async for _chunk in answer.aiter_raw():
                        if chance.random() < 0.02:
                            return

    async def run() -> None:
        async with httpx.AsyncClient(base_url=host.address_of_api, timeout=60) as client:
            for _wave in range(3):
                await asyncio.gather(*(one(client, number) for number in range(40)))

    asyncio.run(run())
    running = ("loading", "queued", "prompt", "generating")
    host.until(lambda: not [row for row in host.private.get("/admin/requests").json() if row["state"] in running])
    assert content(ask(host, "x")) == "echo: x"
    host.until(lambda: host.private.get("/admin/status").json()["models"][0]["engine"].get("active", 0) == 0)
    assert host._loop is not None
    assert len(asyncio.all_tasks(host._loop)) < 20
