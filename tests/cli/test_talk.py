import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.cli.answer import AnswerView
from runtime.cli.talk import Talk, as_markdown, write_new
from runtime.cli.terminal import Terminal
from runtime.errors import Failure, WorkerDied
from runtime.messages.api import ChatDelta, ChatFailed
from runtime.messages.shared import Message


class Typed:
    """What a person types; an exception stands for a key."""

    def __init__(self, *inputs: str | type[BaseException]) -> None:
        self._inputs: Iterator[str | type[BaseException]] = iter(inputs)

    def read(self, prompt: str, more_prompt: str) -> str:  # noqa: ARG002 - as the real one
        one = next(self._inputs, EOFError)
        if isinstance(one, str):
            return one
        raise one


class Model:
    """Answers with its script: texts, an event, an error, or None for Ctrl-C after the text before."""

    def __init__(self, *answers: str | ChatFailed | Exception | None) -> None:
        self._answers = iter(answers)
        self.asked: list[tuple[Message, ...]] = []

    def __call__(self, messages: tuple[Message, ...], view: AnswerView) -> bool:
        self.asked.append(messages)
        answer = next(self._answers)
        match answer:
            case str():
                view.event(ChatDelta("content", answer))
            case ChatFailed():
                view.event(ChatDelta("content", "half"))
                view.event(answer)
            case Exception():
                raise answer
            case None:
                view.event(ChatDelta("content", "par"))
                return False
        return True


class Session:
    def __init__(self, typed: Typed, model: Model, **options: str) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()
        self.model = model
        self.talk = Talk(Terminal(self.out, self.err, {}), typed, model, system=options.get("system", ""))
        self.talk.run()


def roles(messages: tuple[Message, ...]) -> list[str]:
    return [message.role for message in messages]


def test_when_a_second_message_is_sent_then_the_first_turn_goes_with_it() -> None:
    session = Session(Typed("one", "two"), Model("first", "second"))
    assert roles(session.model.asked[1]) == ["user", "assistant", "user"]
    assert session.model.asked[1][1].content == "first"
    assert session.out.getvalue() == "first\nsecond\n\n"


def test_when_there_is_a_system_prompt_then_it_comes_first() -> None:
    session = Session(Typed("one"), Model("x"), system="Be brief.")
    assert session.model.asked[0][0] == Message("system", "Be brief.")


def test_when_ctrl_c_stops_an_answer_then_what_was_said_stays_and_the_next_ctrl_c_leaves() -> None:
    typed = Typed("one", KeyboardInterrupt, "never")
    session = Session(typed, Model(None, "never"))
    assert session.talk.messages[-1] == Message("assistant", "par")
    assert len(session.model.asked) == 1


def test_when_ctrl_c_comes_once_at_the_prompt_then_it_asks_for_a_second() -> None:
    session = Session(Typed(KeyboardInterrupt, "one", KeyboardInterrupt, KeyboardInterrupt, "never"), Model("x"))
    assert session.err.getvalue().count("again to leave") == 2
    assert len(session.model.asked) == 1


@pytest.mark.parametrize("word", ["/quit", "/exit", EOFError])
def test_when_the_person_leaves_then_nothing_more_is_asked(word: str | type[BaseException]) -> None:
    assert Session(Typed(word, "never"), Model()).model.asked == []


def test_when_cleared_then_the_model_no_longer_knows() -> None:
    session = Session(Typed("one", "/clear", "two"), Model("x", "y"), system="S")
    assert roles(session.model.asked[1]) == ["system", "user"]


def test_when_the_system_prompt_is_set_then_it_holds_from_the_next_message() -> None:
    session = Session(Typed("/system", "/system Be brief.", "/system", "one"), Model("x"))
    assert session.model.asked[0][0].content == "Be brief."
    assert "There is no system prompt." in session.out.getvalue()


def test_when_a_command_is_unknown_then_help_is_named() -> None:
    session = Session(Typed("/fly", "/help"), Model())
    assert "/help lists them" in session.err.getvalue()
    assert "/save" in session.out.getvalue()


def test_when_an_answer_fails_then_the_talk_goes_on_and_the_text_stays() -> None:
    failed = ChatFailed(Failure("WorkerDied", "The model's process ended.", "Send it again."))
    session = Session(Typed("one", "two"), Model(failed, "fine"))
    assert "The model's process ended." in session.err.getvalue()
    assert roles(session.model.asked[1]) == ["user", "assistant", "user"]


def test_when_nothing_was_answered_then_the_message_is_not_kept() -> None:
    session = Session(Typed("one", "two"), Model(WorkerDied("Gone."), "fine"))
    assert roles(session.model.asked[1]) == ["user"]


def test_when_saved_then_the_file_holds_the_conversation(tmp_path: Path) -> None:
    target = tmp_path / "talk.md"
    session = Session(Typed("/save", "one", f"/save {target}", f"/save {target}"), Model("first"))
    assert target.read_text() == "## You\n\none\n\n## Model\n\nfirst\n"
    assert "nothing to save" in session.err.getvalue()
    assert "already there" in session.err.getvalue()
    assert [path.name for path in tmp_path.iterdir()] == ["talk.md"]


def test_when_it_cannot_be_saved_then_the_talk_goes_on(tmp_path: Path) -> None:
    session = Session(Typed("one", f"/save {tmp_path / 'no' / 'where.md'}", "two"), Model("x", "y"))
    assert "could not be written" in session.err.getvalue()
    assert len(session.model.asked) == 2


def test_when_reasoning_is_saved_then_it_is_quoted() -> None:
    text = as_markdown((Message("assistant", "4", "two and\ntwo"),))
    assert text == "## Model\n\n> two and\n> two\n\n4\n"


def test_when_a_file_is_there_then_it_is_never_written_over(tmp_path: Path) -> None:
    target = tmp_path / "mine.md"
    target.write_text("precious")
    with pytest.raises(FileExistsError):
        write_new(target, "other")
    assert target.read_text() == "precious"
