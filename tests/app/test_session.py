"""The open conversation against a pretended host: what is shown, in which order, and what stays when things break."""

import time

from PySide6.QtCore import QTimer
from pytestqt.qtbot import QtBot

from app.link import HostLink
from app.store import Store
from app.store.records import MessageRecord
from runtime.errors import Failure, HostUnreachable, ModelLoadFailed
from runtime.messages.api import ChatDelta, ChatProgress, ModelChanged, ModelGone
from runtime.messages.shared import Message
from runtime.options import GenerateOptions, SamplingOptions
from tests.app.conftest import WAIT_MS, Ask, Desk, Wait
from tests.fakes.answers import MODEL_ID, WORKER_DIED, Reply, finished, long_answer, ready_model, words, worker_dies
from tests.fakes.fake_host import FakeHost

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
    desk.session.setup.set_system_prompt("Be brief.")
    desk.session.setup.set_options(GenerateOptions(max_tokens=7))
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
    desk.session.setup.set_model(MODEL_ID)
    ask("the chosen one is taken")
    assert [chat.model for chat in fake_host.chats] == ["second", MODEL_ID]


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
    desk.session.setup.set_system_prompt("Be kind.")
    desk.session.setup.set_options(options)
    desk.session.draft.set_text("half a thou")
    desk.session.open_new()
    wait(lambda: not desk.session.is_loading)
    assert (desk.session.draft.text, desk.session.setup.system_prompt, desk.session.setup.options) == (
        "",
        "",
        GenerateOptions(),
    )
    with qtbot.waitSignal(desk.session.draft_restored, timeout=WAIT_MS) as heard:
        desk.session.open(first_id)
    assert heard.args == ["half a thou"]
    assert (desk.session.setup.system_prompt, desk.session.setup.options) == ("Be kind.", options)
    assert desk.session.setup.is_customized


def test_when_a_preset_is_the_default_then_new_conversations_have_it(desk: Desk, fake_host: FakeHost, ask: Ask) -> None:
    preset = desk.presets.save_new("Pirate", "Talk like a pirate.", GenerateOptions(max_tokens=9))
    desk.presets.set_default(preset.id)
    assert desk.session.setup.preset_id == preset.id
    ask("hello")
    assert fake_host.chats[0].messages[0] == Message("system", "Talk like a pirate.")
    desk.presets.set_default("")
    assert desk.session.setup.system_prompt == "Talk like a pirate."
    desk.session.setup.use_preset("")
    assert desk.session.setup.system_prompt == ""
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
    desk.session.draft.set_text("three more words")
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


def test_when_a_very_long_answer_comes_then_it_is_whole_and_no_turn_of_the_event_loop_is_long(
    desk: Desk, fake_host: FakeHost, wait: Wait
) -> None:
    fake_host.replies.append(Reply(long_answer(20_000), events_per_write=200))
    turns_s: list[float] = []
    beat = QTimer()
    before_s = time.thread_time()

    def tick() -> None:
        # The thread's own time: what other programs take from a busy machine is not the window's doing.
        nonlocal before_s
        now_s = time.thread_time()
        turns_s.append(now_s - before_s)
        before_s = now_s

    beat.timeout.connect(tick)
    beat.start(0)
    assert desk.session.send("write a book")
    wait(lambda: not desk.session.is_busy)
    beat.stop()
    answer = desk.shown[1]
    whole = "".join(event.text for event in long_answer(20_000) if isinstance(event, ChatDelta))
    assert answer.text == whole
    assert answer.stats is not None
    assert answer.stats.n_tokens == 20_000
    assert max(turns_s) < 0.02


def test_when_an_answer_reaches_its_length_then_the_reason_says_so(fake_host: FakeHost, ask: Ask) -> None:
    whole = words("one two")
    end = finished(2)
    fake_host.replies.append(Reply((*whole[:-1], type(end)(("length",), end.usage, end.timings, end.model))))
    answer = ask("hello")
    assert answer.stats is not None
    assert (answer.state, answer.stats.reason) == ("done", "length")
