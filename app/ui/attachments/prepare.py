"""What a person brings, made into an attachment: checked before it is decoded, scaled to what models look at.

Everything here may take long (a large photo: a second) and runs on a lane.
"""

import hashlib
import math
from dataclasses import dataclass, replace
from pathlib import Path

from PySide6.QtCore import QBuffer, QByteArray, QCoreApplication, QIODevice, QSize, Qt
from PySide6.QtGui import QImage, QImageIOHandler, QImageReader, QImageWriter

from app.store.records import MAX_ATTACHMENT_BYTES, Attachment, AttachmentKind
from runtime.media_kinds import is_riff, picture_mime

MAX_INPUT_BYTES = 64 * 1024 * 1024
"""Largest file that is read at all."""

MAX_PIXELS = 64_000_000
"""Largest picture that is decoded: 256 MB in memory, which is also Qt's own limit. Told by the header alone."""

MAX_SIDE_PX = 2048
"""Long side of a picture as it is kept and sent. Vision models look at 300 to 1,600 pixels a side, or at tiles of
them; more costs tokens and memory and shows them nothing."""

MAX_TEXT_BYTES = 2 * 1024 * 1024
"""Largest text file: far beyond any model's context."""

JPEG_QUALITY = 92


class Refused(Exception):
    """The file cannot be attached; the text says why, for a person."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """An attachment and its bytes."""

    attachment: Attachment
    data: bytes


def tr(text: str) -> str:
    """Translate in this module's context."""
    return QCoreApplication.translate("Prepare", text)


def prepare_file(path: Path) -> Prepared:
    """Read and prepare a file.

    Raises:
        Refused: it cannot be read, is too large, or is of a kind no model takes.
    """
    name = path.name
    try:
        if path.is_dir():
            raise Refused(tr("{name} is a folder. Drop the files in it instead.").format(name=name))
        size_bytes = path.stat().st_size
        if size_bytes > MAX_INPUT_BYTES:
            raise Refused(_too_large(name, MAX_INPUT_BYTES))
        with path.open("rb") as file:
            raw = file.read(MAX_INPUT_BYTES + 1)
    except OSError as error:
        raise Refused(
            tr("{name} could not be read: {why}.").format(name=name, why=error.strerror or str(error))
        ) from error
    return prepare_bytes(name, raw)


def prepare_bytes(name: str, raw: bytes) -> Prepared:
    """Prepare a file's bytes.

    Raises:
        Refused: as `prepare_file`.
    """
    if not raw:
        raise Refused(tr("{name} is empty.").format(name=name))
    if len(raw) > MAX_INPUT_BYTES:
        raise Refused(_too_large(name, MAX_INPUT_BYTES))
    if picture_format(raw):
        return _picture(name, raw)
    sound = _sound_mime(raw)
    if sound:
        return _kept(name, "audio", sound, raw)
    return _text(name, raw)


def prepare_image(image: QImage) -> Prepared:
    """Prepare a picture from the clipboard.

    Raises:
        Refused: it is empty or too large.
    """
    if image.isNull():
        raise Refused(tr("The clipboard holds no picture that can be read."))
    if image.width() * image.height() > MAX_PIXELS:
        raise Refused(_too_many_pixels(tr("The picture"), image.size()))
    return _encoded("", _scaled(image))


def prepare_tool_picture(raw: bytes, max_pixels: int) -> Prepared:
    """Prepare a picture that a tool returned; `max_pixels` is its largest width times height, 0 for no bound.

    Raises:
        Refused: it is no picture of a known format, damaged, or too large to be decoded.
    """
    name = tr("A picture of the tool")
    if not picture_format(raw):
        raise Refused(tr("{name} was left out: it is of a kind that is not shown here.").format(name=name))
    made = _picture(name, raw, max_pixels)
    return Prepared(replace(made.attachment, name=""), made.data)


def picture_format(raw: bytes) -> str:
    """Format of a picture, as Qt calls it, by its first bytes; empty for what is none."""
    return picture_mime(raw).removeprefix("image/")


def decode(raw: bytes, within: QSize | None = None) -> QImage:
    """Decode a picture turned the right way, no larger than `within`; a null image if it cannot be decoded.

    The size in its header is checked first: a few bytes can claim gigabytes.
    """
    buffer = _buffer(raw)
    reader = QImageReader(buffer, QByteArray(picture_format(raw).encode()))
    reader.setAutoTransform(True)
    size = reader.size()
    if not size.isValid() or size.width() * size.height() > MAX_PIXELS:
        return QImage()
    if within is not None:
        box = within.transposed() if _is_turned(reader) else within
        if size.width() > box.width() or size.height() > box.height():
            reader.setScaledSize(size.scaled(box, Qt.AspectRatioMode.KeepAspectRatio).expandedTo(QSize(1, 1)))
    return reader.read()


def _buffer(raw: bytes) -> QBuffer:
    """A device over a copy of the bytes, which it owns (one made of a `QByteArray` only points to it)."""
    buffer = QBuffer()
    buffer.setData(QByteArray(raw))
    buffer.open(QIODevice.OpenModeFlag.ReadOnly)
    return buffer


