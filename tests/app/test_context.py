"""The whole core without a window, against a pretended host in a process of its own."""

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.context import AppContext
from runtime.paths import DataFolder
from tests.app.conftest import WAIT_MS, Wait

ROOT = Path(__file__).resolve().parents[2]


def fake_command(folder: DataFolder) -> Sequence[str]:
    return (sys.executable, "-m", "tests.fakes.fake_host", "--data-dir", str(folder.root), "--with-parent")


@pytest.fixture
def make_context(qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], AppContext]]:
    monkeypatch.chdir(ROOT)
    made: list[AppContext] = []

    def make() -> AppContext:
        made.append(AppContext(DataFolder(tmp_path), command=fake_command))
        return made[-1]

    yield make
    for context in made:
        if not context.is_closed:
            with qtbot.waitSignal(context.closed, timeout=WAIT_MS):
                context.close()


def test_when_started_then_a_question_is_answered_and_kept(
    make_context: Callable[[], AppContext], wait: Wait, qtbot: QtBot
) -> None:
    context = make_context()
    session = context.session
    context.start()
    assert session.send("What is the capital of France?")
    assert [message.state for message in session.messages()] == ["done", "queued"]
    wait(lambda: not session.is_busy)
    question, answer = session.messages()
    assert answer.text == "You said: What is the capital of France?"
    assert answer.state == "done"
    assert answer.stats is not None
    assert answer.stats.n_tokens == 8
    assert session.title == "What is the capital of France?"
    wait(lambda: [row.title for row in context.conversations.rows] == ["What is the capital of France?"])
    conversation_id = session.conversation_id
    with qtbot.waitSignal(context.closed, timeout=WAIT_MS):
        context.close()

    again = make_context()
    again.start()
    wait(lambda: again.session.conversation_id == conversation_id and not again.session.is_loading)
    assert [message.text for message in again.session.messages()] == [question.text, answer.text]
