import re
import time
from collections.abc import Callable, Iterable, Mapping

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QGuiApplication, QKeySequence
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.transcript import AnswerStats, MessageView
from app.ui.appearance import Appearance
from app.ui.attachments.pictures import Pictures
from app.ui.transcript.code_item import MAX_LINE_CHARS, CodeItem
from app.ui.transcript.formulas import MAX_FORMULAS, Formulas
from app.ui.transcript.lexers import Lexers
from app.ui.transcript.math_item import MathItem
from app.ui.transcript.parts import stats_text
from app.ui.transcript.text_item import TextItem
from app.ui.transcript.view import TranscriptView
from runtime.errors import Failure
from tests.app.ui.conftest import WAIT_MS


class NoFiles:
    """Has no attachment."""

    def fetch(self, hashes: Iterable[str], done: Callable[[Mapping[str, bytes]], None]) -> None:
        del hashes
        done({})


@pytest.fixture
def view(qtbot: QtBot, appearance: Appearance) -> TranscriptView:
    one = TranscriptView(appearance, Formulas(None), Lexers(None), Pictures(NoFiles(), None))
    one.copied.connect(lambda text: QGuiApplication.clipboard().setText(text))
    qtbot.addWidget(one)
    one.resize(700, 500)
    one.show()
    return one


def answer(text: str, message_id: str = "a", **fields: object) -> MessageView:
    return MessageView(message_id, "assistant", text, **fields)  # type: ignore[arg-type]


def show(qtbot: QtBot, view: TranscriptView, *messages: MessageView) -> None:
    view.set_messages(messages)
    qtbot.waitUntil(lambda: view.is_settled, timeout=WAIT_MS)


def test_when_text_streams_in_pieces_then_the_same_is_drawn_as_of_the_whole(qtbot: QtBot, view: TranscriptView) -> None:
    text = (
        "# Head\n\nSome **bold** text.\n\n- a\n- b\n\n```python\nx = 1\n\ny = 2\n```\n\n"
        "| a | b |\n|---|---|\n| 1 | 2 |\n\nend"
    )
    show(qtbot, view, answer(text))
    whole = [item.text(0, item.length) for item in view.turns[0].items()]
    show(qtbot, view, answer("", "b", state="generating"))
    for at in range(0, len(text), 5):
        view.append_text("b", "", text[at : at + 5])
        view._flush()
    view.change_message(answer(text, "b"))
    qtbot.waitUntil(lambda: view.is_settled, timeout=WAIT_MS)
    assert [item.text(0, item.length) for item in view.turns[0].items()] == whole
    assert [type(item).__name__ for item in view.turns[0].items()] == [
        "TextItem",
        "TextItem",
        "TextItem",
        "TextItem",
        "CodeItem",
        "TableItem",
        "TextItem",
    ]


def test_when_many_pieces_come_at_once_then_they_are_drawn_in_one_batch(qtbot: QtBot, view: TranscriptView) -> None:
    show(qtbot, view, answer("", state="generating"))
    drawn: list[float] = []
    view._flush_timer.timeout.connect(lambda: drawn.append(time.monotonic()))
    for _ in range(500):
        view.append_text("a", "", "word ")
    qtbot.waitUntil(lambda: view.turns[0].items() != [] and not view._flush_timer.isActive(), timeout=WAIT_MS)
    assert len(drawn) == 1


def test_when_the_person_scrolled_up_then_new_text_does_not_move_the_view_and_a_pill_leads_back(
    qtbot: QtBot, view: TranscriptView
) -> None:
    show(qtbot, view, answer("line\n\n" * 80, state="generating"))
    bar = view.verticalScrollBar()
    assert view.is_following
    assert bar.value() == bar.maximum()
    bar.setValue(0)
    view.append_text("a", "", "more\n\n" * 30)
    qtbot.waitUntil(lambda: not view._flush_timer.isActive(), timeout=WAIT_MS)
    assert [bar.value(), view._jump.isVisible()] == [0, True]
    QTest.mouseClick(view._jump, Qt.MouseButton.LeftButton)
    assert bar.value() == bar.maximum()
    assert [view.is_following, view._jump.isVisible()] == [True, False]


