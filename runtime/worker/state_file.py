"""One prompt's state as a file: what it stands for, llama.cpp's bytes, and a checksum over both.

Layout, little-endian: `MAGIC`; length of the head (u32); the head (msgpack); the tokens (i64 each); the state; a
BLAKE2b digest of all before it. llama.cpp only checks sizes of what it is given, and would go on from damaged
numbers, so nothing is handed to it whose digest does not fit. Files are written beside their name and renamed; they
are not forced to the disk, since one that a power cut damaged is found out by its digest.
"""

import hashlib
import os
import struct
from array import array
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np

from runtime.unreadable import UNREADABLE

MAGIC = b"DSKSTAT1"
DIGEST_BYTES = 16
MAX_HEAD_BYTES = 4096
CHUNK_BYTES = 4 * 1024 * 1024
_LENGTH = struct.Struct("<I")
TOKEN_BYTES = 8


class Head(msgspec.Struct, frozen=True):
    """What is known of a state before it is read.

    Attributes:
        key: of the model and all parameters that decide what a state means.
        n_tokens: tokens, placeholders of pictures included.
        state_bytes: size of llama.cpp's part.
    """

    key: str
    n_tokens: int
    state_bytes: int

    @property
    def tokens_bytes(self) -> int:
        """Size of the tokens in the file."""
        return self.n_tokens * TOKEN_BYTES


class NotAStateError(Exception):
    """The file is damaged, or is none of ours."""


def packed(tokens: tuple[int, ...]) -> bytes:
    """Tokens as they are in the file, and as they are compared."""
    row = array("q", tokens)
    if row.itemsize != TOKEN_BYTES:
        raise NotAStateError("no 64-bit integers on this machine")
    return row.tobytes()


def unpacked(raw: bytes) -> tuple[int, ...]:
    """The tokens of `packed`."""
    row = array("q")
    row.frombytes(raw)
    return tuple(row)


def name_of(raw_tokens: bytes) -> str:
    """File name of the state of these tokens."""
    return hashlib.blake2b(raw_tokens, digest_size=16).hexdigest() + ".state"


def file_bytes(n_tokens: int, state_bytes: int, key: str) -> int:
    """Size of the file."""
    head = msgspec.msgpack.encode(Head(key, n_tokens, state_bytes))
    return len(MAGIC) + _LENGTH.size + len(head) + n_tokens * TOKEN_BYTES + state_bytes + DIGEST_BYTES


def write(path: Path, key: str, raw_tokens: bytes, state: memoryview) -> None:
    """Write a file whole or not at all; only its owner may read it.

    Raises:
        OSError: it could not be written; nothing is left of it.
    """
    head = msgspec.msgpack.encode(Head(key, len(raw_tokens) // TOKEN_BYTES, state.nbytes))
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    try:
        handle = os.open(part, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o600)
        with os.fdopen(handle, "wb", buffering=0) as file:
            for piece in (MAGIC, _LENGTH.pack(len(head)), head, raw_tokens, state):
                view = memoryview(piece)
                for start in range(0, len(view), CHUNK_BYTES):
                    chunk = view[start : start + CHUNK_BYTES]
                    digest.update(chunk)
                    _write_all(file, chunk)
            _write_all(file, memoryview(digest.digest()))
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _write_all(file: BinaryIO, chunk: memoryview) -> None:
    while chunk:
        chunk = chunk[file.write(chunk) :]


def read_head(path: Path, key: str) -> bytes:
    """The tokens of a file, as `packed`; its digest is not checked yet.

    Raises:
        NotAStateError: it is no state of this model, or its size is wrong.
        OSError: it cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        head = _head(file, key)
        return _exactly(file, head.tokens_bytes)


def read(path: Path, key: str, raw_tokens: bytes) -> memoryview:
    """The state in a file, checked.

    Raises:
        NotAStateError: it is damaged, or no state of this model and these tokens.
        OSError: it cannot be read.
    """
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    with path.open("rb", buffering=0) as file:
        head = _head(file, key)
        n_before = file.tell()
        file.seek(0)
        digest.update(_exactly(file, n_before))
        if _exactly(file, head.tokens_bytes) != raw_tokens:
            raise NotAStateError("it holds other tokens than before")
        digest.update(raw_tokens)
        state = np.empty(head.state_bytes, dtype=np.uint8).data
        for start in range(0, head.state_bytes, CHUNK_BYTES):
            chunk = state[start : start + CHUNK_BYTES]
            _fill(file, chunk)
            digest.update(chunk)
        if _exactly(file, DIGEST_BYTES) != digest.digest():
            raise NotAStateError("the checksum does not fit")
    return state.toreadonly()


def _head(file: BinaryIO, key: str) -> Head:
    start = _exactly(file, len(MAGIC) + _LENGTH.size)
    (n_head,) = _LENGTH.unpack(start[len(MAGIC) :])
    if not start.startswith(MAGIC) or n_head > MAX_HEAD_BYTES:
        raise NotAStateError("it does not begin like a state")
    try:
        head = msgspec.msgpack.decode(_exactly(file, n_head), type=Head)
    except UNREADABLE as error:
        raise NotAStateError(f"its head cannot be read: {error}") from error
    size = len(start) + n_head + head.tokens_bytes + head.state_bytes + DIGEST_BYTES
    if head.key != key or head.n_tokens < 1 or head.state_bytes < 1 or os.fstat(file.fileno()).st_size != size:
        raise NotAStateError("it is of another model, or not whole")
    return head


def _exactly(file: BinaryIO, size: int) -> bytes:
    found = bytearray(size)
    _fill(file, memoryview(found))
    return bytes(found)


def _fill(file: BinaryIO, chunk: memoryview) -> None:
    while chunk:
        n_read = file.readinto(chunk)  # type: ignore[attr-defined]
        if not n_read:
            raise NotAStateError("it ends too early")
        chunk = chunk[n_read:]
