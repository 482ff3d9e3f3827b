"""What kind of picture a file is, by its first bytes, and how large one for a model may be."""

MAX_PIXELS = 50_000_000
"""Of a picture for a model: what telephones make. Decoding takes some six bytes for each, for a moment."""

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
)
"""Signatures as the formats' specifications give them; that of WebP has a size in its midst."""

_RIFF_KIND = slice(8, 12)


def picture_mime(data: bytes) -> str:
    """Media type of a picture; empty for what is none of a known format."""
    if is_riff(data, b"WEBP"):
        return "image/webp"
    return next((mime for magic, mime in _MAGIC if data.startswith(magic)), "")


def is_riff(data: bytes, kind: bytes) -> bool:
    """Whether a file is a RIFF container of this kind (four bytes, as in `WAVE`)."""
    return data[:4] == b"RIFF" and data[_RIFF_KIND] == kind
