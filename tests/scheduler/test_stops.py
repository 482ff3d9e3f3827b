import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.scheduler.stops import TextOut

SAMPLES = [
    ("Hello, world", ("wor",), "Hello, ", "wor"),
    ("Hello, world", ("xyz",), "Hello, world", ""),
    ("aaab", ("aab",), "a", "aab"),
    ("ababac", ("abac",), "ab", "abac"),
    ("über 🦊 fuchs", ("🦊",), "über ", "🦊"),
    ("über 🦊 fuchs", ("🐻",), "über 🦊 fuchs", ""),
    ("one\n\ntwo", ("\n\n", "\ntwo"), "one", "\n\n"),
    ("<|im_e", ("<|im_end|>",), "<|im_e", ""),
    ("stop", ("stop",), "", "stop"),
]


def run(pieces: list[bytes], stops: tuple[str, ...]) -> tuple[str, str]:
    out = TextOut(stops)
    text = ""
    for piece in pieces:
        text += out.feed(piece)
        if out.stop_string:
            return text, out.stop_string
    return text + out.flush(), ""


@pytest.mark.parametrize(("text", "stops", "expected", "stop"), SAMPLES)
def test_when_text_is_cut_at_every_pair_of_places_then_the_result_is_the_same(
    text: str, stops: tuple[str, ...], expected: str, stop: str
) -> None:
    raw = text.encode()
    for first in range(len(raw) + 1):
        for second in range(first, len(raw) + 1):
            assert run([raw[:first], raw[first:second], raw[second:]], stops) == (expected, stop)
    assert run([bytes([byte]) for byte in raw], stops) == (expected, stop)


@given(st.text(alphabet="ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.data())
def test_when_stops_overlap_then_nothing_of_them_and_nothing_after_them_comes_out(
    text: str, stops: list[str], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    borders = [0, *cuts, len(text)]
    pieces = [text[left:right].encode() for left, right in itertools.pairwise(borders)]
    got, stop = run(pieces, tuple(stops))
    if stop:
        assert text.startswith(got + stop)
    else:
        assert got == text
    assert not any(other in got for other in stops)


@given(st.text(max_size=20), st.data())
def test_when_characters_are_split_then_only_whole_ones_come_out(text: str, data: st.DataObject) -> None:
    raw = text.encode("utf-8", "replace")
    out = TextOut()
    got = ""
    at = 0
    while at < len(raw):
        size = data.draw(st.integers(1, 3))
        part = out.feed(raw[at : at + size])
        assert "\ufffd" not in part or "\ufffd" in text
        got += part
        at += size
    assert got == raw.decode()


def test_when_bytes_are_no_utf8_then_they_become_the_replacement_character() -> None:
    assert run([b"a\xff", b"b"], ()) == ("a\ufffdb", "")


def test_when_generation_ends_inside_a_character_then_it_is_left_out() -> None:
    assert run([b"a", "🦊".encode()[:2]], ()) == ("a", "")


def test_when_the_beginning_of_a_stop_is_held_back_then_it_comes_out_once_it_is_none() -> None:
    out = TextOut(("END",))
    assert [out.feed(b"xE"), out.feed(b"N"), out.feed(b"d")] == ["x", "", "ENd"]
