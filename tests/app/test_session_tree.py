"""Branches of one conversation, and several conversations at once, against a pretended host."""

from pytestqt.qtbot import QtBot

from app.answering import MAX_RUNNING
from runtime.messages.shared import Message
from tests.app.conftest import WAIT_MS, Ask, Desk, Wait
from tests.fakes.answers import Reply, words
from tests.fakes.fake_host import FakeHost

# --- branches


def test_when_regenerated_then_a_second_branch_shows_and_the_first_stays(
    desk: Desk, fake_host: FakeHost, ask: Ask, wait: Wait
) -> None:
    fake_host.replies += [Reply(words("first")), Reply(words("second"))]
    first = ask("hello")
    desk.told.clear()
    assert desk.session.regenerate(first.id)
    wait(lambda: not desk.session.is_busy)
    second = desk.shown[1]
    assert (second.text, second.branch_index, second.branch_count) == ("second", 1, 2)
    assert desk.told[:2] == [("removed", (first.id,)), ("added", second.id)]
    desk.session.select_branch(second.id, 0)
    assert desk.texts == ["hello", "first"]
    assert fake_host.chats[1].messages == (Message("user", "hello"),)


def test_when_a_question_is_edited_then_its_old_branch_stays(desk: Desk, ask: Ask, wait: Wait) -> None:
    ask("one")
    ask("two")
    first = desk.shown[0]
    assert desk.session.edit_and_resend(first.id, "ONE")
    wait(lambda: not desk.session.is_busy)
    assert desk.texts == ["ONE", "You said: ONE"]
    assert desk.shown[0].branch_count == 2
    desk.session.select_branch(desk.shown[0].id, 0)
    assert desk.texts == ["one", "You said: one", "two", "You said: two"]
    desk.session.select_branch(desk.shown[0].id, 5)
    assert desk.texts[0] == "one"


def test_when_branches_are_switched_mid_answer_then_the_answer_goes_on_unseen(
    desk: Desk, fake_host: FakeHost, ask: Ask, wait: Wait
) -> None:
    fake_host.replies += [Reply(words("first")), Reply(words("second try"), hold_after=4)]
    first = ask("hello")
    assert desk.session.regenerate(first.id)
    wait(lambda: desk.texts[-1] == "second")
    desk.session.select_branch(desk.shown[1].id, 0)
    desk.told.clear()
    fake_host.release()
    wait(lambda: not desk.session.is_busy)
    assert "text" not in desk.names()
    desk.session.select_branch(first.id, 1)
    assert desk.texts == ["hello", "second try"]


def test_when_continued_then_the_same_answer_grows(desk: Desk, fake_host: FakeHost, ask: Ask, wait: Wait) -> None:
    fake_host.replies += [Reply(words("Once upon")), Reply(words(" a time"))]
    first = ask("Tell me a story")
    assert desk.session.continue_answer(first.id)
    wait(lambda: not desk.session.is_busy)
    answer = desk.shown[1]
    assert (answer.id, answer.text, answer.branch_count) == (first.id, "Once upon a time", 1)
    assert answer.stats is not None
    assert answer.stats.n_tokens == 4
    assert fake_host.chats[1].continue_last
    assert fake_host.chats[1].messages[-1] == Message("assistant", "Once upon")


def test_when_a_message_is_deleted_then_undo_brings_it_and_what_followed_back(
    desk: Desk, ask: Ask, qtbot: QtBot
) -> None:
    ask("one")
    ask("two")
    before = desk.texts
    with qtbot.waitSignal(desk.session.removed_undoable, timeout=WAIT_MS) as said:
        desk.session.delete_message(desk.shown[1].id)
    assert said.args == ["Deleted 3 messages"]
    assert desk.texts == ["one"]
    desk.session.undo_delete()
    assert desk.texts == before
    desk.session.undo_delete()
    assert desk.texts == before


