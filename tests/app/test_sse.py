"""Every split of a stream gives the same events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.sse import EventTooLong, SseParser

SAMPLE = (
    b'\xef\xbb\xbf: hello\n\ndata: {"a":1}\n\nevent: x\ndata:no space\n\n'
    b"data: two\r\ndata: lines\r\n\r\nid: 3\rdata: cr\r\rdata: last\n\n"
)
EVENTS = [b'{"a":1}', b"no space", b"two\nlines", b"cr", b"last"]


def test_when_fed_whole_then_all_events_come() -> None:
    assert SseParser().feed(SAMPLE) == EVENTS


@pytest.mark.parametrize("at", range(len(SAMPLE)))
def test_when_split_in_two_then_the_same_events_come(at: int) -> None:
    parser = SseParser()
    assert parser.feed(SAMPLE[:at]) + parser.feed(SAMPLE[at:]) == EVENTS


@given(st.lists(st.integers(min_value=1, max_value=9)))
def test_when_split_anywhere_then_the_same_events_come(sizes: list[int]) -> None:
    parser = SseParser()
    found, rest = [], SAMPLE
    for size in sizes:
        found += parser.feed(rest[:size])
        rest = rest[size:]
    assert found + parser.feed(rest) == EVENTS


@given(st.binary(max_size=400))
def test_when_fed_garbage_then_it_never_fails(raw: bytes) -> None:
    parser = SseParser()
    parser.feed(raw)
    assert parser.feed(b"\n\ndata: x\n\n")[-1] == b"x"


def test_when_an_event_never_ends_then_it_is_refused() -> None:
    parser = SseParser(max_event_bytes=100)
    parser.feed(b"data: " + b"x" * 90)
    with pytest.raises(EventTooLong):
        parser.feed(b"x" * 90)


def test_when_an_event_has_too_many_lines_then_it_is_refused() -> None:
    parser = SseParser(max_event_bytes=100)
    with pytest.raises(EventTooLong):
        parser.feed(b"data: 0123456789\n" * 20)


def test_when_a_line_end_is_cut_with_an_empty_read_between_then_no_event_ends_early() -> None:
    parser = SseParser()
    found = [event for piece in (b"data: one\r", b"", b"\ndata: two\r", b"", b"\n\r\n") for event in parser.feed(piece)]
    assert found == [b"one\ntwo"]
