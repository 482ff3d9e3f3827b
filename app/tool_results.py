"""What a model and a person read of a tool's result. No Qt here."""

import hashlib

import msgspec

from app.store.records import MAX_ATTACHMENTS, Attachment
from runtime.messages.tools import ResultLink, ResultMedia, ResultText, ToolResult

CHARS_A_TOKEN = 3
"""A cautious guess; results are often numbers and addresses."""

CONTEXT_SHARE = 0.25
"""Of the context, at most, for one result: the conversation has to fit beside it."""

MIN_CHARS = 2_000
NOTHING = "The tool answered nothing."


def text_of(result: ToolResult, n_ctx: int) -> str:
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
    marks = list(result.cut)
    if len(text) > limit:
        marks.append(f"The result was cut: {len(text) - limit:,} characters after the first {limit:,} are missing.")
        text = text[:limit]
    return "\n".join([text, *(f"[{mark}]" for mark in marks)])


def files_of(result: ToolResult) -> list[tuple[Attachment, bytes]]:
    """The pictures of a result, as files of its message."""
    files: list[tuple[Attachment, bytes]] = []
    for part in result.parts:
        if isinstance(part, ResultMedia) and part.media.kind == "image" and len(files) < MAX_ATTACHMENTS:
            data = part.media.data
            sha256 = hashlib.sha256(data).hexdigest()
            files.append((Attachment(sha256, "image", part.media.mime, "", len(data)), data))
    return files


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
