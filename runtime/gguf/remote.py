"""Headers of files that are elsewhere: bytes fetched by range as the reader asks for them."""

from collections.abc import Callable

from runtime.errors import ModelLoadFailed
from runtime.gguf.header import MAX_HEADER_BYTES, GgufHeader, read_header
from runtime.gguf.source import ByteSource
from runtime.units import format_bytes

FIRST_BYTES = 2 * 1024 * 1024
"""Headers with a small vocabulary fit in it; each further request asks for twice as much as the one before."""
MIN_FIRST_BYTES = 64 * 1024
FIRST_SHARE = 64
"""The first request takes no more than this part of the file, so that little of a small file is fetched for nothing."""
MAX_REQUEST_BYTES = 32 * 1024 * 1024

Fetch = Callable[[int, int], bytes]
"""`fetch(offset, n_bytes)`: exactly that many bytes from there."""


class RangeSource:
    """A file elsewhere, kept from its beginning as far as it was read.

    A reader walks a header from front to back, so what is here is one run of bytes from the start, and each request
    fetches what follows it. At most `MAX_HEADER_BYTES` are kept. Home thread: any, one at a time.
    """

    def __init__(self, name: str, size_bytes: int, fetch: Fetch, *, first_bytes: int = FIRST_BYTES) -> None:
        """Remember where to ask; nothing is fetched yet.

        Args:
            name: what to call the file in a message to a person.
            size_bytes: size of the whole file, as its server tells.
            fetch: gets bytes; it blocks, and what it raises comes out of `read_at`.
            first_bytes: how much the first request asks for, at most.
        """
        self._name = name
        self._size_bytes = size_bytes
        self._fetch = fetch
        self._next_bytes = max(min(first_bytes, max(size_bytes // FIRST_SHARE, MIN_FIRST_BYTES)), 1)
        self._kept = bytearray()

    @property
    def name(self) -> str:
        """The name given."""
        return self._name

    @property
    def size_bytes(self) -> int:
        """Size of the whole file."""
        return self._size_bytes

    @property
    def fetched_bytes(self) -> int:
        """How much was fetched so far."""
        return len(self._kept)

    def read_at(self, offset: int, n_bytes: int) -> bytes:
        """At least one and up to `n_bytes` from `offset`; none only at the end of the file.

        Bytes that are here cost no request, also if fewer than `n_bytes` of them are.

        Raises:
            ModelLoadFailed: if more than `MAX_HEADER_BYTES` would have to be kept.
            OSError: if a request brought another number of bytes than it asked for.
        """
        if n_bytes <= 0 or offset >= self._size_bytes:
            return b""
        while len(self._kept) <= offset:
            self._grow(offset + 1)
        with memoryview(self._kept) as view:
            return bytes(view[offset : offset + n_bytes])

    def _grow(self, end: int) -> None:
        start = len(self._kept)
        if end > MAX_HEADER_BYTES:
            raise ModelLoadFailed(
                f"{self._name} is damaged: its header is over {format_bytes(MAX_HEADER_BYTES)}.",
                hint="Choose another file.",
                reason="the header is too long",
            )
        wanted = min(
            max(self._next_bytes, min(end - start, MAX_REQUEST_BYTES)),
            self._size_bytes - start,
            MAX_HEADER_BYTES - start,
        )
        found = self._fetch(start, wanted)
        if len(found) != wanted:
            raise OSError(f"{self._name}: {wanted} bytes from {start} were asked for, {len(found)} came")
        self._kept += found
        self._next_bytes = min(self._next_bytes * 2, MAX_REQUEST_BYTES)


def read_remote_header(source: ByteSource) -> tuple[GgufHeader, bytes]:
    """Read a header and keep its bytes, up to where tensor data begins.

    The bytes are what `sparse.write_sparse` needs so that llama.cpp can measure the model.

    Raises:
        NotGguf, FileTruncated, ModelLoadFailed, OSError: as `read_header`, and what the source's `fetch` raises.
    """
    header = read_header(source)
    parts: list[bytes] = []
    offset = 0
    while offset < header.data_offset and (part := source.read_at(offset, header.data_offset - offset)):
        parts.append(part)
        offset += len(part)
    return header, b"".join(parts)
