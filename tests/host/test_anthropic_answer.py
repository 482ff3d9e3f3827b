"""Anthropic's shapes, made from what a worker says."""

import json

import pytest

from runtime.errors import Busy, ContextExceeded, ModelLoading, NotAuthorized, PayloadTooLarge, WorkerDied
from runtime.host.api.anthropic_answer import Gathered, TextBlock, ToolUseBlock, anthropic_error, input_of, stop_of
from runtime.messages.ipc import Delta, Finished
from runtime.messages.shared import FinishReason, Timings, ToolCallHead, Usage


def finished(reason: FinishReason, stop: str = "", n_tokens: int = 5) -> Finished:
    return Finished("r", (reason,), Usage(10, 0, n_tokens), Timings(), (stop,))


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (finished("stop"), ("end_turn", None)),
        (finished("stop", "END"), ("stop_sequence", "END")),
        (finished("stop", "<|template|>"), ("end_turn", None)),  # the template's own, not the caller's
        (finished("length", n_tokens=100), ("max_tokens", None)),
        (finished("length", n_tokens=99), ("model_context_window_exceeded", None)),
        (finished("tool_calls"), ("tool_use", None)),
        (finished("cancelled"), ("max_tokens", None)),
    ],
)
def test_when_an_answer_ends_then_the_reason_is_in_this_dialects_words(
    end: Finished, expected: tuple[str, str | None]
) -> None:
    assert stop_of(end, 100, ("END",)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        ('{"a": ', {"arguments": '{"a": '}),
        ("[1]", {"arguments": "[1]"}),
        ("[" * 100_000, {"arguments": "[" * 100_000}),
    ],
)
def test_when_arguments_are_no_object_then_they_are_kept_as_text(text: str, expected: dict[str, object]) -> None:
    assert input_of(text) == expected


def test_when_calls_and_text_alternate_then_each_run_is_a_block() -> None:
    gathered = Gathered("s")
    heads = (ToolCallHead(0, "a", "f"), ToolCallHead(1, "b", "f"))
    for delta in (
        Delta("r", 0, "content", ""),
        Delta("r", 0, "content", "x"),
        Delta("r", 0, "content", "y"),
        Delta("r", 0, "tool_call", "", 1, (), heads[0]),
        Delta("r", 0, "tool_call", '{"n":1}', 1, (), heads[0]),
        Delta("r", 0, "tool_call", '{"n":2}', 1, (), heads[1]),
        Delta("r", 0, "content", "z"),
    ):
        gathered.add(delta)
    assert gathered.blocks() == (
        TextBlock("xy"),
        ToolUseBlock("a", "f", {"n": 1}),
        ToolUseBlock("b", "f", {"n": 2}),
        TextBlock("z"),
    )


def test_when_something_fails_then_the_type_is_one_that_clients_know() -> None:
    kinds = [
        (NotAuthorized("x"), "authentication_error"),
        (PayloadTooLarge("x"), "request_too_large"),
        (ContextExceeded("x"), "invalid_request_error"),
        (Busy("x"), "rate_limit_error"),
        (ModelLoading("x"), "overloaded_error"),
        (WorkerDied("x"), "overloaded_error"),
    ]
    assert [anthropic_error(error).error.type for error, _ in kinds] == [kind for _, kind in kinds]
    assert json.loads(json.dumps(anthropic_error(Busy("a", hint="b.")).error.message)) == "a b."
