"""The conversation in the terminal: messages, and commands that begin with a slash."""

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from runtime.cli.answer import AnswerView
from runtime.cli.terminal import Terminal
from runtime.errors import RuntimeFault
from runtime.messages.shared import Message
from runtime.units import now_local

HELP = """\
/help            this list
/clear           forget the conversation, keep the system prompt
/system TEXT     tell the model something before everything else; without TEXT show it
/save [FILE]     write the conversation as Markdown
/quit            leave (so do Ctrl-D, and Ctrl-C at the prompt)
A backslash at the end of a line goes on in the next. Ctrl-C stops an answer."""

MAX_MESSAGES = 10_000
"""Messages of one conversation; past it the oldest turns are forgotten. A context is full long before."""


class Lines(Protocol):
    """Where messages are typed."""

    def read(self, prompt: str, more_prompt: str) -> str:
        """One message; EOFError when the input is closed, KeyboardInterrupt for Ctrl-C."""
        ...


Answer = Callable[[tuple[Message, ...], AnswerView], bool]
"""Streams the answer to a conversation into the view; false when Ctrl-C stopped it. May raise RuntimeFault."""


class Talk:
    """A conversation until the person leaves. Home thread: main."""

    def __init__(
        self, terminal: Terminal, lines: Lines, answer: Answer, *, system: str = "", show_reasoning: bool = True
    ) -> None:
        self._terminal = terminal
        self._lines = lines
        self._answer = answer
        self._system = system
        self._show_reasoning = show_reasoning
        self._messages: list[Message] = []
        self._leaving = False

    def run(self) -> None:
        """Ask and answer until /quit, Ctrl-D, or Ctrl-C twice without a message between."""
        interrupted = False
        while not self._leaving:
            try:
                text = self._lines.read("> ", ". ")
            except EOFError:
                self._terminal.line()
                return
            except KeyboardInterrupt:
                self._terminal.line()
                if interrupted:
                    return
                interrupted = True
                self._terminal.say("Ctrl-C again to leave.", "dim")
                continue
            interrupted = False
            if text.startswith("/"):
                self._command(text)
            elif text:
                interrupted = not self._turn(text)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation with its system prompt, oldest first."""
        system = (Message("system", self._system),) if self._system else ()
        return (*system, *self._messages)

    def _turn(self, text: str) -> bool:
        self._messages.append(Message("user", text))
        view = AnswerView(self._terminal, show_reasoning=self._show_reasoning)
        finished = True
        try:
            finished = self._answer(self.messages, view)
            view.end(stopped=not finished)
        except RuntimeFault as fault:
            with contextlib.suppress(RuntimeFault):
                view.end()
            self._terminal.error(fault.message, fault.hint)
        if view.has_text:
            self._messages.append(view.message)
            del self._messages[: max(0, len(self._messages) - MAX_MESSAGES)]
        else:
            self._messages.pop()  # unanswered: it can be sent again with the up key
        return finished

    def _command(self, text: str) -> None:
        name, _, rest = text[1:].partition(" ")
        rest = rest.strip()
        match name.lower():
            case "help" | "?":
                self._terminal.line(HELP)
            case "clear":
                self._messages.clear()
                self._terminal.line("The conversation is forgotten.", "dim")
            case "system":
                self._change_system(rest)
            case "save":
                self._save(rest)
            case "quit" | "exit" | "bye":
                self._leaving = True
            case _:
                self._terminal.say(f"There is no command /{name}; /help lists them.", "yellow")

    def _change_system(self, text: str) -> None:
        if text:
            self._system = text
            self._terminal.line("The system prompt is set; it holds from the next message on.", "dim")
        else:
            self._terminal.line(self._system or "There is no system prompt.", "dim")

    def _save(self, name: str) -> None:
        if not self._messages:
            self._terminal.say("There is nothing to save yet.", "yellow")
            return
        path = Path(name or f"chat-{now_local():%Y%m%d-%H%M%S}.md").expanduser()
        try:
            write_new(path, as_markdown(self.messages))
        except FileExistsError:
            self._terminal.say(f"{path} is already there; choose another name.", "yellow")
        except OSError as error:
            self._terminal.say(f"{path} could not be written: {error.strerror or error}.", "yellow")
        else:
            self._terminal.line(f"Saved as {path.absolute()}", "dim")


_HEADINGS = {"system": "System", "user": "You", "assistant": "Model"}


def as_markdown(messages: tuple[Message, ...]) -> str:
    """The conversation as a document; reasoning is quoted before its answer."""
    parts = []
    for message in messages:
        parts.append(f"## {_HEADINGS.get(message.role, message.role)}")
        if message.reasoning:
            parts.append("\n".join(f"> {line}" for line in message.reasoning.strip().splitlines()))
        parts.append(message.content.strip())
    return "\n\n".join(part for part in parts if part) + "\n"


def write_new(path: Path, text: str) -> None:
    """Write a file that must not exist yet, whole or not at all.

    Raises:
        FileExistsError: it exists.
        OSError: it cannot be written.
    """
    handle, raw_part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    part = Path(raw_part)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(part, path)  # unlike a rename it fails when the name is taken
        except (AttributeError, NotImplementedError, OSError) as error:
            if path.exists() or isinstance(error, FileExistsError):
                raise FileExistsError(str(path)) from None
            part.replace(path)  # a file system without links
    finally:
        part.unlink(missing_ok=True)
