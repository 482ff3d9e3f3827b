"""WebP pictures: sizes read before anything is unpacked, pixels, and damage."""

import io
from typing import Any

import numpy as np
import pytest

from runtime.errors import BadRequest
from runtime.worker.media_files import read_picture
from runtime.worker.webp import webp_pixels, webp_size

Image: Any = pytest.importorskip("PIL.Image", reason="the environment was set up before Pillow was locked")

EXIF = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"
"""Orientation 6: a quarter turn."""


def made(width: int, height: int, **how: Any) -> bytes:
    pixels = np.zeros((height, width, 3), dtype=np.uint8)
    pixels[:, : width // 2, 0] = 250
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "WEBP", **how)
    return buffer.getvalue()


def read(data: bytes) -> None:
    header = read_picture(data)
    webp_pixels(data, header.width, header.height)


@pytest.mark.parametrize("how", [{"quality": 90}, {"lossless": True}, {"quality": 80, "exif": EXIF}])
def test_when_a_picture_is_sound_then_its_pixels_come_out(how: dict[str, Any]) -> None:
    data = made(64, 40, **how)
    header = read_picture(data)
    assert (header.width, header.height, header.is_webp) == (64, 40, True)
    assert header.orientation == (6 if "exif" in how else 1)
    pixels = webp_pixels(data, 64, 40)
    assert pixels.shape == (40, 64, 3)
    assert pixels[20, 5, 0] > 200
    assert pixels[20, 60, 0] < 50


def test_when_it_moves_then_the_first_picture_counts() -> None:
    frames = [Image.new("RGB", (40, 30), (index * 9 % 256, 0, 99)) for index in range(50)]
    buffer = io.BytesIO()
    frames[0].save(buffer, "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    assert webp_size(buffer.getvalue())[:2] == (40, 30)
    assert webp_pixels(buffer.getvalue(), 40, 30)[0, 0].tolist() == [0, 0, 99]


def test_when_parts_show_through_then_it_is_read_as_other_formats_are() -> None:
    buffer = io.BytesIO()
    Image.new("RGBA", (20, 10), (200, 100, 50, 0)).save(buffer, "WEBP", lossless=True, exact=True)
    assert webp_pixels(buffer.getvalue(), 20, 10)[0, 0].tolist() == [200, 100, 50]


@pytest.mark.parametrize("lossless", [True, False])
def test_when_cut_anywhere_then_nothing_but_a_refusal_comes(lossless: bool) -> None:
    data = made(64, 40, lossless=lossless)
    for size in range(12, len(data) - 2, 7):
        with pytest.raises(BadRequest):
            read(data[:size])


def test_when_the_picture_is_larger_than_the_canvas_says_then_the_larger_size_counts() -> None:
    inner = made(300, 200, lossless=True)[12:]
    canvas = b"VP8X\x0a\0\0\0" + bytes(4) + (9).to_bytes(3, "little") * 2
    body = b"WEBP" + canvas + inner
    data = b"RIFF" + len(body).to_bytes(4, "little") + body
    assert webp_size(data)[:2] == (300, 200)
    with pytest.raises(BadRequest, match="damaged"):
        webp_pixels(made(300, 200), 10, 10)
