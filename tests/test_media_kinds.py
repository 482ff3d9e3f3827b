"""Kinds of pictures by their first bytes."""

import pytest

from runtime.media_kinds import is_riff, picture_mime


@pytest.mark.parametrize(
    ("head", "mime"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF87a", "image/gif"),
        (b"GIF89a", "image/gif"),
        (b"BM6\x00", "image/bmp"),
        (b"RIFF\x10\x00\x00\x00WEBPVP8 ", "image/webp"),
        (b"RIFF\x10\x00\x00\x00WAVEfmt ", ""),
        (b"GIF88a", ""),
        (b"\x89PNG", ""),
        (b"", ""),
    ],
)
def test_when_a_file_begins_so_then_it_is_of_this_kind(head: bytes, mime: str) -> None:
    assert picture_mime(head) == mime


def test_when_a_container_is_of_another_kind_then_it_is_not_taken_for_it() -> None:
    assert is_riff(b"RIFF\x10\x00\x00\x00WAVEfmt ", b"WAVE")
    assert not is_riff(b"RIFF\x10\x00\x00\x00WEBPVP8 ", b"WAVE")
    assert not is_riff(b"RIFF", b"WAVE")
