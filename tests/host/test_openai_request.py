"""Bodies of any shape: typed values or a sentence, never anything else."""

import base64
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import BadRequest, PayloadTooLarge
from runtime.host.api.media import MAX_PICTURE_BYTES
from runtime.host.api.openai_request import ChatAsk, ChatBody, CompletionAsk, chat_ask, completion_ask, embedding_ask
from runtime.messages.frames import encode_frame
from runtime.messages.ipc import Generate
from runtime.messages.shared import MAX_MEDIA, MediaPart, Part, PicturePart, TextPart
from runtime.options import SamplingOptions

MESSAGES = [{"role": "user", "content": "hi"}]
LEAVES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=5)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
OTHER_FIELDS = [
    "prompt",
    "input",
    "suffix",
    "best_of",
    "echo",
    "tools",
    "tool_choice",
    "modalities",
    "response_format",
    "max_completion_tokens",
    "dimensions",
    "encoding_format",
    "n_predict",
    "json_schema",
]
FIELDS = st.sampled_from([*ChatBody.__struct_fields__, *OTHER_FIELDS])
BODIES = st.dictionaries(FIELDS, VALUES, max_size=6)
LIKELY_MESSAGES = st.lists(
    st.dictionaries(st.sampled_from(["role", "content", "name", "tool_calls"]), VALUES), max_size=3
)


@given(BODIES, LIKELY_MESSAGES)
def test_when_a_body_is_odd_then_a_sentence_names_the_field(
    body: dict[str, Any], messages: list[dict[str, Any]]
) -> None:
    for ask, required in ((chat_ask, {"messages": messages}), (completion_ask, {}), (embedding_ask, {})):
        problem = refusal(ask, {**required, **body})
        assert problem is None or (problem.message.endswith(".") and "param" in problem.details)


@pytest.mark.parametrize("number", [2**31, 2**63, 2**64, 10**30, -(2**63) - 1])
@pytest.mark.parametrize("name", [name for name in ChatBody.__struct_fields__ if name != "messages"])
def test_when_a_number_is_huge_then_it_is_refused_or_fits_a_message(name: str, number: int) -> None:
    for value in (number, {str(number): 1}):
        refusal(chat_ask, {"messages": MESSAGES, name: value})
        refusal(completion_ask, {"prompt": "x", name: value})


@pytest.mark.parametrize("breakers", [["x"] * 17, ["x" * 41]])
def test_when_dry_breakers_are_many_or_long_then_they_are_refused(breakers: list[str]) -> None:
    # Each costs a walk over the whole vocabulary; some hundreds stop the engine for a minute.
    problem = refusal(chat_ask, {"messages": MESSAGES, "dry_multiplier": 1, "dry_sequence_breakers": breakers})
    assert problem is not None
    assert "dry_sequence_breakers" in problem.message


def refusal(ask: Callable[[dict[str, Any]], object], body: dict[str, Any]) -> BadRequest | None:
    try:
        asked = ask(body)
        if isinstance(asked, ChatAsk | CompletionAsk):
            encode_frame(Generate("r", options=asked.options, shape=asked.shape))  # what is let in can be passed on
    except BadRequest as error:
        return error
    return None


def test_when_nothing_is_said_then_defaults_are_those_of_the_options() -> None:
    ask = chat_ask({"messages": MESSAGES})
    assert ask.options.sampling == SamplingOptions()
    assert ask.options.max_tokens is None
    assert (ask.model, ask.stream, ask.include_usage, ask.continue_last) == ("", False, False, False)


@pytest.mark.parametrize("name", SamplingOptions.__struct_fields__)
def test_when_a_sampling_option_is_given_then_it_arrives(name: str) -> None:
    values: dict[str, Any] = {"dry_sequence_breakers": ["x"], "mirostat": 2, "logit_bias": {"5": 1.5}, "grammar": "g"}
    value = values.get(name, 1)
    sampling = chat_ask({"messages": MESSAGES, name: value}).options.sampling
    expected = {"dry_sequence_breakers": ("x",), "logit_bias": {5: 1.5}}.get(name, value)
    assert getattr(sampling, name) == expected


@pytest.mark.parametrize(
    ("seed", "expected"), [(-1, None), (5, 5), (2**32 + 5, 5), (-5, 2**32 - 5), (2**63 - 1, 2**32 - 1)]
)
def test_when_seed_is_64_bit_then_it_is_folded_and_minus_one_is_any(seed: int, expected: int | None) -> None:
    assert chat_ask({"messages": MESSAGES, "seed": seed}).options.sampling.seed == expected


