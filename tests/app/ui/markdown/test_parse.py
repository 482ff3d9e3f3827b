from hypothesis import given, settings
from hypothesis import strategies as st

from app.ui.markdown.blocks import Block, CodeBlock, MathBlock, RuleBlock, Run, TableBlock, TextBlock, plain_text
from app.ui.markdown.parse import mend, parse_segment, plain_blocks
from app.ui.markdown.segments import Segmenter


def blocks_of(text: str) -> list[Block]:
    segmenter = Segmenter()
    return [block for segment in segmenter.feed(text) + segmenter.finish() for block in parse_segment(segment)]


def texts(text: str) -> list[TextBlock]:
    return [block for block in blocks_of(text) if isinstance(block, TextBlock)]


def test_when_text_has_styles_then_runs_carry_them() -> None:
    (block,) = texts("a **b** *c* `d` ~~e~~ [f](https://g.example)")
    styled = [run for run in block.runs if run.text.strip() and run.text != "a "]
    assert styled == [
        Run("b", bold=True),
        Run("c", italic=True),
        Run("d", code=True),
        Run("e", strike=True),
        Run("f", href="https://g.example"),
    ]


def test_when_lists_are_nested_then_blocks_tell_their_place() -> None:
    found = [
        (block.place.path, block.place.marker, plain_text(block.runs)) for block in texts("- a\n  1. b\n  2. c\n- d")
    ]
    assert found == [("l", "•", "a"), ("ll", "1.", "b"), ("ll", "2.", "c"), ("l", "•", "d")]


def test_when_an_item_is_a_task_then_its_box_is_the_marker() -> None:
    found = [(block.place.marker, plain_text(block.runs)) for block in texts("- [ ] open\n- [x] done")]
    assert found == [("[ ]", "open"), ("[x]", "done")]


def test_when_a_list_is_numbered_from_five_then_markers_say_so() -> None:
    assert [block.place.marker for block in texts("5. a\n6. b")] == ["5.", "6."]


def test_when_there_is_a_table_then_cells_and_alignment_are_kept() -> None:
    (table,) = blocks_of("| a | b | c |\n|:--|:-:|--:|\n| 1 | **2** | 3 |")
    assert isinstance(table, TableBlock)
    assert table.aligns == ("left", "center", "right")
    assert [plain_text(cell) for cell in table.header] == ["a", "b", "c"]
    assert table.rows[0][1] == (Run("2", bold=True),)


def test_when_tex_is_written_in_either_way_then_it_is_a_formula() -> None:
    (block,) = texts(r"so \(a^2\) and $b$ hold")
    assert [run.tex for run in block.runs if run.tex] == ["a^2", "b"]
    assert blocks_of(r"\[ x \]") == [MathBlock("x")]
    assert blocks_of("$$\ny\n$$") == [MathBlock("y")]


def test_when_money_is_written_then_it_is_no_formula() -> None:
    (block,) = texts("It costs $5 or $6 today")
    assert plain_text(block.runs) == "It costs $5 or $6 today"
    assert not any(run.tex for run in block.runs)


def test_when_html_is_written_then_it_stays_text() -> None:
    (block,) = texts('<script>alert(1)</script> <img src="http://x.example/a.png">')
    assert plain_text(block.runs) == '<script>alert(1)</script> <img src="http://x.example/a.png">'


def test_when_an_image_is_written_then_it_is_only_a_link() -> None:
    (block,) = texts("![cat](http://x.example/cat.png)")
    assert block.runs == (Run("cat", href="http://x.example/cat.png"),)


def test_when_code_is_fenced_then_language_and_lines_are_kept() -> None:
    assert blocks_of("```Python title=x\na\n\n  b\n```") == [CodeBlock("a\n\n  b", "python")]


def test_when_a_rule_is_written_then_there_is_one() -> None:
    assert isinstance(blocks_of("a\n\n***\n\nb")[1], RuleBlock)


def test_when_an_address_is_bare_then_it_is_a_link_without_the_full_stop() -> None:
    (block,) = texts("See https://a.example/x.")
    assert [run.href for run in block.runs if run.href] == ["https://a.example/x"]


def test_when_the_end_is_half_written_then_it_is_mended() -> None:
    assert mend("a **b") == "a **b**"
    assert mend("a `b") == "a `b`"
    assert mend("a **b*") == "a **b**"
    assert mend("a ~~b") == "a ~~b~~"
    assert mend("see [x](http://y") == "see [x](http://y)"
    assert mend("a **") == "a "
    assert mend("done **b** `c`") == "done **b** `c`"


def test_when_a_person_types_markdown_then_it_is_shown_as_written() -> None:
    segmenter = Segmenter()
    (segment,) = segmenter.feed("**not bold**\n") + segmenter.finish()
    (block,) = plain_blocks(segment)
    assert isinstance(block, TextBlock)
    assert block.runs == (Run("**not bold**"),)


@given(st.text(alphabet="ab \n#>-*`|$\\[](){}1.!~_", max_size=200))
@settings(max_examples=200, deadline=None)
def test_when_text_is_anything_then_parsing_and_mending_never_fail(text: str) -> None:
    segmenter = Segmenter()
    for character in text:
        segmenter.feed(character)
        for segment in segmenter.pending():
            parse_segment(segment)
    for segment in segmenter.finish():
        parse_segment(segment)
