"""The whole core without a window, against a pretended host in a process of its own."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from pytestqt.qtbot import QtBot

import app.host_process
from app.context import AppContext
from app.notices import Note
from app.store import Store
from runtime.messages.api import HostFile
from runtime.options import ApiOptions
from runtime.paths import DataFolder
from tests.app.conftest import WAIT_MS, Wait
from tests.fakes.answers import MODEL_ID, installed_model
from tests.fakes.fake_host import FakeHost

ROOT = Path(__file__).resolve().parents[2]
Make = Callable[..., AppContext]


def fake_command(folder: DataFolder) -> Sequence[str]:
    return (sys.executable, "-m", "tests.fakes.fake_host", "--data-dir", str(folder.root), "--with-parent")


def dying_command(folder: DataFolder) -> Sequence[str]:
    return (*fake_command(folder), "--crash-at-once")


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    one = DataFolder(tmp_path)
    one.ensure()
    return one


@pytest.fixture
def make(qtbot: QtBot, folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.chdir(ROOT)
    made: list[AppContext] = []

    def build(command: Callable[[DataFolder], Sequence[str]] = fake_command) -> AppContext:
        made.append(AppContext(folder, command=command))
        return made[-1]

    yield build
    for context in made:
        close(context, qtbot)


def close(context: AppContext, qtbot: QtBot) -> None:
    if not context.is_closed:
        with qtbot.waitSignal(context.closed, timeout=WAIT_MS):
            context.close()


def publish(folder: DataFolder, host: HostFile) -> None:
    folder.host_file.write_bytes(msgspec.json.encode(host))


def listen(context: AppContext) -> list[Note]:
    said = list(context.notices.take_waiting())
    context.notices.said.connect(said.append)
    return said


def test_when_started_then_a_question_is_answered_and_kept(make: Make, wait: Wait, qtbot: QtBot) -> None:
    context = make()
    session = context.session
    context.start()
    assert session.send("What is the capital of France?")
    assert [message.state for message in session.messages()] == ["done", "queued"]
    wait(lambda: not session.is_busy)
    question, answer = session.messages()
    assert answer.text == "You said: What is the capital of France?"
    assert answer.stats is not None
    assert answer.stats.n_tokens == 8
    assert session.title == "What is the capital of France?"
    wait(lambda: [row.title for row in context.conversations.rows] == ["What is the capital of France?"])
    conversation_id = session.conversation_id
    close(context, qtbot)

    again = make()
    again.start()
    wait(lambda: again.session.conversation_id == conversation_id and not again.session.is_loading)
    assert [message.text for message in again.session.messages()] == [question.text, answer.text]


def test_when_no_model_is_loaded_then_the_starter_or_the_last_one_is(
    make: Make, folder: DataFolder, fake_host: FakeHost, wait: Wait, qtbot: QtBot
) -> None:
    fake_host.models = []
    fake_host.installed = [
        installed_model("big"),
        installed_model(MODEL_ID),
        installed_model("bad", problem="Damaged."),
    ]
    publish(folder, fake_host.host_file)
    context = make()
    context.start()
    assert context.session.send("hello")  # before there is a host, let alone a model
    wait(lambda: not context.session.is_busy)
    assert context.session.messages()[1].text == "You said: hello"
    assert [load.model for load in fake_host.loads] == [MODEL_ID]
    context.load_model("big")
    wait(lambda: [(one.id, one.state) for one in context.link.loaded] == [("big", "ready")])
    close(context, qtbot)

    fake_host.models = []
    publish(folder, fake_host.host_file)
    again = make()
    again.start()
    wait(lambda: [load.model for load in fake_host.loads] == [MODEL_ID, "big", "big"])
    wait(lambda: [(one.id, one.state) for one in again.link.loaded] == [("big", "ready")])
    again.settings.update(last_model="bad")
    close(again, qtbot)

    fake_host.models = []
    third = make()
    third.start()
    wait(lambda: fake_host.loads[-1].model == MODEL_ID)


def test_when_there_is_no_model_at_all_then_a_waiting_question_says_so(
    make: Make, folder: DataFolder, fake_host: FakeHost, wait: Wait
) -> None:
    fake_host.models, fake_host.installed = [], []
    publish(folder, fake_host.host_file)
    context = make()
    context.start()
    assert context.session.send("hello")
    wait(lambda: not context.session.is_busy)
    error = context.session.messages()[1].error
    assert error is not None
    assert error.kind == "ModelNotFound"


def test_when_the_host_cannot_start_then_it_is_said_with_a_button_and_the_question_fails(
    make: Make, wait: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.host_process, "BACKOFF_MS", (1,))
    context = make(dying_command)
    said = listen(context)
    context.start()
    assert context.session.send("hello")
    wait(lambda: any(note.action_label == "Try again" for note in said))
    wait(lambda: not context.session.is_busy)
    error = context.session.messages()[1].error
    assert error is not None
    assert "times in a row" in error.message
    button = next(note for note in said if note.action_label)
    context.notices.activate(button.id)
    assert context.host.state == "starting"


def test_when_the_host_comes_back_then_its_notice_goes(
    make: Make, folder: DataFolder, fake_host: FakeHost, wait: Wait
) -> None:
    publish(folder, fake_host.host_file)
    context = make()
    said = listen(context)
    gone: list[int] = []
    context.notices.withdrawn.connect(gone.append)
    context.start()
    wait(lambda: context.link.is_connected)
    fake_host.close()
    wait(lambda: context.link.is_connected and context.host.state == "running" and not context.host.is_attached)
    assert len(said) == 1
    assert "started again" in said[0].text
    wait(lambda: gone == [said[0].id])


def test_when_a_request_fails_then_its_sentence_is_said(make: Make, wait: Wait) -> None:
    context = make()
    said = listen(context)
    context.start()
    wait(lambda: context.link.is_connected)
    context.load_model("nonsense")
    wait(lambda: len(said) == 1)
    assert "nonsense" in said[0].text


def test_when_the_api_is_to_stay_on_then_the_next_window_finds_its_host(make: Make, wait: Wait, qtbot: QtBot) -> None:
    context = make()
    context.start()
    wait(lambda: context.link.is_connected)
    context.link.set_api(ApiOptions(enabled=True, keep_when_window_closes=True))
    wait(lambda: context.link.api is not None and context.link.api.running)
    left_on = context.host.host
    close(context, qtbot)

    again = make()
    again.start()
    wait(lambda: again.link.is_connected)
    assert again.host.host == left_on
    assert not again.host.is_attached
    again.link.set_api(ApiOptions())
    wait(lambda: again.link.api is not None and not again.link.api.running)


def test_when_closed_before_it_was_started_then_it_closes(make: Make, qtbot: QtBot) -> None:
    close(make(), qtbot)


WINDOW = """
import sys
from pathlib import Path
from PySide6.QtCore import QCoreApplication
from app.context import AppContext
from runtime.paths import DataFolder
from tests.fakes.answers import Reply, words
from tests.fakes.fake_host import FakeHost
from tests.app.test_context import publish

