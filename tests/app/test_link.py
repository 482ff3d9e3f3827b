"""The link against a real HTTP server that speaks the private API."""

import time
from collections.abc import Callable

import msgspec
from pytestqt.qtbot import QtBot

from app.chat_stream import MAX_BATCH_CHARS
from app.link import ChatStream, HostLink
from runtime.errors import Busy, Failure
from runtime.messages.api import (
    ChatDelta,
    ChatEvent,
    ChatFailed,
    ChatFinished,
    ChatRequest,
    CountAnswer,
    HardwareChanged,
    ModelChanged,
    NewKeyAnswer,
    Notice,
)
from runtime.messages.shared import Message
from runtime.options import ApiOptions, LoadOptions
from tests.app.conftest import WAIT_MS, Wait
from tests.fakes.answers import MODEL_ID, Reply, hardware_sample, installed_model, long_answer, ready_model, words
from tests.fakes.fake_host import FakeHost

HELLO = ChatRequest(MODEL_ID, (Message("user", "Hello there"),))


class Heard:
    """Everything a stream told."""

    def __init__(self, stream: ChatStream) -> None:
        self.batches: list[list[ChatEvent]] = []
        self.at_s: list[float] = []
        self.ended = 0
        stream.events.connect(self._take)
        stream.ended.connect(self._end)

    def _take(self, batch: list[ChatEvent]) -> None:
        self.batches.append(batch)
        self.at_s.append(time.monotonic())

    def _end(self) -> None:
        self.ended += 1

    @property
    def events(self) -> list[ChatEvent]:
        return [event for batch in self.batches for event in batch]

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, ChatDelta))


def test_when_attached_then_the_mirror_holds_the_snapshot(live_link: HostLink) -> None:
    assert live_link.is_connected
    assert [model.id for model in live_link.loaded] == [MODEL_ID]
    assert [model.id for model in live_link.installed] == [MODEL_ID]
    assert live_link.hardware == hardware_sample()
    assert live_link.api is not None
    assert not live_link.api.running


def test_when_the_host_tells_changes_then_the_mirror_follows(
    live_link: HostLink, fake_host: FakeHost, qtbot: QtBot
) -> None:
    with qtbot.waitSignal(live_link.hardware_changed, timeout=WAIT_MS) as heard:
        fake_host.emit(HardwareChanged(hardware_sample(at_s=2_000.0)))
    assert heard.args == [hardware_sample(at_s=2_000.0)]
    with qtbot.waitSignal(live_link.models_changed, timeout=WAIT_MS):
        fake_host.emit(ModelChanged(ready_model("second")))
    assert [model.id for model in live_link.loaded] == [MODEL_ID, "second"]
    with qtbot.waitSignal(live_link.notice, timeout=WAIT_MS) as said:
        fake_host.emit(Notice("warning", "Something happened."))
    assert said.args == ["warning", "Something happened."]


def test_when_a_model_is_loaded_then_progress_is_told(live_link: HostLink, fake_host: FakeHost, wait: Wait) -> None:
    fake_host.installed.append(installed_model("other"))
    fake_host.hold_load = True
    live_link.load_model("other", LoadOptions(n_ctx=2048))
    wait(lambda: [(one.id, one.state, one.fraction) for one in live_link.loaded] == [("other", "loading", 0.75)])
    fake_host.release()
    wait(lambda: [(one.id, one.state) for one in live_link.loaded] == [("other", "ready")])
    assert fake_host.loads[0].options == LoadOptions(n_ctx=2048)
    loaded = live_link.model("other")
    assert loaded is not None
    assert loaded.facts is not None
    assert loaded.facts.n_ctx == 2048
    assert live_link.model(MODEL_ID) is None


def test_when_an_unknown_model_is_loaded_then_the_hosts_own_words_come(live_link: HostLink, qtbot: QtBot) -> None:
    with qtbot.waitSignal(live_link.request_failed, timeout=WAIT_MS) as heard:
        live_link.load_model("nonsense")
    failure: Failure = heard.args[0]
    assert failure.kind == "ModelNotFound"
    assert "nonsense" in failure.message


def test_when_the_api_is_switched_on_then_its_address_is_told(live_link: HostLink, qtbot: QtBot) -> None:
    with qtbot.waitSignal(live_link.api_changed, timeout=WAIT_MS) as heard:
        live_link.set_api(ApiOptions(enabled=True, port=4321))
    assert heard.args[0].running
    assert heard.args[0].addresses == ("http://127.0.0.1:4321/v1",)


def test_when_a_key_is_made_then_it_is_shown_once(live_link: HostLink, wait: Wait) -> None:
    made: list[NewKeyAnswer] = []
    live_link.new_key("my laptop", made.append)
    wait(lambda: bool(made))
    assert made == [NewKeyAnswer("my laptop", "sk-my laptop")]
    wait(lambda: live_link.api is not None and len(live_link.api.keys) == 1)
    live_link.delete_key("my laptop")
    wait(lambda: live_link.api is not None and not live_link.api.keys)


def test_when_two_counts_overlap_then_only_the_newest_is_answered(live_link: HostLink, wait: Wait) -> None:
    counted: list[CountAnswer] = []
    failed: list[Failure] = []
    live_link.count_tokens(MODEL_ID, (Message("user", "one"),), counted.append, failed=failed.append)
    live_link.count_tokens(MODEL_ID, (Message("user", "one two three"),), counted.append, failed=failed.append)
    wait(lambda: bool(counted))
    assert counted == [CountAnswer(6, 4096)]
    assert failed == []


