"""Calls of tools between two answers: asked for, run, answered, kept."""

import json
from collections.abc import Callable, Sequence

import msgspec
import pytest

from app.store.records import Attachment, ToolSetup
from app.tool_results import Made, pixels_for
from app.tool_rounds import MAX_ROUNDS, REFUSED, STOPPED
from app.transcript import MessageView
from runtime.messages.api import ModelChanged
from runtime.messages.shared import MediaPart, PicturePart
from runtime.messages.tools import ResultMedia, ResultText, ToolProgress, ToolResult, ToolReturned
from tests.app.conftest import Desk, Wait
from tests.fakes.answers import Reply, calls, ready_model, words
from tests.fakes.fake_host import FakeHost
from tests.fakes.fake_tools import Script, files_server, returned

ON = ToolSetup(servers=("files",))
READ = ("files__read_file", '{"path":"a.txt"}')
WRITE = ("files__write_file", '{"path":"b.txt","text":"hi"}')


@pytest.fixture
def with_tools(desk: Desk, fake_host: FakeHost, wait: Wait) -> Desk:
    """A conversation in which the tools of `files` are on."""
    fake_host.tools.show(fake_host, files_server())
    wait(lambda: bool(desk.answering.tools.servers))
    desk.answering.tools.set_default(ON)
    return desk


def begin(desk: Desk, host: FakeHost, wait: Wait, *made: tuple[str, str]) -> tuple[MessageView, ...]:
    """Ask something that makes the model call tools; answers the messages of the calls."""
    host.replies.append(Reply(calls(*made)))
    assert desk.session.send("do it")
    wait(lambda: len(tools_of(desk)) == len(made) and all(one.state != "generating" for one in desk.shown[:2]))
    return tools_of(desk)


def tools_of(desk: Desk) -> tuple[MessageView, ...]:
    return tuple(one for one in desk.shown if one.role == "tool")


def test_when_a_model_calls_a_tool_then_nothing_runs_before_the_person_allows_it(
    with_tools: Desk, fake_host: FakeHost, wait: Wait
) -> None:
    desk = with_tools
    (asked,) = begin(desk, fake_host, wait, READ)
    assert asked.state == "queued"
    assert asked.call is not None
    assert asked.call.arguments == '{"path":"a.txt"}'
    assert desk.session.is_busy
    assert fake_host.tools.calls == []
    sent = fake_host.chats[0].shape
    assert [tool.name for tool in sent.tools] == ["files__read_file", "files__write_file"]
    assert sent.tool_choice == "auto"

    fake_host.tools.scripts.append(Script((returned("the text of a"),)))
    desk.session.tools.allow(asked.id, "once")
    wait(lambda: not desk.session.is_busy)
    assert fake_host.tools.calls[0].tool == "read_file"
    assert [one.role for one in desk.shown] == ["user", "assistant", "tool", "assistant"]
    assert desk.states == ["done"] * 4
    assert tools_of(desk)[0].text == "the text of a"
    assert tools_of(desk)[0].duration_s == 0.25
    turns = fake_host.chats[1].messages
    assert [turn.role for turn in turns] == ["user", "assistant", "tool"]
    assert turns[1].tool_calls[0].id == turns[2].tool_call_id == "call-0"
    assert turns[2].content == "the text of a"


def test_when_allowed_once_then_the_next_call_asks_again(with_tools: Desk, fake_host: FakeHost, wait: Wait) -> None:
    desk = with_tools
    (first,) = begin(desk, fake_host, wait, READ)
    desk.session.tools.allow(first.id, "once")
    wait(lambda: not desk.session.is_busy)
    fake_host.replies.append(Reply(calls(READ)))
    desk.session.send("again")
    wait(lambda: len(tools_of(desk)) == 2)
    assert tools_of(desk)[1].state == "queued"
    desk.session.stop()
    wait(lambda: not desk.session.is_busy)


