"""What other programs read of an error of this machine, in every dialect, whole and streamed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.errors import (
    ENGINE_QUOTE,
    WORKER_LOG,
    BadRequest,
    BugFault,
    GenerationFailed,
    ModelLoadFailed,
    RuntimeFault,
    StorageFault,
    WorkerDied,
)
from runtime.host.api.public_errors import sentences_for_programs, without_folders
from runtime.host.config import HostConfig
from runtime.host.model_slot import RestartPolicy
from runtime.paths import DataFolder
from tests.fakes.host_parts import FAKE_WORKER
from tests.host.conftest import MakeHost, RunningHost

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "exit"}]}
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"prompt": "exit"},
    "/v1/responses": {"input": "exit"},
    "/v1/messages": {**CHAT, "max_tokens": 100},
    "/api/chat": CHAT,
    "/api/generate": {"prompt": "exit"},
    "/completion": {"prompt": "exit"},
}


@pytest.fixture(scope="module")
def patient_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHost]:
    """One whose worker may die as often as it likes."""
    data = DataFolder(tmp_path_factory.mktemp("patient") / "data")
    config = HostConfig(data, api_enabled=True, api_port=0, model="fake", worker_command=FAKE_WORKER)
    running = RunningHost(data, config, RestartPolicy(most=100, backoff_s=(0.01,)))
    running.until(lambda: running.private.get("/health").json()["status"] == "ok")
    yield running
    running.close()


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("route", ROUTES)
def test_when_a_worker_dies_then_programs_are_told_what_happened_without_its_log(
    patient_host: RunningHost, route: str, is_streamed: bool
) -> None:
    answer = patient_host.public.post(route, json={"model": "fake", **ROUTES[route], "stream": is_streamed})
    assert is_streamed or answer.status_code == 503
    assert "exited with code 3" in answer.text
    assert "send the request again" in answer.text
    assert "logs/worker.log" in answer.text
    assert "last words of the fake" not in answer.text
    assert "somebody" not in answer.text


@pytest.mark.parametrize("route", ROUTES)
def test_when_a_worker_dies_while_loading_then_programs_are_told_without_its_log(
    patient_host: RunningHost, route: str
) -> None:
    answer = patient_host.public.post(route, json={**ROUTES[route], "model": "crash-loading", "stream": False})
    assert answer.status_code == 503
    assert "The process of crash-loading ended while it was being loaded." in answer.text
    assert "GGML_ASSERT" not in answer.text
    assert str(patient_host.data.root) not in answer.text


def test_when_a_worker_dies_then_the_window_is_given_its_last_lines(make_host: MakeHost) -> None:
    host = make_host()
    answer = host.private.post("/admin/chat", json={"model": "fake", "messages": [{"role": "user", "content": "exit"}]})
    assert "last words of the fake" in answer.text


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (
            ModelLoadFailed(f"It was not loaded.{ENGINE_QUOTE}cannot open '/home/anna/a.gguf'", hint="Try another."),
            f"It was not loaded. Try another. {WORKER_LOG}",
        ),
        (GenerationFailed(f"It failed.{ENGINE_QUOTE}nothing"), f"It failed. {WORKER_LOG}"),
        (WorkerDied("It ended.", hint="Again.", last_lines="/home/anna/x: secret"), "It ended. Again."),
        (StorageFault("b.gguf is in /home/anna/models/org already."), "b.gguf is in org already."),
        (StorageFault("/anna b/x y/c.gguf is damaged.", path="/anna b/x y/c.gguf"), "c.gguf is damaged."),
        (BugFault("[Errno 2] No such file: '/tmp/a b/c d.json'"), "[Errno 2] No such file: 'c d.json'"),
        (BugFault(r"It went wrong: C:\Users\anna\d.txt is gone"), "It went wrong: d.txt is gone"),
        (BadRequest("`/v1/x/y` is wrong.", hint="See /v1/models."), "`/v1/x/y` is wrong. See /v1/models."),
    ],
)
def test_when_a_fault_names_folders_or_quotes_the_engine_then_programs_get_neither(
    fault: RuntimeFault, told: str
) -> None:
    assert sentences_for_programs(fault) == told


@pytest.mark.parametrize(
    "text",
    ["https://example.org/org/model is gone", "org/model/file has 3/4 parts", "3 of 9 and/or 1,024/2,048 tokens"],
)
def test_when_a_text_has_slashes_but_no_folder_then_it_stays(text: str) -> None:
    assert without_folders(text) == text


def test_when_a_text_names_the_home_folder_then_it_is_not_told() -> None:
    assert str(Path.home()) not in without_folders(f"{Path.home()} is full, and {Path.home() / 'x' / 'y.gguf'}")
