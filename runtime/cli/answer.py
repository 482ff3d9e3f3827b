"""Shows one answer as it comes, and keeps what was said."""

from runtime.cli.terminal import Terminal, neutralise
from runtime.errors import Failure, from_failure
from runtime.messages.api import ChatDelta, ChatEvent, ChatFailed, ChatFinished, ChatProgress, ChatQueued
from runtime.messages.shared import DeltaKind, Message
from runtime.units import format_count, format_duration, format_speed

_MIN_SHOWN_PROMPT = 512  # tokens; reading a shorter prompt is over before a line about it could be read


class AnswerView:
    """Writes the events of one answer to standard output. Not reused.

    On a terminal the text is neutralised and a dim line with the figures follows; in a pipe the text is written
    as it is, and nothing else.
    """

    def __init__(self, terminal: Terminal, *, show_reasoning: bool) -> None:
        self._terminal = terminal
        self._show_reasoning = show_reasoning
        self._kind: DeltaKind | None = None
        self._at_line_start = True
        self._waiting_line = False
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._failure: Failure | None = None
        self.dropped_turns = 0

    @property
    def message(self) -> Message:
        """What the model said so far."""
        return Message("assistant", "".join(self._content), "".join(self._reasoning))

    @property
    def has_text(self) -> bool:
        """Whether anything worth keeping was said."""
        return bool(self._content or self._reasoning)

    def event(self, event: ChatEvent) -> None:
        """Show one event."""
        match event:
            case ChatQueued(position=position):
                self._wait(f"waiting, number {position} in the queue")
            case ChatProgress(done=done, total=total, dropped_turns=dropped):
                self.dropped_turns = max(self.dropped_turns, dropped)
                if total >= _MIN_SHOWN_PROMPT and done < total:
                    self._wait(f"reading the prompt, {100 * done // total} %")
            case ChatDelta(kind=kind, text=text):
                self._delta(kind, text)
            case ChatFinished():
                self._finished(event)
            case ChatFailed(failure=failure):
                self._failure = failure

    def end(self, *, stopped: bool = False) -> None:
        """The answer is over.

        Raises:
            RuntimeFault: it failed.
        """
        self._clear_wait()
        self._to_line_start()
        if stopped and self._terminal.out_is_tty:
            self._terminal.line("stopped", "dim")
        self._terminal.out.flush()
        if self._failure is not None:
            raise from_failure(self._failure)

    def _delta(self, kind: DeltaKind, text: str) -> None:
        (self._reasoning if kind == "reasoning" else self._content).append(text)
        if not text or (kind == "reasoning" and not self._show_reasoning):
            return
        self._clear_wait()
        if self._kind == "reasoning" and kind == "content":
            self._to_line_start()
            self._terminal.out.write("\n")
        self._kind = kind
        tty = self._terminal.out_is_tty
        shown = neutralise(text) if tty else text
        self._terminal.out.write(self._terminal.paint(shown, "dim") if kind == "reasoning" else shown)
        self._terminal.out.flush()
        self._at_line_start = text.endswith("\n")

    def _finished(self, event: ChatFinished) -> None:
        self._clear_wait()
        self._to_line_start()
        if not self._terminal.out_is_tty:
            return
        timings, usage = event.timings, event.usage
        parts = [
            format_speed(timings.generation_tps or None),
            f"{format_count(usage.completion_tokens)} tokens",
            f"first after {format_duration(timings.time_to_first_token_s)}",
        ]
        if "length" in event.reasons:
            parts.append("cut off: the longest answer or the end of the context was reached")
        if self.dropped_turns:
            parts.append(f"the oldest {self.dropped_turns} turns no longer fit and were left out")
        self._terminal.line(" · ".join(parts), "dim")

    def _to_line_start(self) -> None:
        if not self._at_line_start:
            self._terminal.out.write("\n")
            self._at_line_start = True

    def _wait(self, text: str) -> None:
        if self._terminal.err_is_tty and self._terminal.out_is_tty:
            self._terminal.err.write(f"\r\x1b[K{self._terminal.paint(text, 'dim', on_error=True)}")
            self._terminal.err.flush()
            self._waiting_line = True

    def _clear_wait(self) -> None:
        if self._waiting_line:
            self._terminal.err.write("\r\x1b[K")
            self._terminal.err.flush()
            self._waiting_line = False
