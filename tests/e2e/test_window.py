"""The real window with a real host and the starter model in a real worker."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.context import AppContext
from app.transcript import MessageView
from app.ui.appearance import Appearance
from app.ui.window import MainWindow
from runtime.messages.api import LoadedModel
from runtime.options import GenerateOptions, SamplingOptions
from runtime.paths import DataFolder

pytestmark = pytest.mark.e2e

READY_MS = 60_000
ANSWER_MS = 60_000


class Desk:
    """A window, what it shows, and waiting for it."""

    def __init__(self, qtbot: QtBot, window: MainWindow, context: AppContext) -> None:
        self.qtbot, self.window, self.context = qtbot, window, context

    def wait(self, condition: Callable[[], object]) -> None:
        self.qtbot.waitUntil(lambda: bool(condition()), timeout=ANSWER_MS)

    @property
    def model(self) -> LoadedModel | None:
        return next((model for model in self.context.link.loaded if model.state == "ready"), None)

    @property
    def answer(self) -> MessageView:
        return self.context.session.messages()[-1]

    def type(self, text: str) -> None:
        field = self.window.chat.composer.field
        field.setFocus()
        QTest.keyClicks(field, text)
        QTest.keyClick(field, Qt.Key.Key_Return)


@pytest.fixture
def desk(qtbot: QtBot, qapp: QApplication, tmp_path: Path) -> Iterator[Desk]:
    context = AppContext(DataFolder(tmp_path))
    window = MainWindow(context, Appearance(qapp))
    window.first_paint.connect(context.start)
    window.show()
    one = Desk(qtbot, window, context)
    qtbot.waitUntil(lambda: one.model is not None, timeout=READY_MS)
    yield one
    window.close()
    context.close()
    qtbot.waitUntil(lambda: context.is_closed, timeout=READY_MS)
    window.deleteLater()


def test_when_a_question_is_typed_then_the_starter_model_answers_and_the_speed_is_on_the_status_bar(desk: Desk) -> None:
    assert desk.model is not None
    assert desk.window.status.model_text().startswith(desk.model.name)
    speeds: list[float] = []

    def read_speed() -> bool:
        found = re.match(r"([\d.]+) tok/s", desk.window.status.speed_text())
        if found:
            speeds.append(float(found.group(1)))
        return bool(desk.context.session.messages()) and not desk.context.session.is_busy

    desk.context.session.setup.set_options(GenerateOptions(max_tokens=96, sampling=SamplingOptions(temperature=0.0)))
    desk.type("Write a short story about a lighthouse and the sea, in five sentences.")
    assert not desk.window.chat.composer.text
    desk.wait(read_speed)
    assert desk.answer.state == "done"
    assert len(desk.answer.text) > 100
    assert desk.answer.stats is not None
    assert desk.answer.stats.generation_tps
    assert speeds
    assert 0 < max(speeds) < 100_000
    desk.wait(lambda: desk.window.chat.transcript.is_settled)
    assert desk.window.chat.transcript.turns[-1].items()
    assert desk.window.status._context_label.text().endswith(f"{desk.model.facts.n_ctx:,}" if desk.model.facts else "")


def test_when_the_worker_is_killed_while_it_answers_then_it_is_said_and_the_next_answer_works(desk: Desk) -> None:
    assert desk.model is not None
    pid = desk.model.pid
    assert pid is not None
    desk.context.session.setup.set_options(GenerateOptions(ignore_eos=True))
    desk.type("Count from one to one thousand in words.")
    desk.wait(lambda: desk.context.session.is_busy and len(desk.answer.text) > 20)
    os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))
    desk.wait(lambda: desk.answer.state == "failed")
    answer = desk.answer
    assert answer.error is not None
    assert answer.error.kind == "WorkerDied"
    assert len(answer.text) > 20
    turn = desk.window.chat.transcript.turns[-1]
    desk.wait(lambda: turn.parts is not None and turn.parts.error.isVisible())
    assert turn.parts is not None
    assert answer.error.message in turn.parts.error.accessibleName()
    desk.wait(lambda: desk.model is not None and desk.model.pid != pid)
    desk.context.session.setup.set_options(GenerateOptions(max_tokens=24))
    desk.type("Say hello.")
    desk.wait(lambda: desk.answer.id != answer.id and not desk.context.session.is_busy)
    assert desk.answer.state == "done"
    assert desk.answer.text.strip()


def test_when_the_host_is_killed_then_a_banner_says_so_and_the_chat_comes_back(desk: Desk) -> None:
    host = desk.context.host.host
    assert host is not None
    os.kill(host.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
    desk.wait(lambda: desk.window.banner.text)
    assert not desk.window.chat.picker.button.isEnabled() or desk.context.link.is_connected
    desk.wait(lambda: desk.context.link.is_connected and desk.model is not None)
    assert not desk.window.banner.text
    desk.context.session.setup.set_options(GenerateOptions(max_tokens=16))
    desk.type("Are you there?")
    desk.wait(lambda: desk.context.session.messages() and not desk.context.session.is_busy)
    assert desk.answer.state == "done"
