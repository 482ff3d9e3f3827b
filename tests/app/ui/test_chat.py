from collections.abc import Callable

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton
from pytestqt.qtbot import QtBot

from app.context import AppContext
from app.ui.window import MainWindow
from tests.app.ui.conftest import WAIT_MS
from tests.fakes.answers import Reply, words, worker_dies
from tests.fakes.fake_host import FakeHost

Ask = Callable[[MainWindow, str], None]


def enter(window: MainWindow, text: str) -> None:
    field = window.chat.composer.field
    QTest.keyClicks(field, text)
    QTest.keyClick(field, Qt.Key.Key_Return)


def click(window: MainWindow, turn: int, name: str) -> None:
    """Press a button of a turn by its accessible name."""
    parts = window.chat.transcript.turns[turn].parts
    assert parts is not None
    for widget in parts.widgets():
        for button in widget.findChildren(QAbstractButton):
            if name in (button.accessibleName(), button.text()):
                assert button.isEnabled()
                button.click()
                return
    pytest.fail(f"no button {name!r}")


def shown(window: MainWindow, turn: int) -> str:
    """The text of a turn as drawn."""
    return "\n".join(item.text(0, item.length) for item in window.chat.transcript.turns[turn].items())


def test_when_enter_is_pressed_then_the_question_is_sent_and_the_answer_is_drawn(
    qtbot: QtBot, live_window: MainWindow, context: AppContext, fake_host: FakeHost
) -> None:
    fake_host.replies.append(Reply(words("It is **Paris**.")))
    qtbot.waitUntil(lambda: not context.session.is_loading, timeout=WAIT_MS)
    enter(live_window, "Capital of France?")
    qtbot.waitUntil(lambda: len(context.session.messages()) == 2 and not context.session.is_busy, timeout=WAIT_MS)
    qtbot.waitUntil(lambda: live_window.chat.transcript.is_settled, timeout=WAIT_MS)
    assert shown(live_window, 0) == "Capital of France?"
    assert shown(live_window, 1) == "It is Paris."
    assert live_window.chat.composer.text == ""
    parts = live_window.chat.transcript.turns[1].parts
    assert parts is not None
    stats = parts.footer._stats.text()
    assert "50.0 tok/s" in stats
    assert "end of answer" in stats
    assert "SmolLM2 135M Instruct" in stats