def _is_turned(reader: QImageReader) -> bool:
    return bool(reader.transformation() & QImageIOHandler.Transformation.TransformationRotate90)


def _picture(name: str, raw: bytes, max_pixels: int = 0) -> Prepared:
    kind = picture_format(raw)
    buffer = _buffer(raw)
    reader = QImageReader(buffer, QByteArray(kind.encode()))
    size = reader.size()
    if size.isValid() and size.width() * size.height() > MAX_PIXELS:
        raise Refused(_too_many_pixels(name, size))
    is_upright = reader.transformation() == QImageIOHandler.Transformation.TransformationNone
    box = QSize(MAX_SIDE_PX, MAX_SIDE_PX)
    n_pixels = size.width() * size.height()
    shrinks = 0 < max_pixels < n_pixels
    if shrinks:
        scale = math.sqrt(max_pixels / n_pixels)
        long = max(size.width(), size.height())
        box = box.boundedTo(QSize(int(long * scale), int(long * scale)))
    image = decode(raw, box)
    if image.isNull():
        raise Refused(tr("{name} is no picture that can be read, or it is damaged.").format(name=name))
    fits = not shrinks and max(size.width(), size.height()) <= MAX_SIDE_PX and len(raw) <= MAX_ATTACHMENT_BYTES
    if kind in ("png", "jpeg") and is_upright and fits:
        return _kept(name, "image", f"image/{kind}", raw, image.size())
    return _encoded(name, image)


def _scaled(image: QImage) -> QImage:
    if max(image.width(), image.height()) <= MAX_SIDE_PX:
        return image
    return image.scaled(
        MAX_SIDE_PX,
        MAX_SIDE_PX,
        Qt.AspectRatioMode.KeepAspectRatio,
        Qt.TransformationMode.SmoothTransformation,
    )


def _encoded(name: str, image: QImage) -> Prepared:
    """As PNG, which keeps screenshots sharp, or as JPEG where that is far smaller: a photo."""
    png = _written(image, "PNG", -1)
    if not image.hasAlphaChannel() or len(png) > MAX_ATTACHMENT_BYTES:
        jpeg = _written(image.convertToFormat(QImage.Format.Format_RGB888), "JPEG", JPEG_QUALITY)
        if len(jpeg) * 3 < len(png) or len(png) > MAX_ATTACHMENT_BYTES:
            return _kept(name, "image", "image/jpeg", jpeg, image.size())
    return _kept(name, "image", "image/png", png, image.size())


def _written(image: QImage, kind: str, quality: int) -> bytes:
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    writer = QImageWriter(buffer, QByteArray(kind.encode()))
    writer.setQuality(quality)
    writer.write(image)
    return bytes(buffer.data().data())


def _sound_mime(raw: bytes) -> str:
    if is_riff(raw, b"WAVE"):
        return "audio/wav"
    if raw.startswith(b"fLaC"):
        return "audio/flac"
    # MP3 begins with a tag, or at once with a frame: eleven bits that are set, a version, and layer III (ISO 11172-3).
    if raw.startswith(b"ID3") or (raw[0] == 0xFF and len(raw) > 1 and raw[1] & 0xE6 == 0xE2):  # noqa: PLR2004
        return "audio/mpeg"
    return ""


def _text(name: str, raw: bytes) -> Prepared:
    if raw.startswith(b"%PDF"):
        raise Refused(tr("{name} is a PDF file, which cannot be read yet. Paste its text instead.").format(name=name))
    text = _decoded_text(raw)
    if text is None:
        raise Refused(
            tr("{name} is no picture, sound or text. Pictures (PNG, JPEG, WebP, GIF, BMP), sounds (WAV, MP3, "
               "FLAC) and text files can be attached.").format(name=name)
        )  # fmt: skip
    data = text.encode()
    if len(data) > MAX_TEXT_BYTES:
        raise Refused(_too_large(name, MAX_TEXT_BYTES))
    if not text.strip():
        raise Refused(tr("{name} is empty.").format(name=name))
    return _kept(name, "text", "text/plain", data)


def _decoded_text(raw: bytes) -> str | None:
    encoding = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text.replace("\r\n", "\n")


def _kept(name: str, kind: AttachmentKind, mime: str, data: bytes, size: QSize | None = None) -> Prepared:
    if len(data) > MAX_ATTACHMENT_BYTES:
        raise Refused(_too_large(name, MAX_ATTACHMENT_BYTES))
    return Prepared(
        Attachment(
            sha256=hashlib.sha256(data).hexdigest(),
            kind=kind,
            mime=mime,
            name=name,
            size_bytes=len(data),
            width_px=size.width() if size else 0,
            height_px=size.height() if size else 0,
        ),
        data,
    )


def _too_large(name: str, limit_bytes: int) -> str:
    return tr("{name} is too large: at most {limit} MiB.").format(name=name, limit=limit_bytes // 2**20)


def _too_many_pixels(name: str, size: QSize) -> str:
    text = tr("{name} is too large: {width} x {height} pixels; at most {limit} million are read.")
    return text.format(name=name, width=size.width(), height=size.height(), limit=MAX_PIXELS // 1_000_000)
