import io

import pytest

from runtime.cli import chat
from runtime.errors import BadRequest


def test_when_text_is_piped_then_it_is_taken_without_its_mark_and_edges() -> None:
    assert chat.read_piped(io.BytesIO(b"\xef\xbb\xbf one\ntwo \n")) == "one\ntwo"


def test_when_the_pipe_is_not_text_then_it_is_replaced_not_refused() -> None:
    assert chat.read_piped(io.BytesIO(b"a\xff\xfeb")) == "a\ufffd\ufffdb"


def test_when_the_pipe_never_ends_then_it_is_refused_before_memory_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "MAX_PIPED_BYTES", 10)
    assert chat.read_piped(io.BytesIO(b"x" * 10)) == "x" * 10
    with pytest.raises(BadRequest):
        chat.read_piped(io.BytesIO(b"x" * 11))
