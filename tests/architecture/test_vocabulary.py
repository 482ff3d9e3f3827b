"""Rules that every part of the shared vocabulary keeps."""

import inspect
from typing import Annotated, get_args, get_origin, get_type_hints

import msgspec
import pytest

from runtime import errors, options
from runtime.messages import frames, ipc
from runtime.messages.api import ChatEvent, HostEvent

OPTION_SETS = (options.LoadOptions, options.SamplingOptions, options.GenerateOptions, options.ApiOptions)


def example(kind: type[msgspec.Struct]) -> msgspec.Struct:
    """The smallest value of a struct: required fields get an empty value of their type."""
    return msgspec.convert(
        {info.encode_name: empty(info.type) for info in msgspec.structs.fields(kind) if info.required}, kind
    )


def empty(wanted: object) -> object:
    """An empty value of a type, as plain data."""
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin is Annotated:
        return "x"
    if wanted in (str, bytes):
        return ""
    if wanted in (int, float, bool):
        return wanted(0)
    if origin in (tuple, list):
        return []
    if inspect.isclass(wanted) and issubclass(wanted, msgspec.Struct):
        config = wanted.__struct_config__
        body = {info.encode_name: empty(info.type) for info in msgspec.structs.fields(wanted) if info.required}
        if config.array_like:
            return list(body.values())
        return body | ({config.tag_field: config.tag} if config.tag_field else {})
    return arguments[0] if arguments else None


@pytest.mark.parametrize("kind", get_args(ipc.ToWorker), ids=lambda kind: kind.__name__)
def test_when_a_message_to_the_worker_is_framed_then_it_comes_back_equal(kind: type[msgspec.Struct]) -> None:
    message = example(kind)
    assert frames.decode_to_worker(frames.encode_frame(message)[4:]) == message  # type: ignore[arg-type] # one of the union


@pytest.mark.parametrize("kind", get_args(ipc.FromWorker), ids=lambda kind: kind.__name__)
def test_when_a_message_from_the_worker_is_framed_then_it_comes_back_equal(kind: type[msgspec.Struct]) -> None:
    message = example(kind)
    assert frames.decode_from_worker(frames.encode_frame(message)[4:]) == message  # type: ignore[arg-type] # one of the union


@pytest.mark.parametrize("union", [ChatEvent, HostEvent], ids=["chat", "host"])
def test_when_an_event_is_encoded_then_its_tag_decodes_it(union: object) -> None:
    for kind in get_args(union):
        event = example(kind)
        assert msgspec.json.decode(msgspec.json.encode(event), type=union) == event


@pytest.mark.parametrize("kind", errors.KINDS.values(), ids=lambda kind: kind.__name__)
def test_when_an_error_crosses_a_border_then_kind_sentence_and_details_stay(kind: type[errors.RuntimeFault]) -> None:
    failure = errors.to_failure(kind("What happened.", hint="What to do.", path="a", n_ctx=4))
    back = errors.from_failure(failure)
    assert type(back) is kind
    assert (back.message, back.hint, dict(back.details)) == ("What happened.", "What to do.", {"path": "a", "n_ctx": 4})
    assert 400 <= failure.status < 600
    assert kind.__doc__


def test_when_an_error_from_outside_the_tree_crosses_then_it_is_a_bug_with_its_text() -> None:
    failure = errors.to_failure(ZeroDivisionError("division by zero"))
    assert failure.kind == "BugFault"
    assert "division by zero" in failure.message


@pytest.mark.parametrize("kind", OPTION_SETS, ids=lambda kind: kind.__name__)
def test_when_an_option_takes_a_number_or_choice_then_title_sentence_and_unit_are_declared(
    kind: type[msgspec.Struct],
) -> None:
    hints = get_type_hints(kind, include_extras=True)
    bare = {
        "tensor_split",
        "draft_model",
        "projector",
        "lora",
        "stop",
        "logprobs",
        "top_logprobs",
        "echo",
        "ignore_eos",
        "sampling",
        "logit_bias",
        "dry_sequence_breakers",
    }
    for name in set(hints) - bare:
        metas = [part for part in get_args(hints[name]) if isinstance(part, msgspec.Meta)]
        assert metas, f"{kind.__name__}.{name}"
        assert metas[0].title
        assert metas[0].description
        assert "unit" in (metas[0].extra or {})


@pytest.mark.parametrize("kind", OPTION_SETS, ids=lambda kind: kind.__name__)
def test_when_an_option_is_unknown_or_out_of_range_then_decoding_refuses_it(kind: type[msgspec.Struct]) -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.json.decode(b'{"no_such_option": 1}', type=kind)


def test_when_a_temperature_is_negative_then_decoding_names_the_field() -> None:
    with pytest.raises(msgspec.ValidationError, match="temperature"):
        msgspec.json.decode(b'{"temperature": -1}', type=options.SamplingOptions)


def test_when_a_message_holds_a_number_of_more_than_64_bits_then_it_is_refused_as_the_callers_fault() -> None:
    too_large = ipc.Generate("a", options=options.GenerateOptions(max_tokens=2**64))
    with pytest.raises(errors.BadRequest, match="64 bits"):
        frames.encode_frame(too_large)
