"""Pictures in requests: base64 to bytes, and what kind of file the bytes are. Decoding them is the worker's part."""

import base64
import binascii

from runtime.errors import BadRequest, PayloadTooLarge
from runtime.messages.shared import MediaPart, Part, PicturePart, TextPart

MAX_PICTURE_BYTES = 20 * 1024 * 1024
"""One encoded picture; the whole body is bounded too."""

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
)
"""First bytes of the formats that can be read (signatures as their specifications give them)."""
_WEBP_BYTES = 12


def picture_of_base64(text: str, where: str) -> MediaPart:
    """A picture from base64; white space in it does no harm.

    Raises:
        BadRequest: it is no base64, or no picture of a known format.
        PayloadTooLarge: it is over `MAX_PICTURE_BYTES`.
    """
    if len(text) > MAX_PICTURE_BYTES * 3 // 2:
        raise _too_large(where)
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequest(f"`{where}` is not base64: {error}.", hint="Send the whole file.", param=where) from None
    if len(data) > MAX_PICTURE_BYTES:
        raise _too_large(where)
    mime = next((mime for magic, mime in _MAGIC if data.startswith(magic)), "")
    if data[:4] == b"RIFF" and data[8:_WEBP_BYTES] == b"WEBP":
        mime = "image/webp"
    if not mime:
        raise BadRequest(
            f"`{where}` is no picture of a known format.", hint="Send PNG, JPEG, GIF, BMP or WebP.", param=where
        )
    return MediaPart("image", data, mime)


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


def _too_large(where: str) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"`{where}` is over the limit of {MAX_PICTURE_BYTES} bytes for one picture.",
        hint="Send a smaller one.",
        limit_bytes=MAX_PICTURE_BYTES,
        param=where,
    )