@pytest.mark.parametrize("scope", ["here", "always"])
def test_when_allowed_for_longer_then_the_next_call_runs_by_itself_until_the_tool_changes(
    with_tools: Desk, fake_host: FakeHost, wait: Wait, scope: str
) -> None:
    desk = with_tools
    first, second = begin(desk, fake_host, wait, READ, READ)
    desk.session.tools.allow(first.id, scope)
    wait(lambda: not desk.session.is_busy)  # the second one waited for the same permission
    assert {one.state for one in (*tools_of(desk),)} == {"done"}
    assert second.id == tools_of(desk)[1].id
    fake_host.replies.append(Reply(calls(READ)))
    desk.session.send("again")
    wait(lambda: len(fake_host.tools.calls) == 3 and not desk.session.is_busy)

    server = files_server()
    changed = msgspec.structs.replace(server.tools[0], description="Sends your files away.", fingerprint="new")
    fake_host.tools.show(fake_host, msgspec.structs.replace(server, tools=(changed, server.tools[1])))
    wait(lambda: desk.answering.tools.servers[0].tools[0].fingerprint == "new")
    fake_host.replies.append(Reply(calls(READ)))
    desk.session.send("once more")
    wait(lambda: len(tools_of(desk)) == 4)
    assert tools_of(desk)[3].state == "queued"
    desk.session.open_new()
    assert desk.answering.tools.allowed == ((("files", "read_file", "f1"),) if scope == "always" else ())


def test_when_refused_then_the_model_is_told_and_goes_on(with_tools: Desk, fake_host: FakeHost, wait: Wait) -> None:
    desk = with_tools
    (asked,) = begin(desk, fake_host, wait, WRITE)
    desk.session.tools.deny(asked.id)
    wait(lambda: not desk.session.is_busy)
    assert fake_host.tools.calls == []
    assert (tools_of(desk)[0].state, tools_of(desk)[0].text) == ("stopped", REFUSED)
    assert fake_host.chats[1].messages[-1].content == REFUSED


def test_when_calls_are_parallel_then_each_is_answered_by_itself_and_the_model_waits_for_all(
    with_tools: Desk, fake_host: FakeHost, wait: Wait
) -> None:
    desk = with_tools
    read, write = begin(desk, fake_host, wait, READ, WRITE)
    fake_host.tools.scripts.append(Script((ToolProgress(0.5, "halfway"), returned("late")), held=True))
    desk.session.tools.allow(read.id, "once")
    wait(lambda: tools_of(desk)[0].notice == "50 % · halfway")
    desk.session.tools.deny(write.id)
    wait(lambda: tools_of(desk)[1].state == "stopped")
    assert len(fake_host.chats) == 1
    fake_host.tools.released.set()
    wait(lambda: not desk.session.is_busy)
    assert [turn.content for turn in fake_host.chats[1].messages[-2:]] == ["late", REFUSED]


def test_when_stopped_while_a_tool_runs_then_the_call_is_cancelled_and_no_answer_follows(
    with_tools: Desk, fake_host: FakeHost, wait: Wait
) -> None:
    desk = with_tools
    read, _ = begin(desk, fake_host, wait, READ, WRITE)
    fake_host.tools.scripts.append(Script((returned("never"),), held=True))
    desk.session.tools.allow(read.id, "once")
    wait(lambda: len(fake_host.tools.calls) == 1)
    desk.session.stop()
    assert not desk.session.is_busy
    wait(lambda: fake_host.tools.n_cancelled == 1)
    assert [one.state for one in tools_of(desk)] == ["stopped", "stopped"]
    assert tools_of(desk)[0].text == STOPPED
    assert len(fake_host.chats) == 1
    # The person can still let the model go on from there.
    desk.session.go_on(tools_of(desk)[1].id)
    wait(lambda: len(fake_host.chats) == 2 and not desk.session.is_busy)
    assert desk.shown[-1].text.startswith("You said")


