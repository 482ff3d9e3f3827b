"""Pictures and sounds in requests: base64 to bytes, and what kind of file the bytes are.

Decoding them is the worker's part.
"""

import base64
import binascii
from collections.abc import Iterable

from runtime.errors import BadRequest, PayloadTooLarge
from runtime.media_kinds import is_riff, picture_mime
from runtime.messages.shared import MAX_MEDIA, MediaPart, Message, Part, PicturePart, TextPart

MAX_PICTURE_BYTES = 20 * 1024 * 1024
"""One encoded picture; the whole body is bounded too."""


def picture_of_base64(text: str, where: str) -> MediaPart:
    """A picture from base64; white space in it does no harm.

    Raises:
        BadRequest: it is no base64, or no picture of a known format.
        PayloadTooLarge: it is over `MAX_PICTURE_BYTES`.
    """
    data = _decoded(text, where)
    mime = picture_mime(data)
    if not mime:
        raise BadRequest(
            f"`{where}` is no picture of a known format.", hint="Send PNG, JPEG, WebP, GIF or BMP.", param=where
        )
    return MediaPart("image", data, mime)


def sound_of_base64(text: str, where: str) -> MediaPart:
    """A sound from base64.

    Raises:
        BadRequest: it is no base64, or no sound of a known format; `PayloadTooLarge` as `picture_of_base64`.
    """
    data = _decoded(text, where)
    if is_riff(data, b"WAVE"):
        return MediaPart("audio", data, "audio/wav")
    if data.startswith(b"fLaC"):
        return MediaPart("audio", data, "audio/flac")
    # MP3 begins with a tag, or at once with a frame, whose first eleven bits are set (ISO 11172-3).
    if data.startswith(b"ID3") or (len(data) > 1 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0):  # noqa: PLR2004
        return MediaPart("audio", data, "audio/mpeg")
    raise BadRequest(f"`{where}` is no sound of a known format.", hint="Send WAV, MP3 or FLAC.", param=where)


def _decoded(text: str, where: str) -> bytes:
    if len(text) > MAX_PICTURE_BYTES * 3 // 2:
        raise _too_large(where)
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequest(f"`{where}` is not base64: {error}.", hint="Send the whole file.", param=where) from None
    if len(data) > MAX_PICTURE_BYTES:
        raise _too_large(where)
    return data


def picture_of_url(url: str, where: str) -> MediaPart:
    """A picture from a `data:` address.

    Raises:
        BadRequest: it is a remote address, or holds no picture; `PayloadTooLarge` as `picture_of_base64`.
    """
    head, comma, body = url.partition(",")
    if not head.lower().startswith("data:"):
        raise BadRequest(
            f"`{where}` is a remote address, which is not fetched.",
            hint="Send the picture itself, as base64.",
            param=where,
        )
    if not comma or not head.lower().endswith(";base64"):
        raise BadRequest(f"`{where}` is no base64 data address.", hint="Begin data:image/png;base64,", param=where)
    return picture_of_base64(body, where)


def with_pictures(pieces: list[str | MediaPart], joint: str) -> tuple[str, tuple[Part, ...]]:
    """The text of a message, and its parts in order; no parts where it is text alone."""
    text = joint.join(piece for piece in pieces if isinstance(piece, str))
    if all(isinstance(piece, str) for piece in pieces):
        return text, ()
    return text, tuple(TextPart(piece) if isinstance(piece, str) else PicturePart(piece) for piece in pieces)


def check_count(messages: Iterable[Message]) -> None:
    """Refuse a request with more pictures and sounds than `MAX_MEDIA`.

    Raises:
        BadRequest: there are more.
    """
    count = sum(isinstance(part, PicturePart) for message in messages for part in message.parts)
    if count > MAX_MEDIA:
        raise BadRequest(
            f"The request has {count} pictures and sounds.", hint=f"Send at most {MAX_MEDIA}.", param="messages"
        )


def _too_large(where: str) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"`{where}` is over the limit of {MAX_PICTURE_BYTES} bytes for one file.",
        hint="Send a smaller one.",
        limit_bytes=MAX_PICTURE_BYTES,
        param=where,
    )
