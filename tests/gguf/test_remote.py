import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import ModelLoadFailed, NotGguf
from runtime.gguf import remote
from runtime.gguf.header import read_header
from runtime.gguf.remote import RangeSource, read_remote_header
from runtime.gguf.source import FileSource, MemorySource
from runtime.library.starter import find_starter
from tests.support.gguf_files import ARRAY, STRING, pack_entry, pack_header, pack_string


class Server:
    """Bytes elsewhere; remembers what it was asked for."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.asked: list[tuple[int, int]] = []

    def fetch(self, offset: int, n_bytes: int) -> bytes:
        self.asked.append((offset, n_bytes))
        return self.data[offset : offset + n_bytes]

    def source(self, first_bytes: int = remote.FIRST_BYTES) -> RangeSource:
        return RangeSource("there.gguf", len(self.data), self.fetch, first_bytes=first_bytes)


def test_starter_when_read_by_ranges_then_header_is_the_same_and_little_was_fetched() -> None:
    path = find_starter()
    assert path is not None
    server = Server(path.read_bytes())
    source = server.source()
    header, head = read_remote_header(source)
    with FileSource(path) as local:
        assert header == read_header(local)
    assert head == server.data[: header.data_offset]
    assert source.fetched_bytes < len(server.data) / 10
    assert sum(n_bytes for _, n_bytes in server.asked) == source.fetched_bytes


def test_requests_when_a_header_is_long_then_follow_one_another_and_double() -> None:
    texts = b"".join(pack_string("x" * 60) for _ in range(20_000))
    data = pack_header([pack_entry("tokens", ARRAY, struct.pack("<IQ", STRING, 20_000) + texts)]) + b"\0" * 30_000_000
    server = Server(data)
    read_remote_header(server.source(first_bytes=100_000))
    assert server.asked == [(0, 100_000), (100_000, 200_000), (300_000, 400_000), (700_000, 800_000)]


def test_first_request_for_a_small_file_when_sent_then_asks_for_a_small_part() -> None:
    server = Server(pack_header([]) + b"\0" * 10_000_000)
    read_remote_header(server.source())
    assert server.asked == [(0, len(server.data) // remote.FIRST_SHARE)]


@given(st.integers(1, 5000), st.binary(max_size=300))
def test_header_in_pieces_of_any_size_when_read_then_is_as_from_memory(first_bytes: int, noise: bytes) -> None:
    data = pack_header([pack_entry("a", STRING, pack_string("b" * 3000)), pack_entry("c", STRING, pack_string("d"))])
    server = Server(data + noise)
    assert read_remote_header(server.source(first_bytes))[0] == read_header(MemorySource(server.data))


def test_bytes_that_are_here_when_asked_for_again_then_are_not_fetched_again() -> None:
    server = Server(b"x" * 1000)
    source = server.source(first_bytes=400)
    assert source.read_at(0, 10) == b"x" * 10
    assert source.read_at(390, 600) == b"x" * 10
    assert source.read_at(400, 10) == b"x" * 10
    assert source.read_at(1000, 10) == b""
    assert server.asked == [(0, 400), (400, 600)]


def test_page_in_place_of_the_file_when_read_then_is_not_gguf() -> None:
    with pytest.raises(NotGguf, match=r"there\.gguf"):
        read_remote_header(Server(b"<html>Sign in</html>" * 100).source())


def test_server_that_sends_less_than_asked_when_read_then_is_an_error_of_the_connection() -> None:
    source = RangeSource("there.gguf", 10_000, lambda _offset, n_bytes: b"\0" * (n_bytes - 1))
    with pytest.raises(OSError, match="were asked for"):
        source.read_at(0, 8)


def test_header_without_end_when_read_then_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "MAX_HEADER_BYTES", 5000)
    source = RangeSource("there.gguf", 1 << 40, lambda _offset, n_bytes: b"\0" * n_bytes, first_bytes=4096)
    assert len(source.read_at(4999, 10)) == 1
    with pytest.raises(ModelLoadFailed, match="header is over"):
        source.read_at(5000, 1)
    assert source.fetched_bytes == 5000


def test_error_of_a_request_when_raised_then_comes_out_as_it_is(tmp_path: Path) -> None:
    def fail(_offset: int, _n_bytes: int) -> bytes:
        raise TimeoutError(str(tmp_path))

    with pytest.raises(TimeoutError):
        read_remote_header(RangeSource("there.gguf", 10_000, fail))