def test_when_one_branch_is_deleted_then_its_sibling_shows(
    desk: Desk, fake_host: FakeHost, ask: Ask, wait: Wait
) -> None:
    fake_host.replies += [Reply(words("first")), Reply(words("second"))]
    first = ask("hello")
    assert desk.session.regenerate(first.id)
    wait(lambda: not desk.session.is_busy)
    desk.session.delete_message(desk.shown[1].id)
    assert desk.texts == ["hello", "first"]
    assert desk.shown[1].branch_count == 1
    desk.session.undo_delete()
    assert desk.texts == ["hello", "second"]


def test_when_a_running_answer_is_deleted_then_it_is_stopped(desk: Desk, fake_host: FakeHost, wait: Wait) -> None:
    fake_host.replies.append(Reply(words("one two"), hold_after=4))
    assert desk.session.send("count")
    wait(lambda: desk.texts[-1] == "one")
    desk.session.delete_message(desk.shown[0].id)
    assert desk.shown == ()
    assert not desk.session.is_busy
    wait(lambda: fake_host.n_cancelled == 1)


# --- several conversations


def test_when_another_conversation_is_opened_then_the_answer_goes_on_behind(
    desk: Desk, fake_host: FakeHost, wait: Wait
) -> None:
    fake_host.replies.append(Reply(words("one two"), hold_after=4))
    assert desk.session.send("first")
    wait(lambda: desk.texts[-1] == "one")
    first_id = desk.session.conversation_id
    desk.session.open_new()
    wait(lambda: not desk.session.is_loading)
    assert not desk.session.is_busy
    wait(lambda: [row.busy for row in desk.conversations.rows] == [True])
    desk.told.clear()
    fake_host.release()
    wait(lambda: [row.busy for row in desk.conversations.rows] == [False])
    assert "text" not in desk.names()
    desk.session.open(first_id)
    wait(lambda: not desk.session.is_loading)
    assert desk.texts == ["first", "one two"]


def test_when_a_busy_conversation_is_opened_again_then_it_shows_live(
    desk: Desk, fake_host: FakeHost, wait: Wait
) -> None:
    fake_host.replies.append(Reply(words("one two"), hold_after=4))
    assert desk.session.send("first")
    wait(lambda: desk.texts[-1] == "one")
    first_id = desk.session.conversation_id
    desk.session.open_new()
    desk.session.open(first_id)
    assert desk.texts == ["first", "one"]
    assert desk.session.is_busy
    fake_host.release()
    wait(lambda: not desk.session.is_busy)
    assert desk.texts == ["first", "one two"]


def test_when_too_many_conversations_are_busy_then_the_next_is_refused_with_a_word(
    desk: Desk, fake_host: FakeHost, wait: Wait
) -> None:
    for _ in range(MAX_RUNNING):
        fake_host.replies.append(Reply(words("one two"), hold_after=4))
        assert desk.session.send("go")
        wait(lambda: desk.texts[-1] == "one")
        desk.session.open_new()
        wait(lambda: not desk.session.is_loading)
    assert not desk.session.send("one too many")
    assert "answered already" in desk.notices.take_waiting()[-1].text
    for _ in range(MAX_RUNNING):
        fake_host.release()
    wait(lambda: desk.session.send("now it goes"))


def test_when_the_open_conversation_is_deleted_then_an_empty_one_is_open(desk: Desk, ask: Ask, wait: Wait) -> None:
    ask("hello")
    gone = desk.session.conversation_id
    wait(lambda: len(desk.conversations.rows) == 1)
    desk.conversations.delete(gone)
    assert desk.session.conversation_id != gone
    wait(lambda: not desk.session.is_loading)
    assert desk.shown == ()
    desk.conversations.undo_delete(gone)
    wait(lambda: [row.id for row in desk.conversations.rows] == [gone])
    desk.session.open(gone)
    wait(lambda: not desk.session.is_loading)
    assert desk.texts == ["hello", "You said: hello"]