def test_when_an_answer_streams_then_it_is_whole_and_ends_once(
    live_link: HostLink, fake_host: FakeHost, wait: Wait
) -> None:
    fake_host.replies.append(Reply(words("The quick brown fox", reasoning="Let me think"), events_per_write=3))
    heard = Heard(live_link.chat(HELLO))
    wait(lambda: heard.ended == 1)
    assert heard.text == "Let me thinkThe quick brown fox"
    assert isinstance(heard.events[-1], ChatFinished)
    assert fake_host.chats == [HELLO]


def test_when_a_burst_arrives_then_batches_are_bounded_and_spaced(
    live_link: HostLink, fake_host: FakeHost, wait: Wait
) -> None:
    fake_host.replies.append(Reply(long_answer(20_000), events_per_write=500))
    heard = Heard(live_link.chat(HELLO))
    wait(lambda: heard.ended == 1)
    assert heard.text.count("word") == 20_000
    assert all(
        sum(len(event.text) for event in batch if isinstance(event, ChatDelta)) <= MAX_BATCH_CHARS + 20
        for batch in heard.batches
    )
    assert heard.at_s[-1] - heard.at_s[0] >= (len(heard.batches) - 1) * 0.030


def test_when_cancelled_then_it_ends_as_cancelled_and_the_host_sees_it(
    live_link: HostLink, fake_host: FakeHost, wait: Wait
) -> None:
    fake_host.replies.append(Reply(words("one two three"), hold_after=5))
    stream = live_link.chat(HELLO)
    heard = Heard(stream)
    wait(lambda: heard.text == "one two")
    stream.cancel()
    stream.cancel()
    wait(lambda: heard.ended == 1 and fake_host.n_cancelled == 1)
    last = heard.events[-1]
    assert isinstance(last, ChatFinished)
    assert last.reasons == ("cancelled",)
    assert last.usage.completion_tokens == 2


def test_when_the_queue_is_full_then_the_answer_fails_with_its_words(
    live_link: HostLink, fake_host: FakeHost, wait: Wait
) -> None:
    full = Failure(Busy.__name__, "32 requests wait already.", status=429)
    fake_host.replies.append(Reply(refuse=full))
    heard = Heard(live_link.chat(HELLO))
    wait(lambda: heard.ended == 1)
    assert heard.events == [ChatFailed(full)]


def test_when_the_connection_is_cut_then_the_answer_fails_and_keeps_its_text(
    live_link: HostLink, fake_host: FakeHost, wait: Wait
) -> None:
    fake_host.replies.append(Reply(words("one two three"), cut_after=5))
    heard = Heard(live_link.chat(HELLO))
    wait(lambda: heard.ended == 1)
    assert heard.text == "one two"
    last = heard.events[-1]
    assert isinstance(last, ChatFailed)
    assert last.failure.kind == "HostUnreachable"


def test_when_the_host_dies_and_comes_back_then_the_link_takes_a_new_snapshot(
    live_link: HostLink, fake_host: FakeHost, qtbot: QtBot
) -> None:
    with qtbot.waitSignal(live_link.disconnected, timeout=WAIT_MS) as lost:
        fake_host.close()
    assert lost.args[0]
    assert not live_link.is_connected
    fake_host.models = [ready_model("after")]
    with qtbot.waitSignal(live_link.connected, timeout=WAIT_MS):
        fake_host.start()
    assert [model.id for model in live_link.loaded] == ["after"]


def test_when_only_the_events_were_lost_then_a_running_answer_goes_on(
    live_link: HostLink, fake_host: FakeHost, qtbot: QtBot, wait: Wait
) -> None:
    fake_host.replies.append(Reply(words("one two three"), hold_after=5))
    heard = Heard(live_link.chat(HELLO))
    wait(lambda: heard.text == "one two")
    with qtbot.waitSignal(live_link.disconnected, timeout=WAIT_MS):
        fake_host.cut_event_streams()
    with qtbot.waitSignal(live_link.connected, timeout=WAIT_MS):
        live_link.attach(fake_host.host_file)
    fake_host.release()
    wait(lambda: heard.ended == 1)
    assert heard.text == "one two three"


def test_when_not_attached_then_requests_fail_politely(link: HostLink, wait: Wait) -> None:
    failed: list[Failure] = []
    link.load_model(MODEL_ID, failed=failed.append)
    heard = Heard(link.chat(HELLO))
    wait(lambda: heard.ended == 1 and bool(failed))
    assert failed[0].kind == "HostUnreachable"
    assert isinstance(heard.events[-1], ChatFailed)


def test_when_the_token_is_wrong_then_the_link_says_so(link: HostLink, fake_host: FakeHost, wait: Wait) -> None:
    failed: list[Failure] = []
    link.attach(msgspec.structs.replace(fake_host.host_file, token="wrong"))
    link.unload_model(MODEL_ID, failed=failed.append)
    wait(lambda: bool(failed))
    assert failed[0].kind == "NotAuthorized"
    assert not link.is_connected


def test_when_asked_to_end_then_done_is_called_whether_it_lives_or_not(
    live_link: HostLink, fake_host: FakeHost, wait: Wait
) -> None:
    done: list[int] = []
    finish: Callable[[], None] = lambda: done.append(1)  # noqa: E731
    live_link.shut_host_down(finish)
    wait(lambda: fake_host.shutdown_asked.is_set() and done == [1])
    fake_host.close()
    live_link.shut_host_down(finish)
    wait(lambda: done == [1, 1])
