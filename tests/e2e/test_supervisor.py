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