def test_when_everything_is_selected_then_the_copy_has_all_blocks(qtbot: QtBot, view: TranscriptView) -> None:
    show(qtbot, view, MessageView("q", "user", "Question"), answer("First **part**.\n\n- one\n- two\n\n```\ncode\n```"))
    view.setFocus()
    QTest.keySequence(view, QKeySequence(QKeySequence.StandardKey.SelectAll))
    QTest.keySequence(view, QKeySequence(QKeySequence.StandardKey.Copy))
    assert QGuiApplication.clipboard().text() == "Question\n\nFirst part.\n\n• one\n• two\n\ncode"


def test_when_the_mouse_is_dragged_over_text_then_that_text_is_selected(qtbot: QtBot, view: TranscriptView) -> None:
    show(qtbot, view, answer("Alpha beta gamma\n\nDelta epsilon"))
    turn = view.turns[0]
    assert turn.content is not None
    top = round(turn.y - view.verticalScrollBar().value() + turn.content.top)
    left = round(turn.content.left)
    viewport = view.viewport()
    QTest.mousePress(viewport, Qt.MouseButton.LeftButton, pos=QPoint(left, top + 10))
    view._pointer._extend(QPointF(left + 600, top + turn.content.height - 8))
    QTest.mouseRelease(
        viewport, Qt.MouseButton.LeftButton, pos=QPoint(left + 600, top + round(turn.content.height) - 8)
    )
    assert view.selected_text() == "Alpha beta gamma\n\nDelta epsilon"


def test_when_a_word_is_double_clicked_then_it_is_selected(qtbot: QtBot, view: TranscriptView) -> None:
    show(qtbot, view, answer("Alpha beta gamma"))
    turn = view.turns[0]
    assert turn.content is not None
    point = QPoint(
        round(turn.content.left) + 4, round(turn.y - view.verticalScrollBar().value() + turn.content.top) + 12
    )
    QTest.mouseDClick(view.viewport(), Qt.MouseButton.LeftButton, pos=point)
    assert view.selected_text() == "Alpha"


def test_when_the_copy_button_of_code_is_clicked_then_the_code_is_on_the_clipboard(
    qtbot: QtBot, view: TranscriptView
) -> None:
    show(qtbot, view, answer("Here:\n\n```python\nprint(1)\nprint(2)\n```"))
    turn = view.turns[0]
    assert turn.content is not None
    item = turn.items()[1]
    assert isinstance(item, CodeItem)
    spot = item._copy_rect().center()
    offset = turn.y - view.verticalScrollBar().value() + turn.content.top + item.y
    QTest.mouseClick(
        view.viewport(),
        Qt.MouseButton.LeftButton,
        pos=QPoint(round(turn.content.left + spot.x()), round(offset + spot.y())),
    )
    assert QGuiApplication.clipboard().text() == "print(1)\nprint(2)"
    assert item.copied


