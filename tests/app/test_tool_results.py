"""What is read of a tool's result, and what an exported conversation says of it."""

from app.export import to_markdown
from app.store.records import MAX_MESSAGE_BYTES, Attachment, MessageRecord
from app.tool_results import (
    MIN_CHARS,
    MIN_PICTURE_PIXELS,
    NOTHING,
    PICTURE_SHARE,
    PIXELS_A_TOKEN,
    kept_of,
    pictures_of,
    pixels_for,
    pretty,
    problem_with,
    text_of,
)
from app.transcript import Transcript
from runtime.messages.shared import MediaPart, ToolCall
from runtime.messages.tools import MAX_RESULT_IMAGES, ResultLink, ResultMedia, ResultText, ToolResult


def test_when_a_result_is_larger_than_the_context_has_room_for_then_it_is_cut_with_a_mark() -> None:
    text = text_of(ToolResult((ResultText("x" * 50_000),)), n_ctx=8192)
    assert len(text) < 7_000
    assert text.endswith("characters after the first 6,144 are missing.]")
    assert text_of(ToolResult((ResultText("x" * 50_000),)), n_ctx=512).startswith("x" * MIN_CHARS)
    assert len(text_of(ToolResult((ResultText("x" * 50_000),)), n_ctx=0)) == 50_000


def test_when_there_is_only_structured_content_or_a_link_then_the_model_reads_that() -> None:
    assert text_of(ToolResult(structured='{"a":1}'), 0) == '{"a":1}'
    assert text_of(ToolResult((ResultText("one"),), structured='{"a":1}'), 0) == "one"
    assert text_of(ToolResult((ResultLink("https://x", "n", "d"),)), 0) == "[link: https://x n - d]"
    assert text_of(ToolResult(), 0) == NOTHING


def test_when_arguments_are_looked_at_then_json_is_indented_and_anything_else_stays() -> None:
    assert pretty('{"a":[1]}') == '{\n  "a": [\n    1\n  ]\n}'
    assert pretty('{"a":') == '{"a":'
    assert problem_with("") == ""
    assert "no valid JSON" in problem_with("{")
    assert "no valid JSON" in problem_with("[" * 5000)


def test_when_a_conversation_with_tools_is_exported_then_calls_and_results_stand_in_it() -> None:
    call = ToolCall("1", "files__read", '{"path":"a"}')
    records = [
        MessageRecord("q", "c", "", "user", "read it"),
        MessageRecord("a", "c", "q", "assistant", tool_calls=(call,)),
        MessageRecord("t", "c", "a", "tool", "```\nhello\n```", tool_call_id="1", tool_name="files__read"),
        MessageRecord("b", "c", "t", "assistant", "It says hello."),
    ]
    text = to_markdown("T", "", Transcript("c", records))
    assert 'Calls the tool `files__read`:\n\n```json\n{\n  "path": "a"\n}\n```' in text
    assert "## Tool `files__read`\n\n````\n```\nhello\n```\n````" in text
    assert text.index("It says hello.") > text.index("hello\n```")


def test_when_a_result_has_pictures_then_together_they_take_half_the_context_at_most() -> None:
    assert pixels_for(1, 0) == 0
    for n_ctx in (4096, 32_768):
        for count in (1, 2, 8):
            tokens = count * pixels_for(count, n_ctx) / PIXELS_A_TOKEN
            assert tokens <= max(n_ctx * PICTURE_SHARE, count * MIN_PICTURE_PIXELS / PIXELS_A_TOKEN)
    assert pixels_for(8, 512) == MIN_PICTURE_PIXELS


def test_when_a_result_has_many_or_equal_or_large_pictures_then_what_is_kept_is_bounded_and_told() -> None:
    picture = ResultMedia(MediaPart("image", b"png", "image/png"))
    sound = ResultMedia(MediaPart("audio", b"wav", "audio/wav"))
    assert len(pictures_of(ToolResult((sound, *[picture] * 20)))) == MAX_RESULT_IMAGES

    large = b"x" * (MAX_MESSAGE_BYTES // 2)
    made = [(Attachment(name, "image", "image/png", "", len(large)), large) for name in ("a", "a", "b", "c")]
    kept, sentences = kept_of([made[0], "One is damaged.", *made[1:]])
    assert [one.sha256 for one, _ in kept] == ["a", "b"]
    assert sentences[0] == "One is damaged."
    assert "16 MiB" in sentences[1]
    assert text_of(ToolResult((ResultText("Here"),)), 0, sentences).startswith("Here\n[One is damaged.]")
