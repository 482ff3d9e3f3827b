"""The core against the real host, a real worker and the starter model."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from pytestqt.qtbot import QtBot

from app.context import AppContext
from runtime.errors import HostUnreachable, WorkerDied
from runtime.options import ApiOptions, GenerateOptions, SamplingOptions
from runtime.paths import DataFolder

pytestmark = pytest.mark.e2e

START_MS = 60_000
"""A cold start of host and worker on a busy machine."""


@pytest.fixture
def context(qtbot: QtBot, tmp_path: Path) -> Iterator[AppContext]:
    one = AppContext(DataFolder(tmp_path))
    one.start()
    yield one
    if not one.is_closed:
        with qtbot.waitSignal(one.closed, timeout=START_MS):
            one.close()


def until(qtbot: QtBot, condition: Callable[[], bool]) -> None:
    qtbot.waitUntil(condition, timeout=START_MS)


def long_answer(n_tokens: int) -> GenerateOptions:
    return GenerateOptions(max_tokens=n_tokens, ignore_eos=True, sampling=SamplingOptions(temperature=0, seed=1))


def test_when_asked_then_a_real_model_answers_and_nothing_runs_on_after_closing(
    context: AppContext, qtbot: QtBot
) -> None:
    session = context.session
    session.setup.set_options(long_answer(24))
    assert session.send("What is the capital of France?")  # at once: it waits for host and model
    until(qtbot, lambda: not session.is_busy)
    answer = session.messages()[1]
    assert answer.state == "done", answer.error
    assert answer.text
    assert answer.stats is not None
    assert (answer.stats.n_tokens, answer.stats.reason) == (24, "length")
    assert answer.stats.generation_tps is not None
    assert answer.stats.generation_tps > 0
    assert session.continue_answer(answer.id)
    until(qtbot, lambda: not session.is_busy)
    longer = session.messages()[1]
    assert longer.text.startswith(answer.text)
    assert longer.stats is not None
    assert longer.stats.n_tokens == 48
    session.draft.set_text("And of Spain?")
    with qtbot.waitSignal(session.draft_counted, timeout=START_MS) as counted:
        pass
    assert counted.args[0] > longer.stats.n_tokens
    assert context.host.host is not None
    host = psutil.Process(context.host.host.pid)
    workers = host.children(recursive=True)
    assert workers
    with qtbot.waitSignal(context.closed, timeout=START_MS):
        context.close()
    _, alive = psutil.wait_procs([host, *workers], timeout=10)
    assert alive == []


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_when_worker_and_host_are_killed_mid_answer_then_the_text_stays_and_the_next_question_is_answered(
    context: AppContext, qtbot: QtBot
) -> None:
    session, link = context.session, context.link
    session.setup.set_options(long_answer(4000))
    assert session.send("Count to one thousand.")
    until(qtbot, lambda: len(session.messages()[1].text) > 40)
    worker_pid = link.loaded[0].pid
    assert worker_pid is not None
    os.kill(worker_pid, signal.SIGKILL)
    until(qtbot, lambda: not session.is_busy)
    cut = session.messages()[1]
    assert (cut.state, len(cut.text) > 40) == ("failed", True)
    assert cut.error is not None
    assert cut.error.kind == WorkerDied.__name__

    # The supervisor brings the model back; the retry waits for it by itself.
    assert session.regenerate(cut.id)
    until(qtbot, lambda: len(session.messages()[1].text) > 40)
    assert session.messages()[1].branch_count == 2
    assert context.host.host is not None
    old_pid = context.host.host.pid
    with qtbot.waitSignal(context.host.died, timeout=START_MS) as died:
        os.kill(old_pid, signal.SIGKILL)
    assert "started again" in died.args[0]
    until(qtbot, lambda: not session.is_busy)
    cut = session.messages()[1]
    assert (cut.state, len(cut.text) > 40) == ("failed", True)
    assert cut.error is not None
    assert cut.error.kind == HostUnreachable.__name__

    session.setup.set_options(long_answer(8))
    assert session.send("Are you back?")
    until(qtbot, lambda: not session.is_busy)
    answer = session.messages()[-1]
    assert answer.state == "done", answer.error
    assert context.host.host is not None
    assert context.host.host.pid != old_pid
    assert not psutil.pid_exists(worker_pid)


def test_when_the_api_is_kept_on_then_it_answers_without_a_window_until_the_next_one_ends_it(
    context: AppContext, qtbot: QtBot
) -> None:
    until(qtbot, lambda: context.link.is_connected)
    context.link.set_api(ApiOptions(enabled=True, port=0, keep_when_window_closes=True))
    until(qtbot, lambda: context.link.api is not None and context.link.api.running)
    assert context.link.api is not None
    address = context.link.api.addresses[0]
    assert context.host.host is not None
    host = psutil.Process(context.host.host.pid)
    with qtbot.waitSignal(context.closed, timeout=START_MS):
        context.close()
    answer = httpx.get(f"{address.removesuffix('/v1')}/v1/models", timeout=20, trust_env=False)
    assert answer.status_code == 200
    again = AppContext(context.folder)
    again.start()
    until(qtbot, lambda: again.link.is_connected)
    assert again.host.host is not None
    assert again.host.host.pid == host.pid
    again.link.set_api(ApiOptions())
    until(qtbot, lambda: again.link.api is not None and not again.link.api.running)
    with qtbot.waitSignal(again.closed, timeout=START_MS):
        again.close()
    _, alive = psutil.wait_procs([host], timeout=10)
    assert alive == []
