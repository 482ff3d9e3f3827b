from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from app.ui.markdown.segments import MAX_SEGMENT_CHARS, MAX_TABLE_ROWS, Segment, Segmenter
from tests.fakes.streaming_host import SHAPES, long_text

TEXT = (
    "# Title\nA line\n\n- one\n- two\n\n  still two\n\n```python\nx = 1\n\n# no title\n```\nafter\n\n"
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n$$\nx^2\n$$\n\n> quote\n\n1. a\n2. b\n\n---\nend"
)


def segments_of(*chunks: str) -> list[Segment]:
    segmenter = Segmenter()
    done: list[Segment] = []
    for chunk in chunks:
        done += segmenter.feed(chunk)
        segmenter.pending()
    return done + segmenter.finish()


def test_when_text_is_fed_whole_then_each_top_level_block_is_a_segment() -> None:
    kinds = [segment.kind for segment in segments_of(TEXT)]
    assert kinds == ["text", "text", "list", "fence", "text", "table", "math", "quote", "list", "text", "text"]


def test_when_a_fence_holds_blank_lines_then_it_stays_whole() -> None:
    fence = next(segment for segment in segments_of(TEXT) if segment.kind == "fence")
    assert (fence.text, fence.info) == ("x = 1\n\n# no title", "python")


@given(st.lists(st.integers(0, len(TEXT)), max_size=30))
@settings(max_examples=60, deadline=None)
def test_when_text_is_fed_in_any_pieces_then_the_segments_are_the_same(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(TEXT)]
    pieces = [TEXT[low:high] for low, high in pairwise(edges)]
    assert segments_of(*pieces) == segments_of(TEXT)


def test_when_any_shape_grows_without_end_then_no_open_segment_grows_with_it() -> None:
    for shape in SHAPES:
        if shape == "code":
            continue  # code grows by lines, drawn only where it is seen
        segmenter = Segmenter()
        longest = 0
        text = long_text(shape, 6_000)
        for at in range(0, len(text), 64):
            segmenter.feed(text[at : at + 64])
            longest = max(longest, sum(len(segment.text) for segment in segmenter.pending()))
        assert longest <= 2 * MAX_SEGMENT_CHARS + 256, shape


def test_when_text_is_cut_then_nothing_of_it_is_lost() -> None:
    text = long_text("paragraph", 4_000)
    assert "".join(segment.text for segment in segments_of(text)) == text


def test_when_a_table_is_long_then_its_pieces_know_the_header() -> None:
    pieces = segments_of("| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * (MAX_TABLE_ROWS * 2 + 5))
    assert [piece.kind for piece in pieces] == ["table"] * 3
    assert [piece.header for piece in pieces] == ["", "| a | b |\n|---|---|", "| a | b |\n|---|---|"]
    assert [piece.continues for piece in pieces] == [False, True, True]


def test_when_a_dollar_pair_opens_a_formula_in_a_sentence_then_it_is_no_display_formula() -> None:
    assert [segment.kind for segment in segments_of("$$a$$ is inline here")] == ["text"]