@pytest.mark.parametrize(
    ("made", "words_of_it"),
    [
        (("files__read_file", '{"path": '), "no valid JSON"),
        (("files__read_file", "[1]"), "no JSON object"),
        (("files__delete", "{}"), "no tool named files__delete"),
    ],
)
def test_when_a_call_cannot_be_run_then_it_is_shown_and_answered_with_an_error(
    with_tools: Desk, fake_host: FakeHost, wait: Wait, made: tuple[str, str], words_of_it: str
) -> None:
    desk = with_tools
    begin(desk, fake_host, wait, made)
    wait(lambda: not desk.session.is_busy)
    (shown,) = tools_of(desk)
    assert (shown.state, shown.is_error) == ("failed", True)
    assert words_of_it in shown.text
    assert words_of_it in fake_host.chats[1].messages[-1].content
    assert fake_host.tools.calls == []


def test_when_a_tool_or_its_server_fails_then_the_model_reads_why(
    with_tools: Desk, fake_host: FakeHost, wait: Wait
) -> None:
    desk = with_tools
    (asked,) = begin(desk, fake_host, wait, READ)
    fake_host.tools.scripts.append(Script((returned("no such file", is_error=True),)))
    desk.session.tools.allow(asked.id, "once")
    wait(lambda: not desk.session.is_busy)
    assert (tools_of(desk)[0].state, tools_of(desk)[0].text) == ("failed", "no such file")

    fake_host.replies.append(Reply(calls(READ)))
    desk.session.send("again")
    wait(lambda: len(tools_of(desk)) == 2)
    fake_host.tools.servers.clear()  # gone since the list was told
    desk.session.tools.allow(tools_of(desk)[1].id, "once")
    wait(lambda: not desk.session.is_busy)
    assert tools_of(desk)[1].text == "The server is gone."


def test_when_the_model_calls_tools_without_end_then_the_person_says_whether_to_go_on(
    with_tools: Desk, fake_host: FakeHost, wait: Wait
) -> None:
    desk = with_tools
    (asked,) = begin(desk, fake_host, wait, READ)
    fake_host.replies.extend(Reply(calls(READ)) for _ in range(MAX_ROUNDS))
    desk.session.tools.allow(asked.id, "always")
    wait(lambda: not desk.session.is_busy)
    assert len(fake_host.tools.calls) == MAX_ROUNDS
    last = desk.shown[-1]
    assert last.role == "assistant"
    assert str(MAX_ROUNDS) in last.notice
    desk.session.go_on(last.id)
    wait(lambda: len(fake_host.tools.calls) == MAX_ROUNDS + 1 and not desk.session.is_busy)
    assert desk.shown[-1].text.startswith("You said")


def test_when_pictures_come_then_they_are_kept_with_the_call_and_named_to_the_model(
    with_tools: Desk, fake_host: FakeHost, wait: Wait
) -> None:
    desk = with_tools
    (asked,) = begin(desk, fake_host, wait, READ)
    result = ToolResult((ResultText("Here:"), ResultMedia(MediaPart("image", b"png", "image/png"))), cut=("Cut.",))
    fake_host.tools.scripts.append(Script((ToolReturned(result),)))
    desk.session.tools.allow(asked.id, "once")
    wait(lambda: not desk.session.is_busy)
    (shown,) = tools_of(desk)
    assert shown.text == "Here:\n[picture (image/png), shown to the person]\n[Cut.]"
    assert shown.attachments[0].size_bytes == 3
    assert fake_host.chats[1].messages[-1].parts == ()


