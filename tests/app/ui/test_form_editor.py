"""Form of answers and reasoning in the inspector, and JSON in the transcript."""

from collections.abc import Callable

import msgspec
import pytest
from pytestqt.qtbot import QtBot

from app.answer_form import SCHEMA_EXAMPLES, Form
from app.context import AppContext
from app.ui.chat.form_editor import FormEditor, ReasoningEditor
from app.ui.chat.inspector import Inspector
from app.ui.transcript.code_item import CodeItem
from app.ui.window import MainWindow
from runtime.messages.api import ModelChanged
from tests.app.ui.conftest import WAIT_MS
from tests.fakes.answers import Reply, ready_model, words
from tests.fakes.fake_host import FakeHost

Ask = Callable[[MainWindow, str], None]


@pytest.fixture
def inspector(qtbot: QtBot, live_window: MainWindow, context: AppContext) -> Inspector:
    qtbot.waitUntil(lambda: not context.session.is_loading, timeout=WAIT_MS)
    live_window.resize(1280, 800)
    live_window.chat._show_inspector(True)
    found = live_window.chat._inspector
    assert isinstance(found, Inspector)
    return found


def choose(editor: FormEditor, form: Form) -> None:
    editor.choice.setCurrentIndex(editor.choice.findData(form))
    editor.choice.activated.emit(editor.choice.currentIndex())


def test_when_json_is_chosen_then_the_answer_is_asked_for_and_drawn_as_json(
    qtbot: QtBot, live_window: MainWindow, inspector: Inspector, context: AppContext, fake_host: FakeHost, ask: Ask
) -> None:
    choose(inspector.form, "json")
    assert context.session.setup.shape.json_schema == "{}"
    fake_host.replies.append(Reply(words('{"name": "Ada", "born": 1815}')))
    ask(live_window, "Who wrote the first program?")
    assert fake_host.chats[-1].shape.json_schema == "{}"
    turn = live_window.chat.transcript.turns[-1]
    (item,) = turn.items()
    assert isinstance(item, CodeItem)
    assert item.code == '{"name": "Ada", "born": 1815}'
    assert turn.parts is not None
    assert turn.parts.footer._stats.text().startswith("JSON")
    choose(inspector.form, "text")
    ask(live_window, "Thanks")
    assert not any(isinstance(item, CodeItem) for item in live_window.chat.transcript.turns[-1].items())
    # It is still JSON when the conversation is opened again.
    first = context.session.conversation_id
    live_window.chat.new_chat()
    qtbot.waitUntil(lambda: context.session.conversation_id != first and not context.session.is_loading)
    live_window.chat.open_conversation(first)
    qtbot.waitUntil(lambda: len(context.session.messages()) == 4, timeout=WAIT_MS)
    qtbot.waitUntil(lambda: live_window.chat.transcript.is_settled, timeout=WAIT_MS)
    assert isinstance(live_window.chat.transcript.turns[1].items()[0], CodeItem)


def test_when_a_schema_is_typed_then_it_counts_once_it_is_right(
    qtbot: QtBot, inspector: Inspector, context: AppContext
) -> None:
    editor, setup = inspector.form, context.session.setup
    choose(editor, "schema")
    qtbot.waitUntil(lambda: setup.shape.json_schema == SCHEMA_EXAMPLES[0][1], timeout=WAIT_MS)
    editor.field.setPlainText('{"type": "objct"')
    qtbot.waitUntil(lambda: "Line 1" in editor.verdict.text(), timeout=WAIT_MS)
    assert setup.shape.json_schema == SCHEMA_EXAMPLES[0][1]  # the last right one holds
    setup.set_system_prompt("Something else changes")
    assert editor.field.toPlainText() == '{"type": "objct"'  # and what was typed stays
    editor.field.setPlainText('{"type": "object"}')
    qtbot.waitUntil(lambda: setup.shape.json_schema == '{"type": "object"}', timeout=WAIT_MS)
    editor.use_example(SCHEMA_EXAMPLES[1][1])
    qtbot.waitUntil(lambda: setup.shape.json_schema == SCHEMA_EXAMPLES[1][1], timeout=WAIT_MS)
    editor.field.undo()
    assert editor.field.toPlainText() == '{"type": "object"}'


def test_when_a_grammar_is_chosen_then_it_takes_the_schemas_place_and_both_texts_stay(
    qtbot: QtBot, inspector: Inspector, context: AppContext
) -> None:
    editor, setup = inspector.form, context.session.setup
    choose(editor, "schema")
    qtbot.waitUntil(lambda: bool(setup.shape.json_schema), timeout=WAIT_MS)
    editor.field.setPlainText('{"type": "null"}')
    qtbot.waitUntil(lambda: setup.shape.json_schema == '{"type": "null"}', timeout=WAIT_MS)
    choose(editor, "grammar")
    qtbot.waitUntil(lambda: setup.options.sampling.grammar.startswith("root"), timeout=WAIT_MS)
    assert setup.shape.json_schema == ""
    choose(editor, "schema")
    qtbot.waitUntil(lambda: setup.shape.json_schema == '{"type": "null"}', timeout=WAIT_MS)
    assert setup.options.sampling.grammar == ""


def test_when_reasoning_is_set_then_requests_ask_for_it(
    qtbot: QtBot, live_window: MainWindow, inspector: Inspector, context: AppContext, fake_host: FakeHost, ask: Ask
) -> None:
    editor: ReasoningEditor = inspector.reasoning
    assert not editor.mode.isEnabled()  # this model does not think
    model = ready_model()
    assert model.facts is not None
    thinking = msgspec.structs.replace(model, facts=msgspec.structs.replace(model.facts, reasoning=True, n_ctx=8192))
    fake_host.emit(ModelChanged(thinking))
    qtbot.waitUntil(editor.mode.isEnabled, timeout=WAIT_MS)
    editor.mode.activated.emit(editor.mode.findData("on"))
    editor.effort.activated.emit(editor.effort.findData("low"))
    editor.unbounded.click()
    editor.budget.setValue(256)
    ask(live_window, "Think")
    shape = fake_host.chats[-1].shape
    assert (shape.reasoning, shape.reasoning_effort, shape.reasoning_budget) == ("on", "low", 256)
    editor.unbounded.click()
    assert context.session.setup.shape.reasoning_budget is None


def test_when_a_preset_is_made_then_it_keeps_the_form(
    qtbot: QtBot, inspector: Inspector, context: AppContext, live_window: MainWindow
) -> None:
    choose(inspector.form, "json")
    inspector._save_named("As JSON")
    assert context.session.setup.preset_id
    live_window.chat.new_chat()
    qtbot.waitUntil(lambda: not context.session.is_loading and context.session.setup.shape.json_schema == "")
    assert inspector.form.choice.currentData() == "text"
    context.session.setup.use_preset(context.presets.all[0].id)
    assert context.session.setup.shape.json_schema == "{}"
    assert inspector.form.choice.currentData() == "json"
