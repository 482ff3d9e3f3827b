"""Sounds in packed formats, made by the tests that need them."""

import struct

from tests.support.pictures import wav

_MP3_FRAME_BYTES = 417
"""128 kbit/s at 44.1 kHz (ISO 11172-3, 2.4.3.1)."""


def mp3(n_frames: int = 12) -> bytes:
    """Silence: frames without a bit set behind their heads."""
    return (b"\xff\xfb\x90\x00" + bytes(_MP3_FRAME_BYTES - 4)) * n_frames


def flac(n_samples: int = 1000) -> bytes:
    """A tone in mono, 16 kHz, its samples written out (RFC 9639: one frame, a verbatim subframe)."""
    body = wav(n_samples / 16_000)[44:]
    samples = struct.unpack(f"<{n_samples}h", body)
    packed = 16_000 << 44 | 0 << 41 | 15 << 36 | n_samples
    info = struct.pack(">HH", n_samples, n_samples) + bytes(6) + packed.to_bytes(8) + bytes(16)
    head = b"\xff\xf8\x75\x08\x00" + struct.pack(">H", n_samples - 1)
    frame = head + bytes([_crc(head, 8, 0x07)]) + b"\x02" + struct.pack(f">{n_samples}h", *samples)
    return b"fLaC" + b"\x80" + len(info).to_bytes(3) + info + frame + _crc(frame, 16, 0x8005).to_bytes(2)


def _crc(data: bytes, n_bits: int, polynomial: int) -> int:
    value, top, mask = 0, 1 << (n_bits - 1), (1 << n_bits) - 1
    for byte in data:
        value ^= byte << (n_bits - 8)
        for _ in range(8):
            value = (value << 1 ^ polynomial if value & top else value << 1) & mask
    return value
