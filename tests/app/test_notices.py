"""Notices before and after a window listens."""

from pytestqt.qtbot import QtBot

from app.notices import MAX_KEPT, Note, Notices
from tests.app.conftest import WAIT_MS


def test_when_no_window_listens_then_notices_wait_within_a_bound(qtbot: QtBot) -> None:  # noqa: ARG001
    notices = Notices()
    gone = notices.say("info", "never mind")
    notices.withdraw(gone)
    for number in range(MAX_KEPT + 5):
        notices.say("info", str(number))
    waiting = notices.take_waiting()
    assert [note.text for note in waiting] == [str(number) for number in range(5, MAX_KEPT + 5)]
    assert notices.take_waiting() == ()


def test_when_a_window_listens_then_notices_come_at_once_and_can_be_withdrawn(qtbot: QtBot) -> None:
    notices = Notices()
    notices.take_waiting()
    with qtbot.waitSignal(notices.said, timeout=WAIT_MS) as heard:
        one = notices.say("warning", "careful")
    assert heard.args == [Note(one, "warning", "careful")]
    with qtbot.waitSignal(notices.withdrawn, timeout=WAIT_MS) as gone:
        notices.withdraw(one)
    assert gone.args == [one]


def test_when_its_button_is_pressed_then_the_action_runs_once(qtbot: QtBot) -> None:  # noqa: ARG001
    notices = Notices()
    pressed: list[str] = []
    one = notices.say("error", "broken", action_label="Try again", on_action=lambda: pressed.append("again"))
    assert notices.take_waiting()[0].action_label == "Try again"
    notices.activate(one)
    notices.activate(one)
    assert pressed == ["again"]