app = QCoreApplication(sys.argv)
folder = DataFolder(Path(sys.argv[1]))
host = FakeHost()
host.replies.append(Reply(words("one two three"), hold_after=5))
host.start()
folder.ensure()
publish(folder, host.host_file)
context = AppContext(folder)
context.start()
context.session.send("hello")
app.exec()
"""


@pytest.mark.e2e
def test_when_the_window_is_killed_mid_answer_then_the_part_is_there_as_interrupted(
    make: Make, folder: DataFolder, wait: Wait
) -> None:
    window = subprocess.Popen([sys.executable, "-c", WINDOW, str(folder.root)], cwd=ROOT)

    def is_half_saved() -> bool:
        if not folder.conversations_file.exists():
            return False
        with Store(folder.conversations_file) as store:
            rows = store.list_conversations(limit=1).rows
            return bool(rows) and [one.content for one in store.messages(rows[0].id)] == ["hello", "one two"]

    try:
        wait(is_half_saved)
    finally:
        window.kill()
        window.wait()
    folder.host_file.unlink()
    context = make()
    context.start()
    wait(lambda: len(context.session.messages()) == 2)
    answer = context.session.messages()[1]
    assert (answer.text, answer.state, answer.can_continue) == ("one two", "interrupted", True)
    wait(lambda: context.link.is_connected)
    assert context.session.continue_answer(answer.id)
    wait(lambda: not context.session.is_busy)
    assert context.session.messages()[1].text == "one two and so on."
