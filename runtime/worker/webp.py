"""WebP pictures, which libmtmd's decoder does not read: their header, and their pixels by Pillow.

Format: RFC 9649 (container and lossless bitstream) and RFC 6386 (section 9.1). The size is read here before anything is
unpacked; of an animation the first picture counts.
"""

import io
import struct

import numpy as np
from numpy.typing import NDArray

from runtime.errors import BadRequest

_VP8_START = b"\x9d\x01\x2a"
_VP8L_MARK = 0x2F
_SIZE_14 = 0x3FFF
_EXIF_PREFIX = b"Exif\0\0"
_DAMAGED = "A picture cannot be read. The file is damaged."


def webp_size(data: bytes) -> tuple[int, int, bytes]:
    """Width and height in pixels, the larger of what canvas and picture say, and its EXIF data (empty without).

    Raises:
        ValueError: it tells no size.
        struct.error, IndexError: it ends too early.
    """
    width = height = 0
    exif = b""
    at, is_first = 12, True
    while at + 8 <= len(data):
        kind, size = struct.unpack_from("<4sI", data, at)
        found = _size_of(kind, data, at + 8)
        if found is not None:
            width, height = max(width, found[0]), max(height, found[1])
        elif is_first:
            break
        if kind == b"EXIF":
            exif = data[at + 8 : at + 8 + size].removeprefix(_EXIF_PREFIX)
        is_first = False
        at += 8 + size + size % 2
    if not width or not height:
        raise ValueError("it has no size")
    return width, height, exif


def _size_of(kind: bytes, data: bytes, at: int) -> tuple[int, int] | None:
    """What a chunk says; an animation's pictures lie in its canvas."""
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[at + 4 : at + 7], "little"), 1 + int.from_bytes(data[at + 7 : at + 10], "little")
    if kind == b"VP8L" and data[at] == _VP8L_MARK:
        (bits,) = struct.unpack_from("<I", data, at + 1)
        return 1 + (bits & _SIZE_14), 1 + (bits >> 14 & _SIZE_14)
    if kind == b"VP8 " and data[at + 3 : at + 6] == _VP8_START:
        width, height = struct.unpack_from("<HH", data, at + 6)
        return width & _SIZE_14, height & _SIZE_14
    return None


def webp_pixels(data: bytes, width: int, height: int) -> NDArray[np.uint8]:
    """The pixels, [height, width, 3].

    Args:
        data: the file.
        width: the most it may have, from `webp_size`.
        height: as `width`; it is not decoded when it turns out to have more.

    Raises:
        BadRequest: it is damaged, or WebP cannot be read here.
    """
    try:
        from PIL import Image, UnidentifiedImageError, WebPImagePlugin  # noqa: F401 - the plugin makes the format known
    except ImportError:
        raise BadRequest(
            "A picture cannot be read. It is a WebP picture, and this installation lacks the reader for them.",
            hint="Set Deskside up again (make setup), or send PNG or JPEG.",
            param="messages",
        ) from None
    try:
        with Image.open(io.BytesIO(data), formats=("WEBP",)) as picture:
            if picture.width > width or picture.height > height:
                raise BadRequest(_DAMAGED, hint="Send the whole file.", param="messages")
            # As libmtmd takes other formats: what shows through is not mixed with anything.
            return np.ascontiguousarray(picture.convert("RGB"), dtype=np.uint8)
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, EOFError, struct.error) as error:
        raise BadRequest(_DAMAGED, hint="Send the whole file.", param="messages") from error
