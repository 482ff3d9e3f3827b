"""Messages as rows for a template, in the form it understands.

A template that knows nothing of tools gets them as text: an instruction in the system turn, calls in the form of
`runtime.chat.tool_format`, results in a user turn.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from runtime.chat.abilities import Abilities, Row, call_row
from runtime.chat.ask import Ask
from runtime.chat.sandbox import TemplateValue
from runtime.chat.tool_format import ToolFormat, write_calls
from runtime.errors import BadRequest
from runtime.messages.shared import Message, ToolCall

_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SHORT_ID = 9
"""What Mistral's templates insist on."""


class RowMaker:
    """Makes rows. Home thread: any (immutable).

    Args:
        abilities: of the template.
        form: how the model writes calls, for those the template cannot write.
        content: text in the form of content that the template wants.
    """

    def __init__(self, abilities: Abilities, form: ToolFormat, content: Callable[[str], TemplateValue]) -> None:
        self._abilities = abilities
        self._form = form
        self._content = content

    def rows(self, messages: Sequence[Message], ask: Ask) -> list[Row]:
        """Rows of a conversation, whose system turn is where the template wants it."""
        ids = _Ids(self._abilities, messages)
        rows = [self._row(message, ids) for message in self._in_order(messages)]
        if self._abilities.system_tools and ask.tools:
            if not rows or rows[0]["role"] != "system":
                rows.insert(0, {"role": "system", "content": self._content("")})
            rows[0]["tools"] = json.dumps([tool["function"] for tool in ask.tools], ensure_ascii=False)
        return rows

    def as_text(self, messages: Sequence[Message], ask: Ask) -> list[Message]:
        """Put into words what the template cannot write: tools, calls, results."""
        messages = list(messages)
        if ask.tools and not self._abilities.shows_tools:
            messages = _with_instruction(messages, instruction(ask, self._form))
        if not self._abilities.shows_calls:
            messages = [self._calls_in_content(message) for message in messages]
        if not self._abilities.thought_beside_text:
            messages = [_with_text_in_thought(message) for message in messages]
        if not self._abilities.shows_results:
            return _with_results_in_user(messages)
        return messages if self._abilities.user_after_result else _with_user_in_result(messages)

    def _calls_in_content(self, message: Message) -> Message:
        if not message.tool_calls:
            return message
        text = write_calls(self._form, [(call.name, _arguments(call)) for call in message.tool_calls])
        content = "\n\n".join(part for part in (message.content, text) if part)
        return replace(message, content=content, tool_calls=())

    def _in_order(self, messages: Sequence[Message]) -> Iterator[Message]:
        """The messages, a turn of several calls taken apart where the template takes one at a time."""
        waiting = list(messages)
        while waiting:
            message = waiting.pop(0)
            if len(message.tool_calls) < 2 or not self._abilities.one_call:  # noqa: PLR2004 - more than one
                yield message
                continue
            n_results = 0
            while n_results < len(waiting) and waiting[n_results].role == "tool":
                n_results += 1
            results, waiting = waiting[:n_results], waiting[n_results:]
            for number, call in enumerate(message.tool_calls):
                yield (
                    replace(message, tool_calls=(call,))
                    if number == 0
                    else Message(role="assistant", tool_calls=(call,))
                )
                yield from (row for row in results if row.tool_call_id == call.id)
            known = {call.id for call in message.tool_calls}
            yield from (row for row in results if row.tool_call_id not in known)

    def _row(self, message: Message, ids: "_Ids") -> Row:
        row: Row = {"role": message.role, "content": self._content(message.content)}
        if message.name:
            row["name"] = message.name
        if message.reasoning:
            # Qwen, DeepSeek and most others read the first name, gpt-oss the second.
            row["reasoning_content"] = row["thinking"] = message.reasoning
        if message.tool_calls:
            if not message.content:
                row["content"] = self._abilities.empty_content
            as_object = self._abilities.arguments == "object"
            row["tool_calls"] = [
                call_row(ids.of(call.id), call.name, _arguments(call) if as_object else call.arguments.strip() or "{}")
                for call in message.tool_calls
            ]
        if message.role == "tool":
            row["tool_call_id"] = ids.of(message.tool_call_id)
            row["name"] = message.name or ids.names.get(message.tool_call_id, "")
        return row


