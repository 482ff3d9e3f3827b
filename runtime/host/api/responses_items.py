"""Items of the Responses API and the turns they make: a turn's thought, text and calls are items of their own there."""

import base64
import binascii
from collections.abc import Iterable

import msgspec

from runtime.host.api.openai_answer import ChatLogprob
from runtime.messages.shared import Message, Part, ToolCall

_THOUGHT_PREFIX = "deskside."
_SUMMARY = "Summary of what was said and done before:"


class OutputText(msgspec.Struct, frozen=True, tag="output_text"):
    """Text of an answer. There are never annotations, but programs look for the list."""

    text: str
    annotations: tuple[str, ...]
    logprobs: tuple[ChatLogprob, ...]


class ReasoningText(msgspec.Struct, frozen=True, tag="reasoning_text"):
    """What the model thought."""

    text: str


class SummaryText(msgspec.Struct, frozen=True, tag="summary_text"):
    """What the model thought, for programs that asked for a summary: it is all of it."""

    text: str


class MessageItem(msgspec.Struct, frozen=True, tag="message"):
    """Text that the model wrote."""

    id: str
    role: str
    status: str
    content: tuple[OutputText, ...]


class ReasoningItem(msgspec.Struct, frozen=True, tag="reasoning", omit_defaults=True):
    """Thought of the model. `encrypted_content` is opaque to programs, and can be sent back in place of the text."""

    id: str
    status: str
    summary: tuple[SummaryText, ...]
    content: tuple[ReasoningText, ...] = ()
    encrypted_content: str | None = None

    def text(self) -> str:
        """The thought itself."""
        return "".join(part.text for part in self.content or self.summary)


class CallItem(msgspec.Struct, frozen=True, tag="function_call"):
    """A call of a tool. Its result names the `call_id`."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: str


class CompactionItem(msgspec.Struct, frozen=True, tag="compaction"):
    """What was said before, summed up (`responses_compact`)."""

    id: str
    encrypted_content: str


OutputItem = MessageItem | ReasoningItem | CallItem


def sealed(thought: str) -> str:
    """A thought as `encrypted_content`: hidden from nobody, it only has to come back as it was."""
    return _THOUGHT_PREFIX + base64.b64encode(thought.encode()).decode()


def unsealed(content: str) -> str:
    """The thought in `encrypted_content`; "" where another server made it."""
    if not content.startswith(_THOUGHT_PREFIX):
        return ""
    try:
        return base64.b64decode(content.removeprefix(_THOUGHT_PREFIX), validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


class Turns:
    """Messages made of items in their order."""

    def __init__(self, before: Iterable[Message] = ()) -> None:
        """`before` is the conversation that these go on with; results may belong to its calls."""
        self.rows: list[Message] = []
        self._names = {call.id: call.name for row in before for call in row.tool_calls}
        self._is_open = False

    def message(self, row: Message) -> None:
        """A whole message of anybody but the model."""
        self.rows.append(row)
        self._is_open = False

    def result(self, call_id: str, text: str, parts: tuple[Part, ...] = ()) -> None:
        """What a tool answered."""
        self.message(
            Message("tool", text, name=self._names.get(call_id, ""), parts=parts, tool_call_id=call_id),
        )

    def thought(self, text: str) -> None:
        """What the model thought; it comes before text and calls of its turn."""
        last = self._last()
        if last.content or last.tool_calls:
            last = self._new()
        self.rows[-1] = msgspec.structs.replace(last, reasoning=last.reasoning + text)

    def text(self, text: str) -> None:
        """What the model wrote."""
        last = self._last()
        if last.tool_calls:
            last = self._new()
        self.rows[-1] = msgspec.structs.replace(last, content=last.content + text)

    def summary(self, text: str) -> None:
        """What was said before, summed up; the model reads it as its own.

        What the user said in a row before it becomes one turn, since many templates know no other way.
        """
        said: list[str] = []
        while self.rows and self.rows[-1].role == "user" and not self.rows[-1].parts:
            said.append(self.rows.pop().content)
        if said:
            self.message(Message("user", "\n\n".join(reversed(said))))
        self.message(Message("assistant", f"{_SUMMARY}\n{text}"))

    def call(self, call: ToolCall) -> None:
        """A tool that the model called."""
        last = self._last()
        self._names[call.id] = call.name
        self.rows[-1] = msgspec.structs.replace(last, tool_calls=(*last.tool_calls, call))

    def item(self, item: OutputItem) -> None:
        """An item of an answer."""
        match item:
            case MessageItem(content=content):
                self.text("".join(part.text for part in content))
            case ReasoningItem():
                self.thought(item.text())
            case CallItem(call_id=call_id, name=name, arguments=arguments):
                self.call(ToolCall(call_id, name, arguments))

    def _last(self) -> Message:
        return self.rows[-1] if self._is_open else self._new()

    def _new(self) -> Message:
        self.rows.append(Message("assistant"))
        self._is_open = True
        return self.rows[-1]
