"""Files as people bring them: kept as they are, scaled, turned the right way, or refused with the reason."""

import struct
import zlib
from pathlib import Path

import pytest
from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QSize
from PySide6.QtGui import QColor, QImage, QImageWriter

from app.store.records import MAX_ATTACHMENT_BYTES
from app.ui.attachments.prepare import (
    MAX_INPUT_BYTES,
    MAX_SIDE_PX,
    MAX_TEXT_BYTES,
    Refused,
    decode,
    prepare_bytes,
    prepare_file,
    prepare_image,
    prepare_tool_picture,
)


def image(width: int, height: int, colour: str = "#3366cc") -> QImage:
    made = QImage(width, height, QImage.Format.Format_RGB32)
    made.fill(QColor(colour))
    return made


def encoded(picture: QImage, kind: str = "png") -> bytes:
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    QImageWriter(buffer, QByteArray(kind.encode())).write(picture)
    return bytes(buffer.data().data())


def huge_png(width: int, height: int) -> bytes:
    """A few bytes that claim a picture of any size."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("kind", ["png", "jpeg"])
def test_when_a_picture_is_small_then_it_is_kept_byte_for_byte(kind: str) -> None:
    raw = encoded(image(640, 480), kind)
    made = prepare_bytes("cat", raw)
    one = made.attachment
    assert made.data == raw
    assert (one.kind, one.mime, one.name, one.size_bytes) == ("image", f"image/{kind}", "cat", len(raw))
    assert (one.width_px, one.height_px) == (640, 480)


@pytest.mark.parametrize("kind", ["webp", "bmp"])
def test_when_an_engine_cannot_read_the_format_then_it_becomes_one_it_can(kind: str) -> None:
    made = prepare_bytes(f"a.{kind}", encoded(image(64, 48), kind))
    assert made.attachment.mime == "image/png"
    assert made.data.startswith(b"\x89PNG")
    found = decode(made.data).pixelColor(10, 10)
    channels = (found.red(), found.green(), found.blue())
    assert all(abs(one - other) < 4 for one, other in zip(channels, (0x33, 0x66, 0xCC), strict=True))


def test_when_a_picture_is_large_then_it_is_scaled_and_keeps_its_shape() -> None:
    made = prepare_bytes("wide.jpg", encoded(image(6000, 3000), "jpeg"))
    assert (made.attachment.width_px, made.attachment.height_px) == (MAX_SIDE_PX, MAX_SIDE_PX // 2)
    assert decode(made.data).size() == QSize(MAX_SIDE_PX, MAX_SIDE_PX // 2)


def test_when_a_photo_lies_on_its_side_then_it_is_turned(tmp_path: Path) -> None:
    path = tmp_path / "turned.jpg"
    plain = encoded(image(400, 200), "jpeg")
    # One entry of Exif: orientation (0x0112), a short, one of them, 6: turn right.
    entry = b"II*\0" + struct.pack("<IHHHIHHI", 8, 1, 0x0112, 3, 1, 6, 0, 0)
    body = b"Exif\0\0" + entry
    path.write_bytes(plain[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + plain[2:])
    made = prepare_file(path)
    assert (made.attachment.width_px, made.attachment.height_px) == (200, 400)
    assert made.data != path.read_bytes()


def test_when_a_picture_is_pasted_then_a_screenshot_stays_exact_and_a_photo_becomes_small() -> None:
    shot = prepare_image(image(800, 600))
    assert shot.attachment.mime == "image/png"
    noise = QImage(bytes(range(256)) * 4 * 300, 320, 240, QImage.Format.Format_RGB32)
    rough = noise.scaled(1600, 1200)
    assert len(prepare_image(rough).data) <= len(encoded(rough, "png"))
    with pytest.raises(Refused):
        prepare_image(QImage())


@pytest.mark.parametrize(
    ("name", "raw", "why"),
    [
        ("bomb.png", huge_png(60_000, 60_000), "60000 x 60000"),
        ("broken.png", encoded(image(64, 64))[:60], "damaged"),
        ("empty.txt", b"", "empty"),
        ("blank.txt", b" \n ", "empty"),
        ("paper.pdf", b"%PDF-1.7 ...", "PDF"),
        ("tool.exe", b"MZ\x90\x00\x03\x00", "no picture, sound or text"),
        ("latin.txt", b"caf\xe9 \xff\xfe", "no picture, sound or text"),
        ("book.txt", b"a" * (MAX_TEXT_BYTES + 1), "too large"),
        ("film.bin", b"\0" * (MAX_INPUT_BYTES + 1), "too large"),
        ("long.wav", b"RIFF\0\0\0\0WAVE" + bytes(MAX_ATTACHMENT_BYTES), "too large"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_when_a_file_cannot_be_taken_then_the_reason_names_it(name: str, raw: bytes, why: str) -> None:
    with pytest.raises(Refused) as caught:
        prepare_bytes(name, raw)
    assert name in str(caught.value)
    assert why in str(caught.value)


def test_when_a_header_lies_then_nothing_is_decoded() -> None:
    assert decode(huge_png(60_000, 60_000)).isNull()
    assert decode(b"no picture").isNull()


@pytest.mark.parametrize(
    ("raw", "mime"),
    [
        (b"RIFF\x10\0\0\0WAVEfmt ", "audio/wav"),
        (b"fLaC\0\0\0\x22", "audio/flac"),
        (b"ID3\x04\0", "audio/mpeg"),
        (b"\xff\xfb\x90\x64", "audio/mpeg"),
    ],
)
def test_when_it_is_a_sound_then_it_is_kept_as_one(raw: bytes, mime: str) -> None:
    made = prepare_bytes("a", raw)
    assert (made.attachment.kind, made.attachment.mime, made.data) == ("audio", mime, raw)


def test_when_it_is_text_then_it_is_kept_as_utf_8() -> None:
    for raw in ("grüße\r\nzwei".encode(), b"\xef\xbb\xbf" + "grüße\nzwei".encode(), "grüße\nzwei".encode("utf-16")):
        made = prepare_bytes("notes.md", raw)
        assert (made.attachment.kind, made.data.decode()) == ("text", "grüße\nzwei")


def test_when_a_path_cannot_be_read_then_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="folder"):
        prepare_file(tmp_path)
    with pytest.raises(Refused, match=r"gone\.txt could not be read"):
        prepare_file(tmp_path / "gone.txt")


def test_when_a_tool_returns_a_picture_then_it_is_made_to_fit_or_refused_with_a_reason() -> None:
    raw = encoded(image(1600, 900))
    kept = prepare_tool_picture(raw, 0)
    assert (kept.data, kept.attachment.name, kept.attachment.width_px) == (raw, "", 1600)
    small = prepare_tool_picture(raw, 400 * 225).attachment
    assert (small.width_px, small.height_px) == (400, 225)
    assert prepare_tool_picture(encoded(image(90, 60), "webp"), 0).attachment.mime == "image/png"
    for raw, why in (
        (b"<svg/>", "kind"),
        (b"", "kind"),
        (b"\x89PNG\r\n\x1a\nx", "damaged"),
        (huge_png(9000, 9000), "million"),
    ):
        with pytest.raises(Refused, match=why):
            prepare_tool_picture(raw, 10_000)
