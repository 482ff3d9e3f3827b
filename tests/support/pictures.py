"""Files of pictures and sounds, made by the tests that need them."""

import struct
import zlib

import numpy as np


def png(width: int, height: int, *, seed: int = 0, depth: int = 8, channels: int = 3) -> bytes:
    """Blocks of colour, another set for each seed."""
    generator = np.random.default_rng(seed)
    small = generator.integers(0, 256, (-(-height // 8), -(-width // 8), channels), dtype=np.uint8)
    pixels = np.kron(small, np.ones((8, 8, 1), dtype=np.uint8))[:height, :width]
    if depth == 16:
        pixels = np.repeat(pixels, 2, axis=2)
    return png_of(pixels.tobytes(), width, height, depth=depth, channels=channels)


def png_of(pixels: bytes, width: int, height: int, *, depth: int = 8, channels: int = 3) -> bytes:
    """A PNG of these bytes, row by row."""
    stride = width * channels * depth // 8
    rows = b"".join(b"\0" + pixels[row * stride : (row + 1) * stride] for row in range(height))
    return png_file(width, height, zlib.compress(rows, 6), depth=depth, channels=channels)


def png_file(width: int, height: int, packed: bytes, *, depth: int = 8, channels: int = 3) -> bytes:
    """A PNG of packed data, whatever those are."""
    colours = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    head = struct.pack(">IIBBBBB", width, height, depth, colours, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", packed) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def bmp(width: int, height: int) -> bytes:
    """A grey BMP."""
    stride = -(-width * 3 // 4) * 4
    body = b"\x80" * (stride * height)
    head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, len(body), 2835, 2835, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(body), 0, 0, 54) + head + body


def gif(width: int, height: int) -> bytes:
    """A black GIF."""
    head = b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(6)
    codes: list[int] = []
    for _ in range(width * height):
        codes += [4, 0]  # clear, then colour 0: no table has to grow
    codes.append(5)
    bits = "".join(f"{code:03b}"[::-1] for code in codes)
    packed = bytes(int(bits[at : at + 8][::-1], 2) for at in range(0, len(bits), 8))
    blocks = b"".join(bytes([len(packed[at : at + 255])]) + packed[at : at + 255] for at in range(0, len(packed), 255))
    return head + b"," + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\x02" + blocks + b"\0;"


def wav(seconds: float, *, hz: int = 16_000, tone_hz: float = 440.0, channels: int = 1) -> bytes:
    """A tone, 16-bit PCM."""
    times = np.arange(int(seconds * hz)) / hz
    tone = (np.sin(2 * np.pi * tone_hz * times) * 20_000).astype("<i2")
    body = np.repeat(tone, channels).tobytes()
    form = struct.pack("<HHIIHH", 1, channels, hz, hz * 2 * channels, 2 * channels, 16)
    size = 4 + 8 + len(form) + 8 + len(body)
    return (
        b"RIFF"
        + struct.pack("<I", size)
        + b"WAVEfmt "
        + struct.pack("<I", len(form))
        + form
        + b"data"
        + struct.pack("<I", len(body))
        + body
    )