def test_when_shift_enter_is_pressed_then_a_line_is_broken_and_the_field_grows_to_eight_lines(
    live_window: MainWindow, context: AppContext
) -> None:
    field = live_window.chat.composer.field
    one = field.height()
    for _ in range(12):
        QTest.keyClicks(field, "x")
        QTest.keyClick(field, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    assert field.toPlainText().count("\n") == 12
    assert one * 6 < field.height() < one * 9
    assert not context.session.messages()


def test_when_the_field_is_empty_then_nothing_can_be_sent(live_window: MainWindow, context: AppContext) -> None:
    assert not live_window.chat.composer.button.isEnabled()
    enter(live_window, "  ")
    assert not context.session.messages()


def test_when_escape_is_pressed_then_the_answer_stops_and_what_came_stays(
    qtbot: QtBot, live_window: MainWindow, context: AppContext, fake_host: FakeHost
) -> None:
    fake_host.replies.append(Reply(words("one two three four five six seven"), hold_after=6))
    qtbot.waitUntil(lambda: not context.session.is_loading, timeout=WAIT_MS)
    enter(live_window, "Count")
    qtbot.waitUntil(lambda: context.session.is_busy and bool(context.session.messages()[-1].text), timeout=WAIT_MS)
    assert live_window.chat.composer.button.accessibleName() == "Stop"
    QTest.keyClick(live_window.chat.composer.field, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: not context.session.is_busy, timeout=WAIT_MS)
    last = context.session.messages()[-1]
    assert last.state == "stopped"
    assert last.text.startswith("one two")
    assert live_window.chat.composer.button.accessibleName() == "Send"


def test_when_up_is_pressed_in_the_empty_field_then_the_last_question_is_edited_into_a_branch(
    qtbot: QtBot, live_window: MainWindow, context: AppContext, ask: Ask
) -> None:
    ask(live_window, "First wording")
    field = live_window.chat.composer.field
    QTest.keyClick(field, Qt.Key.Key_Up)
    assert field.toPlainText() == "First wording"
    QTest.keyClicks(field, " changed")
    QTest.keyClick(field, Qt.Key.Key_Return)
    qtbot.waitUntil(
        lambda: context.session.messages()[0].text == "First wording changed" and not context.session.is_busy,
        timeout=WAIT_MS,
    )
    assert context.session.messages()[0].branch_count == 2
    qtbot.waitUntil(lambda: live_window.chat.transcript.is_settled, timeout=WAIT_MS)
    click(live_window, 0, "Previous version")
    qtbot.waitUntil(lambda: context.session.messages()[0].text == "First wording", timeout=WAIT_MS)


def test_when_editing_is_left_with_escape_then_the_draft_comes_back(
    live_window: MainWindow, ask: Ask, context: AppContext
) -> None:
    ask(live_window, "A question")
    context.session.draft.set_text("half a thought")
    live_window.chat.edit_last()
    assert live_window.chat.composer.text == "A question"
    QTest.keyClick(live_window.chat.composer.field, Qt.Key.Key_Escape)
    assert live_window.chat._editing_id == ""


def test_when_an_answer_is_made_again_then_both_versions_can_be_seen(
    qtbot: QtBot, live_window: MainWindow, context: AppContext, fake_host: FakeHost, ask: Ask
) -> None:
    fake_host.replies.append(Reply(words("first")))
    fake_host.replies.append(Reply(words("second")))
    ask(live_window, "Say something")
    click(live_window, 1, "Answer again")
    qtbot.waitUntil(
        lambda: context.session.messages()[1].text == "second" and not context.session.is_busy, timeout=WAIT_MS
    )
    qtbot.waitUntil(lambda: live_window.chat.transcript.is_settled, timeout=WAIT_MS)
    parts = live_window.chat.transcript.turns[1].parts
    assert parts is not None
    assert parts.footer._branch.text() == "2/2"
    click(live_window, 1, "Previous version")
    qtbot.waitUntil(lambda: context.session.messages()[1].text == "first", timeout=WAIT_MS)


def test_when_the_worker_dies_then_the_card_says_why_and_its_button_tries_again(
    qtbot: QtBot, live_window: MainWindow, context: AppContext, fake_host: FakeHost, ask: Ask
) -> None:
    fake_host.replies.append(worker_dies("Half an ans"))
    fake_host.replies.append(Reply(words("A whole answer")))
    ask(live_window, "Tell me")
    parts = live_window.chat.transcript.turns[1].parts
    assert parts is not None
    assert parts.error.isVisible()
    assert parts.error._what.text() == "The process that ran the model ended (signal 9)."
    assert shown(live_window, 1) == "Half an ans"
    click_error = parts.error._button
    assert click_error.text() == "Try again"
    QTest.mouseClick(click_error, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: context.session.messages()[1].text == "A whole answer", timeout=WAIT_MS)


def test_when_an_answer_has_reasoning_then_it_is_folded_with_its_duration(
    qtbot: QtBot, live_window: MainWindow, fake_host: FakeHost, ask: Ask
) -> None:
    fake_host.replies.append(Reply(words("Done.", reasoning="Let me think.")))
    ask(live_window, "Think")
    turn = live_window.chat.transcript.turns[1]
    assert turn.parts is not None
    assert turn.parts.fold.text().startswith("Thought for")
    assert "Let me think." not in shown(live_window, 1)
    QTest.mouseClick(turn.parts.fold, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: "Let me think." in shown(live_window, 1), timeout=WAIT_MS)


def test_when_a_message_is_deleted_then_a_toast_brings_it_back(
    qtbot: QtBot, live_window: MainWindow, context: AppContext, ask: Ask
) -> None:
    ask(live_window, "Keep me")
    click(live_window, 1, "Delete from here on")
    qtbot.waitUntil(lambda: len(context.session.messages()) == 1, timeout=WAIT_MS)
    undo = next(each for each in live_window.findChildren(QAbstractButton) if each.text() == "Undo")
    QTest.mouseClick(undo, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: len(context.session.messages()) == 2, timeout=WAIT_MS)


def test_when_a_conversation_is_deleted_then_a_toast_brings_it_back(
    qtbot: QtBot, live_window: MainWindow, context: AppContext, ask: Ask
) -> None:
    ask(live_window, "A chat to delete")
    qtbot.waitUntil(lambda: len(context.conversations.rows) == 1, timeout=WAIT_MS)
    context.conversations.delete(context.conversations.rows[0].id)
    qtbot.waitUntil(lambda: bool(live_window.toasts.texts), timeout=WAIT_MS)
    undo = next(each for each in live_window.findChildren(QAbstractButton) if each.text() == "Undo")
    QTest.mouseClick(undo, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: len(context.conversations.rows) == 1, timeout=WAIT_MS)


def test_when_copy_is_pressed_then_the_markdown_is_on_the_clipboard(
    live_window: MainWindow, fake_host: FakeHost, ask: Ask
) -> None:
    fake_host.replies.append(Reply(words("It is **bold**.")))
    ask(live_window, "Style?")
    click(live_window, 1, "Copy")
    assert QGuiApplication.clipboard().text() == "It is **bold**."


def test_when_a_suggestion_is_clicked_then_it_is_asked(
    qtbot: QtBot, live_window: MainWindow, context: AppContext
) -> None:
    qtbot.waitUntil(lambda: not context.session.is_loading, timeout=WAIT_MS)
    button = live_window.chat.empty.findChildren(QAbstractButton)[0]
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: len(context.session.messages()) == 2, timeout=WAIT_MS)
    assert context.session.messages()[0].text in button.accessibleName()
    qtbot.waitUntil(lambda: not context.session.is_busy, timeout=WAIT_MS)


def test_when_text_is_typed_then_its_tokens_are_counted_against_the_context(
    qtbot: QtBot, live_window: MainWindow, context: AppContext
) -> None:
    qtbot.waitUntil(lambda: not context.session.is_loading, timeout=WAIT_MS)
    QTest.keyClicks(live_window.chat.composer.field, "three words here")
    qtbot.waitUntil(lambda: live_window.chat.composer._count.text().endswith("/ 4,096 tokens"), timeout=WAIT_MS)


def test_when_a_model_loads_then_the_picker_and_the_status_bar_show_percent(
    qtbot: QtBot, live_window: MainWindow, context: AppContext, fake_host: FakeHost
) -> None:
    fake_host.hold_load = True
    context.load_model(fake_host.installed[0].id)
    qtbot.waitUntil(lambda: "75 %" in live_window.chat.picker.button.text(), timeout=WAIT_MS)
    assert "75 %" in live_window.status.model_text()
    assert live_window.chat.picker._bar.value() == 75
    fake_host.release()
    qtbot.waitUntil(lambda: live_window.status.model_text().endswith("Q4_1"), timeout=WAIT_MS)


def test_when_no_host_answers_then_the_chat_says_so_and_keeps_what_is_written(
    window: MainWindow, context: AppContext
) -> None:
    enter(window, "Are you there?")
    assert window.chat.composer.text == "Are you there?"
    assert not window.chat.composer.button.isEnabled()
    assert window.chat.composer._hint.text() == "The engine is not running"
    assert not context.session.messages()
