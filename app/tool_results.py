"""What a model and a person read and see of a tool's result. No Qt here."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec

from app.store.records import MAX_MESSAGE_BYTES, Attachment
from runtime.messages.tools import MAX_RESULT_IMAGES, ResultLink, ResultMedia, ResultText, ToolResult

CHARS_A_TOKEN = 3
"""A cautious guess; results are often numbers and addresses."""

CONTEXT_SHARE = 0.25
"""Of the context, at most, for one result: the conversation has to fit beside it."""

PIXELS_A_TOKEN = 28 * 28
"""What models of the Qwen-VL kind read as one token (patches of 14 pixels, two by two); others take fewer tokens."""

PICTURE_SHARE = 0.5
"""Of the context, at most, for the pictures of one result."""

MIN_PICTURE_PIXELS = 256 * 256
MIN_CHARS = 2_000
NOTHING = "The tool answered nothing."


Made = tuple[Attachment, bytes] | str
"""A picture that is kept, or the sentence that says why it is not."""


class PictureMaker(Protocol):
    """Makes the pictures of strangers into ones that can be kept, shown and sent."""

    def make(self, pictures: Sequence[bytes], max_pixels: int, done: Callable[[list[Made]], None]) -> None:
        """`done` is told later, in the order given; none is larger than `max_pixels`."""
        ...


def text_of(result: ToolResult, n_ctx: int, also_cut: Iterable[str] = ()) -> str:
    """The result as text, cut to what a context of `n_ctx` tokens has room for; what is missing is said at its end."""
    parts: list[str] = []
    for part in result.parts:
        match part:
            case ResultText(text):
                parts.append(text)
            case ResultMedia(media):
                what = "picture" if media.kind == "image" else "sound"
                parts.append(f"[{what} ({media.mime}), shown to the person]")
            case ResultLink(uri, name, description):
                words = " - ".join(word for word in (name, description) if word)
                parts.append(f"[link: {uri}{words and ' ' + words}]")
    if result.structured and not any(isinstance(part, ResultText) for part in result.parts):
        parts.append(result.structured)
    text = "\n".join(parts) or NOTHING
    limit = max(MIN_CHARS, int(n_ctx * CHARS_A_TOKEN * CONTEXT_SHARE)) if n_ctx else len(text)
    marks = [*result.cut, *also_cut]
    if len(text) > limit:
        marks.append(f"The result was cut: {len(text) - limit:,} characters after the first {limit:,} are missing.")
        text = text[:limit]
    return "\n".join([text, *(f"[{mark}]" for mark in marks)])


def pictures_of(result: ToolResult) -> list[tuple[Attachment, bytes]]:
    """The pictures of a result as they came, as files of its message; of unknown size, so models are not given them."""
    media = [part.media for part in result.parts if isinstance(part, ResultMedia) and part.media.kind == "image"]
    return [
        (Attachment(hashlib.sha256(one.data).hexdigest(), "image", one.mime, "", len(one.data)), one.data)
        for one in media[:MAX_RESULT_IMAGES]
    ]


def pixels_for(n_pictures: int, n_ctx: int) -> int:
    """Pixels of each picture of a result, so that together they leave room in a context; 0 is no bound."""
    if not n_ctx:
        return 0
    return max(MIN_PICTURE_PIXELS, int(n_ctx * PICTURE_SHARE * PIXELS_A_TOKEN / n_pictures))


def kept_of(made: Iterable[Made]) -> tuple[list[tuple[Attachment, bytes]], list[str]]:
    """The pictures that a message keeps, each once and within its bounds, and sentences about the others."""
    kept: dict[str, tuple[Attachment, bytes]] = {}
    sentences: list[str] = []
    size_bytes = 0
    for one in made:
        if isinstance(one, str):
            sentences.append(one)
        elif one[0].sha256 in kept:
            continue
        elif (size_bytes := size_bytes + len(one[1])) > MAX_MESSAGE_BYTES:
            sentences.append(f"A picture was left out: all of a result take {MAX_MESSAGE_BYTES // 2**20} MiB at most.")
        else:
            kept[one[0].sha256] = one
    return list(kept.values()), sentences


def problem_with(arguments: str) -> str:
    """Why a tool cannot be called with these arguments; empty when it can."""
    try:
        value = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        return f"The arguments are no valid JSON: {error}."
    return "" if isinstance(value, dict) else "The arguments are no JSON object."


def pretty(arguments: str) -> str:
    """Arguments to read: indented where they are JSON, else as they stand."""
    try:
        return msgspec.json.format(arguments.encode(), indent=2).decode() if arguments.strip() else ""
    except (msgspec.DecodeError, RecursionError, UnicodeError, ValueError):
        return arguments
