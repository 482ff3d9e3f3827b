"""Files that promise too much, lie, or are cut off: refused before anything decodes them."""

import contextlib
import struct
import sys
import zlib

import pytest

from runtime.errors import BadRequest
from runtime.worker import media_files
from runtime.worker.media_files import PictureHeader, read_picture, read_sound
from runtime.worker.webp import webp_pixels
from tests.support.pictures import bmp, gif, png, png_file, wav


def jpeg_head(width: int, height: int, *, exif: bytes = b"", scans: int = 1) -> bytes:
    """A JPEG's headers; what follows is not looked at."""
    app1 = b"\xff\xe1" + struct.pack(">H", len(exif) + 8) + b"Exif\0\0" + exif if exif else b""
    frame = b"\xff\xc0" + struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9)
    return b"\xff\xd8\xff\xe0" + struct.pack(">H", 4) + b"JF" + app1 + frame + b"\xff\xda" * scans + bytes(20)


def orientation(value: int, order: str = "<") -> bytes:
    """An EXIF block with one entry."""
    mark = b"II*\0" if order == "<" else b"MM\0*"
    return mark + struct.pack(order + "IHHHIHH", 8, 1, 0x0112, 3, 1, value, 0)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (png(30, 20), (30, 20)),
        (png(30, 20, depth=16, channels=4), (30, 20)),
        (png(1, 1), (1, 1)),
        (bmp(7, 5), (7, 5)),
        (gif(9, 4), (9, 4)),
        (jpeg_head(640, 480), (640, 480)),
    ],
)
def test_when_a_picture_is_sound_then_its_size_is_known(data: bytes, expected: tuple[int, int]) -> None:
    header = read_picture(data)
    assert (header.width, header.height, header.orientation) == (*expected, 1)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("value", range(1, 9))
def test_when_a_camera_was_held_sideways_then_its_orientation_is_read(order: str, value: int) -> None:
    assert read_picture(jpeg_head(64, 48, exif=orientation(value, order))) == PictureHeader(64, 48, value)


@pytest.mark.parametrize("exif", [b"II*\0", b"II*\0\xff\xff\xff\x7f", b"xx", orientation(77), orientation(6)[:-6]])
def test_when_exif_makes_no_sense_then_the_picture_stays_as_it_is(exif: bytes) -> None:
    assert read_picture(jpeg_head(64, 48, exif=exif)).orientation == 1


BOMBS = {
    "pixels": (png_file(60_000, 60_000, b""), "million"),
    "jpeg pixels": (jpeg_head(65_000, 65_000), "million"),
    "gif pixels": (b"GIF89a" + struct.pack("<HH", 65_000, 65_000) + bytes(20), "million"),
    "bmp pixels": (b"BM" + bytes(12) + struct.pack("<Iii", 40, 100_000, -100_000), "million"),
    "more data than pixels": (png_file(10, 10, zlib.compress(bytes(50_000_000), 9)), "more data"),
    "scans": (jpeg_head(100, 100, scans=500), "scans"),
    "no pixels": (png_file(0, 10, b""), "no pixels"),
    "line": (png(900, 2), "narrow"),
    "webp without a size": (b"RIFF\x20\0\0\0WEBPVP8 " + bytes(20), "WebP header"),
    "webp of another kind": (b"RIFF\x20\0\0\0WEBPJUNK" + bytes(20), "WebP header"),
    "webp pixels": (b"RIFF\x20\0\0\0WEBPVP8X\x0a\0\0\0" + bytes(4) + b"\xff" * 6, "million"),
    "text": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "known format"),
    "nothing": (b"", "known format"),
    "damaged": (png_file(8, 8, b"not packed at all"), "damaged"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_when_a_picture_would_explode_or_is_none_then_it_is_refused_with_the_reason(name: str) -> None:
    data, reason = BOMBS[name]
    with pytest.raises(BadRequest, match=reason):
        read_picture(data)


def test_when_the_reader_of_webp_is_not_installed_then_the_refusal_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(BadRequest, match="lacks the reader") as caught:
        webp_pixels(b"", 1, 1)
    assert "make setup" in caught.value.hint


@pytest.mark.parametrize("data", [png(30, 20), bmp(7, 5), gif(9, 4), jpeg_head(64, 48, exif=orientation(3))])
def test_when_a_header_is_cut_anywhere_then_nothing_but_a_refusal_comes(data: bytes) -> None:
    for length in range(min(len(data), 120)):
        with contextlib.suppress(BadRequest):
            read_picture(data[:length])


def flac(seconds: float, hz: int = 16_000) -> bytes:
    """Only what comes before the sound."""
    packed = (hz << 44) | int(seconds * hz)
    return b"fLaC\x80\0\0\x22" + bytes(10) + struct.pack(">Q", packed) + bytes(16)


def mp3(n_frames: int, tag: bytes = b"") -> bytes:
    """Frames of 417 or 418 bytes, 26 ms each; the first may tell a length."""
    frame = b"\xff\xfb\x90\x00" + bytes(413)
    first = frame[:36] + tag + frame[36 + len(tag) :]
    return first + frame * (n_frames - 1)


def test_when_a_sound_is_short_then_it_is_passed_on() -> None:
    for data in (wav(1.0), wav(0.5, hz=44_100, channels=2), flac(10), mp3(30)):
        assert read_sound(data) == data


def test_when_an_mp3_tells_its_length_then_the_frames_are_counted_and_the_tag_is_taken_out() -> None:
    lie = b"Xing" + struct.pack(">II", 1, 2**31 - 1)
    cleaned = read_sound(mp3(40, lie))
    assert b"Xing" not in cleaned
    assert len(cleaned) == len(mp3(40))


SOUNDS = {
    "long flac": (flac(3 * 3600), "minutes"),
    "endless flac": (flac(0), "how long"),
    "long mp3": (mp3(80_000), "minutes"),
    "empty wav": (wav(0.0), "no sound"),
    "wav without data": (wav(1.0)[:36], "no sound"),
    "nothing": (b"", "known format"),
    "noise": (bytes(range(256)) * 4, "known format"),
}


@pytest.mark.parametrize("name", SOUNDS)
def test_when_a_sound_is_too_long_or_none_then_it_is_refused_with_the_reason(name: str) -> None:
    data, reason = SOUNDS[name]
    with pytest.raises(BadRequest, match=reason):
        read_sound(data)


def test_when_a_wav_is_longer_than_allowed_then_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media_files, "MAX_SOUND_S", 1)
    assert read_sound(wav(0.9))
    with pytest.raises(BadRequest, match="minutes long"):
        read_sound(wav(1.5))


@pytest.mark.parametrize("data", [wav(0.2), flac(10), mp3(3)])
def test_when_a_sound_is_cut_anywhere_then_nothing_but_a_refusal_comes(data: bytes) -> None:
    for length in range(min(len(data), 500)):
        with contextlib.suppress(BadRequest):
            read_sound(data[:length])