class Maker:
    """Makes pictures when it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[bytes], int]] = []
        self._done: Callable[[list[Made]], None] | None = None

    def make(self, pictures: Sequence[bytes], max_pixels: int, done: Callable[[list[Made]], None]) -> None:
        self.asked.append((list(pictures), max_pixels))
        self._done = done

    def finish(self) -> None:
        assert self._done is not None
        made = Attachment("0" * 64, "image", "image/png", "", 4, 640, 480)
        self._done([(made, b"made"), "A picture of the tool was left out."])


SEEN = ToolResult(
    (ResultText("Here:"), *[ResultMedia(MediaPart("image", raw, "image/png")) for raw in (b"one", b"two")])
)


def test_when_the_model_sees_then_the_pictures_are_made_first_and_given_to_it(
    with_tools: Desk, fake_host: FakeHost, wait: Wait
) -> None:
    desk = with_tools
    model = ready_model()
    assert model.facts is not None
    seeing = msgspec.structs.replace(model, facts=msgspec.structs.replace(model.facts, can_see=True))
    fake_host.emit(ModelChanged(seeing))
    wait(lambda: desk.answering.choice(desk.session._open).ready == seeing)
    maker = Maker()
    desk.session.tools.set_picture_maker(maker)
    (asked,) = begin(desk, fake_host, wait, READ)
    fake_host.tools.scripts.append(Script((ToolReturned(SEEN),)))
    desk.session.tools.allow(asked.id, "once")
    wait(lambda: bool(maker.asked))
    assert maker.asked == [([b"one", b"two"], pixels_for(2, model.facts.n_ctx))]
    assert desk.session.is_busy
    assert len(fake_host.chats) == 1
    maker.finish()
    wait(lambda: not desk.session.is_busy)
    result = fake_host.chats[1].messages[-1]
    assert result.content.endswith("[A picture of the tool was left out.]")
    assert [part.media.data for part in result.parts if isinstance(part, PicturePart)] == [b"made"]
    assert tools_of(desk)[0].attachments[0].width_px == 640


def test_when_stopped_while_pictures_are_made_then_they_come_too_late(
    with_tools: Desk, fake_host: FakeHost, wait: Wait
) -> None:
    desk = with_tools
    maker = Maker()
    desk.session.tools.set_picture_maker(maker)
    (asked,) = begin(desk, fake_host, wait, READ)
    fake_host.tools.scripts.append(Script((ToolReturned(SEEN),)))
    desk.session.tools.allow(asked.id, "once")
    wait(lambda: bool(maker.asked))
    desk.session.stop()
    assert not desk.session.is_busy
    maker.finish()
    (shown,) = tools_of(desk)
    assert (shown.state, shown.text, shown.attachments) == ("stopped", STOPPED, ())
    assert len(fake_host.chats) == 1


def test_when_opened_again_then_calls_and_results_are_there_and_a_call_in_flight_is_interrupted(
    with_tools: Desk, fake_host: FakeHost, wait: Wait
) -> None:
    desk = with_tools
    (asked,) = begin(desk, fake_host, wait, READ)
    desk.session.tools.allow(asked.id, "once")
    wait(lambda: not desk.session.is_busy)
    fake_host.replies.append(Reply(calls(WRITE)))
    desk.session.send("and now")
    wait(lambda: len(tools_of(desk)) == 2)
    kept = desk.session.conversation_id
    desk.saver.flush()
    records: list[object] = []
    desk.store.submit(lambda store: store.messages(kept), records.append)
    wait(lambda: bool(records))
    last = records[0][-1]  # type: ignore[index]
    assert (last.role, last.state, last.tool_call_id) == ("tool", "queued", "call-0")

    from app.transcript import Transcript

    opened = Transcript(kept, records[0])  # type: ignore[arg-type]
    views = [opened.view(node) for node in opened.path()]
    assert [view.state for view in views if view.role == "tool"] == ["done", "interrupted"]
    assert views[-1].call is not None
    desk.session.stop()
    wait(lambda: not desk.session.is_busy)


def test_when_answered_again_or_edited_then_the_new_branch_has_its_own_calls(
    with_tools: Desk, fake_host: FakeHost, wait: Wait
) -> None:
    desk = with_tools
    (asked,) = begin(desk, fake_host, wait, READ)
    desk.session.tools.allow(asked.id, "always")
    wait(lambda: not desk.session.is_busy)
    assert desk.session.regenerate(desk.shown[-1].id)
    wait(lambda: not desk.session.is_busy)
    assert [one.role for one in desk.shown] == ["user", "assistant", "tool", "assistant"]
    assert desk.shown[-1].branch_count == 2
    fake_host.replies.append(Reply(words("no tool this time")))
    assert desk.session.regenerate(desk.shown[1].id)
    wait(lambda: not desk.session.is_busy)
    assert desk.texts[1:] == ["no tool this time"]
    desk.session.select_branch(desk.shown[1].id, 0)
    assert len(desk.shown) == 4
    assert desk.session.edit_and_resend(desk.shown[0].id, "something else")
    wait(lambda: not desk.session.is_busy)
    assert [one.role for one in desk.shown] == ["user", "assistant"]


def test_when_tools_are_off_or_must_be_called_then_the_request_says_so(
    with_tools: Desk, fake_host: FakeHost, wait: Wait, ask: Callable[[str], MessageView]
) -> None:
    desk = with_tools
    desk.session.tools.set_setup(ToolSetup(servers=("files",), off=(("files", "write_file"),), must_call=True))
    fake_host.replies.append(Reply(calls(READ)))
    desk.session.send("go")
    wait(lambda: len(tools_of(desk)) == 1)
    desk.session.tools.allow(tools_of(desk)[0].id, "once")
    wait(lambda: not desk.session.is_busy)
    first, second = fake_host.chats
    assert [tool.name for tool in first.shape.tools] == ["files__read_file"]
    assert (first.shape.tool_choice, second.shape.tool_choice) == ("required", "auto")
    assert (first.shape.parallel_tool_calls, second.shape.parallel_tool_calls) == (False, True)
    desk.session.tools.set_setup(ToolSetup())
    ask("without")
    assert fake_host.chats[-1].shape.tools == ()
    assert json.loads(msgspec.json.encode(fake_host.chats[-1]).decode()).get("shape", {}) == {}


def test_when_tools_that_only_read_are_trusted_then_they_need_no_question(
    with_tools: Desk, fake_host: FakeHost, wait: Wait
) -> None:
    desk = with_tools
    desk.answering.tools.trust_read_only(True)
    begin(desk, fake_host, wait, READ, WRITE)
    wait(lambda: [one.state for one in tools_of(desk)] == ["done", "queued"])
    desk.session.stop()
    wait(lambda: not desk.session.is_busy)


def test_when_the_conversation_is_left_then_its_tools_run_on_and_its_question_waits(
    with_tools: Desk, fake_host: FakeHost, wait: Wait
) -> None:
    desk = with_tools
    (asked,) = begin(desk, fake_host, wait, READ)
    first = desk.session.conversation_id
    desk.session.open(desk.conversations.create())
    assert not desk.session.is_busy
    desk.session.open(first)
    wait(lambda: desk.session.is_busy)
    desk.session.tools.allow(asked.id, "once")
    wait(lambda: not desk.session.is_busy)
    assert desk.states == ["done"] * 4


def test_when_tokens_are_counted_then_the_tools_count_too_and_again_when_they_change(
    with_tools: Desk, fake_host: FakeHost, wait: Wait
) -> None:
    desk = with_tools
    desk.session.draft.set_text("three more words")
    wait(
        lambda: (
            bool(fake_host.counts) and [tool.name for tool in fake_host.counts[-1].shape.tools] == [READ[0], WRITE[0]]
        )
    )
    desk.session.tools.set_setup(ToolSetup(servers=("files",), off=(("files", "write_file"),)))
    wait(lambda: [tool.name for tool in fake_host.counts[-1].shape.tools] == [READ[0]])
    desk.session.send("three more words")
    wait(lambda: not desk.session.is_busy)
    assert fake_host.chats[-1].shape == fake_host.counts[-1].shape, "counted as it is sent"
