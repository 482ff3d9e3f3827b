"""Frames: a 4-byte little-endian length, then that many bytes of msgpack.

One encoder and decoder for each direction; nothing is ever unpickled. `MAX_FRAME_BYTES` bounds what a peer can
make us hold.
"""

import asyncio
import contextlib
import socket
import struct
import threading

import msgspec

from runtime.errors import BadRequest, BugFault
from runtime.messages.ipc import FromWorker, ToWorker

MAX_FRAME_BYTES = 64 * 1024 * 1024
_LENGTH = struct.Struct("<I")

_encoder = msgspec.msgpack.Encoder()
_to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
_from_worker: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)


def encode_frame(message: ToWorker | FromWorker) -> bytes:
    """Encode with the length in front.

    Raises:
        BugFault: if the message is over `MAX_FRAME_BYTES`.
        BadRequest: if it holds a number of more than 64 bits.
    """
    try:
        body = _encoder.encode(message)
    except OverflowError:
        raise BadRequest("The request holds a whole number of more than 64 bits.", hint="Send a smaller one.") from None
    if len(body) > MAX_FRAME_BYTES:
        raise BugFault(f"A message of {len(body)} bytes is over the frame limit.", kind=type(message).__name__)
    return _LENGTH.pack(len(body)) + body


def decode_to_worker(body: bytes) -> ToWorker:
    """Decode what the host sent.

    Raises:
        msgspec.DecodeError: if the bytes are no such message.
    """
    return _to_worker.decode(body)


def decode_from_worker(body: bytes) -> FromWorker:
    """Decode what a worker sent.

    Raises:
        msgspec.DecodeError: if the bytes are no such message.
    """
    return _from_worker.decode(body)


def _checked_length(head: bytes) -> int:
    (length,) = _LENGTH.unpack(head)
    if length > MAX_FRAME_BYTES:
        raise BugFault(f"A frame announces {length} bytes, over the limit of {MAX_FRAME_BYTES}.")
    return int(length)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Read one frame's body.

    Raises:
        asyncio.IncompleteReadError: if the peer is gone.
        BugFault: if the announced length is over the limit.
    """
    return await reader.readexactly(_checked_length(await reader.readexactly(_LENGTH.size)))


class FrameSocket:
    """Blocking frames over a socket, for the worker. Reading: one thread. Writing: any thread (locked)."""

    def __init__(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):  # not a TCP socket
            # Small frames one after another would otherwise wait 40 ms for the peer's acknowledgement.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._file = sock.makefile("rb")
        self._write_lock = threading.Lock()

    def send(self, message: FromWorker) -> None:
        """Send one message.

        Raises:
            OSError: if the peer is gone.
        """
        frame = encode_frame(message)
        with self._write_lock:
            self._sock.sendall(frame)

    def receive(self) -> ToWorker | None:
        """The next message; `None` once the peer is gone.

        Raises:
            msgspec.DecodeError: if the frame holds no such message.
        """
        try:
            head = self._file.read(_LENGTH.size)
            if len(head) < _LENGTH.size:
                return None
            length = _checked_length(head)
            body = self._file.read(length)
        except OSError:
            return None
        return decode_to_worker(body) if len(body) == length else None

    def close(self) -> None:
        """Close; a reader blocked in `receive` gets `None`."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
