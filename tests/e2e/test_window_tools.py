"""The real window, a real host, a real tool server: the starter model is made to call a tool, and goes on."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.context import AppContext
from app.store.records import ToolSetup
from app.tools_link import ToolsLink
from app.ui.appearance import Appearance
from app.ui.window import MainWindow
from runtime.options import GenerateOptions, SamplingOptions
from runtime.paths import DataFolder
from tests.fakes.tool_programs import stdio_config

pytestmark = pytest.mark.e2e

PATIENCE_MS = 120_000


@pytest.fixture
def window(qtbot: QtBot, qapp: QApplication, tmp_path: Path) -> Iterator[MainWindow]:
    context = AppContext(DataFolder(tmp_path))
    one = MainWindow(context, Appearance(qapp))
    one.first_paint.connect(context.start)
    one.show()
    qtbot.waitUntil(lambda: any(model.state == "ready" for model in context.link.loaded), timeout=PATIENCE_MS)
    yield one
    one.close()
    context.close()
    qtbot.waitUntil(lambda: context.is_closed, timeout=PATIENCE_MS)
    one.deleteLater()


def test_when_the_model_must_call_a_tool_then_the_person_is_asked_the_tool_runs_and_the_answer_goes_on(
    qtbot: QtBot, window: MainWindow
) -> None:
    context = window.chat._context
    session = context.session
    ToolsLink(context.link, window).add(stdio_config("every"))
    qtbot.waitUntil(lambda: bool(context.tools.servers and context.tools.servers[0].tools), timeout=PATIENCE_MS)
    others = tuple(("every", tool.name) for tool in context.tools.servers[0].tools if tool.name != "add")
    session.tools.set_setup(ToolSetup(servers=("every",), off=others, must_call=True))
    session.setup.set_options(GenerateOptions(max_tokens=200, sampling=SamplingOptions(temperature=0.0)))
    window.chat.send("What is 17 plus 25?")
    qtbot.waitUntil(lambda: len(session.messages()) == 3 or not session.is_busy, timeout=PATIENCE_MS)
    assert [one.role for one in session.messages()] == ["user", "assistant", "tool"], session.messages()
    card_of = session.messages()[2]
    assert card_of.state == "queued"
    assert card_of.call is not None
    assert card_of.call.name == "every__add"
    turn = next(turn for turn in window.chat.transcript.turns if turn.view.id == card_of.id)
    qtbot.waitUntil(lambda: turn.parts is not None and turn.parts.tool is not None, timeout=PATIENCE_MS)
    assert turn.parts is not None
    assert turn.parts.tool is not None
    turn.parts.tool.allow_once.click()
    qtbot.waitUntil(lambda: len(session.messages()) == 4 and not session.is_busy, timeout=PATIENCE_MS)
    asked, called, ran, answer = session.messages()
    assert (asked.role, called.role, ran.role, answer.role) == ("user", "assistant", "tool", "assistant")
    assert called.stats is not None
    assert called.stats.reason == "tool_calls"
    assert (ran.state, ran.is_error) == ("done", False)
    assert ran.duration_s is not None
    assert answer.state in {"done", "stopped"}
    assert answer.text.strip() or answer.tool_calls
