"""Bodies of the Responses API, of any shape: typed values or a sentence, never anything else."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import BadRequest, CallerFault
from runtime.host.api.responses_items import sealed, unsealed
from runtime.host.api.responses_request import ResponsesAsk, ResponsesBody, responses_ask
from runtime.host.api.responses_store import ResponseStore
from runtime.messages.frames import encode_frame
from runtime.messages.ipc import Generate
from runtime.messages.shared import MediaPart, Message, PicturePart, TextPart, ToolCall
from runtime.options import SamplingOptions

LEAVES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=5)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
KINDS = ["message", "function_call", "function_call_output", "reasoning", "item_reference"]
ITEM_FIELDS = ["role", "content", "call_id", "name", "arguments", "output", "summary", "encrypted_content", "id"]
ITEMS = st.lists(
    st.fixed_dictionaries({"type": st.sampled_from(KINDS)}).flatmap(
        lambda item: st.dictionaries(st.sampled_from(ITEM_FIELDS), VALUES).map(lambda fields: {**fields, **item})
    ),
    max_size=3,
)
BODIES = st.dictionaries(st.sampled_from(ResponsesBody.__struct_fields__), VALUES, max_size=5)
PNG = b"\x89PNG\r\n\x1a\n and the rest"


def refusal(body: dict[str, Any]) -> CallerFault | None:
    try:
        ask = responses_ask(body, ResponseStore())
        # What is let in can be passed on.
        encode_frame(Generate("r", messages=ask.messages, options=ask.options, shape=ask.shape))
    except CallerFault as error:
        return error
    return None


def asked(**body: Any) -> ResponsesAsk:
    return responses_ask({"input": "x", **body}, ResponseStore())


@given(BODIES, ITEMS)
def test_when_a_body_is_odd_then_a_sentence_names_the_field(body: dict[str, Any], items: list[dict[str, Any]]) -> None:
    for given_input in (items, "x"):
        problem = refusal({"input": given_input, **body})
        assert problem is None or (problem.message.endswith(".") and "param" in problem.details)


@pytest.mark.parametrize("number", [2**31, 2**63, 2**64, 10**30, -(2**63) - 1])
@pytest.mark.parametrize("name", [name for name in ResponsesBody.__struct_fields__ if name != "input"])
def test_when_a_number_is_huge_then_it_is_refused_or_fits_a_message(name: str, number: int) -> None:
    for value in (number, {str(number): 1}):
        refusal({"input": "x", name: value})


@pytest.mark.parametrize("name", SamplingOptions.__struct_fields__)
def test_when_a_sampling_option_is_given_then_it_arrives(name: str) -> None:
    values: dict[str, Any] = {"dry_sequence_breakers": ["x"], "mirostat": 2, "logit_bias": {"5": 1.5}, "grammar": "g"}
    value = values.get(name, 1)
    expected = {"dry_sequence_breakers": ("x",), "logit_bias": {5: 1.5}}.get(name, value)
    assert getattr(asked(**{name: value}).options.sampling, name) == expected


def test_when_nothing_is_said_then_defaults_are_those_of_the_options() -> None:
    ask = asked()
    assert ask.options.sampling == SamplingOptions()
    assert (ask.options.max_tokens, ask.options.context_policy, ask.body.store) == (None, "stop", True)
    assert ask.messages == (Message("user", "x"),)


def test_when_pictures_stand_among_text_then_their_places_are_kept() -> None:
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    picture = {"type": "input_image", "image_url": url, "detail": "auto"}
    ask = asked(
        input=[
            {"role": "user", "content": [{"type": "input_text", "text": "one"}, picture]},
            {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": [picture]},
        ]
    )
    seen = PicturePart(MediaPart("image", PNG, "image/png"))
    assert ask.messages == (
        Message("user", "one", parts=(TextPart("one"), seen)),
        Message("assistant", tool_calls=(ToolCall("a", "look", "{}"),)),
        Message("tool", "", name="look", parts=(seen,), tool_call_id="a"),
    )


@pytest.mark.parametrize("role", ["system", "developer", "assistant"])
def test_when_a_picture_stands_in_another_role_then_it_is_refused(role: str) -> None:
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    with pytest.raises(BadRequest, match="cannot be read in this place"):
        asked(input=[{"role": role, "content": [{"type": "input_image", "image_url": url}]}])


@given(st.text())
def test_when_a_thought_is_sealed_then_it_comes_back(thought: str) -> None:
    assert unsealed(sealed(thought)) == thought


@given(st.text(max_size=20))
def test_when_sealed_thought_is_damaged_then_it_is_none(text: str) -> None:
    assert isinstance(unsealed(f"deskside.{text}"), str)
    assert unsealed(f"x{text}") == ""
