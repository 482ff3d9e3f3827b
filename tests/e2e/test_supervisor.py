"""Workers and hosts that are killed: nothing hangs, nothing is left behind."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.e2e.conftest import HostUnderTest, alive, poll

pytestmark = pytest.mark.e2e


def ask(host: HostUnderTest, text: str, **extra: object) -> httpx.Response:
    body = {"model": host.model, "messages": [{"role": "user", "content": text}], **extra}
    return httpx.post(f"{host.address}/v1/chat/completions", json=body, timeout=120)


def generating(host: HostUnderTest) -> bool | None:
    rows = host.private.get("/admin/requests").json()
    return True if rows and rows[-1]["state"] == "generating" else None


def test_when_worker_is_killed_mid_answer_then_the_next_request_works(
    own_host: HostUnderTest,
) -> None:
    own_host.open_api()
    own_host.load_starter(n_ctx=512, n_parallel=2)
    worker = own_host.worker()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(ask, own_host, "Count to a million.", ignore_eos=True)
        poll(lambda: generating(own_host))
        worker.kill()
        answer = running.result()
    assert answer.status_code == 503
    assert "SIGKILL" in answer.json()["error"]["message"]
    again = ask(own_host, "Say hello.", max_tokens=5)
    assert again.status_code == 200
    assert again.json()["usage"]["completion_tokens"] > 0
    assert own_host.worker().pid != worker.pid
    assert own_host.loaded()["restarts"] == 1


def test_when_host_is_killed_then_its_worker_ends(own_host: HostUnderTest) -> None:
    own_host.load_starter(n_ctx=512)
    worker = own_host.worker()
    own_host.process.kill()
    own_host.process.wait()
    poll(lambda: True if not alive(worker) else None, timeout_s=10)


def test_when_a_model_is_unloaded_and_loaded_again_then_its_long_prompt_goes_on(own_host: HostUnderTest) -> None:
    own_host.open_api()
    system = {"role": "system", "content": "The ship left the harbour at dawn and nobody waved. " * 24}
    messages = [system, {"role": "user", "content": "What happened?"}]
    cached: list[int] = []
    for _ in range(2):
        own_host.load_starter(n_ctx=1024, n_parallel=1, disk_cache_bytes=100_000_000)
        answer = ask(own_host, "", messages=messages, max_tokens=4, temperature=0)
        cached.append(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])
        own_host.private.post("/admin/models/unload", json={"model": own_host.model}).raise_for_status()
        poll(lambda: True if not own_host.private.get("/admin/status").json()["models"] else None)
    assert cached[0] == 0
    assert cached[1] > 256
    assert list(own_host.data.states.glob("*/*.state"))