def test_when_a_link_is_clicked_then_only_web_and_mail_addresses_are_opened(
    view: TranscriptView, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("app.ui.transcript.view.QDesktopServices.openUrl", lambda url: opened.append(url.toString()))
    for href in ("https://a.example/", "mailto:a@b.example", "file:///etc/passwd", "javascript:alert(1)", "/x"):
        view.open_link(href)
    assert opened == ["https://a.example/", "mailto:a@b.example"]


def test_when_code_is_highlighted_then_words_have_colours(qtbot: QtBot, view: TranscriptView) -> None:
    show(qtbot, view, answer("```python\ndef f():\n    return 'x'\n```"))
    (item,) = view.turns[0].items()
    assert isinstance(item, CodeItem)
    qtbot.waitUntil(lambda: bool(item._spans), timeout=WAIT_MS)
    assert (0, 3, "syntax_keyword") in item._spans[0]
    assert any(colour == "syntax_string" for _, _, colour in item._spans[1])


def test_when_a_language_is_unknown_then_the_code_is_plain(qtbot: QtBot, view: TranscriptView) -> None:
    show(qtbot, view, answer("```nosuchlanguage\nx = 1\n```"))
    (item,) = view.turns[0].items()
    assert isinstance(item, CodeItem)
    assert item._spans == {}
    assert item.text(0, item.length) == "x = 1"


def test_when_a_line_of_code_is_endless_then_it_is_shown_in_parts_and_copied_whole(
    qtbot: QtBot, view: TranscriptView
) -> None:
    line = "x" * (MAX_LINE_CHARS * 2 + 10)
    show(qtbot, view, answer(f"```\n{line}\nend\n```"))
    (item,) = view.turns[0].items()
    assert isinstance(item, CodeItem)
    assert len(item._lines) == 4
    assert item.text(0, item.length) == f"{line}\nend"


def test_when_a_formula_is_drawable_then_it_is_drawn_and_when_broken_its_source_is_shown(
    qtbot: QtBot, view: TranscriptView
) -> None:
    show(qtbot, view, answer("$$\n\\frac{a}{b}\n$$\n\n$$\n\\frac{a}{\n$$"))
    qtbot.waitUntil(lambda: all(not item.waits_for_formula for item in view.turns[0].items()), timeout=WAIT_MS)
    good, broken = view.turns[0].items()
    assert isinstance(good, MathItem)
    assert isinstance(broken, MathItem)
    assert good._drawn
    assert not broken._drawn
    assert broken.text(0, 1) == "$$\\frac{a}{$$"


def test_when_a_formula_stands_in_a_sentence_then_copying_gives_its_source(qtbot: QtBot, view: TranscriptView) -> None:
    show(qtbot, view, answer("So $a^2$ it is."))
    qtbot.waitUntil(lambda: all(not item.waits_for_formula for item in view.turns[0].items()), timeout=WAIT_MS)
    (item,) = view.turns[0].items()
    assert isinstance(item, TextItem)
    assert item.length == len("So \ufffc it is.")
    assert item.text(0, item.length) == "So $a^2$ it is."


def test_when_many_formulas_were_drawn_then_only_the_last_ones_are_kept(qtbot: QtBot, qapp: QApplication) -> None:
    del qapp
    formulas = Formulas(None)
    for number in range(MAX_FORMULAS + 20):
        formulas.get(f"x_{number}", 12, display=False)
    qtbot.waitUntil(lambda: not formulas._waiting, timeout=WAIT_MS * 2)
    assert len(formulas._done) == MAX_FORMULAS
    assert formulas.get(f"x_{MAX_FORMULAS + 19}", 12, display=False) is not None


def test_when_the_colours_change_then_everything_is_drawn_anew(
    qtbot: QtBot, view: TranscriptView, appearance: Appearance
) -> None:
    show(qtbot, view, answer("A [link](https://a.example)"))
    appearance.choose("light")
    qtbot.waitUntil(lambda: view.is_settled, timeout=WAIT_MS)
    light = view.viewport().grab().toImage().pixelColor(2, 2).name()
    appearance.choose("dark")
    qtbot.waitUntil(lambda: view.is_settled and bool(view.turns[0].items()), timeout=WAIT_MS)
    dark = view.viewport().grab().toImage().pixelColor(2, 2).name()
    appearance.choose("system")
    assert light != dark


def test_when_the_model_names_are_known_then_the_figures_show_the_name() -> None:
    stats = AnswerStats(n_tokens=1, generation_tps=12.34, time_to_first_token_s=0.5, reason="length", model="m-1")
    assert stats_text(stats, "Model One") == (
        "12.3 tok/s  ·  1 token  ·  500 ms to first token  ·  length limit reached  ·  Model One"
    )
    assert stats_text(None) == ""
    assert re.fullmatch(r"m-1", stats_text(AnswerStats(model="m-1")))


def test_when_the_context_is_exceeded_then_the_card_offers_a_new_chat(qtbot: QtBot, view: TranscriptView) -> None:
    failure = Failure("ContextExceeded", "The prompt is longer than the context.", "Start a new chat.")
    wanted: list[tuple[str, str]] = []
    view.action.connect(lambda message_id, action: wanted.append((message_id, action)))
    show(qtbot, view, answer("", state="failed", error=failure))
    parts = view.turns[0].parts
    assert parts is not None
    assert parts.error._button.text() == "New chat"
    QTest.mouseClick(parts.error._button, Qt.MouseButton.LeftButton)
    assert wanted == [("a", "new-chat")]


def test_when_the_prompt_is_read_then_its_progress_is_shown(qtbot: QtBot, view: TranscriptView) -> None:
    show(qtbot, view, answer("", state="reading", progress=0.45))
    parts = view.turns[0].parts
    assert parts is not None
    assert parts.status.isVisible()
    assert parts.status._label.text() == "Reading the conversation, 45 %"
    assert parts.status._bar.value() == 45
