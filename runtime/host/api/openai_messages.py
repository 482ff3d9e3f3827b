"""Chat messages as OpenAI writes them, as ours: texts, pictures, sounds, calls of tools and their results."""

from typing import Any

import msgspec

from runtime.errors import BadRequest
from runtime.host.api.body import json_text
from runtime.host.api.media import check_count, picture_of_url, sound_of_base64, with_pictures
from runtime.messages.shared import MediaPart, Message, Role, ToolCall

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_SEEING: tuple[Role, ...] = ("user", "tool")
_TEXTS = ("text", "refusal")
_MEDIA = ("image_url", "input_audio")


class _Url(msgspec.Struct, frozen=True):
    url: str = ""


class _Sound(msgspec.Struct, frozen=True):
    data: str = ""


class _Part(msgspec.Struct, frozen=True):
    """Any part; which fields must be there depends on `type`."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | _Url | None = None
    input_audio: _Sound | None = None


class _Function(msgspec.Struct, frozen=True):
    name: str
    arguments: str | dict[str, Any] | None = None


class _Call(msgspec.Struct, frozen=True):
    function: _Function | None = None
    id: str | None = None
    type: str | None = None


class ChatMessage(msgspec.Struct, frozen=True):
    """One message. Thought of earlier turns is read as `reasoning_content` or `reasoning`."""

    role: str
    content: str | list[_Part] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None


def chat_messages(given: tuple[ChatMessage, ...]) -> tuple[Message, ...]:
    """All messages of a request.

    Raises:
        BadRequest: names the message and the field; `PayloadTooLarge` for a picture.
    """
    rows: list[Message] = []
    open_calls: list[ToolCall] = []
    for index, message in enumerate(given):
        where = f"messages[{index}]"
        role = _ROLES.get(message.role)
        if role is None:
            raise BadRequest(
                f"`{where}.role` is {message.role!r}.", hint=f"Roles are {', '.join(_ROLES)}.", param=f"{where}.role"
            )
        if role == "assistant":
            row = _assistant(message, where, len(rows))
            open_calls = list(row.tool_calls)
        elif role == "tool":
            row = _result(message, where, open_calls)
        else:
            text, parts = with_pictures(_pieces(message, role, where), "")
            row = Message(role, text, name=message.name or "", parts=parts)
        rows.append(row)
    check_count(rows)
    return tuple(rows)


def _assistant(message: ChatMessage, where: str, number: int) -> Message:
    calls = []
    for index, call in enumerate(message.tool_calls or ()):
        place = f"{where}.tool_calls[{index}]"
        if call.function is None or not call.function.name:
            raise BadRequest(
                f"`{place}` is no call of a function.",
                hint="Send it as it came, with `id` and `function`.",
                param=place,
            )
        arguments = call.function.arguments or "{}"
        text = arguments if isinstance(arguments, str) else json_text(arguments)
        calls.append(ToolCall(call.id or f"call_{number}_{index}", call.function.name, text))
    if message.content is None and not calls:
        content = message.refusal or ""
    else:
        content, _ = with_pictures(_pieces(message, "assistant", where), "")
    thought = message.reasoning_content or message.reasoning or ""
    return Message("assistant", content, thought, message.name or "", tool_calls=tuple(calls))


def _result(message: ChatMessage, where: str, open_calls: list[ToolCall]) -> Message:
    """A result belongs to the call it names; one that names none, to the first call without a result."""
    wanted = message.tool_call_id
    call = next((call for call in open_calls if wanted is None or call.id == wanted), None)
    if call is None and wanted is None:
        raise BadRequest(
            f"`{where}.tool_call_id` is missing.", hint="Name the call it answers.", param=f"{where}.tool_call_id"
        )
    if call is not None:
        open_calls.remove(call)
    text, parts = with_pictures(_pieces(message, "tool", where), "")
    name = call.name if call is not None else message.name or ""
    call_id = call.id if call is not None else wanted or ""
    return Message("tool", text, name=name, parts=parts, tool_call_id=call_id)


def _pieces(message: ChatMessage, role: Role, where: str) -> list[str | MediaPart]:
    content = message.content
    if content is None:
        if role != "assistant":
            raise BadRequest(f"`{where}.content` is missing.", hint="Send a text.", param=f"{where}.content")
        return []
    if isinstance(content, str):
        return [content]
    return [_piece(part, role, f"{where}.content[{number}]") for number, part in enumerate(content)]


def _piece(part: _Part, role: Role, where: str) -> str | MediaPart:
    if part.type == "text" and part.text is not None:
        return part.text
    if part.type == "refusal" and part.refusal is not None:
        return part.refusal
    if role in _SEEING:
        if part.type == "image_url" and part.image_url is not None:
            url = part.image_url
            return picture_of_url(url if isinstance(url, str) else url.url, f"{where}.image_url.url")
        if part.type == "input_audio" and part.input_audio is not None:
            return sound_of_base64(part.input_audio.data, f"{where}.input_audio.data")
    if part.type in (*_TEXTS, *(_MEDIA if role in _SEEING else ())):
        raise BadRequest(f"`{where}.{part.type}` is missing.", hint="Add it.", param=f"{where}.{part.type}")
    kinds = "text, image_url and input_audio" if role in _SEEING else "text"
    raise BadRequest(
        f"`{where}` is of type {part.type!r}, which cannot be read in a message of the {role}.",
        hint=f"Send parts of type {kinds}.",
        param=f"{where}.type",
    )
