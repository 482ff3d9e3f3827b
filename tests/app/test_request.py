"""How a conversation becomes messages: files, tools, failed answers, and what a model cannot take."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from app.request import NO_RESULT, hashes_of, needed_sense, turns_of
from app.store.records import Attachment, MessageRecord
from app.transcript import Node
from runtime.messages.shared import MAX_MEDIA, MediaPart, Message, ModelFacts, PicturePart, TextPart, ToolCall
from tests.fakes.answers import ready_model

CAT = Attachment("cat", "image", "image/png", "cat.png", 3)
DOG = Attachment("dog", "image", "image/jpeg", "", 3)
SONG = Attachment("song", "audio", "audio/wav", "song.wav", 4)
NOTES = Attachment("notes", "text", "text/markdown", "notes.md", 5)
DATA = {"cat": b"CAT", "dog": b"DOG", "song": b"SONG", "notes": b"a ``` b\n"}
CAT_PART = PicturePart(MediaPart("image", b"CAT", "image/png"))
CALL = ToolCall("1", "weather", "{}")
OTHER_CALL = ToolCall("2", "time", "{}")


def user(text: str, *files: Attachment) -> Node:
    return Node(MessageRecord("u", "c", "", "user", content=text, attachments=files))


def answer(text: str, *calls: ToolCall, reasoning: str = "") -> Node:
    return Node(MessageRecord("a", "c", "u", "assistant", content=text, tool_calls=calls, reasoning=reasoning))


def result(call: ToolCall, text: str) -> Node:
    return Node(MessageRecord("t", "c", "a", "tool", content=text, tool_call_id=call.id, tool_name=call.name))


def facts(*, can_see: bool = False, can_hear: bool = False) -> ModelFacts:
    found = ready_model().facts
    assert found is not None
    return ModelFacts(
        **{name: getattr(found, name) for name in found.__struct_fields__} | {"can_see": can_see, "can_hear": can_hear}
    )


def sent(path: Iterable[Node], model: ModelFacts | None = None) -> tuple[Message, ...]:
    return turns_of("", path, DATA, model).messages


def test_when_a_question_has_pictures_and_files_then_the_words_come_last() -> None:
    (message,) = sent([user("What is it?", CAT, NOTES)])
    fenced = "notes.md:\n````md\na ``` b\n````"
    assert message == Message(
        "user", f"{fenced}\n\nWhat is it?", parts=(TextPart(fenced), CAT_PART, TextPart("What is it?"))
    )
    assert hashes_of([user("", CAT, NOTES), user("", CAT)], (DOG,)) == ("cat", "notes", "dog")


def test_when_a_question_has_only_a_text_file_then_it_is_plain_text() -> None:
    (message,) = sent([user("", NOTES)])
    assert message == Message("user", "notes.md:\n````md\na ``` b\n````")


def test_when_two_questions_follow_each_other_then_their_pictures_stay_in_place() -> None:
    (message,) = sent([user("one", CAT), answer(""), user("two")])
    assert message == Message("user", "one\n\ntwo", parts=(CAT_PART, TextPart("one"), TextPart("two")))


def test_when_the_model_cannot_see_then_pictures_are_named_and_counted() -> None:
    path = [user("Look", CAT), answer("A cat"), user("And now?", DOG, SONG)]
    turns = turns_of("Be kind.", path, DATA, facts())
    assert turns.messages == (
        Message("system", "Be kind."),
        Message("user", "[picture cat.png]\n\nLook"),
        Message("assistant", "A cat"),
        Message("user", "[picture]\n\n[sound song.wav]\n\nAnd now?"),
    )
    assert turns.left_out == 3
    assert turns_of("", path, DATA, facts(can_see=True, can_hear=True)).left_out == 0
    assert turns_of("", path, {}, facts(can_see=True, can_hear=True)).left_out == 3


def test_when_a_model_lacks_a_sense_then_it_is_told_and_not_while_no_model_is_known() -> None:
    assert needed_sense((CAT, SONG), facts()) == "image"
    assert needed_sense((CAT, SONG), facts(can_see=True)) == "audio"
    assert needed_sense((CAT, SONG), facts(can_see=True, can_hear=True)) == ""
    assert needed_sense((NOTES,), facts()) == ""
    assert needed_sense((CAT,), None) == ""


def test_when_there_are_too_many_pictures_then_the_newest_go() -> None:
    many = [Attachment(str(number), "image", "image/png", "", 1) for number in range(MAX_MEDIA + 2)]
    path = [node for one in many for node in (user("x", one), answer("y"))]
    turns = turns_of("", path, {one.sha256: b"x" for one in many}, facts(can_see=True))
    assert turns.left_out == 2
    assert [bool(turn.parts) for turn in turns.messages if turn.role == "user"] == [False] * 2 + [True] * MAX_MEDIA


def test_when_tools_were_called_then_calls_results_and_thought_go_back() -> None:
    path = [
        user("Weather?"),
        answer("", CALL, OTHER_CALL, reasoning="I must look."),
        result(CALL, "rain"),
        result(OTHER_CALL, "noon"),
    ]
    assert sent(path) == (
        Message("user", "Weather?"),
        Message("assistant", "", "I must look.", tool_calls=(CALL, OTHER_CALL)),
        Message("tool", "rain", name="weather", tool_call_id="1"),
        Message("tool", "noon", name="time", tool_call_id="2"),
    )
    later = sent([*path, answer("It rains.", reasoning="Done."), user("Thanks")])
    assert [turn.reasoning for turn in later] == [""] * 6


def test_when_a_call_has_no_result_then_one_is_told() -> None:
    path = [user("Weather?"), answer("", CALL, OTHER_CALL), result(OTHER_CALL, "noon"), user("Well?")]
    assert [(turn.role, turn.tool_call_id, turn.content) for turn in sent(path)[2:]] == [
        ("tool", "2", "noon"),
        ("tool", "1", NO_RESULT),
        ("user", "", "Well?"),
    ]
    path = [user("Weather?"), answer("", CALL), answer("It rains.")]
    assert [turn.role for turn in sent(path)] == ["user", "assistant", "tool", "assistant"]


@given(st.text(alphabet="`a \n", max_size=30))
def test_when_a_file_holds_fences_then_its_own_is_longer(text: str) -> None:
    (message,) = turns_of("", [user("", NOTES)], {"notes": text.encode()}).messages
    lines = message.content.split("\n")
    fence = lines[1].removesuffix("md")
    assert lines[-1] == fence
    assert set(fence) == {"`"}
    assert all(fence not in line for line in lines[2:-1])


SHOT = Attachment("shot", "image", "image/png", "", 4, 800, 600)


def pictured(call: ToolCall, text: str, *files: Attachment) -> Node:
    return Node(
        MessageRecord("t", "c", "a", "tool", text, attachments=files, tool_call_id=call.id, tool_name=call.name)
    )


def test_when_a_tool_brought_a_picture_then_a_model_that_sees_gets_it_behind_the_words() -> None:
    data = {"shot": b"SHOT"}
    path = [user("Look at the page"), answer("", CALL), pictured(CALL, "Here: [picture]", SHOT)]
    seen = turns_of("", path, data, facts(can_see=True))
    part = PicturePart(MediaPart("image", b"SHOT", "image/png"))
    assert seen.messages[-1] == Message(
        "tool", "Here: [picture]", name="weather", parts=(TextPart("Here: [picture]"), part), tool_call_id="1"
    )
    assert seen.left_out == 0

    blind = turns_of("", path, data, facts())
    assert blind.messages[-1] == Message("tool", "Here: [picture]", name="weather", tool_call_id="1")
    assert blind.left_out == 0, "the words of the result name it already"

    lost = turns_of("", path, {}, facts(can_see=True))
    assert (lost.messages[-1].parts, lost.left_out) == ((), 1)


def test_when_a_tools_picture_is_one_that_models_refuse_then_it_is_not_sent() -> None:
    """A picture that nobody chose must not make every further answer of the conversation fail."""
    for width, height in ((2, 2), (27, 900), (3000, 40), (0, 0)):
        odd = Attachment("shot", "image", "image/png", "", 4, width, height)
        path = [user("Look"), answer("", CALL), pictured(CALL, "[picture]", odd)]
        assert turns_of("", path, {"shot": b"SHOT"}, facts(can_see=True)).messages[-1].parts == ()


def test_when_tools_bring_more_pictures_than_a_request_takes_then_the_newest_go() -> None:
    shots = [Attachment(str(n), "image", "image/png", "", 1, 90, 90) for n in range(MAX_MEDIA)]
    path = [user("x", CAT)]
    for one in shots:
        path += [answer("", CALL), pictured(CALL, "[picture]", one)]
    turns = turns_of("", path, {"cat": b"c"} | {one.sha256: b"x" for one in shots}, facts(can_see=True))
    assert turns.left_out == 1
    assert turns.messages[0].content == "[picture cat.png]\n\nx"
    assert all(turn.parts for turn in turns.messages if turn.role == "tool")