class _Ids:
    """Ids of one conversation's calls, as the template wants them."""

    def __init__(self, abilities: Abilities, messages: Sequence[Message]) -> None:
        self._form = abilities.ids
        calls = [call for message in messages for call in message.tool_calls]
        self.names = {call.id: call.name for call in calls}
        self._numbered = {call.id: f"functions.{call.name}:{number}" for number, call in enumerate(calls)}

    def of(self, call_id: str) -> str:
        """What stands for this id."""
        if self._form == "function":
            return self._numbered.get(call_id, call_id)
        if self._form == "nine" and not (len(call_id) == _SHORT_ID and call_id.isascii() and call_id.isalnum()):
            digest = hashlib.sha256(call_id.encode("utf-8", "replace")).digest()
            return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:_SHORT_ID])
        return call_id


def _arguments(call: ToolCall) -> dict[str, TemplateValue]:
    try:
        value = json.loads(call.arguments or "{}", strict=False)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"The arguments of the call {call.id!r} are no JSON.", param="messages") from error
    if not isinstance(value, dict):
        raise BadRequest(f"The arguments of the call {call.id!r} are no JSON object.", param="messages")
    return value


def instruction(ask: Ask, form: ToolFormat) -> str:
    """What a model without a form of its own is told about the tools."""
    functions = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in ask.tools)
    example = write_calls(form, [("function_name", {"argument": "value"})])
    return (
        "You can call functions. These are there, each described in JSON with its parameters as a JSON schema:\n"
        f"{functions}\n\n"
        f"To call one, write this and nothing after it:\n{example}\n"
        "Write one such block for each call. The results are given to you in the next message. "
        "Where no function helps, answer without one."
    )


def _with_instruction(messages: list[Message], text: str) -> list[Message]:
    if messages and messages[0].role in ("system", "developer"):
        head = messages[0]
        return [replace(head, content="\n\n".join(part for part in (head.content, text) if part)), *messages[1:]]
    return [Message(role="system", content=text), *messages]


def _with_results_in_user(messages: Sequence[Message]) -> list[Message]:
    """Results as user turns; neighbours, and a user message behind them, become one."""
    rows: list[Message] = []
    open_results = False
    for message in messages:
        if message.role == "tool":
            text = f"<tool_response>\n{message.content}\n</tool_response>"
            if open_results:
                rows[-1] = replace(rows[-1], content=f"{rows[-1].content}\n{text}")
            else:
                rows.append(Message(role="user", content=text))
            open_results = True
        elif message.role == "user" and open_results:
            rows[-1] = replace(rows[-1], content=f"{rows[-1].content}\n\n{message.content}", parts=message.parts)
            open_results = False
        else:
            rows.append(message)
            open_results = False
    return rows


def _with_text_in_thought(message: Message) -> Message:
    """A message with calls whose text is the end of its thought (gpt-oss takes one of the two)."""
    if not (message.tool_calls and message.reasoning and message.content):
        return message
    return replace(message, reasoning=f"{message.reasoning}\n\n{message.content}", content="")


def _with_user_in_result(messages: Sequence[Message]) -> list[Message]:
    """A user message that follows a result, as part of it, for templates that want an answer in between."""
    rows: list[Message] = []
    for message in messages:
        if message.role == "user" and rows and rows[-1].role == "tool":
            rows[-1] = replace(rows[-1], content=f"{rows[-1].content}\n\n{message.content}")
        else:
            rows.append(message)
    return rows


def described(tools: Sequence[Row]) -> list[Row]:
    """Tools with a description for each parameter, if only an empty one."""
    rows: list[Row] = []
    for tool in tools:
        function = tool["function"]
        parameters = function.get("parameters") if isinstance(function, dict) else None
        properties = parameters.get("properties") if isinstance(parameters, dict) else None
        if isinstance(function, dict) and isinstance(parameters, dict) and isinstance(properties, dict):
            filled: Row = {
                key: {"description": "", **value} if isinstance(value, dict) else value
                for key, value in properties.items()
            }
            function = {**function, "parameters": {**parameters, "properties": filled}}
        rows.append({**tool, "function": function})
    return rows
