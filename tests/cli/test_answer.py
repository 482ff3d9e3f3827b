import io

import pytest

from runtime.cli.answer import AnswerView
from runtime.cli.terminal import Terminal
from runtime.errors import Failure, GenerationFailed
from runtime.messages.api import ChatDelta, ChatFailed, ChatFinished, ChatProgress, ChatQueued
from runtime.messages.shared import FinishReason, Message, Timings, Usage


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def finished(*reasons: FinishReason) -> ChatFinished:
    timings = Timings(time_to_first_token_s=0.21, generation_tps=131.4)
    return ChatFinished(reasons or ("stop",), Usage(completion_tokens=42), timings)


class Shown:
    def __init__(self, *, tty: bool, show_reasoning: bool = True) -> None:
        self.out: io.StringIO = Tty() if tty else io.StringIO()
        self.err: io.StringIO = Tty() if tty else io.StringIO()
        self.view = AnswerView(Terminal(self.out, self.err, {}), show_reasoning=show_reasoning)

    @property
    def text(self) -> str:
        return self.out.getvalue()


def test_when_output_is_a_pipe_then_only_the_answer_is_written_as_it_is() -> None:
    shown = Shown(tty=False, show_reasoning=False)
    for event in (
        ChatQueued(2),
        ChatProgress(100, 5000),
        ChatDelta("reasoning", "hm"),
        ChatDelta("content", "a\x1b[1m"),
        ChatDelta("content", "b"),
        finished(),
    ):
        shown.view.event(event)
    shown.view.end()
    assert shown.text == "a\x1b[1mb\n"
    assert shown.err.getvalue() == ""
    assert shown.view.message == Message("assistant", "a\x1b[1mb", "hm")


def test_when_output_is_a_terminal_then_the_model_cannot_steer_it() -> None:
    shown = Shown(tty=True)
    shown.view.event(ChatDelta("content", "\x1b]0;owned\x07"))
    shown.view.end()
    assert shown.text == "␛]0;owned␇\n"


def test_when_the_answer_is_done_then_a_dim_line_has_the_figures() -> None:
    shown = Shown(tty=True)
    shown.view.event(ChatDelta("content", "hi"))
    shown.view.event(finished())
    shown.view.end()
    assert shown.text == "hi\n\x1b[2m131 tok/s · 42 tokens · first after 210 ms\x1b[0m\n"


def test_when_the_answer_was_cut_off_then_the_line_says_so() -> None:
    shown = Shown(tty=True)
    shown.view.event(ChatProgress(10, 10, dropped_turns=3))
    shown.view.event(finished("length"))
    assert "cut off" in shown.text
    assert "oldest 3 turns" in shown.text


def test_when_reasoning_is_shown_then_it_is_dim_and_apart() -> None:
    shown = Shown(tty=True)
    shown.view.event(ChatDelta("reasoning", "hm"))
    shown.view.event(ChatDelta("content", "so"))
    assert shown.text == "\x1b[2mhm\x1b[0m\n\nso"


def test_when_it_waits_then_the_line_is_taken_away_before_the_text() -> None:
    shown = Shown(tty=True)
    shown.view.event(ChatQueued(2))
    shown.view.event(ChatProgress(1000, 4000))
    shown.view.event(ChatDelta("content", "hi"))
    said = shown.err.getvalue()
    assert "number 2 in the queue" in said
    assert "25 %" in said
    assert said.endswith("\r\x1b[K")


def test_when_it_failed_then_the_end_raises_it() -> None:
    shown = Shown(tty=False)
    shown.view.event(ChatDelta("content", "half"))
    shown.view.event(ChatFailed(Failure("GenerationFailed", "llama.cpp refused the batch.")))
    with pytest.raises(GenerationFailed):
        shown.view.end()
    assert shown.text == "half\n"


def test_when_it_was_stopped_then_a_terminal_says_so() -> None:
    shown = Shown(tty=True)
    shown.view.event(ChatDelta("content", "par"))
    shown.view.end(stopped=True)
    assert shown.text.endswith("par\n\x1b[2mstopped\x1b[0m\n")
