import time

import pytest

from runtime.library.hub.readme import MAX_CHARS, description_of


def test_page_when_read_then_settings_pictures_and_html_are_gone() -> None:
    page = (
        "---\nlicense: mit\ntags:\n- x\n---\r\n<!-- hidden -->\n# Model\n\n<img src='https://x/y.png'>\n"
        "![logo](https://x/z.png)\n\n\n\nA **good** model, <b>fast</b>. [Paper](https://x)\n"
    )
    assert description_of(page) == "# Model\n\nA **good** model, fast. [Paper](https://x)"


def test_page_without_settings_when_read_then_it_stays() -> None:
    assert description_of("# Hi\ntext") == "# Hi\ntext"


def test_long_page_when_read_then_it_ends_at_a_line() -> None:
    found = description_of("word word word\n" * 2000)
    assert len(found) < MAX_CHARS + 5
    assert found.endswith("word\n\n…")


@pytest.mark.parametrize("piece", ["![", "[ ", "<a", "<!--", "\n", "![a](", "---\n", "[ ]("])
def test_page_made_to_be_slow_when_read_then_it_is_not(piece: str) -> None:
    begun_s = time.thread_time()
    description_of(piece * (32_768 // len(piece)))
    assert time.thread_time() - begun_s < 1.0
