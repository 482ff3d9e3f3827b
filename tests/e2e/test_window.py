"""The real window with a real host and the starter model in a real worker."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication, QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.context import AppContext
from app.transcript import MessageView
from app.ui.appearance import Appearance
from app.ui.server.page import ServerPage
from app.ui.transcript.code_item import CodeItem
from app.ui.window import MainWindow
from runtime.messages.api import LoadedModel
from runtime.messages.shared import AnswerShape
from runtime.options import GenerateOptions, KeyLimits, SamplingOptions
from runtime.paths import DataFolder
from tests.fakes.tiny_vision import write_seeing_model

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


def test_when_answers_must_fit_a_schema_then_the_starter_model_writes_json_about_an_attached_file(
    desk: Desk, tmp_path: Path
) -> None:
    session = desk.context.session
    colour, number = '{"enum": ["red", "green"]}', '{"type": "integer", "maximum": 9}'
    properties = f'{{"colour": {colour}, "n": {number}}}'
    schema = f'{{"type": "object", "properties": {properties}, "required": ["colour", "n"]}}'
    session.setup.set_shape(AnswerShape(json_schema=schema))
    session.setup.set_options(GenerateOptions(max_tokens=64, sampling=SamplingOptions(temperature=0.0)))
    notes = tmp_path / "notes.md"
    notes.write_text("The door is red. There are 4 windows.", encoding="utf-8")
    desk.window.chat._intake.take_paths([notes], session.conversation_id)
    desk.wait(lambda: session.draft.files)
    desk.type("Which colour, and how many windows?")
    desk.wait(lambda: session.messages() and not session.is_busy)
    assert desk.answer.state == "done"
    assert msgspec.json.decode(desk.answer.text)["colour"] in ("red", "green")
    assert desk.answer.stats is not None
    assert desk.answer.stats.form == "schema"
    assert (desk.answer.stats.prompt_tokens or 0) > 20  # the file was read
    desk.wait(lambda: desk.window.chat.transcript.is_settled)
    assert isinstance(desk.window.chat.transcript.turns[-1].items()[0], CodeItem)
    # A picture is refused before it is sent: this model has no eyes.
    image = QImage(64, 48, QImage.Format.Format_RGB32)
    image.fill(0)
    image.save(str(tmp_path / "black.png"))
    desk.window.chat._intake.take_paths([tmp_path / "black.png"], session.conversation_id)
    desk.wait(lambda: desk.window.chat.composer.tray.obstacle)
    # The server page shows what was asked, and a key that is made there.
    desk.window.show_page("server")
    page = desk.window.page_widget("server")
    assert isinstance(page, ServerPage)
    desk.wait(lambda: page.requests.model.rowCount() == 1)
    assert page.requests.model.requests[0].client == "window"
    page.show_tab("keys")
    page.keys.make_key("Editor", KeyLimits(max_concurrent=2))
    desk.wait(lambda: page.keys.key and desk.context.link.api is not None and desk.context.link.api.keys)
    page.show_tab("settings")
    page.options.changed.emit({"port": 0})
    page.switch.switched.emit(True)
    desk.wait(lambda: desk.context.link.api is not None and desk.context.link.api.running)
    assert "openai" in (desk.context.link.api.dialects if desk.context.link.api else ())


def test_when_a_model_with_eyes_is_loaded_then_a_pasted_picture_is_answered(desk: Desk) -> None:
    write_seeing_model(desk.context.folder.models / "tiny", "llava")
    desk.wait(lambda: any(model.is_vision for model in desk.context.link.installed))
    seeing = next(model for model in desk.context.link.installed if model.is_vision)
    desk.context.load_model(seeing.id)
    desk.wait(lambda: desk.model is not None and desk.model.id == seeing.id)
    assert desk.model is not None
    assert desk.model.facts is not None
    assert desk.model.facts.can_see
    image = QImage(300, 200, QImage.Format.Format_RGB32)
    image.fill(0xFF3344)
    QGuiApplication.clipboard().setImage(image)
    desk.window.chat.composer.field.paste()
    desk.wait(lambda: desk.context.session.draft.files)
    assert not desk.window.chat.composer.tray.obstacle
    desk.context.session.setup.set_options(GenerateOptions(max_tokens=8))
    desk.type("What is it?")
    desk.wait(lambda: desk.context.session.messages() and not desk.context.session.is_busy)
    assert desk.answer.state == "done", desk.answer.error
    stats = desk.answer.stats
    assert stats is not None
    assert (stats.prompt_tokens or 0) > 16  # the picture takes rows of its own
    parts = desk.window.chat.transcript.turns[0].parts
    assert parts is not None
    assert len(parts.files) == 1
