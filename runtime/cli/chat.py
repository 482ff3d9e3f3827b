"""`deskside chat`: one answer, or a conversation."""

import argparse
import sys
from typing import BinaryIO

from runtime.cli import exit_codes
from runtime.cli.answer import AnswerView
from runtime.cli.host_child import BorrowedHost
from runtime.cli.library import saved_library
from runtime.cli.link import Link
from runtime.cli.prompt_line import PromptLine
from runtime.cli.serve import choose_model
from runtime.cli.talk import Talk
from runtime.cli.terminal import ProgressBar, Terminal, neutralise
from runtime.errors import BadRequest, StorageFault
from runtime.messages.api import ChatRequest, LoadedModel, LoadRequest
from runtime.messages.shared import Message
from runtime.options import GenerateOptions
from runtime.paths import DataFolder

MAX_PIPED_BYTES = 16 * 1024 * 1024
"""Most text taken from a pipe; no context holds more."""

HISTORY_FILE = "chat_history"


def run(parsed: argparse.Namespace, data: DataFolder, terminal: Terminal) -> int:
    """Answer once, or talk until the person leaves.

    Raises:
        RuntimeFault: no such model, it cannot be loaded, or the answer failed.
    """
    prompt = _prompt(parsed, terminal)
    _check_folder(data)
    with BorrowedHost(data) as host, Link(host.file) as link:
        model_id = _load(parsed, data, link, terminal)
        talk = _Answering(link, model_id, parsed.generate_options)
        show_reasoning = parsed.reasoning == "show" or (parsed.reasoning is None and terminal.out_is_tty)
        if prompt:
            return _answer_once(talk, prompt, parsed.system, terminal, show_reasoning=show_reasoning)
        terminal.line(f"{model_id} is ready. /help lists the commands.", "dim")
        lines = PromptLine(data.root / HISTORY_FILE)
        try:
            Talk(terminal, lines, talk, system=parsed.system or "", show_reasoning=show_reasoning).run()
        finally:
            lines.close()
    return exit_codes.OK


class _Answering:
    """Asks the host; what `Talk` calls for each turn."""

    def __init__(self, link: Link, model_id: str, options: GenerateOptions) -> None:
        self._link = link
        self._model_id = model_id
        self._options = options

    def __call__(self, messages: tuple[Message, ...], view: AnswerView) -> bool:
        try:
            self._link.chat(ChatRequest(self._model_id, messages, self._options), view.event)
        except KeyboardInterrupt:
            return False
        return True


def _answer_once(ask: _Answering, prompt: str, system: str | None, terminal: Terminal, *, show_reasoning: bool) -> int:
    view = AnswerView(terminal, show_reasoning=show_reasoning)
    messages = (*((Message("system", system),) if system else ()), Message("user", prompt))
    finished = ask(messages, view)
    view.end(stopped=not finished)
    return exit_codes.OK if finished else exit_codes.INTERRUPTED


def _prompt(parsed: argparse.Namespace, terminal: Terminal) -> str:
    """What was typed after the command, and below it what was piped in; empty to talk.

    Raises:
        BadRequest: neither, where no one can type.
    """
    typed = " ".join(parsed.prompt).strip()
    piped = "" if sys.stdin is None or sys.stdin.isatty() else read_piped(sys.stdin.buffer)
    prompt = "\n\n".join(part for part in (typed, piped) if part)
    interactive = sys.stdin is not None and sys.stdin.isatty() and terminal.out_is_tty
    if not prompt and not interactive:
        raise BadRequest("There is nothing to ask.", hint='Give a prompt: deskside chat "Why is the sky blue?"')
    return prompt


def read_piped(stream: BinaryIO) -> str:
    """The text of a pipe; what is not UTF-8 becomes replacement characters.

    Raises:
        BadRequest: it is longer than any context.
    """
    raw = stream.read(MAX_PIPED_BYTES + 1)
    if len(raw) > MAX_PIPED_BYTES:
        raise BadRequest(
            f"The piped text is longer than {MAX_PIPED_BYTES // 1024 // 1024} MiB, more than any model can read.",
            hint="Pipe a part of it.",
        )
    return raw.decode("utf-8-sig", errors="replace").strip()


def _check_folder(data: DataFolder) -> None:
    try:
        data.ensure()
    except OSError as error:
        raise StorageFault(
            f"The data folder {data.root} cannot be used: {error.strerror or error}.",
            hint="Check its permissions, or choose another folder with --data-dir.",
            path=str(data.root),
        ) from error


def _load(parsed: argparse.Namespace, data: DataFolder, link: Link, terminal: Terminal) -> str:
    """Load the model if it is not; returns its id."""
    ready = [model for model in link.status().models if model.state == "ready" and _can_chat(model)]
    if not parsed.model and ready and parsed.load_options is None:
        return ready[0].id
    with saved_library(data) as library:
        wanted = choose_model(library, parsed.model)
    bar = ProgressBar(terminal)

    def progress(model: LoadedModel) -> None:
        if terminal.err_is_tty:
            bar.show(f"Loading {neutralise(model.name)}", model.fraction)

    try:
        # What others have loaded stays loaded: the host may be serving them.
        only = tuple(sorted(parsed.load_only))
        loaded = link.load(LoadRequest(wanted.path, parsed.load_options, replace=False, only=only), progress)
    finally:
        bar.clear()
    return loaded.id


def _can_chat(model: LoadedModel) -> bool:
    """False for a model that only embeds."""
    return model.facts is None or model.facts.has_chat_template or not model.facts.can_embed
