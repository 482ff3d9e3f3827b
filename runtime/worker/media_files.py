"""Files of pictures and sounds, looked at before they are decoded: their kind, their size, and whether they lie.

A few kilobytes can promise or unpack to gigabytes, and llama.cpp's decoders end the process or take all memory then.
So the size is read from the header here, and what does not fit it is refused. Formats as in their specifications: PNG
(W3C, third edition), JPEG (ITU T.81), EXIF 2.32, GIF89a, BMP (BITMAPINFOHEADER), WebP (`runtime.worker.webp`),
RIFF/WAVE, FLAC (RFC 9639), MPEG audio (ISO 11172-3) with the Xing tag of its encoders.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from runtime.errors import BadRequest
from runtime.media_kinds import MAX_PIXELS, is_riff
from runtime.worker.webp import webp_size

MAX_ASPECT = 200
"""Longer side over shorter side; models see nothing in a line."""
MAX_SOUND_S = 1800
"""Longest sound: the decoder keeps all of it, 64 KB a second."""
MAX_SCANS = 100
"""Scans of a progressive JPEG; files have about ten, and each is a pass over the whole picture."""
_MAX_FRAMES = 2_000_000
_STEP = 1 << 20

_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_JPEG_MARK, _JPEG_EXIF, _JPEG_END, _JPEG_SCAN = 0xFF, 0xE1, 0xD9, 0xDA
_JPEG_SOF = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_EXIF_ORIENTATION = 0x0112
_MPEG_1 = 3
_MPEG_RESERVED = 1
_LAYER_1, _LAYER_3 = 3, 1
_HINT = "Send PNG, JPEG, WebP, GIF or BMP."


@dataclass(frozen=True, slots=True)
class PictureHeader:
    """Width and height in pixels as stored, and how to turn it: EXIF's orientation, 1 to 8 (1 is as it is).

    `is_webp`: libmtmd cannot decode it.
    """

    width: int
    height: int
    orientation: int = 1
    is_webp: bool = False


def read_picture(data: bytes) -> PictureHeader:
    """Check a picture's file.

    Raises:
        BadRequest: it is of no format that can be read, it is cut off, or too large.
    """
    try:
        if data.startswith(_PNG):
            header = _png(data)
        elif data.startswith(b"\xff\xd8\xff"):
            header = _jpeg(data)
        elif data.startswith((b"GIF87a", b"GIF89a")):
            header = PictureHeader(*struct.unpack_from("<HH", data, 6))
        elif data.startswith(b"BM"):
            header = _bmp(data)
        elif is_riff(data, b"WEBP"):
            header = _webp(data)
        else:
            raise _refused("It is no picture of a known format.", _HINT)
    except (struct.error, IndexError):
        raise _refused("The file ends too early.", "Send the whole file.") from None
    _check_size(header)
    return header


def _check_size(header: PictureHeader) -> None:
    width, height = header.width, header.height
    if not width or not height:
        raise _refused("It has no pixels.")
    if width * height > MAX_PIXELS:
        raise _refused(
            f"It has {width:,} x {height:,} pixels, over the limit of {MAX_PIXELS // 1_000_000} million.",
            "Scale it down; models see far fewer.",
        )
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise _refused(f"It is {width:,} x {height:,} pixels: too long and narrow.", f"Stay below {MAX_ASPECT}:1.")


def _png(data: bytes) -> PictureHeader:
    kind, width, height, depth, colours, _method, _filter, interlaced = struct.unpack_from(">4sIIBBBBB", data, 12)
    if kind != b"IHDR" or colours not in _PNG_CHANNELS or depth not in (1, 2, 4, 8, 16):
        raise _refused("Its PNG header makes no sense.", "Send the whole file.")
    header = PictureHeader(width, height)
    _check_size(header)
    bits = depth * _PNG_CHANNELS[colours]
    # An interlaced picture is stored as seven, each with rows of its own: at most 14 bytes a row and pass more.
    most_bytes = (width * bits + 7) // 8 * height + height
    if interlaced:
        most_bytes += 7 * (width + height) * 2 + 64
    if _inflated(data, most_bytes) > most_bytes:
        raise _refused("It holds more data than its size says.")
    return header


def _inflated(data: bytes, most_bytes: int) -> int:
    """Bytes its image data unpack to; stops above `most_bytes`."""
    inflater = zlib.decompressobj()
    total = 0
    try:
        for body in _png_data(data):
            rest = body
            while rest and not inflater.eof:
                total += len(inflater.decompress(rest, _STEP))
                if total > most_bytes:
                    return total
                rest = inflater.unconsumed_tail
    except zlib.error:
        raise _refused("Its data are damaged.", "Send the whole file.") from None
    return total


def _png_data(data: bytes) -> Iterator[bytes]:
    at = 8
    while at + 8 <= len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        if kind == b"IDAT":
            yield data[at + 8 : at + 8 + size]
        if kind == b"IEND":
            return
        at += 12 + size


def _jpeg(data: bytes) -> PictureHeader:
    at, orientation = 2, 1
    size_at = -1
    while size_at < 0:
        while data[at] == data[at + 1] == _JPEG_MARK:
            at += 1
        if data[at] != _JPEG_MARK:
            raise _refused("Its JPEG header is damaged.", "Send the whole file.")
        marker = data[at + 1]
        (size,) = struct.unpack_from(">H", data, at + 2)
        if size < 2:  # noqa: PLR2004 - its own length
            raise _refused("Its JPEG header is damaged.", "Send the whole file.")
        if marker == _JPEG_EXIF and data[at + 4 : at + 10] == b"Exif\0\0":
            orientation = _exif_orientation(data[at + 10 : at + 2 + size])
        if marker in _JPEG_SOF:
            size_at = at + 5
        if marker in (_JPEG_END, _JPEG_SCAN):
            raise _refused("It has no size.", "Send the whole file.")
        at += 2 + size
    # In scan data 0xFF is followed by 0 or a restart mark, so this finds starts of scans and little else.
    if data.count(b"\xff\xda", at) > MAX_SCANS:
        raise _refused(f"It has more than {MAX_SCANS} scans.", "Save it again as a plain JPEG.")
    height, width = struct.unpack_from(">HH", data, size_at)
    return PictureHeader(width, height, orientation)


def _exif_orientation(tiff: bytes) -> int:
    """Tag 0x0112 of the first directory; 1 where there is none or it makes no sense."""
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None:
        return 1
    try:
        (at,) = struct.unpack_from(order + "I", tiff, 4)
        (n_entries,) = struct.unpack_from(order + "H", tiff, at)
        for entry in range(n_entries):
            tag, _type, _count, value = struct.unpack_from(order + "HHIH", tiff, at + 2 + 12 * entry)
            if tag == _EXIF_ORIENTATION:
                return value if 1 <= value <= 8 else 1  # noqa: PLR2004 - EXIF's eight orientations
    except struct.error:
        pass
    return 1


def _bmp(data: bytes) -> PictureHeader:
    (header_size,) = struct.unpack_from("<I", data, 14)
    if header_size == 12:  # noqa: PLR2004 - BITMAPCOREHEADER
        return PictureHeader(*struct.unpack_from("<HH", data, 18))
    width, height = struct.unpack_from("<ii", data, 18)
    return PictureHeader(abs(width), abs(height))


def _webp(data: bytes) -> PictureHeader:
    try:
        width, height, exif = webp_size(data)
    except ValueError:
        raise _refused("Its WebP header makes no sense.", "Send the whole file.") from None
    return PictureHeader(width, height, _exif_orientation(exif), is_webp=True)


def _refused(sentence: str, hint: str = "") -> BadRequest:
    return BadRequest(f"A picture cannot be read. {sentence}", hint=hint, param="messages")


# --- sounds ---


def read_sound(data: bytes) -> bytes:
    """Check a sound's file; returns it as it is to be decoded.

    Raises:
        BadRequest: it is of no format that can be read, it is cut off, or too long.
    """
    try:
        if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
            seconds = _wav_s(data)
        elif data.startswith(b"fLaC"):
            seconds = _flac_s(data)
        else:
            data, seconds = _mp3(data)
    except (struct.error, IndexError):
        raise _unheard("The file ends too early.", "Send the whole file.") from None
    if seconds > MAX_SOUND_S:
        raise _unheard(f"It is {seconds / 60:.0f} minutes long, over the limit of {MAX_SOUND_S // 60}.", "Cut it.")
    return data


def _wav_s(data: bytes) -> float:
    at, byte_rate = 12, 0
    while at + 8 <= len(data):
        kind, size = struct.unpack_from("<4sI", data, at)
        if kind == b"fmt ":
            tag, channels, rate, byte_rate, _block, bits = struct.unpack_from("<HHIIHH", data, at + 8)
            if tag not in (1, 3, 6, 7, 0xFFFE) or not 1 <= channels <= 16 or not 1000 <= rate <= 768_000:  # noqa: PLR2004
                raise _unheard("It is a WAV of a kind that is not supported.", "Send 16-bit PCM.")
            if bits not in (8, 16, 24, 32, 64):
                raise _unheard("It is a WAV of a kind that is not supported.", "Send 16-bit PCM.")
            byte_rate = rate * channels * bits // 8
        if kind == b"data":
            if not byte_rate:
                break
            size = min(size, len(data) - at - 8)
            if size * 2 < byte_rate // 1000:
                raise _unheard("It holds no sound.")
            return float(size / byte_rate)
        at += 8 + size + size % 2
    raise _unheard("It holds no sound.", "Send the whole file.")


def _flac_s(data: bytes) -> float:
    """From STREAMINFO, which the decoder believes."""
    if data[4] & 0x7F:
        raise _unheard("Its FLAC header is damaged.", "Send the whole file.")
    (packed,) = struct.unpack_from(">Q", data, 18)
    rate, n_samples = packed >> 44, packed & ((1 << 36) - 1)
    if not rate or n_samples < 2:  # noqa: PLR2004 - fewer end llama.cpp's process
        raise _unheard("It does not say how long it is.", "Save it again as WAV.")
    return float(n_samples / rate)


_MP3_RATES_KBPS = {
    (3, 3): (0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (3, 2): (0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (3, 1): (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (2, 3): (0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (2, 2): (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (2, 1): (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_MP3_HZ = {3: (44100, 48000, 32000), 2: (22050, 24000, 16000), 0: (11025, 12000, 8000)}


def _mp3(data: bytes) -> tuple[bytes, float]:
    """The file without a tag that tells its length, and the length counted by its frames.

    The decoder would believe the tag, and make room for as much as it says.
    """
    at = 0
    if data.startswith(b"ID3"):
        size = data[6] << 21 | data[7] << 14 | data[8] << 7 | data[9]
        at = 10 + size
    seconds, n_frames = 0.0, 0
    first = -1
    while at + 4 <= len(data) and n_frames < _MAX_FRAMES:
        frame = _mp3_frame(data, at)
        if frame is None:
            at = data.find(b"\xff", at + 1)
            if at < 0:
                break
            continue
        if first < 0:
            first = at
        n_frames += 1
        seconds += frame[1]
        if seconds > MAX_SOUND_S:
            return data, seconds
        at += frame[0]
    if not n_frames:
        raise _unheard("It is no sound of a known format, or holds none.", "Send WAV, MP3 or FLAC.")
    head = data[first : first + 200]
    for tag in (b"Xing", b"Info", b"VBRI"):
        found = head.find(tag)
        if found >= 0:
            data = data[: first + found] + b"\0\0\0\0" + data[first + found + 4 :]
    return data, seconds


def _mp3_frame(data: bytes, at: int) -> tuple[int, float] | None:
    """Bytes and seconds of the frame that begins here, if one does."""
    if data[at] != 0xFF or data[at + 1] & 0xE0 != 0xE0:  # noqa: PLR2004 - the sync word
        return None
    version, layer = data[at + 1] >> 3 & 3, data[at + 1] >> 1 & 3
    rate_index, hz_index, padding = data[at + 2] >> 4, data[at + 2] >> 2 & 3, data[at + 2] >> 1 & 1
    if version == _MPEG_RESERVED or not layer or rate_index in (0, 15) or hz_index == 3:  # noqa: PLR2004 - reserved
        return None
    kbps = _MP3_RATES_KBPS[3 if version == _MPEG_1 else 2, layer][rate_index]
    hz = _MP3_HZ[version][hz_index]
    if layer == _LAYER_1:
        return (12 * kbps * 1000 // hz + padding) * 4, 384 / hz
    n_samples = 576 if layer == _LAYER_3 and version != _MPEG_1 else 1152
    return n_samples // 8 * kbps * 1000 // hz + padding, n_samples / hz


def _unheard(sentence: str, hint: str = "") -> BadRequest:
    return BadRequest(f"A sound cannot be read. {sentence}", hint=hint, param="messages")