def test_when_names_of_other_servers_are_used_then_they_count() -> None:
    ask = chat_ask({"messages": MESSAGES, "repetition_penalty": 1.1, "n_predict": 7, "typ_p": 0.5})
    assert ask.options.sampling.repeat_penalty == 1.1
    assert ask.options.sampling.typical_p == 0.5
    assert ask.options.max_tokens == 7
    assert chat_ask({"messages": MESSAGES, "max_tokens": -1}).options.max_tokens is None


def test_when_last_message_is_to_be_continued_then_it_is_asked_so() -> None:
    messages = [*MESSAGES, {"role": "assistant", "content": "The"}]
    assert chat_ask({"messages": messages, "continue_final_message": True}).continue_last
    assert not chat_ask({"messages": messages}).continue_last


PNG = b"\x89PNG\r\n\x1a\n and the rest"
WAV = b"RIFF\x00\x00\x00\x00WAVEfmt "


def of_url(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def parts_of(*parts: dict[str, Any]) -> tuple[Part, ...]:
    return chat_ask({"messages": [{"role": "user", "content": list(parts)}]}).messages[0].parts


def test_when_pictures_and_sounds_stand_among_text_then_their_places_are_kept() -> None:
    parts = parts_of(
        {"type": "text", "text": "one"},
        {"type": "image_url", "image_url": {"url": of_url(PNG), "detail": "low"}},
        {"type": "text", "text": "two"},
        {"type": "input_audio", "input_audio": {"data": base64.b64encode(WAV).decode(), "format": "wav"}},
    )
    assert parts == (
        TextPart("one"),
        PicturePart(MediaPart("image", PNG, "image/png")),
        TextPart("two"),
        PicturePart(MediaPart("audio", WAV, "audio/wav")),
    )


@pytest.mark.parametrize(
    ("data", "mime"), [(b"fLaC....", "audio/flac"), (b"ID3\x04...", "audio/mpeg"), (b"\xff\xfb\x90", "audio/mpeg")]
)
def test_when_a_sound_comes_then_its_own_bytes_tell_the_format(data: bytes, mime: str) -> None:
    (part,) = parts_of({"type": "input_audio", "input_audio": {"data": base64.b64encode(data).decode()}})
    assert isinstance(part, PicturePart)
    assert (part.media.kind, part.media.mime) == ("audio", mime)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"type": "input_audio", "input_audio": {"data": "bm8gc291bmQ="}}, "no sound of a known format"),
        ({"type": "input_audio"}, "`messages[0].content[0].input_audio` is missing"),
        ({"type": "image_url"}, "`messages[0].content[0].image_url` is missing"),
        ({"type": "text"}, "`messages[0].content[0].text` is missing"),
        ({"type": "image_url", "image_url": "data:image/png,x"}, "no base64 data address"),
    ],
)
def test_when_a_part_is_wrong_then_it_is_named(part: dict[str, Any], words: str) -> None:
    with pytest.raises(BadRequest) as raised:
        parts_of(part)
    assert words in raised.value.message


def test_when_a_request_has_too_many_or_too_large_pictures_then_it_is_refused() -> None:
    picture = {"type": "image_url", "image_url": {"url": of_url(PNG)}}
    with pytest.raises(BadRequest, match="65 pictures"):
        parts_of(*[picture] * (MAX_MEDIA + 1))
    with pytest.raises(PayloadTooLarge, match="over the limit"):
        parts_of({"type": "image_url", "image_url": {"url": of_url(PNG + bytes(MAX_PICTURE_BYTES))}})


def test_when_a_system_message_has_a_picture_then_it_is_refused() -> None:
    picture = {"type": "image_url", "image_url": {"url": of_url(PNG)}}
    with pytest.raises(BadRequest, match="cannot be read in a message of the system"):
        chat_ask({"messages": [{"role": "system", "content": [picture]}, *MESSAGES]})


@pytest.mark.parametrize("depth", [100, 500, 900, 990])
def test_when_a_schema_is_deep_then_it_is_taken_or_refused_by_a_sentence(depth: int) -> None:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"properties": schema}
    problem = refusal(chat_ask, {"messages": MESSAGES, "json_schema": schema})
    assert problem is None or problem.message.endswith("nested too deeply.")
