"""The open conversation against a pretended host: what is shown, in which order, and what stays when things break."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.answering import MAX_RUNNING, Answering
from app.conversations import Conversations
from app.link import HostLink
from app.notices import Notices
from app.presets import Presets
from app.saver import Saver
from app.session import ChatSession
from app.settings import Settings
from app.speed import Speed
from app.store import Store, StoreLane
from app.store.records import MessageRecord
from app.tasks import Lane
from app.transcript import MessageView
from runtime.errors import Failure, HostUnreachable, ModelLoadFailed
from runtime.messages.api import ChatDelta, ChatProgress, ModelChanged, ModelGone
from runtime.messages.shared import Message
from runtime.options import GenerateOptions, SamplingOptions
from tests.app.conftest import WAIT_MS, Wait
from tests.fakes.answers import MODEL_ID, WORKER_DIED, Reply, finished, long_answer, ready_model, words, worker_dies
from tests.fakes.fake_host import FakeHost


@dataclass
class Desk:
    """Everything a session needs, and what it told."""

    session: ChatSession
    conversations: Conversations
    presets: Presets
    answering: Answering
    saver: Saver
    store: StoreLane
    notices: Notices
    speed: Speed
    path: Path
    told: list[tuple[object, ...]] = field(default_factory=list)

    @property
    def shown(self) -> tuple[MessageView, ...]:
        return self.session.messages()

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.shown]

    @property
    def states(self) -> list[str]:
        return [message.state for message in self.shown]

    def names(self) -> list[object]:
        return [one[0] for one in self.told]


@pytest.fixture
def desk(qtbot: QtBot, live_link: HostLink, tmp_path: Path) -> Iterator[Desk]:
    notices = Notices()
    files = Lane("files")
    path = tmp_path / "conversations.sqlite3"
    store = StoreLane(path, notices)
    presets = Presets(store, Settings(tmp_path / "window.toml", files, notices))
    conversations = Conversations(store)
    saver = Saver(store, notices)
    speed = Speed()
    answering = Answering(live_link, presets, saver, speed)
    session = ChatSession(store, saver, live_link, conversations, presets, answering, notices)
    desk = Desk(session, conversations, presets, answering, saver, store, notices, speed, path)
    session.message_added.connect(lambda one: desk.told.append(("added", one)))
    session.message_changed.connect(lambda one: desk.told.append(("changed", one)))
    session.messages_removed.connect(lambda ids: desk.told.append(("removed", ids)))
    session.text_appended.connect(lambda one, thought, text: desk.told.append(("text", one, thought, text)))
    session.busy_changed.connect(lambda busy: desk.told.append(("busy", busy)))
    session.reset.connect(lambda: desk.told.append(("reset",)))
    yield desk
    session.close()
    store.close()
    files.close()
    qtbot.waitUntil(lambda: store.is_closed and files.is_closed, timeout=WAIT_MS)


@pytest.fixture
def ask(desk: Desk, wait: Wait) -> Callable[[str], MessageView]:
    """Send a question and wait for its answer."""

    def send(text: str) -> MessageView:
        assert desk.session.send(text)
        wait(lambda: not desk.session.is_busy)
        return desk.shown[-1]

    return send


Ask = Callable[[str], MessageView]


# --- asking


def test_when_a_question_is_sent_then_the_answer_streams_in(desk: Desk, fake_host: FakeHost, ask: Ask) -> None:
    fake_host.replies.append(
        Reply(words("It is Paris", reasoning="Let me think", prompt_tokens=20, cached_tokens=5), pace_s=0.01)
    )
    answer = ask("What is the capital of France?")
    question = desk.shown[0]
    assert (question.role, question.text, question.state) == ("user", "What is the capital of France?", "done")
    assert (answer.role, answer.text, answer.reasoning, answer.state) == (
        "assistant",
        "It is Paris",
        "Let me think",
        "done",
    )
    assert answer.reasoning_s is not None
    assert answer.stats is not None
    assert (answer.stats.n_tokens, answer.stats.prompt_tokens, answer.stats.cached_tokens) == (6, 20, 5)
    assert (answer.stats.generation_tps, answer.stats.reason, answer.stats.model) == (50.0, "stop", MODEL_ID)
    assert answer.stats.time_to_first_token_s is not None
    told = desk.told
    assert told[:3] == [("added", question.id), ("added", answer.id), ("busy", True)]
    assert told[-1] == ("busy", False)
    assert "".join(str(one[3]) for one in told if one[0] == "text") == "It is Paris"
    assert "".join(str(one[2]) for one in told if one[0] == "text") == "Let me think"


def test_when_empty_text_is_sent_then_nothing_happens(desk: Desk) -> None:
    assert not desk.session.send("  \n ")
    assert desk.shown == ()


def test_when_busy_then_a_second_question_is_not_taken(desk: Desk, fake_host: FakeHost, wait: Wait) -> None:
    fake_host.replies.append(Reply(words("one two"), hold_after=4))
    assert desk.session.send("first")
    assert not desk.session.send("second")
    wait(lambda: desk.texts == ["first", "one"])


def test_when_the_next_question_is_sent_then_the_model_reads_the_whole_branch(
    desk: Desk, fake_host: FakeHost, ask: Ask
) -> None:
    desk.session.set_system_prompt("Be brief.")
    desk.session.set_options(GenerateOptions(max_tokens=7))
    ask("one")
    ask("two")
    assert fake_host.chats[1].messages == (
        Message("system", "Be brief."),
        Message("user", "one"),
        Message("assistant", "You said: one"),
        Message("user", "two"),
    )
    assert fake_host.chats[1].options == GenerateOptions(max_tokens=7)


def test_when_the_prompt_is_read_then_progress_and_place_in_the_queue_show(
    desk: Desk, fake_host: FakeHost, wait: Wait
) -> None:
    whole = words("fine")
    events = (whole[0], ChatProgress(30, 120, dropped_turns=3), *whole[2:])
    fake_host.replies += [Reply(events, hold_after=1)]
    assert desk.session.send("hello")
    wait(lambda: desk.shown[1].queue_position == 1)
    assert desk.shown[1].state == "queued"
    fake_host.replies.clear()
    fake_host.release()
    wait(lambda: not desk.session.is_busy)
    assert desk.shown[1].notice == "The 3 oldest turns were left out to fit the context."


def test_when_half_of_the_prompt_is_read_then_a_fraction_shows(desk: Desk, fake_host: FakeHost, wait: Wait) -> None:
    fake_host.replies.append(Reply((ChatProgress(30, 120), *words("fine")[1:]), hold_after=1))
    assert desk.session.send("hello")
    wait(lambda: desk.shown[1].state == "reading")
    assert desk.shown[1].progress == 0.25


def test_when_the_first_question_is_sent_then_it_becomes_the_title(desk: Desk, ask: Ask, wait: Wait) -> None:
    titles: list[str] = []
    desk.session.title_changed.connect(titles.append)
    assert desk.session.title == "New chat"
    ask("# Tell me about   whales\nand dolphins")
    ask("And sharks?")
    assert titles == ["Tell me about whales"]
    wait(lambda: [row.title for row in desk.conversations.rows] == ["Tell me about whales"])


def test_when_a_person_renames_then_the_title_stays_theirs(desk: Desk, ask: Ask, wait: Wait) -> None:
    ask("whales")
    desk.conversations.rename(desk.session.conversation_id, "  My   title ")
    assert desk.session.title == "My title"
    ask("more")
    wait(lambda: [row.title for row in desk.conversations.rows] == ["My title"])
    desk.conversations.rename(desk.session.conversation_id, "")
    assert desk.session.title == "whales"
    wait(lambda: [row.title for row in desk.conversations.rows] == ["whales"])


# --- stopping and failing


def test_when_stopped_then_what_came_stays(desk: Desk, fake_host: FakeHost, wait: Wait) -> None:
    fake_host.replies.append(Reply(words("one two three"), hold_after=5))
    assert desk.session.send("count")
    wait(lambda: desk.texts[-1] == "one two")
    desk.session.stop()
    wait(lambda: not desk.session.is_busy)
    answer = desk.shown[1]
    assert (answer.text, answer.state) == ("one two", "stopped")
    assert answer.stats is not None
    assert (answer.stats.reason, answer.stats.n_tokens) == ("cancelled", 2)
    assert answer.can_continue
    wait(lambda: fake_host.n_cancelled == 1)


def test_when_the_worker_dies_then_the_text_stays_with_the_reason(fake_host: FakeHost, ask: Ask) -> None:
    fake_host.replies.append(worker_dies("half an answer"))
    answer = ask("hello")
    assert (answer.text, answer.state, answer.error) == ("half an answer", "failed", WORKER_DIED)


def test_when_the_host_dies_mid_answer_then_the_text_stays(desk: Desk, fake_host: FakeHost, wait: Wait) -> None:
    fake_host.replies.append(Reply(words("one two three"), hold_after=5))
    assert desk.session.send("count")
    wait(lambda: desk.texts[-1] == "one two")
    fake_host.close()
    wait(lambda: not desk.session.is_busy)
    answer = desk.shown[1]
    assert (answer.text, answer.state) == ("one two", "failed")
    assert answer.error is not None
    assert answer.error.kind == HostUnreachable.__name__


def test_when_a_failed_empty_answer_is_tried_again_then_it_is_replaced(
    desk: Desk, fake_host: FakeHost, ask: Ask, wait: Wait
) -> None:
    fake_host.replies.append(Reply(refuse=WORKER_DIED))
    failed = ask("hello")
    assert (failed.text, failed.state) == ("", "failed")
    assert desk.session.regenerate(failed.id)
    wait(lambda: not desk.session.is_busy)
    assert desk.texts == ["hello", "You said: hello"]
    assert desk.shown[1].branch_count == 1


def test_when_a_question_follows_a_failed_one_then_the_model_sees_one_turn(fake_host: FakeHost, ask: Ask) -> None:
    fake_host.replies.append(Reply(refuse=WORKER_DIED))
    ask("hello")
    ask("are you there?")
    assert fake_host.chats[1].messages == (Message("user", "hello\n\nare you there?"),)


# --- models that come and go


def test_when_no_model_is_loaded_then_the_answer_says_what_to_do(
    fake_host: FakeHost, live_link: HostLink, ask: Ask, wait: Wait
) -> None:
    fake_host.emit(ModelGone(MODEL_ID))
    wait(lambda: not live_link.loaded)
    answer = ask("hello")
    assert answer.state == "failed"
    assert answer.error is not None
    assert answer.error.message == "No model is loaded."
    assert answer.error.hint


def test_when_a_model_is_loading_then_the_question_waits_for_it(
    desk: Desk, fake_host: FakeHost, live_link: HostLink, wait: Wait
) -> None:
    fake_host.hold_load = True
    live_link.load_model(MODEL_ID)
    wait(lambda: live_link.loaded[0].state == "loading")
    assert desk.session.send("hello")
    assert desk.shown[1].state == "queued"
    assert desk.shown[1].notice == "Waiting for SmolLM2 135M Instruct to load"
    assert fake_host.chats == []
    fake_host.release()
    wait(lambda: not desk.session.is_busy)
    assert desk.texts == ["hello", "You said: hello"]
    assert desk.shown[1].notice == ""


def test_when_the_load_fails_then_the_waiting_question_fails_with_its_reason(
    desk: Desk, fake_host: FakeHost, live_link: HostLink, wait: Wait
) -> None:
    fake_host.hold_load = True
    fake_host.load_failure = Failure(ModelLoadFailed.__name__, "The file is damaged.")
    live_link.load_model(MODEL_ID)
    wait(lambda: live_link.loaded[0].state == "loading")
    assert desk.session.send("hello")
    fake_host.release()
    wait(lambda: not desk.session.is_busy)
    assert desk.shown[1].error == fake_host.load_failure


def test_when_a_model_is_expected_then_the_question_waits_until_it_is_not(
    desk: Desk, fake_host: FakeHost, live_link: HostLink, wait: Wait
) -> None:
    fake_host.emit(ModelGone(MODEL_ID))
    wait(lambda: not live_link.loaded)
    desk.answering.set_model_expected(True)
    assert desk.session.send("hello")
    assert desk.states == ["done", "queued"]
    desk.session.stop()
    assert desk.states == ["done", "stopped"]
    assert desk.session.regenerate(desk.shown[1].id)
    failure = Failure(HostUnreachable.__name__, "It is gone.")
    desk.answering.fail_waiting(failure)
    assert desk.shown[1].error == failure


def test_when_a_conversation_has_its_own_model_then_that_one_answers(
    desk: Desk, fake_host: FakeHost, live_link: HostLink, ask: Ask, wait: Wait
) -> None:
    fake_host.emit(ModelChanged(ready_model("second", n_ctx=2048)))
    wait(lambda: len(live_link.loaded) == 2)
    ask("newest is taken")
    desk.session.set_model(MODEL_ID)
    ask("the chosen one is taken")
    assert [chat.model for chat in fake_host.chats] == ["second", MODEL_ID]


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


# --- keeping


def test_when_an_answer_streams_then_it_is_on_disk_within_a_second(desk: Desk, fake_host: FakeHost, wait: Wait) -> None:
    fake_host.replies.append(Reply(words("one two"), hold_after=4))
    assert desk.session.send("hello")
    conversation_id = desk.session.conversation_id
    found: list[tuple[MessageRecord, ...]] = []

    def look() -> bool:
        desk.store.submit(lambda store: store.messages(conversation_id), found.append)
        return any((one.content, one.state) == ("one", "generating") for messages in found for one in messages)

    wait(look)


def test_when_draft_and_setup_change_then_they_come_back(desk: Desk, ask: Ask, wait: Wait, qtbot: QtBot) -> None:
    options = GenerateOptions(sampling=SamplingOptions(temperature=0.25))
    ask("hello")
    first_id = desk.session.conversation_id
    desk.session.set_system_prompt("Be kind.")
    desk.session.set_options(options)
    desk.session.set_draft("half a thou")
    desk.session.open_new()
    wait(lambda: not desk.session.is_loading)
    assert (desk.session.draft, desk.session.system_prompt, desk.session.options) == ("", "", GenerateOptions())
    with qtbot.waitSignal(desk.session.draft_restored, timeout=WAIT_MS) as heard:
        desk.session.open(first_id)
    assert heard.args == ["half a thou"]
    assert (desk.session.system_prompt, desk.session.options) == ("Be kind.", options)
    assert desk.session.is_customized


def test_when_a_preset_is_the_default_then_new_conversations_have_it(desk: Desk, fake_host: FakeHost, ask: Ask) -> None:
    preset = desk.presets.save_new("Pirate", "Talk like a pirate.", GenerateOptions(max_tokens=9))
    desk.presets.set_default(preset.id)
    assert desk.session.preset_id == preset.id
    ask("hello")
    assert fake_host.chats[0].messages[0] == Message("system", "Talk like a pirate.")
    desk.presets.set_default("")
    assert desk.session.system_prompt == "Talk like a pirate."
    desk.session.use_preset("")
    assert desk.session.system_prompt == ""
    ask("again")
    assert fake_host.chats[1].messages[0] == Message("user", "hello")


def test_when_the_window_closes_mid_answer_then_the_part_is_kept_as_stopped(
    desk: Desk, fake_host: FakeHost, wait: Wait, qtbot: QtBot
) -> None:
    fake_host.replies.append(Reply(words("one two"), hold_after=4))
    assert desk.session.send("hello")
    wait(lambda: desk.texts[-1] == "one")
    conversation_id = desk.session.conversation_id
    desk.session.close()
    with qtbot.waitSignal(desk.store.closed, timeout=WAIT_MS):
        desk.store.close()
    with Store(desk.path) as store:
        assert [(one.content, one.state) for one in store.messages(conversation_id)] == [
            ("hello", "done"),
            ("one", "stopped"),
        ]


# --- figures


def test_when_tokens_are_counted_then_the_context_and_the_draft_are_told(
    desk: Desk, fake_host: FakeHost, ask: Ask, wait: Wait
) -> None:
    used: list[tuple[int, int]] = []
    drafted: list[tuple[int, int]] = []
    desk.session.context_used.connect(lambda n, limit: used.append((n, limit)))
    desk.session.draft_counted.connect(lambda n, limit: drafted.append((n, limit)))
    ask("hello")
    assert used[-1] == (12 + 3, 4096)
    desk.session.set_draft("three more words")
    # The fake tokenizer: words and three a turn, for "hello", "You said: hello" and the draft.
    wait(lambda: bool(drafted) and drafted[-1] == (4 + 6 + 6, 4096))
    assert fake_host.counts[-1].messages[-1] == Message("user", "three more words")


def test_when_text_streams_then_speed_is_told_and_ends_with_none(desk: Desk, fake_host: FakeHost, wait: Wait) -> None:
    speeds: list[float | None] = []
    desk.session.speed_changed.connect(speeds.append)
    fake_host.replies.append(Reply(words("word " * 120), pace_s=0.01))
    assert desk.session.send("hello")
    wait(lambda: not desk.session.is_busy)
    assert speeds[-1] is None
    assert any(speed is not None and 20 < speed < 110 for speed in speeds)
    assert desk.speed.view.now_tps is not None


def test_when_a_very_long_answer_comes_then_it_is_whole(desk: Desk, fake_host: FakeHost, wait: Wait) -> None:
    fake_host.replies.append(Reply(long_answer(20_000), events_per_write=200))
    assert desk.session.send("write a book")
    wait(lambda: not desk.session.is_busy)
    answer = desk.shown[1]
    whole = "".join(event.text for event in long_answer(20_000) if isinstance(event, ChatDelta))
    assert answer.text == whole
    assert answer.stats is not None
    assert answer.stats.n_tokens == 20_000


def test_when_an_answer_reaches_its_length_then_the_reason_says_so(fake_host: FakeHost, ask: Ask) -> None:
    whole = words("one two")
    end = finished(2)
    fake_host.replies.append(Reply((*whole[:-1], type(end)(("length",), end.usage, end.timings, end.model))))
    answer = ask("hello")
    assert answer.stats is not None
    assert (answer.state, answer.stats.reason) == ("done", "length")
