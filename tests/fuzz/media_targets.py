"""Targets: files of pictures and sounds, through our own checks, libmtmd's decoders and a tiny projector.

They run in a process of their own (`media_child`): where it ends, a worker would have ended.
"""

import atexit
import json
import random
import struct
import subprocess
import sys
from functools import cache, partial

from PySide6.QtCore import QBuffer, QByteArray, QIODevice
from PySide6.QtGui import QImage, QImageWriter

from runtime.errors import BadRequest
from tests.fuzz.damage import damaged_bytes
from tests.fuzz.target import Target
from tests.support.pictures import bmp, gif, png, wav
from tests.support.sounds import flac, mp3

_HEAD = struct.Struct("<cI")


def targets() -> tuple[Target, ...]:
    """All of them."""
    return (
        Target("pictures", _picture, partial(_check, b"p"), (BadRequest,)),
        Target("sounds", _sound, partial(_check, b"s"), (BadRequest,)),
    )


class _Child:
    """The process, started when it is first needed and anew when it ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, kind: bytes, data: bytes) -> str:
        """What the worker says to a file; empty when it was read.

        Raises:
            AssertionError: the process ended.
        """
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(_HEAD.pack(kind, len(data)) + data)
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            code = process.wait()
            self.close()
            raise AssertionError(f"the worker ended with {code}")
        return str(json.loads(line))

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.media_child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            assert self._process.stdout is not None
            assert self._process.stdout.readline() == b'"ready"\n', "the child could not be started"
        return self._process

    def close(self) -> None:
        """End it."""
        process, self._process = self._process, None
        if process is not None:
            with process:
                if process.stdin is not None:
                    process.stdin.close()


_child = _Child()
atexit.register(_child.close)


def _check(kind: bytes, data: bytes, draw: random.Random) -> None:
    del draw
    if answer := _child.ask(kind, data):
        name, _, words = answer.partition(": ")
        assert name == "BadRequest", answer
        raise BadRequest(words)


@cache
def _written(kind: bytes, *, progressive: bool = False) -> bytes:
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    writer = QImageWriter(buffer, QByteArray(kind))
    writer.setProgressiveScanWrite(progressive)
    writer.write(QImage.fromData(QByteArray(png(50, 40))))
    return bytes(buffer.data().data())


def _picture(draw: random.Random) -> bytes:
    seeds = [png(64, 48), png(40, 30, depth=16, channels=4), bmp(30, 20), gif(16, 12)]
    seeds += [_written(b"jpeg"), _written(b"jpeg", progressive=True), _written(b"webp")]
    return _damaged(draw, draw.choice(seeds), seeds)


def _sound(draw: random.Random) -> bytes:
    seeds = [wav(0.3), wav(0.2, channels=2, hz=44_100), flac(), mp3()]
    return _damaged(draw, draw.choice(seeds), seeds)


def _damaged(draw: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """Half of the time only the beginning, where sizes stand."""
    if draw.random() < 0.5:
        return damaged_bytes(draw, data, others)
    raw = bytearray(data)
    for _ in range(draw.choice((1, 2, 6))):
        raw[draw.randrange(min(len(raw), 80))] = draw.choice((0, 1, 2, 0x7F, 0x80, 0xFF, draw.randrange(256)))
    return bytes(raw)
